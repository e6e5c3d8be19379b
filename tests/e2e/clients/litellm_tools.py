"""Calls of tools through `litellm`, whole and streamed, and their results sent back."""
import json
import sys

import litellm

given = json.load(sys.stdin)
seen = {}
for kind in ("openai", "hosted_vllm"):
    for stream in (False, True):
        def ask(messages):
            answer = litellm.completion(model=f"{kind}/demo", messages=messages, tools=given["tools"], temperature=0, num_retries=0,
                                        api_base=f"http://127.0.0.1:{given['port']}/v1", api_key="none", stream=stream,
                                        extra_body={"chat_template_kwargs": {"enable_thinking": False}})
            if stream:
                answer = litellm.stream_chunk_builder(list(answer), messages=messages)
            return answer.choices[0]
        first = ask(given["messages"])
        calls = first.message.tool_calls
        last = ask(given["messages"] + [first.message.model_dump()]
                   + [{"role": "tool", "tool_call_id": c.id, "content": given["result"]} for c in calls])
        seen[f"{kind}{' streamed' if stream else ''}"] = [first.finish_reason, [[c.function.name, c.function.arguments] for c in calls],
                                                         last.finish_reason, last.message.content]
print(json.dumps(seen))
