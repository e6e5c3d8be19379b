"""Conversations through `openai`: whole, streamed, and by AsyncOpenAI; completions by text and ids."""
import asyncio
import json
import sys

import openai

given = json.load(sys.stdin)
where = dict(base_url=f"http://127.0.0.1:{given['port']}/v1", api_key="none", timeout=60)
client = openai.OpenAI(**where)


def whole(body):
    answer = client.chat.completions.create(**body)
    choice = answer.choices[0]
    return [getattr(choice.message, "reasoning", None), choice.message.content, choice.finish_reason, answer.usage.prompt_tokens,
            answer.usage.completion_tokens]


def gather(chunks):
    reasoning = content = ""
    finish = usage = None
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            reasoning += getattr(choice.delta, "reasoning", None) or ""
            content += choice.delta.content or ""
            finish = choice.finish_reason or finish
    return [reasoning or None, content or None, finish, usage.prompt_tokens, usage.completion_tokens]


def streamed(body):
    with client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True}) as chunks:
        return gather(list(chunks))


async def beside(bodies):
    async with openai.AsyncOpenAI(**where) as c:
        async def one(body):
            chunks = await c.chat.completions.create(**body, stream=True, stream_options={"include_usage": True})
            return gather([chunk async for chunk in chunks])
        return await asyncio.gather(*map(one, bodies))


def completions(prompt):
    a = client.completions.create(model="demo", prompt=prompt, max_tokens=12, temperature=0, logprobs=2, echo=True)
    b = "".join(c.choices[0].text for c in client.completions.create(model="demo", prompt=prompt, max_tokens=12, temperature=0,
                                                                    stream=True) if c.choices)
    c = a.choices[0]
    return [c.text, b, c.finish_reason, c.logprobs.tokens, c.logprobs.token_logprobs]


bodies = given["bodies"]
print(json.dumps({
    "models": [m.id for m in client.models.list()],
    "model": client.models.retrieve("demo").id,
    "whole": [whole(b) for b in bodies],
    "streamed": [streamed(b) for b in bodies],
    "beside": asyncio.run(beside(bodies)),
    "completions": [completions(p) for p in given["prompts"]],
}))
