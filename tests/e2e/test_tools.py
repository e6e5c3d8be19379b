"""Calls of tools through chat: the golden conversations with tools, whole and streamed, what a
client sends back, and what is refused."""
import json
import pathlib
import re

import pytest

from cluster import CONVERSATIONS, Cluster, Stream, chat_body

ROWS = [row for row in CONVERSATIONS if row["tools"] is not None]
CALLING = [row for row in ROWS if "<tool_call>" in row["greedy_text"]]
NUMBERS = {"a": int, "b": int}  # parameters of the demo's tools that are no strings
PATH = "/v1/chat/completions"


@pytest.fixture(scope="module")
def cluster(build, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("tools"), build) as c:
        yield c


def body_of(row, **more):
    return chat_body(row, tools=row["tools"], **more)


def expected(row):
    """(reasoning, content, [(name, arguments)], finish_reason), read by other means."""
    text = row["greedy_text"]
    reasoning, text = text.split("\n</think>\n\n") if row["enable_thinking"] else (None, text)
    calls = []
    for name, inside in re.findall(r"<tool_call>\n<function=(\w+)>\n(.*?)</function>\n</tool_call>", text, re.S):
        values = re.findall(r"<parameter=(\w+)>\n(.*?)\n</parameter>\n", inside, re.S)
        calls.append((name, {k: NUMBERS.get(k, str)(v) for k, v in values}))
    content = text.split("<tool_call>")[0].strip() or None
    return reasoning, content, calls, "tool_calls" if calls else "stop"


def whole(cluster, body):
    r = cluster.post(PATH, body)
    assert r.status == 200, r.body
    answer = r.json()
    choice = answer["choices"][0]
    message = choice["message"]
    ids = [c["id"] for c in message.get("tool_calls", [])]
    assert all(re.fullmatch("call_[0-9a-f]{24}", i) for i in ids) and len(set(ids)) == len(ids)
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", [])]
    return message.get("reasoning"), message["content"], calls, choice["finish_reason"], answer["usage"], ids


def streamed(cluster, body):
    s = Stream(cluster, PATH, body | {"stream": True, "stream_options": {"include_usage": True}})
    assert s.status == 200
    reasoning = content = ""
    calls, finish, usage, pieces = [], None, None, 0
    for event in s.events():
        assert "error" not in event, event
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            delta = choice["delta"]
            reasoning += delta.get("reasoning") or ""
            content += delta.get("content") or ""
            finish = choice["finish_reason"] or finish
            for c in delta.get("tool_calls", []):
                if c["index"] == len(calls):
                    assert c["type"] == "function" and re.fullmatch("call_[0-9a-f]{24}", c["id"])
                    calls.append([c["function"]["name"], ""])
                else:
                    assert c["index"] == len(calls) - 1 and "id" not in c and "name" not in c["function"]
                calls[-1][1] += c["function"]["arguments"]
                pieces += 1
    assert s.done
    return reasoning or None, content or None, [tuple(c) for c in calls], finish, usage, pieces


@pytest.mark.parametrize("ask", [whole, streamed])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["messages"][-1]["content"][:20])
def test_conversations_with_tools_are_the_golden_ones(cluster, row, ask):
    reasoning, content, calls, finish, usage, _ = ask(cluster, body_of(row))
    assert (reasoning, content, [(n, json.loads(a)) for n, a in calls], finish) == expected(row)
    assert usage["prompt_tokens"] == len(row["prompt_ids"])
    assert usage["completion_tokens"] == len(row["greedy_ids"])


def test_a_call_goes_round(cluster):
    """Ask, call, result, answer; arguments sent back as they came, as text."""
    row = next(r for r in CALLING if "weather" in r["messages"][-1]["content"])
    _, content, calls, _, _, (call_id,) = whole(cluster, body_of(row))
    assert content is None
    (name, arguments), = calls
    back = row["messages"] + [
        {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, "type": "function", "function": {
            "name": name, "arguments": arguments}}]},
        {"role": "tool", "tool_call_id": call_id, "content": [{"type": "text", "text": "21 degrees, rain"}]}]
    body = body_of(row) | {"messages": back}
    _, content, calls, finish, usage, _ = whole(cluster, body)
    assert content == "The weather in Accra: 21 degrees, rain." and calls == [] and finish == "stop"
    back[-2]["tool_calls"][0]["function"]["arguments"] = json.loads(arguments)
    assert whole(cluster, body)[:5] == (None, content, [], "stop", usage)
    assert streamed(cluster, body)[:5] == (None, content, [], "stop", usage)


def test_each_choice_has_calls_of_its_own(cluster):
    row = CALLING[0]
    r = cluster.post(PATH, body_of(row, n=3))
    ids = [choice["message"]["tool_calls"][0]["id"] for choice in r.json()["choices"]]
    assert len(set(ids)) == 3
    assert {c["message"]["tool_calls"][0]["function"]["arguments"] for c in r.json()["choices"]} == {'{"city": "Accra"}'}


@pytest.mark.parametrize("length", range(1, 40, 3))
def test_what_the_length_cuts_is_the_same_whole_and_streamed(cluster, length):
    row = CALLING[-1]
    body = body_of(row, max_tokens=length)
    reasoning, content, calls, finish, usage, _ = whole(cluster, body)
    assert streamed(cluster, body)[:5] == (reasoning, content, calls, finish, usage)
    full = json.dumps(expected(row)[2][0][1])
    if length < len(row["greedy_ids"]):
        assert finish == "length" and all(full.startswith(a) for _, a in calls)
    else:
        assert finish == "tool_calls" and [a for _, a in calls] == [full]


def test_without_tools_and_with_none_markup_is_text(cluster):
    row = CALLING[0]
    r = cluster.post("/v1/completions", {"prompt": row["prompt_ids"], "temperature": 0, "max_tokens": 60})
    assert r.json()["choices"][0]["text"] == row["greedy_text"]
    _, content, calls, _, usage, _ = whole(cluster, body_of(row, tool_choice="none", max_tokens=60))
    assert calls == [] and usage["prompt_tokens"] < len(row["prompt_ids"]) // 2


def test_tokenize_counts_the_tools(cluster):
    row = CALLING[0]
    r = cluster.post("/tokenize", {"messages": row["messages"], "tools": row["tools"], "chat_template_kwargs": {"enable_thinking": False}})
    assert r.json()["tokens"] == row["prompt_ids"]


@pytest.mark.parametrize("case", json.loads((pathlib.Path(__file__).parent / "tools_without_parameters.json").read_text()),
                         ids=lambda case: case["id"])
def test_tools_without_parameters(cluster, case):
    r = cluster.post(PATH, case["body"])
    assert r.status == case["expect"]
    if r.status != 200:
        assert r.json()["error"]["param"] == case["names"]


def test_digits_and_texts_go_through_unchanged(cluster):
    """What the template is given, seen in the prompt: numbers of 64 bits and more, entities, no escapes."""
    tools = [{"type": "function", "function": {"name": "f", "description": "a < b && \"c\" é", "parameters": {
        "type": "object", "properties": {"x": {"type": "integer", "maximum": 9223372036854775807123}}}}}]
    call = '{"x": 9007199254740993123, "y": 1.10, "s": "<&>"}'
    messages = [{"role": "user", "content": "hi"},
                {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": call}}]},
                {"role": "tool", "tool_call_id": "1", "content": "ok"}]
    ids = cluster.post("/tokenize", {"messages": messages, "tools": tools}).json()["tokens"]
    text = cluster.post("/detokenize", {"tokens": ids}).json()["prompt"]
    for part in ('a < b && \\"c\\" é', "9223372036854775807123", "\n9007199254740993123\n", "\n<&>\n"):
        assert part in text
