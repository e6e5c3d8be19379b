"""The golden conversations through /v1/messages and /v1/responses, whole and streamed: what chat answers. One cluster for
both; what only one of them has stands below."""
import json
import re

import pytest

from cluster import CONVERSATIONS, Cluster, Stream, in_parallel

MESSAGES, RESPONSES, CHAT = "/v1/messages", "/v1/responses", "/v1/chat/completions"
THINKS = CONVERSATIONS[0]
CALLING = next(row for row in CONVERSATIONS if "<tool_call>" in row["greedy_text"])
NUMBERS = {"a": int, "b": int}  # parameters of the demo's tools that are no strings


@pytest.fixture(scope="module")
def cluster(build, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("dialects"), build) as c:
        yield c


def expected(row):
    """(reasoning, content, [(name, arguments)], tokens of prompt and answer) of a golden conversation."""
    text = row["greedy_text"]
    reasoning, text = text.split("\n</think>\n\n") if row["enable_thinking"] else (None, text)
    calls = []
    for name, inside in re.findall(r"<tool_call>\n<function=(\w+)>\n(.*?)</function>\n</tool_call>", text, re.S):
        values = re.findall(r"<parameter=(\w+)>\n(.*?)\n</parameter>\n", inside, re.S)
        calls.append((name, {k: NUMBERS.get(k, str)(v) for k, v in values}))
    content = text.split("<tool_call>")[0].strip() if calls else text
    return reasoning, content or None, calls, len(row["prompt_ids"]), len(row["greedy_ids"])


# ---- requests ----

def blocks_of(m):
    blocks = [{"type": "thinking", "thinking": m["reasoning_content"], "signature": ""}] if "reasoning_content" in m else []
    blocks += [{"type": "text", "text": m["content"]}] if m["content"] or not m.get("tool_calls") else []
    return blocks + [{"type": "tool_use", "id": f"t{i}", "name": c["function"]["name"], "input": c["function"]["arguments"]}
                     for i, c in enumerate(m.get("tool_calls", []))]


def messages_body(row, **more):
    system = [m["content"] for m in row["messages"] if m["role"] == "system"]
    messages = []
    for i, m in enumerate(m for m in row["messages"] if m["role"] != "system"):
        if m["role"] == "tool":
            messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t0", "content": m["content"]}]})
        else:
            messages.append({"role": m["role"], "content": m["content"] if i % 2 else blocks_of(m)} if "tool_calls" not in m
                            else {"role": m["role"], "content": blocks_of(m)})
    tools = [{"name": f["name"], "description": f["description"], "input_schema": f["parameters"]}
             for f in (t["function"] for t in row["tools"] or [])]
    return {"model": "demo", "temperature": 0, "max_tokens": 600, "messages": messages,
            "thinking": {"type": "adaptive" if row["enable_thinking"] else "disabled"},
            **({"system": system[0]} if system else {}), **({"tools": tools} if tools else {}), **more}


def items_of(m):
    if m["role"] == "tool":
        return [{"type": "function_call_output", "call_id": "t0", "output": m["content"]}]
    items = [{"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": m["reasoning_content"]}]}
             ] if "reasoning_content" in m else []
    if m["content"] or not m.get("tool_calls"):
        kind = "output_text" if m["role"] == "assistant" else "input_text"
        items.append({"type": "message", "role": m["role"], "content": [{"type": kind, "text": m["content"]}]})
    return items + [{"type": "function_call", "call_id": f"t{i}", "name": c["function"]["name"],
                     "arguments": json.dumps(c["function"]["arguments"])} for i, c in enumerate(m.get("tool_calls", []))]


def responses_body(row, **more):
    rest = [m for m in row["messages"] if m["role"] != "system"]
    system = [m["content"] for m in row["messages"] if m["role"] == "system"]
    tools = [{"type": "function", **t["function"]} for t in row["tools"] or []]
    return {"model": "demo", "temperature": 0, "input": [i for m in rest for i in items_of(m)],
            "reasoning": {"effort": "medium" if row["enable_thinking"] else "none"},
            **({"instructions": system[0]} if system else {}), **({"tools": tools} if tools else {}), **more}


# ---- answers ----

def read_message(message):
    """What a message says, and whether all of it has its form."""
    texts = {"thinking": None, "text": None}
    calls = []
    for b in message["content"]:
        if b["type"] == "tool_use":
            assert re.fullmatch("call_[0-9a-f]{24}", b["id"])
            calls.append((b["name"], b["input"]))
        else:
            assert texts[b["type"]] is None and b.get("signature", "") == ""
            texts[b["type"]] = b[b["type"]]
    usage = message["usage"]
    assert message["type"] == "message" and message["role"] == "assistant" and message["id"].startswith("msg_")
    assert message["model"] == "demo" and usage["cache_read_input_tokens"] == 0
    return (texts["thinking"], texts["text"], calls, usage["input_tokens"], usage["output_tokens"]), message["stop_reason"]


def ask_messages(cluster, body):
    r = cluster.post(MESSAGES, body)
    assert r.status == 200, r.body
    return r.json()


def events_of(cluster, path, body):
    """Each event with its name; the two agree, and nothing else stands in the stream."""
    s = Stream(cluster, path, body)
    assert s.status == 200
    events, name = [], None
    for line in s.answer.read().decode().split("\n"):
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            events.append(json.loads(line[6:]))
            assert events[-1]["type"] == name
        else:
            assert line == "" or line.startswith(":"), line
    return [e for e in events if e["type"] != "ping"]


def stream_messages(cluster, body):
    """The message that the events build."""
    events = events_of(cluster, MESSAGES, body)
    assert events[0]["type"] == "message_start" and events[-1]["type"] == "message_stop"
    message, open_block = events[0]["message"], None
    assert message["content"] == [] and message["stop_reason"] is None and message["usage"]["input_tokens"] > 0
    for e in events[1:-1]:
        if e["type"] == "content_block_start":
            assert open_block is None and e["index"] == len(message["content"])
            open_block = e["content_block"]
            message["content"].append(open_block)
            text = ""
        elif e["type"] == "content_block_delta":
            assert e["index"] == len(message["content"]) - 1 and open_block is not None
            kind = e["delta"]["type"]
            assert kind == {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}[open_block["type"]]
            text += e["delta"][{"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}[kind]]
        elif e["type"] == "content_block_stop":
            if open_block["type"] == "tool_use":
                open_block["input"] = json.loads(text)
            else:
                open_block[open_block["type"]] = text
            open_block = None
        else:
            assert e["type"] == "message_delta" and open_block is None and e is events[-2]
            message.update(e["delta"])
            message["usage"] = e["usage"]
    return message


def read_response(response):
    texts = {"reasoning": None, "message": None}
    calls = []
    for item in response["output"]:
        if item["type"] == "function_call":
            assert re.fullmatch("call_[0-9a-f]{24}", item["call_id"]) and item["id"].startswith("fc_")
            calls.append((item["name"], json.loads(item["arguments"])))
        else:
            (part,) = item["content"]
            assert texts[item["type"]] is None and part["type"] == {"reasoning": "reasoning_text", "message": "output_text"}[item["type"]]
            texts[item["type"]] = part["text"]
        assert item["status"] == "completed"
    assert len({i["id"] for i in response["output"]}) == len(response["output"])
    usage = response["usage"]
    assert response["object"] == "response" and response["id"].startswith("resp_") and response["model"] == "demo"
    assert response["error"] is None and response["store"] is False and response["previous_response_id"] is None
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    return (texts["reasoning"], texts["message"], calls, usage["input_tokens"], usage["output_tokens"]), response["status"]


def ask_responses(cluster, body):
    r = cluster.post(RESPONSES, body)
    assert r.status == 200, r.body
    return r.json()


def stream_responses(cluster, body):
    """The response of the last event, which the events before it say piece by piece."""
    events = events_of(cluster, RESPONSES, body)
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    assert [e["type"] for e in events[:2]] == ["response.created", "response.in_progress"]
    assert events[0]["response"]["status"] == "in_progress" and events[0]["response"]["output"] == []
    last = events[-1]["response"]
    assert events[-1]["type"] == "response." + last["status"] and last["id"] == events[0]["response"]["id"]
    done = [e for e in events if e["type"] == "response.output_item.done"]
    assert [e["item"] for e in done] == last["output"] and [e["output_index"] for e in done] == list(range(len(done)))
    added = [e["item"] for e in events if e["type"] == "response.output_item.added"]
    assert [(i["id"], i["type"]) for i in added] == [(i["id"], i["type"]) for i in last["output"]]
    for i, item in enumerate(last["output"]):
        of = [e for e in events if e.get("item_id") == item["id"]]
        assert all(e["output_index"] == i for e in of)
        text = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        assert "".join(e["delta"] for e in of if "delta" in e) == text
        (whole,) = [e.get("text", e.get("arguments")) for e in of if e["type"].endswith((".done",)) and "part" not in e]
        assert whole == text
        parts = [e["type"] for e in of if "part" in e]
        assert parts == ([] if item["type"] == "function_call"
                         else ["response.content_part.added", "response.content_part.done"])
    return last


# The last event of a response holds the whole one: it is asked for on its own for a part of the rows.
SOME = [row for i, row in enumerate(CONVERSATIONS) if i % 8 == 0 or row["tools"]]


@pytest.mark.parametrize("ask, rows", [(ask_messages, SOME), (stream_messages, CONVERSATIONS)], ids=["whole", "streamed"])
def test_the_golden_conversations_through_messages(cluster, ask, rows):
    def check(row):
        said, stop = read_message(ask(cluster, messages_body(row)))
        assert said == expected(row)
        assert stop == ("tool_use" if said[2] else "end_turn")
    in_parallel(check, rows)


@pytest.mark.parametrize("ask, rows", [(ask_responses, SOME), (stream_responses, CONVERSATIONS)], ids=["whole", "streamed"])
def test_the_golden_conversations_through_responses(cluster, ask, rows):
    def check(row):
        said, state = read_response(ask(cluster, responses_body(row)))
        assert said == expected(row) and state == "completed"
    in_parallel(check, rows)


@pytest.mark.parametrize("ask", [ask_messages, stream_messages])
def test_why_a_message_ended(cluster, ask):
    word = expected(THINKS)[1].split()[2]
    m = ask(cluster, messages_body(THINKS, stop_sequences=["nothing of it", word]))
    assert (m["stop_reason"], m["stop_sequence"]) == ("stop_sequence", word)
    assert read_message(m)[0][1] == expected(THINKS)[1].split(word)[0]
    m = ask(cluster, messages_body(THINKS, max_tokens=3))
    assert (m["stop_reason"], m["stop_sequence"]) == ("max_tokens", None)
    assert [b["type"] for b in m["content"]] == ["thinking"] and m["usage"]["output_tokens"] == 3


@pytest.mark.asan
@pytest.mark.parametrize("ask", [ask_responses, stream_responses])
def test_a_response_that_was_cut_says_so(cluster, ask):
    body = responses_body(THINKS, max_output_tokens=3)
    cut = ask(cluster, body)
    assert cut["status"] == "incomplete" and cut["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [(i["type"], i["status"]) for i in cut["output"]] == [("reasoning", "incomplete")]
    assert cut["max_output_tokens"] == 3 and cut["reasoning"] == body["reasoning"] and cut["tools"] == []


def test_a_call_that_was_cut_is_no_call(cluster):
    n = len(CALLING["greedy_ids"]) - 6
    m = ask_messages(cluster, messages_body(CALLING, max_tokens=n))
    assert m["stop_reason"] == "max_tokens" and not [b for b in m["content"] if b["type"] == "tool_use"]
    for ask in (ask_responses, stream_responses):
        r = ask(cluster, responses_body(CALLING, max_output_tokens=n))
        assert r["status"] == "incomplete" and [i["status"] for i in r["output"] if i["type"] == "function_call"] == ["incomplete"]


@pytest.mark.asan
def test_tokens_of_messages_are_counted(cluster):
    for row in (THINKS, CALLING, CONVERSATIONS[20]):
        body = messages_body(row)
        assert cluster.post(MESSAGES + "/count_tokens", body).json() == {"input_tokens": len(row["prompt_ids"])}
        del body["max_tokens"]
        assert cluster.post(MESSAGES + "/count_tokens", body).json() == {"input_tokens": len(row["prompt_ids"])}
    r = cluster.post(MESSAGES + "/count_tokens", {"messages": []})
    assert r.status == 400 and r.json()["type"] == "error" and r.json()["error"]["type"] == "invalid_request_error"


def test_an_answer_is_put_into_the_mouth_of_the_assistant(cluster):
    row = next(r for r in CONVERSATIONS if not r["enable_thinking"] and not r["tools"] and len(r["greedy_ids"]) > 8)
    whole = expected(row)[1]
    cut = whole.index(" ", len(whole) // 2)
    body = messages_body(row)
    body["messages"] = body["messages"] + [{"role": "assistant", "content": whole[:cut]}]
    assert read_message(ask_messages(cluster, body))[0][1] == whole[cut:]


@pytest.mark.asan
def test_thoughts_can_be_left_out_of_a_message(cluster):
    body = messages_body(THINKS, thinking={"type": "enabled", "display": "omitted"})
    for ask in (ask_messages, stream_messages):
        said, _ = read_message(ask(cluster, body))
        assert said[0] is None and said[1] == expected(THINKS)[1] and said[4] == expected(THINKS)[4]


def test_errors_have_the_shape_of_their_dialect(cluster):
    headers = {"x-api-key": "anything", "anthropic-version": "2023-06-01", "anthropic-beta": "tools"}
    assert cluster.post(MESSAGES + "?beta=true", messages_body(THINKS), headers=headers).status == 200
    for body, status, kind in ((messages_body(THINKS, model="nobody"), 404, "not_found_error"),
                               (messages_body(THINKS, max_tokens=None), 400, "invalid_request_error"),
                               ("{", 400, "invalid_request_error")):
        r = cluster.post(MESSAGES, body)
        assert r.status == status and r.json()["type"] == "error" and r.json()["error"]["type"] == kind
    r = cluster.request("GET", MESSAGES)
    assert r.status == 405 and r.json()["type"] == "error"
    r = cluster.post(RESPONSES, responses_body(THINKS, previous_response_id="resp_1"))
    assert r.status == 400 and r.json()["error"]["param"] == "previous_response_id"


BAD_BLOCKS = [
    ([{"type": "image", "source": {"type": "url", "url": "x"}}], "messages[0].content[0].type"),
    ([{"type": "document"}], "messages[0].content[0].type"),
    ([{"type": "text"}], "messages[0].content[0].text"),
    ([{"type": "tool_use", "id": "a", "name": "b", "input": {}}], "messages[0].content[0].type"),
    ([{"type": "tool_result", "content": "x"}], "messages[0].content[0].tool_use_id"),
    ([{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image"}]}], "messages[0].content[0].content[0].type"),
    ([5], "messages[0].content[0].type"), (5, "messages[0].content"),
]
BAD_ITEMS = [
    ([{"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "x"}]}], "input[0].content[0].type"),
    ([{"type": "item_reference", "id": "x"}], "input[0].type"), ([{"type": "web_search_call"}], "input[0].type"),
    ([{"role": "tool", "content": "x"}], "input[0].role"), ([{"role": "user"}], "input[0].content"),
    ([{"type": "function_call", "call_id": "a", "name": "b", "arguments": "{"}], "input[0].arguments"),
    ([{"type": "function_call_output", "call_id": "a"}], "input[0].output"),
    ([{"type": "reasoning", "summary": [], "encrypted_content": "x"}], "input[0].encrypted_content"), ([5], "input[0]"), ([], "input"),
]


@pytest.mark.asan
def test_blocks_and_items_that_are_not_taken_are_named(cluster):
    for content, param in BAD_BLOCKS:
        r = cluster.post(MESSAGES, {"max_tokens": 1, "messages": [{"role": "user", "content": content}]})
        assert (r.status, r.json()["error"]["param"]) == (400, param), r.body
    for items, param in BAD_ITEMS:
        r = cluster.post(RESPONSES, {"input": items})
        assert (r.status, r.json()["error"]["param"]) == (400, param), r.body
