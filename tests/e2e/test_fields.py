"""Members of requests by their effect: each acted on shows in the answer."""
import json

import pytest

from cluster import CONVERSATIONS, Cluster, Stream, chat_body, generate_body, read_chat

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
THINKS = CONVERSATIONS[0]
PLAIN = next(row for row in CONVERSATIONS if not row["enable_thinking"] and len(row["greedy_ids"]) > 8
             and not row["tools"])


@pytest.fixture(scope="module")
def cluster(build, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("fields"), build) as c:
        yield c


def ask(cluster, path, **body):
    r = cluster.post(path, {"model": "demo", "temperature": 0, **body})
    assert r.status == 200, r.body
    return r.json()


def refused(cluster, path, param, **body):
    r = cluster.post(path, {"model": "demo", **body})
    assert r.status == 400 and r.json()["error"]["param"] == param, r.body
    return r.json()["error"]


def message(answer):
    return answer["choices"][0]["message"]


@pytest.mark.asan
def test_an_answer_is_continued_where_it_was_cut(cluster):
    whole = message(ask(cluster, CHAT, **chat_body(PLAIN)))["content"]
    for cut in (1, len(whole) // 2, len(whole) - 2):
        begun = PLAIN["messages"] + [{"role": "assistant", "content": whole[:cut]}]
        body = chat_body(PLAIN, messages=begun, continue_final_message=True)
        prompt = cluster.post("/tokenize", {"messages": begun, "continue_final_message": True, "chat_template_kwargs":
                                            body["chat_template_kwargs"]}).json()["tokens"]
        text = cluster.post("/detokenize", {"tokens": prompt}).json()["prompt"]
        assert text == PLAIN["prompt"] + whole[:cut]
        assert ask(cluster, CHAT, **body)["usage"]["prompt_tokens"] == len(prompt)
    # On a border of words the same tokens follow.
    cut = whole.index(" ", len(whole) // 2)
    begun = PLAIN["messages"] + [{"role": "assistant", "content": whole[:cut]}]
    rest = ask(cluster, CHAT, **chat_body(PLAIN, messages=begun, continue_final_message=True,
                                          add_generation_prompt=False))
    assert message(rest)["content"] == whole[cut:]
    parts = PLAIN["messages"] + [{"role": "assistant", "content": [{"type": "text", "text": whole[:cut]}]}]
    assert message(ask(cluster, CHAT, **chat_body(PLAIN, messages=parts, continue_final_message=True))) == message(rest)


def test_the_prompt_can_end_without_a_question_to_the_model(cluster):
    for asks in (True, False):
        got = cluster.post("/tokenize", {"messages": PLAIN["messages"], "add_generation_prompt": asks}).json()["tokens"]
        answer = ask(cluster, CHAT, messages=PLAIN["messages"], add_generation_prompt=asks, max_tokens=1,
                     return_token_ids=True)
        assert answer["prompt_token_ids"] == got
    refused(cluster, CHAT, "continue_final_message", messages=PLAIN["messages"], continue_final_message=True)


def test_a_prompt_is_cut_to_its_last_tokens(cluster):
    ids = CONVERSATIONS[60]["prompt_ids"]
    body = dict(prompt=ids, max_tokens=9, ignore_eos=True)
    want = ask(cluster, TEXT, **dict(body, prompt=ids[-7:]))
    got = ask(cluster, TEXT, **body, truncate_prompt_tokens=7)
    assert got["choices"][0]["text"] == want["choices"][0]["text"] and got["usage"] == want["usage"]
    echo = ask(cluster, TEXT, **dict(body, prompt=cluster.post("/detokenize", {"tokens": ids}).json()["prompt"]),
               truncate_prompt_tokens=7, echo=True)["choices"][0]["text"]
    assert echo == cluster.post("/detokenize", {"tokens": ids[-7:]}).json()["prompt"] + want["choices"][0]["text"]
    # Longer than the prompt: nothing happens.
    assert ask(cluster, TEXT, **body, truncate_prompt_tokens=5000)["usage"]["prompt_tokens"] == len(ids)
    # -1: so many that the answer fits.
    most = cluster.get("/v1/models").json()["data"][0]["max_model_len"]
    rest = dict(prompt=ids, max_tokens=most - 5, stop=list("aeiou 0123456789"))
    refused(cluster, TEXT, "prompt", **rest)
    assert ask(cluster, TEXT, **rest, truncate_prompt_tokens=-1)["usage"]["prompt_tokens"] == 5
    refused(cluster, TEXT, "truncate_prompt_tokens", prompt=ids, truncate_prompt_tokens=0)
    got = ask(cluster, CHAT, messages=PLAIN["messages"], max_tokens=1, truncate_prompt_tokens=4, return_token_ids=True)
    whole = cluster.post("/tokenize", {"messages": PLAIN["messages"]}).json()["tokens"]
    assert got["prompt_token_ids"] == whole[-4:]


@pytest.mark.parametrize("member", ["include_stop_str_in_output", "no_stop_trim"])
def test_the_stop_string_can_stay(cluster, member):
    row = CONVERSATIONS[60]
    word = row["greedy_text"].split()[3]
    body = generate_body(row, prompt=row["prompt_ids"], stop=[word])
    without = ask(cluster, TEXT, **body)["choices"][0]
    kept = ask(cluster, TEXT, **body, **{member: True})["choices"][0]
    assert kept["text"] == without["text"] + word and row["greedy_text"].startswith(kept["text"])
    assert kept["stop_reason"] == without["stop_reason"] == word
    s = Stream(cluster, TEXT, dict(body, **{member: True}))
    assert "".join(c["text"] for e in s.events() for c in e["choices"]) == kept["text"] and s.done
    # A token that ends the answer, too.
    ids = row["greedy_ids"]
    body = generate_body(row, prompt=row["prompt_ids"], stop_token_ids=[ids[3]])
    n = ids.index(ids[3]) + 1
    text = cluster.post("/detokenize", {"tokens": ids[:n]}).json()["prompt"]
    assert ask(cluster, TEXT, **body, **{member: True})["choices"][0]["text"] == text
    assert text.startswith(ask(cluster, TEXT, **body)["choices"][0]["text"])


def test_a_stop_string_stays_in_an_answer_that_thinks(cluster):
    word = THINKS["greedy_text"].split()[-1]
    got = message(ask(cluster, CHAT, **chat_body(THINKS, stop=word, include_stop_str_in_output=True)))
    assert got["content"] == THINKS["greedy_text"].split("</think>\n\n")[1]


def test_special_tokens_can_be_shown(cluster):
    body = generate_body(THINKS, prompt=THINKS["prompt_ids"])
    hidden = ask(cluster, TEXT, **body, ignore_eos=True)["choices"][0]["text"]
    shown = ask(cluster, TEXT, **body, ignore_eos=True, skip_special_tokens=False)["choices"][0]["text"]
    assert "<|im_end|>" not in hidden and shown.startswith(THINKS["greedy_text"] + "<|im_end|>")
    # The one that ends an answer shows only where it is asked for.
    assert ask(cluster, TEXT, **body, skip_special_tokens=False)["choices"][0]["text"] == THINKS["greedy_text"]
    kept = ask(cluster, TEXT, **body, skip_special_tokens=False, include_stop_str_in_output=True)
    assert kept["choices"][0]["text"] == THINKS["greedy_text"] + "<|im_end|>"
    refused(cluster, TEXT, "skip_special_tokens", prompt="x", skip_special_tokens=False, stop="y")


@pytest.mark.asan
def test_a_bad_word_is_not_written(cluster):
    row = CONVERSATIONS[60]
    n_ids = lambda text: cluster.post("/tokenize", {"prompt": text}).json()["count"]  # noqa: E731
    word = next(w for w in row["greedy_text"].split() if n_ids(w) == 1 and w.isalnum())
    body = generate_body(row, prompt=row["prompt_ids"])
    got = ask(cluster, TEXT, **body, bad_words=[word], logprobs=0)["choices"][0]
    assert got["text"] != row["greedy_text"]
    assert not {word, " " + word} & set(got["logprobs"]["tokens"])
    assert ask(cluster, TEXT, **body, bad_words=[])["choices"][0]["text"] == row["greedy_text"]
    # What a client allows by bias does not come back.
    (own,) = cluster.post("/tokenize", {"prompt": word}).json()["tokens"]
    got = ask(cluster, TEXT, **body, bad_words=[word], logit_bias={str(own): 100}, logprobs=0)["choices"][0]
    assert word not in got["logprobs"]["tokens"]
    error = refused(cluster, TEXT, "bad_words[1]", prompt="x", bad_words=[word, "several tokens of text"])
    assert error["code"] == "unsupported_parameter"


def test_reasoning_can_be_left_out(cluster):
    body = chat_body(THINKS, include_reasoning=False, logprobs=True)
    whole = ask(cluster, CHAT, **chat_body(THINKS, logprobs=True))
    got = ask(cluster, CHAT, **body)
    assert message(whole)["reasoning"] and "reasoning" not in message(got) and "reasoning_content" not in message(got)
    assert message(got)["content"] == message(whole)["content"] and got["usage"] == whole["usage"]
    rows, all_rows = got["choices"][0]["logprobs"]["content"], whole["choices"][0]["logprobs"]["content"]
    assert rows == all_rows[got["usage"]["completion_tokens_details"]["reasoning_tokens"]:]
    reasoning, content, finish, _ = read_chat(Stream(cluster, CHAT, chat_body(THINKS, include_reasoning=False)))
    assert (reasoning, content, finish) == ("", message(whole)["content"], "stop")
    cut = ask(cluster, CHAT, **chat_body(THINKS, include_reasoning=False, max_tokens=2))
    assert message(cut)["content"] is None and cut["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.asan
def test_ids_of_prompt_and_answer_are_shown(cluster, path):
    body = chat_body(THINKS) if path == CHAT else generate_body(THINKS, prompt=THINKS["prompt_ids"])
    body = dict(body, return_token_ids=True)
    whole = ask(cluster, path, **body)
    one = whole["choices"][0]
    have = whole if path == CHAT else one
    assert have["prompt_token_ids"] == THINKS["prompt_ids"]
    assert len(one["token_ids"]) == whole["usage"]["completion_tokens"]
    assert one["token_ids"] == THINKS["greedy_ids"]
    prompts, ids, choices = [], [], 0
    for event in Stream(cluster, path, body).events():
        for choice in event["choices"]:
            ids += choice["token_ids"]
            choices += 1
            prompts += [x["prompt_token_ids"] for x in (event, choice) if "prompt_token_ids" in x]
    assert prompts == [THINKS["prompt_ids"]] and ids == THINKS["greedy_ids"] and choices > 3
    assert "token_ids" not in json.dumps(ask(cluster, path, **dict(body, return_token_ids=False)))
    two = ask(cluster, path, **dict(body, n=2))["choices"]
    assert [c["token_ids"] for c in two] == [THINKS["greedy_ids"]] * 2


def test_tokens_can_be_shown_as_ids(cluster):
    body = dict(temperature=0, max_tokens=20, logprobs=2, return_tokens_as_token_ids=True, return_token_ids=True)
    one = ask(cluster, TEXT, prompt=THINKS["prompt_ids"], **body)["choices"][0]
    assert one["logprobs"]["tokens"] == [f"token_id:{i}" for i in THINKS["greedy_ids"][:20]]
    assert all(token in top and len(top) == 2 for token, top in zip(one["logprobs"]["tokens"], one["logprobs"]["top_logprobs"]))
    body = chat_body(THINKS, **body) | {"logprobs": True, "top_logprobs": 2}
    plain = ask(cluster, CHAT, **dict(body, return_tokens_as_token_ids=False))["choices"][0]["logprobs"]["content"]
    streamed = [x for e in Stream(cluster, CHAT, body).events() for c in e["choices"] if c.get("logprobs")
                for x in c["logprobs"]["content"]]
    content = ask(cluster, CHAT, **body)["choices"][0]["logprobs"]["content"]
    assert content == streamed and [x["token"] for x in content] == [f"token_id:{i}" for i in THINKS["greedy_ids"][:20]]
    assert [x["top_logprobs"][0]["token"] for x in content] == [x["token"] for x in content]
    assert [(x["bytes"], x["logprob"]) for x in content] == [(x["bytes"], x["logprob"]) for x in plain]


def test_every_chunk_tells_the_usage_so_far(cluster):
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = list(Stream(cluster, CHAT, chat_body(THINKS, stream_options=options)).events())
    n = [e["usage"]["completion_tokens"] for e in events]
    assert n == sorted(n) and n[-1] == len(THINKS["greedy_ids"]) and len(set(n)) > 3
    assert all(e["usage"]["prompt_tokens"] == len(THINKS["prompt_ids"]) for e in events)


def test_a_nul_in_a_string_is_text(cluster):
    ids = cluster.post("/tokenize", {"prompt": "a\0b"}).json()["tokens"]
    assert cluster.post("/detokenize", {"tokens": ids}).json()["prompt"] == "a\0b"
    r = ask(cluster, TEXT, prompt="a\0b", max_tokens=2, echo=True, stop="\0x", user="\0")
    assert r["choices"][0]["text"].startswith("a\0b")
    assert message(ask(cluster, CHAT, messages=[{"role": "user", "content": "\0"}], max_tokens=2)) is not None


def test_continuations_are_scored_by_ids_as_evaluations_do(cluster):
    """Several prompts of ids, echo with logprobs, one token more, which is dropped."""
    rows = CONVERSATIONS[:6]
    wholes = [row["prompt_ids"] + row["greedy_ids"][:-1] for row in rows]
    other = [ids[:-1] + [ids[-1] + 1 if ids[-1] < 1000 else 7] for ids in wholes]
    answer = ask(cluster, TEXT, prompt=wholes + other, max_tokens=1, logprobs=1, echo=True, seed=1234)
    assert [c["index"] for c in answer["choices"]] == list(range(12))
    for i, choice in enumerate(answer["choices"]):
        row, lp = rows[i % 6], choice["logprobs"]
        n = len(row["prompt_ids"])
        own, top = lp["token_logprobs"][n:-1], lp["top_logprobs"][n:-1]
        assert len(own) == len(row["greedy_ids"]) - 1 and all(v <= 0 for v in own)
        greedy = all(v == max(t.values()) for v, t in zip(own, top))
        assert greedy == (i < 6)
        if i >= 6:
            assert sum(own) < sum(answer["choices"][i - 6]["logprobs"]["token_logprobs"][n:-1])
