"""Other people's clients, unchanged, against a whole cluster: what they hand to their users is
what plain HTTP answers."""
import pytest

from cluster import CONVERSATIONS, Cluster, chat_body, wait_for
from test_dialects import expected, messages_body, responses_body

CHATS = [row for row in CONVERSATIONS if row["tools"] is None]
SHORT = [row for row in CHATS if not row["enable_thinking"] and len(row["greedy_ids"]) < 60]


@pytest.fixture(scope="module")
def cluster(build, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("clients"), build) as c:
        yield c


def plain(cluster, body):
    answer = cluster.post("/v1/chat/completions", body).json()
    choice, usage = answer["choices"][0], answer["usage"]
    return [choice["message"].get("reasoning"), choice["message"]["content"], choice["finish_reason"], usage["prompt_tokens"],
            usage["completion_tokens"]]


def test_openai_says_what_was_answered(cluster, use):
    rows = CHATS[::4]
    bodies = [{k: v for k, v in chat_body(row).items() if k != "chat_template_kwargs"}
              | {"extra_body": {"chat_template_kwargs": {"enable_thinking": row["enable_thinking"]}}} for row in rows]
    prompts = ["Count from 1 to 20.", CHATS[0]["prompt_ids"]]
    seen = use("openai_chat", cluster.port, bodies=bodies, prompts=prompts)
    expected = [plain(cluster, chat_body(row)) for row in rows]
    assert seen["models"] == ["demo"] and seen["model"] == "demo"
    assert seen["whole"] == expected
    assert seen["streamed"] == seen["beside"] == expected
    for prompt, (echoed, streamed, finish, tokens, logprobs) in zip(prompts, seen["completions"]):
        choice = cluster.post("/v1/completions", {"prompt": prompt, "max_tokens": 12, "temperature": 0, "logprobs": 2,
                                                  "echo": True}).json()["choices"][0]
        assert [echoed, finish, tokens, logprobs] == [choice["text"], choice["finish_reason"], choice["logprobs"]["tokens"],
                                                      choice["logprobs"]["token_logprobs"]]
        assert echoed.endswith(streamed)


def test_openai_raises_the_class_that_each_refusal_stands_for(cluster, use):
    changes = [{}, {"model": "nobody"}, {"temperature": 3}, {"messages": []}, {"max_tokens": 10 ** 7}, {}]
    seen = use("openai_errors", cluster.port, changes=changes)
    assert [s[:2] for s in seen] == [["fine"], ["NotFoundError", 404], ["BadRequestError", 400], ["BadRequestError", 400],
                                     ["BadRequestError", 400], ["fine"]]
    assert [s[2:4] for s in seen[1:4]] == [["model_not_found", "model"], ["invalid_value", "temperature"],
                                           ["invalid_value", "messages"]]


def test_openai_waits_and_retries_while_no_worker_is_there(build, tmp_path, use):
    with Cluster(tmp_path, build) as c:
        old = c.pid("d0")
        c.kill("d0")
        wait_for(lambda: c.pid("d0") != old or not c.ready(), 20)
        assert use("openai_errors", c.port, changes=[{}], retries=8) == [["fine"]]


def test_langchain_says_what_was_answered(cluster, use):
    rows = SHORT[:4]
    seen = use("langchain_chat", cluster.port, messages=[row["messages"] for row in rows])
    expected = [row["greedy_text"] for row in rows]
    assert seen == {"invoke": expected, "stream": expected, "batch": expected}


def test_litellm_says_what_was_answered(cluster, use):
    rows = SHORT[:4]
    weather = next(r for r in CONVERSATIONS if r["tools"] and "get_weather>" in r["greedy_text"])
    seen = use("litellm_chat", cluster.port, messages=[row["messages"] for row in rows], calls={
        "messages": weather["messages"], "tools": weather["tools"], "result": "21 degrees, rain"})
    assert seen.pop("calls") == [["tool_calls", [["get_weather", '{"city": "Accra"}']], "stop",
                                  "The weather in Accra: 21 degrees, rain."]] * 4
    expected = [row["greedy_text"] for row in rows]
    assert seen == {"openai": expected, "openai streamed": expected, "hosted_vllm": expected, "hosted_vllm streamed": expected,
                    "error": "NotFoundError"}


def test_the_command_llm_says_what_was_answered(cluster, use):
    def answer(*messages):
        return cluster.post("/v1/chat/completions", {"messages": list(messages), "temperature": 0}).json()["choices"][0]["message"]["content"]
    prompt, system = {"role": "user", "content": "What is 10 + 98?"}, {"role": "system", "content": "Be brief."}
    seen = use("llm_cli", cluster.port, prompt=prompt["content"], system=system["content"])
    assert seen["streamed"] == seen["whole"] == answer(prompt).rstrip("\n")
    assert seen["system"] == answer(system, prompt).rstrip("\n")


PLAIN = [row for row in SHORT if [m["role"] for m in row["messages"]] == ["user"]][:8]


@pytest.mark.parametrize("how, question", [
    (dict(model="local-completions", path="/v1/completions", args=dict(tokenizer_backend=None, tokenized_requests=False)),
     lambda row: row["prompt"]),
    (dict(model="local-chat-completions", path="/v1/chat/completions", args={}), lambda row: row["messages"][0]["content"])],
    ids=["texts", "chats"])
def test_lm_eval_finds_the_model_as_good_as_it_is(cluster, use, how, question):
    rows = [{"question": question(row), "text": row["greedy_text"]} for row in PLAIN]
    assert use("lm_eval_tasks", cluster.port, rows=rows, tasks=["baton_text"], **how)["baton_text"]["exact_match,none"] == 1.0


def test_lm_eval_scores_by_ids_with_the_tokenizer_of_the_server(cluster, use):
    """Choices by echo and logprobs of ids, answers by ids; the ids come from /tokenizer_info, /tokenize, /detokenize."""
    others = [row["greedy_text"] for row in PLAIN]
    rows = [{"question": row["prompt"], "text": row["greedy_text"], "choices": others[i - 1:i] + [others[i]] + others[i - 2:i - 1],
             "answer": len(others[i - 1:i])} for i, row in enumerate(PLAIN)]
    seen = use("lm_eval_tasks", cluster.port, rows=rows, tasks=["baton_choice", "baton_text"], model="local-completions",
               path="/v1/completions", args=dict(tokenizer_backend="remote", tokenized_requests=True, batch_size=4))
    assert seen["baton_choice"]["acc,none"] == seen["baton_text"]["exact_match,none"] == 1.0


def test_benchmarks_count_every_token_of_every_answer(cluster, use):
    """As vLLM's and SGLang's ask, twelve at a time: every answer is as long as asked, and what one alone gets."""
    prompts, tokens = [f"Count from {i} to 90." for i in range(1, 25)], 48
    seen = use("benchmarks", cluster.port, prompts=prompts, tokens=tokens, beside=12)
    assert seen.pop("around") == ["demo", [], None]

    def alone(prompt, chat):
        asked = {"messages": [{"role": "user", "content": prompt}], "chat_template_kwargs": {"enable_thinking": False}} if chat \
            else {"prompt": prompt}
        choice = cluster.post("/v1/chat/completions" if chat else "/v1/completions",
                              {**asked, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}).json()["choices"][0]
        return choice["message"]["content"] if chat else choice["text"]
    for name, answers in seen.items():
        assert [a["tokens"] for a in answers] == [tokens] * len(prompts), name
        assert all(a["first"] > 0 and a["gaps"] > 1 for a in answers), name
        for i in (0, 11, 23):
            assert answers[i]["text"] == alone(prompts[i], name.endswith("chat")), name


TOOLED = [row for row in CONVERSATIONS if row["tools"] is not None]
WEATHER = next(row for row in TOOLED if "<tool_call>" in row["greedy_text"] and "weather" in row["messages"][-1]["content"])


def test_anthropic_says_what_was_answered(cluster, use):
    rows = CHATS[::8] + TOOLED

    def body(row):
        """The client knows no temperature by itself."""
        return {k: v for k, v in messages_body(row).items() if k != "temperature"} | {"extra_body": {"temperature": 0}}

    seen = use("anthropic_messages", cluster.port, bodies=[body(row) for row in rows], calling=body(WEATHER),
               result="21 degrees, rain", changes=[{"model": "nobody"}, {"extra_body": {"temperature": 3}}, {"messages": []}, {}])
    for row, whole, streamed, counted in zip(rows, seen["whole"], seen["streamed"], seen["counted"]):
        reasoning, content, calls, n_prompt, n_answer = expected(row)
        blocks = [["thinking", reasoning]] * bool(reasoning) + [["text", content]] * bool(content)
        assert whole[:-1] == blocks + [["tool_use", list(call)] for call in calls]
        assert whole[-1] == ["tool_use" if calls else "end_turn", n_prompt, n_answer]
        assert streamed == whole and counted == n_prompt
    assert seen["round"][0] == ["text", "The weather in Accra: 21 degrees, rain."]
    assert seen["refused"] == [["NotFoundError", 404, "not_found_error"]] + [["BadRequestError", 400, "invalid_request_error"]] * 2 + [["fine"]]


def test_openai_says_through_responses_what_was_answered(cluster, use):
    rows = CHATS[::8] + TOOLED
    seen = use("openai_responses", cluster.port, bodies=[responses_body(row) for row in rows], calling=responses_body(WEATHER),
               result="21 degrees, rain", changes=[{"previous_response_id": "resp_1"}, {"temperature": 3}, {}])
    for row, whole, streamed in zip(rows, seen["whole"], seen["streamed"]):
        reasoning, content, calls, n_prompt, n_answer = expected(row)
        assert whole == [[reasoning] * bool(reasoning), content or "", [list(call) for call in calls], "completed", n_prompt, n_answer]
        assert streamed == whole
    assert seen["round"][1] == "The weather in Accra: 21 degrees, rain."
    assert seen["refused"] == [["BadRequestError", "previous_response_id"], ["BadRequestError", "temperature"], ["fine"]]
