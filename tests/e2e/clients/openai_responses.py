"""Conversations through the responses of `openai`: whole, by its stream helper; a round of a tool."""
import json
import sys

import openai

given = json.load(sys.stdin)
client = openai.OpenAI(base_url=f"http://127.0.0.1:{given['port']}/v1", api_key="none", timeout=60, max_retries=0)


def said(r):
    reasoning = [c.text for i in r.output if i.type == "reasoning" for c in i.content]
    calls = [[i.name, json.loads(i.arguments)] for i in r.output if i.type == "function_call"]
    return [reasoning, r.output_text, calls, r.status, r.usage.input_tokens, r.usage.output_tokens]


def streamed(body):
    with client.responses.stream(**body) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        r = stream.get_final_response()
    assert text == r.output_text
    return said(r)


def round_of_tool(body, result):
    first = client.responses.create(**body)
    (call,) = [i for i in first.output if i.type == "function_call"]
    more = [i.to_dict() for i in first.output] + [{"type": "function_call_output", "call_id": call.call_id, "output": result}]
    return said(client.responses.create(**body | {"input": body["input"] + more}))


def refused(change):
    try:
        client.responses.create(**given["bodies"][0] | change)
        return ["fine"]
    except openai.APIStatusError as e:
        return [type(e).__name__, e.param]


print(json.dumps({
    "whole": [said(client.responses.create(**b)) for b in given["bodies"]],
    "streamed": [streamed(b) for b in given["bodies"]],
    "round": round_of_tool(given["calling"], given["result"]),
    "refused": [refused(c) for c in given["changes"]],
}))
