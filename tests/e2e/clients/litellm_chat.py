"""Conversations through `litellm`, as an OpenAI-compatible and as a vLLM server."""
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
print(json.dumps(answers))
