"""Clients that leave, workers that die, drains: nothing hangs, nothing leaks, nothing wrong
is answered with 200."""
import concurrent.futures
import json
import resource
import signal
import socket
import threading
import time

import pytest

from cluster import (CONVERSATIONS, Cluster, Stream, chat_body, cut_request, generate_body, joined, read_chat,
                     wait_for)

COUNT = CONVERSATIONS[60]  # "Count from 1 to 150.", without thinking: 492 tokens
LONG = CONVERSATIONS[59]   # 1365 prompt tokens


def holdings(c):
    """What requests hold, per process: pools by state, records, descriptors."""
    m = c.metrics()
    out = {}
    for (name, labels), value in m.items():
        if name.startswith(("baton_worker_pages_", "baton_worker_slots_", "baton_worker_jobs")) or \
                name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "baton_requests"):
            out[name + "".join(sorted(f" {k}={v}" for k, v in labels))] = value
    for name in ("r0", "p0", "d0"):
        out["descriptors " + name] = c.descriptors(name)
    return out


def settle(c, before, seconds=2.0, only=dict):
    """Everything is back where it was within `seconds`; prints both."""
    deadline = time.monotonic() + seconds + 0.6  # a beat may be half a second old
    while True:
        now = only(holdings(c))
        if now == before or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    keys = sorted(before.keys() | now.keys())
    print("\n".join(f"{k}: before {before.get(k)} after {now.get(k)}" for k in keys))
    assert now == before


def warm(c):
    """One request first, so that links, arenas and connections are open."""
    r = c.post("/v1/completions", generate_body(CONVERSATIONS[0], prompt=CONVERSATIONS[0]["prompt_ids"]))
    assert r.status == 200 and r.json()["choices"][0]["text"] == CONVERSATIONS[0]["greedy_text"]
    wait_for(lambda: c.metric("baton_worker_jobs", worker="p0") == 0 and c.metric("baton_worker_jobs", worker="d0") == 0, 5)
    time.sleep(1.1)


def answers(c, row=CONVERSATIONS[0]):
    r = c.post("/v1/completions", generate_body(row, prompt=row["prompt_ids"]))
    return r.status == 200 and r.json()["choices"][0]["text"] == row["greedy_text"]


PAUSES = {
    "queued": ("p0", "prefill"),        # the prefill worker holds it before computing
    "prefilled": ("p0", "prefilled"),   # computed, the router not told yet
    "handing over": ("d0", "pull"),     # the decode worker holds the copy
    "claiming": ("d0", "claim"),
    "adopting": ("d0", "adopt"),
    "decoding": ("d0", "decode"),
}


def without_descriptors(held):
    return {k: v for k, v in held.items() if not k.startswith("descriptors ")}


@pytest.fixture(scope="module")
def warmed(build, tmp_path_factory):
    """What a cluster without faults holds after one request."""
    with Cluster(tmp_path_factory.mktemp("warmed"), build) as c:
        warm(c)
        return holdings(c)


@pytest.mark.parametrize("when", PAUSES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_gives_everything_back(build, tmp_path, warmed, when, stream):
    who, phase = PAUSES[when]
    flags = {("prefill_flags" if who == "p0" else "decode_flags"): f"--debug-fault pause@{phase}"}
    with Cluster(tmp_path, build, **flags) as c:
        idle = without_descriptors(warmed)
        settle(c, idle, only=without_descriptors)  # the workers' first beats
        s = cut_request(c, "/v1/completions", generate_body(COUNT, prompt=COUNT["prompt_ids"], stream=stream))
        wait_for(lambda: c.metric("baton_worker_fault_hits_total", worker=who) > 0, 5)
        wait_for(lambda: without_descriptors(holdings(c)) != idle, 5)  # it is held there
        s.close()
        settle(c, idle, only=without_descriptors)
        c.go(phase)  # for good: the pause has held one request, the first
        assert answers(c)
        settle(c, warmed)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_while_tokens_flow_or_wait_in_the_queue(build, tmp_path, stream):
    with Cluster(tmp_path, build, decode_seqs=1, decode_flags="--debug-fault step_delay_ms=20") as c:
        warm(c)
        before = holdings(c)
        body = generate_body(COUNT, prompt=COUNT["prompt_ids"], stream=stream)
        running = [cut_request(c, "/v1/completions", body) for _ in range(4)]  # one runs, three wait
        wait_for(lambda: c.metric("vllm:num_requests_running") >= 1, 5)
        time.sleep(0.5)
        for s in running:
            s.close()
        settle(c, before)
        assert answers(c)


@pytest.mark.parametrize("victim", ["p0", "d0"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_killed_worker_without_replays_is_a_clear_error_and_service_returns(build, tmp_path, victim, stream):
    slow = "--debug-fault step_delay_ms=20"
    with Cluster(tmp_path, build, router_flags="--max-replays 0",
                 prefill_flags=slow + " --max-num-batched-tokens 64",
                 decode_flags=slow) as c:
        warm(c)
        row = LONG if victim == "p0" else COUNT
        got = {}

        def ask():
            try:
                if stream:
                    s = Stream(c, "/v1/completions", generate_body(row, prompt=row["prompt_ids"]))
                    got["status"] = s.status
                    if s.status == 200:
                        got["events"] = list(s.events())
                        got["done"] = s.done
                    else:
                        got["body"] = json.loads(s.answer.read())
                else:
                    r = c.post("/v1/completions", generate_body(row, prompt=row["prompt_ids"]))
                    got["status"], got["body"] = r.status, r.json()
            finally:
                got["at"] = time.monotonic()
        asking = threading.Thread(target=ask)
        asking.start()
        busy = "baton_worker_jobs"
        wait_for(lambda: c.metric(busy, worker=victim) >= 1, 5)
        time.sleep(0.2 if victim == "p0" else 0.5)
        killed = time.monotonic()
        c.kill(victim)
        asking.join(10)
        assert not asking.is_alive(), "the request hangs"
        assert got["at"] - killed < 5.0
        print(f"answered {got['at'] - killed:.2f} s after the kill with {got['status']}")
        if got["status"] == 200:
            assert stream and victim == "d0", "200 without an answer"
            text = "".join(ch["text"] for e in got["events"] if "choices" in e for ch in e["choices"])
            assert row["greedy_text"].startswith(text)
            assert "error" in got["events"][-1] and got["done"]
            assert all(ch.get("finish_reason") is None
                       for e in got["events"] if "choices" in e for ch in e["choices"])
        else:
            assert got["status"] == 503 and got["body"]["error"]["message"]
        back = time.monotonic()
        wait_for(lambda: c.ready() and answers(c), 20)
        print(f"service returned {time.monotonic() - back:.2f} s later")


def test_workers_that_die_again_and_again_leak_nothing(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        warm(c)
        c.kill("d0")
        wait_for(lambda: c.ready() and answers(c), 20)
        warm(c)
        before = holdings(c)
        for victim in ["p0", "d0", "p0", "d0", "p0"]:
            c.kill(victim)
            wait_for(lambda: c.ready() and answers(c), 30)
        warm(c)
        settle(c, before)
        assert len(list(c.runtime.glob("*.link"))) == 2, "sockets of dead workers are cleared away"


@pytest.mark.parametrize("who", ["d0", "p0", "r0"])
def test_a_drain_lets_the_stream_end_right(build, tmp_path, who):
    with Cluster(tmp_path, build, decode_flags="--debug-fault step_delay_ms=4") as c:
        warm(c)
        s = Stream(c, "/v1/chat/completions", chat_body(COUNT))
        events, first = s.events(), []
        while len(first) < 8:  # past the first token, which the prefill worker draws
            first.append(next(events))
        pid = c.pid(who)
        c.kill(who, signal.SIGTERM)

        class Rest:
            def events(self):
                yield from first
                yield from events
        reasoning, content, finish, _ = read_chat(Rest())
        assert joined(COUNT, reasoning, content) == COUNT["greedy_text"]
        assert finish == "stop" and s.done
        wait_for(lambda: c.rows()[who]["pid"] != pid, 15)
        assert c.rows()[who]["last_exit"] == 0


@pytest.mark.parametrize("replays", [0, 1])
def test_a_drain_waits_for_what_was_placed_there(build, tmp_path, replays):
    """A decode worker is reserved for a prompt that is in prefill: it knows nothing of it yet."""
    with Cluster(tmp_path, build, router_flags=f"--max-replays {replays}",
                 prefill_flags="--debug-fault pause@prefilled") as c:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            asked = [pool.submit(answers, c, row) for row in CONVERSATIONS[:3]]
            wait_for(lambda: c.metric("baton_worker_jobs", worker="p0") == 3, 5)
            wait_for(lambda: c.metric("baton_worker_fault_hits_total", worker="p0") > 0, 5)
            c.kill("d0", signal.SIGTERM)
            wait_for(lambda: c.get("/ready").status == 503, 5)
            time.sleep(1.5)  # three beats
            assert c.rows()["d0"]["state"] == "running", "it left what was placed on it"
            c.go("prefilled")
            assert [a.result(30) for a in asked] == [True] * 3
        wait_for(lambda: c.rows()["d0"]["state"] == "stopped", 15)
        assert c.rows()["d0"]["last_exit"] == 0


def test_a_router_whose_workers_are_full_and_stand_still_is_not_ready(build, tmp_path):
    with Cluster(tmp_path, build, prefill_flags="--debug-fault pause@prefilled --state-slots 2") as c:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            asked = pool.submit(answers, c)  # it has the only slot, and nothing computes
            wait_for(lambda: c.metric("baton_worker_jobs", worker="p0") == 1, 5)
            assert c.ready()
            wait_for(lambda: not c.ready(), 10)
            r = c.post("/v1/completions", generate_body(COUNT, prompt="x"))
            assert r.status == 503 and "stands still" in r.json()["error"]["message"]
            c.go("prefilled")
            assert asked.result(30)
        wait_for(c.ready, 5)
        assert answers(c)


def test_the_first_event_comes_long_before_the_end(build, tmp_path):
    with Cluster(tmp_path, build, decode_flags="--debug-fault step_delay_ms=4") as c:
        warm(c)
        s = Stream(c, "/v1/completions", generate_body(COUNT, prompt=COUNT["prompt_ids"]))
        times = [time.monotonic() for _ in s.events()]
        assert len(times) * 4 >= len(COUNT["greedy_ids"])
        assert times[0] - s.begun < (times[-1] - s.begun) / 10
        seen = c.outcome(s.id)
        assert float(seen["ttft_ms"]) < float(seen["total_ms"]) / 10


def test_no_worker_is_503_at_once_with_a_reason(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        warm(c)
        c.kill("d0", signal.SIGTERM)
        wait_for(lambda: c.rows()["d0"]["state"] == "stopped", 15)
        wait_for(lambda: c.get("/ready").status == 503, 5)
        begun = time.monotonic()
        r = c.post("/v1/completions", generate_body(COUNT, prompt="x"))
        assert r.status == 503 and "decode" in r.json()["error"]["message"]
        assert time.monotonic() - begun < 1
        assert c.get("/live").status == 200


def test_a_full_queue_is_503_with_retry_after(build, tmp_path):
    with Cluster(tmp_path, build, router_flags="--max-queued 2",
                 decode_seqs=1, decode_flags="--debug-fault step_delay_ms=20") as c:
        warm(c)
        body = generate_body(COUNT, prompt=COUNT["prompt_ids"], stream=True)
        held = []
        deadline = time.monotonic() + 10
        while c.metric("vllm:num_requests_waiting") < 2:  # one runs, two fill the queue
            assert time.monotonic() < deadline
            held.append(cut_request(c, "/v1/completions", body))
            time.sleep(0.05)
        r = c.post("/v1/completions", body)
        assert r.status == 503 and int(r.headers["Retry-After"]) >= 1, r.body
        for s in held:
            s.close()
        wait_for(lambda: answers(c), 10)


def test_the_connection_limit_is_left_again(build, tmp_path):
    """At the limit nobody is accepted; once places are free, everybody is."""
    with Cluster(tmp_path, build, router_flags="--connections-max 4") as c:
        for _ in range(3):
            held = [socket.create_connection(("127.0.0.1", c.port)) for _ in range(8)]
            time.sleep(0.3)
            for s in held:
                s.close()
            assert c.get("/live", timeout=5).status == 200
        assert answers(c)


def test_descriptors_that_ran_out_and_came_back_are_used_again(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        pid, n = c.pid("r0"), c.descriptors("r0")
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (n + 3, hard))
        held = [socket.create_connection(("127.0.0.1", c.port)) for _ in range(8)]
        time.sleep(0.5)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        for s in held:
            s.close()
        assert c.get("/live", timeout=5).status == 200
        assert answers(c)


@pytest.mark.parametrize("who,phase", [("prefill", "prefill"), ("decode", "pull"), ("decode", "decode")])
def test_a_worker_that_beats_and_does_not_work_is_not_waited_for(build, tmp_path, who, phase):
    with Cluster(tmp_path, build, router_flags="--stall-timeout-s 1",
                 **{f"{who}_flags": f"--debug-fault pause@{phase}"}) as c:
        row = CONVERSATIONS[0]
        begun = time.monotonic()
        r = c.post("/v1/completions", generate_body(row, prompt=row["prompt_ids"]), timeout=20)
        assert r.status == 504 and r.json()["error"]["code"] == "timeout"
        assert time.monotonic() - begun < 4
        assert c.outcome(r.headers["X-Request-Id"])["error"] == "timeout"
        c.go(phase)
        wait_for(lambda: answers(c), 10)
