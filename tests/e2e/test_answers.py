"""The 62 golden conversations through the whole cluster, and what the hand-over moved."""
import pytest

from cluster import (CONVERSATIONS, Cluster, Stream, chat_body, generate_body, in_parallel, joined,
                     read_chat)

CHATS = [row for row in CONVERSATIONS if row["tools"] is None]
PAGE_TOKENS = 64


@pytest.fixture(scope="module")
def cluster(build, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("answers"), build) as c:
        yield c


def complete(cluster, row, prompt):
    r = cluster.post("/v1/completions", generate_body(row, prompt=prompt))
    assert r.status == 200, r.body
    answer = r.json()
    choice = answer["choices"][0]
    assert choice["text"] == row["greedy_text"]
    assert choice["finish_reason"] == "stop"
    assert answer["usage"]["prompt_tokens"] == len(row["prompt_ids"])
    assert answer["usage"]["completion_tokens"] == len(row["greedy_ids"])
    return r.headers["X-Request-Id"]


def chat(cluster, row):
    r = cluster.post("/v1/chat/completions", chat_body(row))
    assert r.status == 200, r.body
    choice = r.json()["choices"][0]
    message = choice["message"]
    assert joined(row, message.get("reasoning_content"), message["content"]) == row["greedy_text"]
    assert choice["finish_reason"] == "stop"
    assert r.json()["usage"]["prompt_tokens"] == len(row["prompt_ids"])


def chat_streamed(cluster, row):
    s = Stream(cluster, "/v1/chat/completions", chat_body(row))
    assert s.status == 200
    reasoning, content, finish, events = read_chat(s)
    assert joined(row, reasoning, content) == row["greedy_text"]
    assert finish == "stop" and s.done
    assert events * 4 >= len(row["greedy_ids"]) - 4, "less than one event per four tokens"


@pytest.mark.parametrize("form", ["text", "ids"])
def test_completions_are_the_golden_texts(cluster, form):
    for row in CONVERSATIONS:
        complete(cluster, row, row["prompt"] if form == "text" else row["prompt_ids"])


def test_chats_are_the_golden_texts(cluster):
    assert len(CHATS) == 57
    for row in CHATS:
        chat(cluster, row)


def test_streamed_chats_are_the_golden_texts(cluster):
    for row in CHATS:
        chat_streamed(cluster, row)


def test_sixteen_at_once_give_the_same_texts_in_shared_steps(cluster):
    in_parallel(lambda row: complete(cluster, row, row["prompt_ids"]), CONVERSATIONS)
    in_parallel(lambda row: chat_streamed(cluster, row), CHATS)
    rows = cluster.metric("baton_decode_rows_max")
    print(f"most rows in one decode step: {rows:.0f}")
    assert rows >= 8


def test_every_hand_over_moved_its_pages_and_one_slot(cluster):
    page = slot = None
    for row in sorted(CONVERSATIONS, key=lambda r: len(r["prompt_ids"])):
        n = len(row["prompt_ids"])
        seen = cluster.outcome(complete(cluster, row, row["prompt_ids"]))
        moved, pages = int(seen["handover_bytes"]), -(-n // PAGE_TOKENS)
        if page is None:
            # FP32 on the CPU: 2 layers x K and V x 2 heads x 64 tokens x 256; the slot is
            # 6 layers x (4 heads x 128 x 128 recurrent + 1024 channels x 3 inputs).
            page = 2 * 2 * 2 * PAGE_TOKENS * 256 * 4
            slot = 6 * (4 * 128 * 128 + 1024 * 3) * 4
        assert moved == pages * page + slot, f"{n} tokens"
        assert seen["transport"] == "shm"
        assert seen["prefill"].startswith("p0#") and seen["decode"].startswith("d0#")


def test_an_answer_of_one_token_is_not_handed_over(cluster):
    row = CONVERSATIONS[0]
    r = cluster.post("/v1/completions", generate_body(row, prompt=row["prompt_ids"]) | {"max_tokens": 1})
    assert r.status == 200
    assert r.json()["usage"]["completion_tokens"] == 1
    assert r.json()["choices"][0]["finish_reason"] == "length"
    assert int(cluster.outcome(r.headers["X-Request-Id"])["handover_bytes"]) == 0


def test_a_stop_string_ends_the_answer_before_it(cluster):
    row = CONVERSATIONS[60]
    r = cluster.post("/v1/completions", generate_body(row, prompt=row["prompt_ids"], stop=[" 42", "99"]))
    choice = r.json()["choices"][0]
    assert choice["text"] == row["greedy_text"].split(" 42")[0]
    assert choice["finish_reason"] == "stop" and choice["stop_reason"] == " 42"


def test_the_same_seed_gives_the_same_text(cluster):
    def text(seed):
        r = cluster.post("/v1/completions", {"model": "demo", "prompt": "The", "seed": seed, "top_p": 1,
                                             "top_k": 0, "temperature": 2, "max_tokens": 40})
        return r.json()["choices"][0]["text"]
    assert text(10) == text(10)
    assert text(10) != text(11)


def test_several_prompts_of_one_request_keep_their_order(cluster):
    rows = CONVERSATIONS[:5]
    r = cluster.post("/v1/completions", {"model": "demo", "prompt": [r["prompt"] for r in rows],
                                         "temperature": 0, "max_tokens": 120})
    choices = r.json()["choices"]
    assert [c["index"] for c in choices] == [0, 1, 2, 3, 4]
    assert [c["text"] for c in choices] == [r["greedy_text"] for r in rows]


@pytest.mark.asan
def test_twelve_conversations(cluster):
    for row in CHATS[:6]:
        chat(cluster, row)
    for row in CHATS[6:12]:
        chat_streamed(cluster, row)
