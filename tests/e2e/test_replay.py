"""With the defaults a worker may die, be drained or run out of pages: answers are those of an undisturbed run."""
import json
import signal
import threading
import time

import pytest

from cluster import CONVERSATIONS, Cluster, Stream, generate_body, wait_for
from test_ctl import run_ctl

COUNT = CONVERSATIONS[60]["prompt_ids"]  # "Count from 1 to 150."
SLOW = "--debug-fault step_delay_ms=15"
CASES = {
    "greedy": dict(temperature=0, max_tokens=120),
    "hot with logprobs": dict(temperature=2, max_tokens=90, seed=5, logprobs=5, top_p=0.95, min_tokens=80),
    "three choices": dict(temperature=1, max_tokens=90, seed=6, n=3, logprobs=1, min_tokens=60),
    "penalties": dict(temperature=1.3, max_tokens=90, seed=7, frequency_penalty=0.4, presence_penalty=0.3,
                      repetition_penalty=1.2, min_tokens=80),
    "a stop string": dict(temperature=0, max_tokens=200, stop=["57"], logprobs=0),
    "a form": dict(temperature=1.5, max_tokens=120, seed=9, structured_outputs={"regex": "([a-z]{3,9} ){30,40}end"}),
    "least tokens": dict(temperature=1.7, max_tokens=100, seed=8, min_tokens=100, top_k=40, min_p=0.01),
}


def whole(c, fields):
    r = c.post("/v1/completions", generate_body(CONVERSATIONS[60], prompt=COUNT, **fields))
    assert r.status == 200, r.body
    return [(x["text"], x["finish_reason"], x["logprobs"]) for x in r.json()["choices"]], r.json()["usage"]


def streamed(c, fields):
    """The same facts, put together from the events."""
    s = Stream(c, "/v1/completions", dict(generate_body(CONVERSATIONS[60], prompt=COUNT, **fields),
                                          stream_options={"include_usage": True}))
    assert s.status == 200
    choices, usage = {}, None
    for event in s.events():
        assert "error" not in event, event
        usage = event.get("usage") or usage
        for x in event["choices"]:
            text, finish, logprobs = choices.get(x["index"], ("", None, None))
            if x["logprobs"]:
                logprobs = {k: (logprobs or {}).get(k, []) + v for k, v in x["logprobs"].items()}
            choices[x["index"]] = (text + x["text"], x["finish_reason"] or finish, logprobs)
    assert s.done
    return [choices[i] for i in sorted(choices)], usage


def at_once(c, jobs):
    """Starts all; returns a function that waits for their answers, in order."""
    got = [None] * len(jobs)

    def run(i, ask, fields):
        got[i] = ask(c, fields)
    threads = [threading.Thread(target=run, args=(i, *job)) for i, job in enumerate(jobs)]
    for t in threads:
        t.start()

    def wait():
        for t in threads:
            t.join(90)
        return got
    return wait


JOBS = [(ask, fields) for fields in CASES.values() for ask in (whole, streamed)]


LONG = [(whole, dict(temperature=1.2, max_tokens=2300, ignore_eos=True, seed=seed)) for seed in (1, 2)]


@pytest.fixture(scope="module")
def undisturbed(build, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("calm"), build) as c:
        return at_once(c, JOBS + LONG)()


@pytest.fixture
def calm(undisturbed):
    return undisturbed[:len(JOBS)]


@pytest.fixture
def calm_long(undisturbed):
    return undisturbed[len(JOBS):]


def generated(c, n):
    return lambda: c.metric("vllm:generation_tokens_total") >= n


@pytest.mark.parametrize("how", [signal.SIGKILL, "a cut drain"])
def test_answers_go_on_elsewhere_byte_for_byte(build, tmp_path, calm, how):
    cut = "--shutdown-timeout 0 " if how == "a cut drain" else ""
    with Cluster(tmp_path, build, decode=2, decode_flags=cut + SLOW) as c:
        answers = at_once(c, JOBS)
        wait_for(generated(c, 300), 30)
        c.kill("d0", signal.SIGTERM if cut else how)
        assert answers() == calm
        assert c.metric("baton_replays_total") >= 3
        assert c.metric("baton_replayed_prompt_tokens_total") > 0
        asked = sum(usage["prompt_tokens"] for _, usage in calm)
        assert c.metric("vllm:prompt_tokens_total") == asked, "a prompt counts once"
        wait_for(c.ready, 20)


def test_a_prompt_whose_prefill_worker_dies_waits_for_the_next_one(build, tmp_path):
    """The only one of its role: the launcher starts it again within its back-off."""
    row = CONVERSATIONS[59]  # 1365 tokens
    with Cluster(tmp_path, build, prefill_flags=SLOW + " --max-num-batched-tokens 64") as c:
        got = []
        asking = threading.Thread(target=lambda: got.append(c.post("/v1/completions", generate_body(
            row, prompt=row["prompt_ids"]))))
        asking.start()
        wait_for(lambda: c.metric("baton_worker_jobs", worker="p0") >= 1, 10)
        c.kill("p0")
        asking.join(60)
        assert got and got[0].status == 200 and got[0].json()["choices"][0]["text"] == row["greedy_text"]


def test_a_role_that_stays_away_is_a_clear_error_after_the_wait(build, tmp_path):
    with Cluster(tmp_path, build, router_flags="--worker-wait-s 1", decode_flags=SLOW) as c:
        answers = at_once(c, [(lambda c, fields: c.post("/v1/completions", generate_body(
            CONVERSATIONS[60], prompt=COUNT, **fields)), CASES["greedy"])])
        wait_for(generated(c, 20), 20)
        c.kill("d0", signal.SIGSTOP)
        r = answers()[0]
        assert r.status == 503 and r.json()["error"]["code"] == "no_workers", r.body
        assert "Retry-After" in r.headers and "x-should-retry" not in r.headers
        c.kill("d0", signal.SIGCONT)
        wait_for(c.ready, 20)


def test_want_of_pages_ends_no_request(build, tmp_path, calm_long):
    """Two answers that outgrow what was reserved for them (2048 tokens): more pages than there are."""
    with Cluster(tmp_path, build, decode_flags="--kv-pages 67", router_flags="--max-replays 1") as c:
        assert at_once(c, LONG)() == calm_long
        assert c.metric("vllm:num_preemptions_total") >= 1


def drained(c, build, name, *words):
    return run_ctl(build, c.runtime, "drain", name, *words)


def empty_pools(c, build, name):
    text = run_ctl(build, c.runtime, "ask", name, "pools").stdout
    pools = json.loads(text)
    return all(pools[kind]["free"] == pools[kind]["total"] for kind in ("pages", "slots"))


def test_a_drain_that_migrates_moves_live_answers_byte_for_byte(build, tmp_path, calm):
    """There and back again: what d0 had goes on at d1, then all of it at d0; nothing is computed twice."""
    with Cluster(tmp_path, build, decode=2, decode_flags=SLOW) as c:
        answers = at_once(c, JOBS)
        wait_for(generated(c, 300), 30)
        begun = time.monotonic()
        r = drained(c, build, "d0", "--migrate")
        seconds = time.monotonic() - begun
        assert r.returncode == 0, r.stderr
        first = c.metric("baton_migrations_total")
        assert first >= 3 and "undrain" not in r.stderr
        assert run_ctl(build, c.runtime, "undrain", "d0").returncode == 0
        assert drained(c, build, "d1", "--migrate").returncode == 0
        assert c.metric("baton_migrations_total") >= first + 3
        assert answers() == calm
        assert c.metric("baton_replays_total") == 0
        asked = sum(usage["prompt_tokens"] for _, usage in calm)
        assert c.metric("vllm:prompt_tokens_total") == asked
        assert seconds < 20, "the answers would have taken that long where they were"
        wait_for(lambda: empty_pools(c, build, "d0") and empty_pools(c, build, "d1") and empty_pools(c, build, "p0"), 10)


def test_no_drain_migrates_where_nobody_could_go_on(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        r = drained(c, build, "d0", "--migrate", "--force")
        assert r.returncode == 1 and "no other decode worker takes work" in r.stderr, r.stderr
        r = drained(c, build, "p0", "--migrate", "--force")
        assert r.returncode == 1 and "no decode worker" in r.stderr, r.stderr
        assert c.ready()


@pytest.mark.parametrize("dies", ["d0", "d1"])
def test_who_dies_while_an_answer_migrates_loses_nothing(build, tmp_path, calm, dies):
    """d1 stands in the pull: the giver dies, or the taker."""
    with Cluster(tmp_path, build, decode=2, decode_flags=SLOW) as c:
        answers = at_once(c, JOBS[:2])
        wait_for(generated(c, 60), 30)
        wait_for(lambda: c.metric("baton_worker_jobs", worker="d0") >= 1 and c.metric("baton_worker_jobs", worker="d1") >= 1, 10)
        c.kill("d1", signal.SIGSTOP)
        ordered = threading.Thread(target=drained, args=(c, build, "d0", "--migrate", "--timeout", "20"))
        ordered.start()
        wait_for(lambda: c.metric("baton_migrations_total") >= 1, 10)
        c.kill(dies)
        if dies == "d0":
            c.kill("d1", signal.SIGCONT)
        assert answers() == calm[:2]
        ordered.join(60)
        wait_for(c.ready, 20)
