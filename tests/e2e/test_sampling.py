"""What a client may ask of drawing, through the whole cluster: logprobs against the golden
logits, penalties and bias against their definition, stops, seeds, several choices."""
import collections
import json
import math
import pathlib
import sys
import threading
import time

import pytest

from cluster import CONVERSATIONS, ROOT, Cluster, Stream, chat_body, in_parallel, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
import stfile  # noqa: E402

GOLDEN = stfile.read(pathlib.Path(__file__).resolve().parents[1] / "golden/demo_golden.safetensors")
EOS = 2025
WILD = {"temperature": 2, "top_p": 1, "top_k": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def cluster(build, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("sampling"), build) as c:
        yield c


def ids_of(name):
    return list(GOLDEN[name][2])


def rows_of(name):
    _, (n, v), values = GOLDEN[name]
    return [values[i * v:(i + 1) * v] for i in range(n)]


def case(i=3):
    """(prompt ids, greedy ids, the logits that each of them was chosen from)"""
    return ids_of(f"case.{i}.ids"), ids_of(f"case.{i}.greedy"), rows_of(f"case.{i}.step_logits")


@pytest.fixture(scope="module")
def valid(cluster):
    """Rows of the vocabulary that have a token: a larger id is refused."""
    low, high = 1, 1 << 20
    while high - low > 1:
        mid = (low + high) // 2
        r = cluster.post("/v1/completions", {"prompt": [mid], "max_tokens": 1})
        low, high = (mid, high) if r.status == 200 else (low, mid)
    return low + 1


def log_softmax(logits):
    top = max(logits)
    total = math.log(sum(math.exp(x - top) for x in logits)) + top
    return [x - total for x in logits]


def ask(cluster, path="/v1/completions", **body):
    r = cluster.post(path, {"model": "demo", "temperature": 0, **body})
    assert r.status == 200, r.body
    return r.json()


def choice(cluster, **body):
    return ask(cluster, **body)["choices"][0]


def refused(cluster, word, path="/v1/completions", **body):
    r = cluster.post(path, {"model": "demo", **body})
    assert r.status == 400, r.body
    error = r.json()["error"]
    assert word in error["message"] + str(error["param"])


def near(a, b, limit=1e-4):
    return abs(a - b) <= limit


# ---- logprobs ----

@pytest.mark.parametrize("i", range(4))
def test_logprobs_are_those_of_the_golden_logits(cluster, valid, i):
    prompt, greedy, steps = case(i)
    got = choice(cluster, prompt=prompt, max_tokens=len(greedy), logprobs=5, ignore_eos=True)["logprobs"]
    assert len(got["token_logprobs"]) == len(greedy)
    worst = 0
    for n, logits in enumerate(steps):
        want = log_softmax(list(logits)[:valid])
        worst = max(worst, abs(got["token_logprobs"][n] - want[greedy[n]]))
        top = sorted(want, reverse=True)[:5]
        have = sorted(got["top_logprobs"][n].values(), reverse=True)
        worst = max([worst] + [abs(a - b) for a, b in zip(top, have)])
    print(f"{len(greedy)} tokens: logprobs differ by {worst:.1e} at most")
    assert worst <= 1e-4


@pytest.mark.parametrize("i", range(4))
def test_echo_gives_the_prompt_and_its_logprobs(cluster, valid, i):
    prompt, greedy, steps = case(i)
    whole = prompt + greedy
    text = cluster.post("/detokenize", {"tokens": whole}).json()["prompt"]
    got = choice(cluster, prompt=whole, max_tokens=0, echo=True, logprobs=2)
    assert got["text"] == text and got["finish_reason"] == "length"
    lp = got["logprobs"]
    assert len(lp["tokens"]) == len(whole) and lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None
    rows = rows_of(f"case.{i}.logits")
    rows = rows[:-1] if len(rows) == len(prompt) else []  # of every position of a short prompt
    for at, logits in list(enumerate(rows, 1)) + list(enumerate(steps, len(prompt))):
        assert near(lp["token_logprobs"][at], log_softmax(list(logits)[:valid])[whole[at]])
    assert all(a <= b for a, b in zip(lp["text_offset"], lp["text_offset"][1:]))
    one = choice(cluster, prompt=whole, max_tokens=1, echo=True, logprobs=0)
    assert one["text"].startswith(text) and len(one["logprobs"]["tokens"]) == len(whole) + 1
    assert one["logprobs"]["token_logprobs"][:-1] == lp["token_logprobs"]
    assert choice(cluster, prompt=whole, max_tokens=0, echo=True)["logprobs"] is None


def test_prompt_logprobs_are_the_same_numbers_in_another_form(cluster):
    prompt, _, _ = case()
    assert choice(cluster, prompt=prompt[:1], max_tokens=1, prompt_logprobs=3)["prompt_logprobs"] == [None]
    rows = choice(cluster, prompt=prompt, max_tokens=1, prompt_logprobs=3)["prompt_logprobs"]
    echo = choice(cluster, prompt=prompt, max_tokens=1, echo=True, logprobs=0)["logprobs"]["token_logprobs"]
    assert rows[0] is None and len(rows) == len(prompt)
    for i in range(1, len(prompt)):
        own = rows[i][str(prompt[i])]
        assert own["logprob"] == echo[i]
        ranks = sorted(e["rank"] for e in rows[i].values() if e["rank"] is not None)
        assert ranks[:3] == [1, 2, 3] and 3 <= len(rows[i]) <= 4
    chat = ask(cluster, "/v1/chat/completions", messages=[{"role": "user", "content": "Hi"}],
               max_tokens=1, prompt_logprobs=0)
    assert len(chat["prompt_logprobs"]) == chat["usage"]["prompt_tokens"]


def test_a_long_prompt_is_scored_in_parts(cluster):
    prompt = [(i * 7919) % 1900 + 10 for i in range(1500)]
    whole = choice(cluster, prompt=prompt, max_tokens=1, echo=True, logprobs=1)["logprobs"]
    assert len(whole["tokens"]) == 1501
    head = choice(cluster, prompt=prompt[:300], max_tokens=1, echo=True, logprobs=1)["logprobs"]
    assert all(near(a, b) for a, b in zip(whole["token_logprobs"][1:300], head["token_logprobs"][1:300]))


@pytest.mark.asan
def test_chat_logprobs_have_one_entry_for_each_token(cluster):
    row = CONVERSATIONS[0]
    answer = ask(cluster, "/v1/chat/completions", **chat_body(row, logprobs=True, top_logprobs=4))
    content = answer["choices"][0]["logprobs"]["content"]
    assert len(content) == answer["usage"]["completion_tokens"] == len(row["greedy_ids"])
    text = b"".join(bytes(e["bytes"]) for e in content[:-1]).decode()
    assert text == row["greedy_text"]
    for e in content:
        assert len(e["top_logprobs"]) == 4 and e["top_logprobs"][0]["token"] == e["token"]
        assert e["logprob"] == e["top_logprobs"][0]["logprob"] <= 0
    s = Stream(cluster, "/v1/chat/completions", chat_body(row, logprobs=True, top_logprobs=4))
    streamed = [e for event in s.events() for c in event["choices"] if c["logprobs"]
                for e in c["logprobs"]["content"]]
    assert streamed == content and s.done


def test_what_is_wrong_with_logprobs_is_refused(cluster):
    talk = {"messages": [{"role": "user", "content": "x"}]}
    chat = "/v1/chat/completions"
    refused(cluster, "top_logprobs", chat, **talk, top_logprobs=3)
    refused(cluster, "top_logprobs", chat, **talk, logprobs=True, top_logprobs=21)
    refused(cluster, "logprobs", chat, **talk, logprobs=5)
    refused(cluster, "logprobs", prompt="x", logprobs=21)
    refused(cluster, "prompt_logprobs", prompt="x", prompt_logprobs=1, stream=True)
    refused(cluster, "max_tokens", prompt="x", max_tokens=0)


# ---- penalties, bias, stops ----

@pytest.mark.asan
def test_penalties_follow_their_definition_at_every_step(cluster):
    """Presence and frequency only shift logits, so logprobs are enough to predict them."""
    for body in ({"presence_penalty": 1.2}, {"frequency_penalty": 0.7}, {"presence_penalty": -0.5, "frequency_penalty": 0.9}):
        prompt = CONVERSATIONS[60]["prompt_ids"]
        got = choice(cluster, prompt=prompt, max_tokens=60, logprobs=20, ignore_eos=True, **body)["logprobs"]
        made = collections.Counter()
        for token, top in zip(got["tokens"], got["top_logprobs"]):
            def value(t):
                return top[t] - body.get("frequency_penalty", 0) * made[t] \
                    - body.get("presence_penalty", 0) * (made[t] > 0)
            best = max(top, key=value)
            assert token == best or near(value(token), value(best), 1e-5)
            made[token] += 1


def test_repetition_penalty_of_the_first_token(cluster, valid):
    prompt, greedy, steps = case()
    for r in (1.4, 3.0, 0.5):
        x = list(steps[0])[:valid]
        for t in set(prompt):
            x[t] = x[t] / r if x[t] > 0 else x[t] * r
        got = choice(cluster, prompt=prompt, max_tokens=1, logprobs=0, repetition_penalty=r)
        text = cluster.post("/detokenize", {"tokens": [x.index(max(x))]}).json()["prompt"]
        assert got["text"] == text


def test_repetition_penalty_goes_on_in_decode(cluster):
    body = dict(prompt=CONVERSATIONS[60]["prompt_ids"], max_tokens=50, ignore_eos=True, logprobs=0)
    plain, strict = (choice(cluster, repetition_penalty=r, **body)["logprobs"]["tokens"] for r in (1.0, 50.0))
    assert len(set(plain)) < len(set(strict)) == 50, "a token came twice"


def test_bias_forces_and_forbids(cluster):
    prompt, greedy, _ = case()
    text = cluster.post("/detokenize", {"tokens": [77]}).json()["prompt"]
    got = choice(cluster, prompt=prompt, max_tokens=6, logit_bias={"77": 100})
    assert got["text"] == text * 6
    got = choice(cluster, prompt=prompt, max_tokens=8, logit_bias={str(greedy[0]): -100}, logprobs=0)["logprobs"]
    assert got["tokens"][0] != cluster.post("/detokenize", {"tokens": [greedy[0]]}).json()["prompt"]
    for bad in ({"x": 1}, {"5": 101}, {"5": "1"}, {"-1": 1}, {"99999999": 1}, [1]):
        refused(cluster, "logit_bias", prompt="x", logit_bias=bad)


def test_min_tokens_keeps_the_answer_going(cluster):
    row = CONVERSATIONS[0]
    n = len(row["greedy_ids"])
    answer = ask(cluster, prompt=row["prompt_ids"], max_tokens=200, min_tokens=n + 20)
    assert answer["usage"]["completion_tokens"] > n + 20
    assert answer["choices"][0]["text"].startswith(row["greedy_text"])
    # A stop string is not looked for in the text of those tokens.
    long = CONVERSATIONS[60]
    got = choice(cluster, prompt=long["prompt_ids"], max_tokens=300, min_tokens=60, stop=[" 4"])
    assert len(got["text"]) > len(long["greedy_text"].split(" 4")[0]) and got["stop_reason"] == " 4"
    refused(cluster, "min_tokens", prompt="x", max_tokens=5, min_tokens=6)


def test_stop_token_ids_end_the_answer_and_give_no_text(cluster):
    row = CONVERSATIONS[60]
    stop = row["greedy_ids"][30]
    at = row["greedy_ids"].index(stop)
    answer = ask(cluster, prompt=row["prompt_ids"], max_tokens=300, stop_token_ids=[stop])
    got = answer["choices"][0]
    assert got["finish_reason"] == "stop" and got["stop_reason"] == stop
    assert answer["usage"]["completion_tokens"] == at + 1
    want = cluster.post("/detokenize", {"tokens": row["greedy_ids"][:at]}).json()["prompt"]
    assert got["text"] == want
    refused(cluster, "stop_token_ids", prompt="x", stop_token_ids=[99999999])
    refused(cluster, "stop_token_ids", prompt="x", stop_token_ids=["a"])


# ---- numbers drawn, choices ----

def texts(answer):
    assert [c["index"] for c in answer["choices"]] == list(range(len(answer["choices"])))
    return [c["text"] for c in answer["choices"]]


@pytest.mark.asan
def test_choices_are_functions_of_seed_and_number(cluster):
    body = dict(prompt=CONVERSATIONS[3]["prompt_ids"], max_tokens=30, seed=7, **WILD)
    four = texts(ask(cluster, n=4, **body))
    assert len(set(four)) == 4
    assert texts(ask(cluster, n=4, **body)) == four
    assert texts(ask(cluster, n=2, **body)) == four[:2]
    assert texts(ask(cluster, **body)) == four[:1]
    assert texts(ask(cluster, n=4, best_of=4, **body)) == four
    refused(cluster, "best_of", n=2, best_of=3, prompt="x")
    refused(cluster, "n", n=0, prompt="x")
    refused(cluster, "n", n=129, prompt="x")
    refused(cluster, "n", n=128, prompt=["x", "y", "z"])


def test_one_prefill_serves_all_choices(cluster):
    before = cluster.metric("vllm:prompt_tokens_total")
    prompt = CONVERSATIONS[59]["prompt_ids"]
    answer = ask(cluster, prompt=prompt, max_tokens=8, n=8, seed=1, **WILD)
    assert answer["usage"]["prompt_tokens"] == len(prompt)
    assert cluster.metric("vllm:prompt_tokens_total") - before == len(prompt)
    wait_for(lambda: cluster.metric("vllm:num_requests_running") == 0, 5)


def test_prompts_times_choices_keep_their_order(cluster):
    prompts = [CONVERSATIONS[i]["prompt_ids"] for i in (0, 1, 2)]
    body = dict(max_tokens=12, seed=5, **WILD)
    together = texts(ask(cluster, prompt=prompts, n=3, **body))
    apart = [t for p in prompts for t in texts(ask(cluster, prompt=p, n=3, **body))]
    assert together == apart


def test_streamed_choices_are_the_same_texts(cluster):
    row = CONVERSATIONS[4]
    body = dict(chat_body(row), max_tokens=25, n=3, seed=9, **WILD)
    whole = ask(cluster, "/v1/chat/completions", **body)
    s = Stream(cluster, "/v1/chat/completions", body)
    got, ends = collections.defaultdict(str), []
    for event in s.events():
        for c in event["choices"]:
            got[c["index"]] += c["delta"].get("content") or ""
            ends += [c["index"]] if c["finish_reason"] else []
    assert s.done and sorted(ends) == [0, 1, 2]
    assert [got[i] for i in range(3)] == [c["message"]["content"] or "" for c in whole["choices"]]


def test_a_streamed_echo_is_the_same_as_a_whole_one(cluster):
    body = dict(prompt=ids_of("case.3.ids"), max_tokens=10, n=2, seed=4, echo=True, logprobs=2, **WILD)
    whole = ask(cluster, **body)["choices"]
    s = Stream(cluster, "/v1/completions", body)
    text, lists = collections.defaultdict(str), collections.defaultdict(lambda: collections.defaultdict(list))
    for event in s.events():
        for c in event["choices"]:
            text[c["index"]] += c["text"]
            for name, values in (c["logprobs"] or {}).items():
                lists[c["index"]][name] += values
    assert s.done
    for c in whole:
        assert text[c["index"]] == c["text"] and lists[c["index"]] == c["logprobs"]
        assert len(c["logprobs"]["tokens"]) == 64 + 10


def test_more_choices_than_decode_rows_are_served(cluster):
    answer = ask(cluster, prompt="The", max_tokens=6, n=100, seed=3, **WILD)
    assert len(texts(answer)) == 100
    assert answer["usage"]["completion_tokens"] <= 600


def test_a_seed_gives_its_text_whatever_runs_beside_it(cluster, build, tmp_path):
    bodies = [dict(prompt=CONVERSATIONS[i]["prompt_ids"], max_tokens=40, seed=100 + i, presence_penalty=0.4,
                   **WILD) for i in range(12)]
    alone = [texts(ask(cluster, **b)) for b in bodies]
    assert in_parallel(lambda b: texts(ask(cluster, **b)), bodies) == alone
    with Cluster(tmp_path, build, prefill=2, decode=2, prefill_flags="--max-num-batched-tokens 64") as other:
        assert in_parallel(lambda b: texts(ask(other, **b)), bodies) == alone


def test_draws_follow_the_distribution(cluster):
    """Temperature and top-k together: frequencies of 1024 draws against the logprobs."""
    prompt = ids_of("case.1.ids")
    top = choice(cluster, prompt=prompt, max_tokens=1, logprobs=8, temperature=0)["logprobs"]["top_logprobs"][0]
    kept = sorted(top.items(), key=lambda e: -e[1])[:8]
    weights = {t: math.exp(lp / 1.7) for t, lp in kept}
    total, seen = sum(weights.values()), collections.Counter()
    for seed in range(8):
        answer = ask(cluster, prompt=prompt, max_tokens=1, n=128, seed=seed, temperature=1.7, top_k=8, top_p=1,
                     min_p=0, logprobs=0)
        seen.update(c["logprobs"]["tokens"][0] for c in answer["choices"])
    assert set(seen) <= set(weights)
    expected = {t: 1024 * w / total for t, w in weights.items()}
    chi = sum((seen[t] - e) ** 2 / e for t, e in expected.items() if e >= 5)
    print(f"chi-square {chi:.1f}")
    assert chi < 24.3  # 7 degrees of freedom, p = 0.001


def test_nothing_is_left_behind(cluster):
    def free():
        pages = {k: v for k, v in cluster.metrics().items() if k[0] == "baton_pages"}
        return all(v == 0 for (_, labels), v in pages.items() if dict(labels).get("state") not in ("free", None))
    wait_for(free, 15)


def test_a_replay_draws_and_penalises_as_if_nothing_had_happened(build, tmp_path):
    """A decode worker dies under four choices: each is prefilled again, alone, with the
    tokens it had, and its text and logprobs are those of an undisturbed run."""
    body = dict(prompt=CONVERSATIONS[60]["prompt_ids"], max_tokens=60, n=4, seed=17, logprobs=2, frequency_penalty=0.3,
                repetition_penalty=1.1, min_tokens=40, logit_bias={"77": 1.5}, **WILD)
    with Cluster(tmp_path, build, decode=2,
                 decode_flags="--debug-fault step_delay_ms=20") as c:
        calm = ask(c, **body)["choices"]
        got = []
        asking = threading.Thread(target=lambda: got.append(ask(c, **body)["choices"]))
        asking.start()
        wait_for(lambda: c.metric("baton_worker_jobs", worker="d0") >= 2, 5, step=0.01)
        time.sleep(0.4)
        c.kill("d0")
        asking.join(30)
        assert got, "no answer"
        assert [x["text"] for x in got[0]] == [x["text"] for x in calm]
        for a, b in zip(got[0], calm):
            assert a["logprobs"]["tokens"] == b["logprobs"]["tokens"]
            assert all(near(x, y) for x, y in zip(a["logprobs"]["token_logprobs"], b["logprobs"]["token_logprobs"]))
        assert c.metric("baton_replays_total") >= 1
        wait_for(c.ready, 20)


def test_the_models_own_defaults_draw_as_a_request_that_says_them(build, cluster, tmp_path):
    """generation_config.json with penalties, lengths, suppressed tokens, and a member that is not done."""
    model = tmp_path / "model"
    model.mkdir()
    for path in (ROOT / "deploy/demo-model").iterdir():
        if path.name != "generation_config.json":
            (model / path.name).symlink_to(path)
    row = CONVERSATIONS[0]
    first = row["greedy_ids"][0]
    said = {"repetition_penalty": 1.7, "presence_penalty": 1.5, "frequency_penalty": -0.5, "temperature": 0.9,
            "top_k": 40, "top_p": 0.9}
    own = json.loads((ROOT / "deploy/demo-model/generation_config.json").read_text())
    own.update(said, max_new_tokens=24, min_new_tokens=20, suppress_tokens=[first], num_beams=4)
    (model / "generation_config.json").write_text(json.dumps(own))
    body = {"model": "demo", "prompt": row["prompt_ids"], "seed": 11}
    want = cluster.post("/v1/completions", dict(body, **said, max_tokens=24, min_tokens=20,
                                                logit_bias={str(first): -100})).json()
    plain = cluster.post("/v1/completions", dict(body, max_tokens=24)).json()
    with Cluster(tmp_path, build, model=model) as c:
        got = c.post("/v1/completions", body).json()
        again = c.post("/v1/completions", dict(body, repetition_penalty=1, presence_penalty=0, frequency_penalty=0,
                                               min_tokens=0, temperature=0.6, top_k=20, top_p=0.95,
                                               logit_bias={str(first): 0})).json()
        assert c.log("r0").count('asks for what is not done here: "num_beams" 4') == 1
    assert got["choices"][0]["text"] == want["choices"][0]["text"] != plain["choices"][0]["text"]
    assert got["usage"]["completion_tokens"] == want["usage"]["completion_tokens"]
    assert again["choices"][0]["text"] == plain["choices"][0]["text"]
