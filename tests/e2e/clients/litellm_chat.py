"""Conversations through `litellm`, as an OpenAI-compatible and as a vLLM server, and calls of tools that
go round."""
import json
import sys

import litellm

given = json.load(sys.stdin)
where = dict(api_base=f"http://127.0.0.1:{given['port']}/v1", api_key="none", temperature=0, num_retries=0)
extra = {"chat_template_kwargs": {"enable_thinking": False}}
answers = {}
for kind in ("openai", "hosted_vllm"):
    name = f"{kind}/demo"
    answers[kind] = [litellm.completion(model=name, messages=m, extra_body=extra, **where).choices[0].message.content
                     for m in given["messages"]]
    answers[kind + " streamed"] = ["".join(c.choices[0].delta.content or "" for c in litellm.completion(
        model=name, messages=m, stream=True, extra_body=extra, **where)) for m in given["messages"]]
try:
    litellm.completion(model="openai/nobody", messages=given["messages"][0], **where)
    answers["error"] = "none"
except litellm.NotFoundError as e:
    answers["error"] = type(e).__name__


def go_round(kind, stream, messages, tools, result):
    def ask(messages):
        answer = litellm.completion(model=f"{kind}/demo", messages=messages, tools=tools, stream=stream, extra_body=extra, **where)
        return (litellm.stream_chunk_builder(list(answer), messages=messages) if stream else answer).choices[0]
    first = ask(messages)
    calls = first.message.tool_calls
    last = ask(messages + [first.message.model_dump()] + [{"role": "tool", "tool_call_id": c.id, "content": result} for c in calls])
    return [first.finish_reason, [[c.function.name, c.function.arguments] for c in calls], last.finish_reason, last.message.content]


answers["calls"] = [go_round(kind, stream, **given["calls"]) for kind in ("openai", "hosted_vllm") for stream in (False, True)]
print(json.dumps(answers))
