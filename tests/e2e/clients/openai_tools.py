"""Calls of tools through `openai`: asked, answered and sent back, whole and streamed."""
import json
import sys

import openai

given = json.load(sys.stdin)
client = openai.OpenAI(base_url=f"http://127.0.0.1:{given['port']}/v1", api_key="none", timeout=60, max_retries=0)


def whole(body):
    choice = client.chat.completions.create(**body).choices[0]
    return choice.message, choice.finish_reason


def streamed(body):
    with client.chat.completions.stream(**body) as events:
        done = [e.type for e in events]
        choice = events.get_final_completion().choices[0]
    assert not choice.message.tool_calls or "tool_calls.function.arguments.delta" in done
    return choice.message, choice.finish_reason


def plain(message):
    """As a client's history keeps it."""
    return message.model_dump(exclude_none=True, exclude={"parsed"})


def round_trip(ask, body, result, as_object):
    message, finish = ask(body)
    back = {"role": "assistant", "content": message.content, "tool_calls": [
        {"id": c.id, "type": "function", "function": {
            "name": c.function.name, "arguments": json.loads(c.function.arguments) if as_object else c.function.arguments}}
        for c in message.tool_calls]} if as_object else plain(message)
    results = [{"role": "tool", "tool_call_id": c.id, "content": result} for c in message.tool_calls]
    last, end = ask({**body, "messages": body["messages"] + [back] + results})
    return [finish, [[c.function.name, c.function.arguments] for c in message.tool_calls], end, last.content,
            len({c.id for c in message.tool_calls})]


print(json.dumps([[round_trip(ask, body, given["result"], as_object) for ask in (whole, streamed) for as_object in (False, True)]
                  for body in given["bodies"]]))
