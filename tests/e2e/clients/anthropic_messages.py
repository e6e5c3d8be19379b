"""Conversations through `anthropic`: whole, by its stream helper, counted; a round of a tool; the classes of refusals."""
import json
import sys

import anthropic

given = json.load(sys.stdin)
client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{given['port']}", api_key="none", timeout=60, max_retries=0)


def said(message):
    return [[b.type, b.thinking if b.type == "thinking" else b.text if b.type == "text" else [b.name, b.input]]
            for b in message.content] + [[message.stop_reason, message.usage.input_tokens, message.usage.output_tokens]]


def streamed(body):
    with client.messages.stream(**body) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert text == "".join(b.text for b in message.content if b.type == "text")
    return said(message)


def round_of_tool(body, result):
    first = client.messages.create(**body)
    (use,) = [b for b in first.content if b.type == "tool_use"]
    more = [{"role": "assistant", "content": first.content},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": result}]}]
    return said(client.messages.create(**body | {"messages": body["messages"] + more}))


def refused(change):
    try:
        client.messages.create(**given["bodies"][0] | change)
        return ["fine"]
    except anthropic.APIStatusError as e:
        return [type(e).__name__, e.status_code, e.body["error"]["type"]]


print(json.dumps({
    "whole": [said(client.messages.create(**b)) for b in given["bodies"]],
    "streamed": [streamed(b) for b in given["bodies"]],
    "counted": [client.messages.count_tokens(**{k: v for k, v in b.items() if k not in ("max_tokens", "extra_body")}).input_tokens
                for b in given["bodies"]],
    "round": round_of_tool(given["calling"], given["result"]),
    "refused": [refused(c) for c in given["changes"]],
}))
