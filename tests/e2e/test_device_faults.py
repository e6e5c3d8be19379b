"""A device that fails or hangs, in the engine or in a copy: the worker tells the routers and
ends with status 4, its requests are begun again elsewhere or fail with a sentence. A
worker that was stopped itself is no such device."""
import signal
import threading
import time

import pytest

from cluster import CONVERSATIONS, Cluster, generate_body, in_parallel, wait_for

COUNT = CONVERSATIONS[60]  # 492 tokens
LONG = CONVERSATIONS[59]   # 1365 prompt tokens, in passes of 64

BLOWS = [("decode", "fail_step=40", "debug_fault: fail_step"), ("decode", "hang_step=40", "device_timeout_s"),
         ("decode", "fail_copy=1", "debug_fault: fail_copy"), ("prefill", "fail_step=9", "debug_fault: fail_step"),
         ("prefill", "hang_step=9", "device_timeout_s")]


def ask(c, row):
    return c.post("/v1/completions", generate_body(row, prompt=row["prompt_ids"]), timeout=30)


def flags(who, blow):
    own = f"--device-timeout-s 1 --debug-fault {blow}"
    more = "--max-num-batched-tokens 64 " if who == "prefill" else ""
    return {f"{who}_flags": more + own}


def ended_with_4(c, name):
    return f"{name} ended with status 4" in c.log("launcher")


@pytest.mark.parametrize("who,blow,text", BLOWS)
def test_requests_of_a_failed_device_are_right_elsewhere(build, tmp_path, who, blow, text):
    name = f"{who[0]}0"
    row = LONG if who == "prefill" else COUNT
    with Cluster(tmp_path, build, **flags(who, blow)) as c:
        got = in_parallel(lambda row: (ask(c, row), row), [row, CONVERSATIONS[0], CONVERSATIONS[1]], 3)
        for r, row in got:
            assert r.status == 200 and r.json()["choices"][0]["text"] == row["greedy_text"], r.body
        assert ended_with_4(c, name)
        assert text in c.log(name)
        assert f"worker {name}#" in c.log("r0") and "is lost: its device failed: " in c.log("r0")
        assert c.metric("baton_replays_total") >= (0 if "copy" in blow else 1)
        wait_for(lambda: ask(c, CONVERSATIONS[2]).status == 200, 10)


@pytest.mark.parametrize("who,blow,text", BLOWS)
def test_without_replays_a_failed_device_is_a_clear_error(build, tmp_path, who, blow, text):
    row = LONG if who == "prefill" else COUNT
    with Cluster(tmp_path, build, router_flags="--max-replays 0", **flags(who, blow)) as c:
        begun = time.monotonic()
        r = ask(c, row)
        if blow.startswith("fail_copy"):  # the lease is whole: another pull serves it
            assert r.status == 200 and r.json()["choices"][0]["text"] == row["greedy_text"]
        else:
            assert r.status == 503 and r.json()["error"]["code"] == "worker_lost", r.body
            assert f"The {who} worker {who[0]}0 was lost" in r.json()["error"]["message"]
        assert time.monotonic() - begun < 8
        wait_for(lambda: ended_with_4(c, f"{who[0]}0"), 5)
        wait_for(lambda: ask(c, CONVERSATIONS[0]).status == 200, 20)


@pytest.mark.parametrize("name,row,after", [("d0", COUNT, 1.0), ("p0", LONG, 0.2)])
def test_a_worker_that_was_stopped_has_no_hung_device(build, tmp_path, name, row, after):
    """Stopped for longer than device_timeout_s, several times, in the middle of a step or pass."""
    slow = "--device-timeout-s 1 --debug-fault step_delay_ms="
    flags = {"d0": {"decode_flags": slow + "20"},
             "p0": {"prefill_flags": "--max-num-batched-tokens 64 " + slow + "200"}}[name]
    got = []
    with Cluster(tmp_path, build, **flags) as c:
        pid = c.pid(name)
        asking = threading.Thread(target=lambda: got.append(ask(c, row)))
        asking.start()
        for _ in range(3):
            time.sleep(after)
            c.kill(name, signal.SIGSTOP)
            time.sleep(1.6)
            c.kill(name, signal.SIGCONT)
        assert not got, "it was stopped while it worked"
        asking.join()
        assert got[0].status == 200 and got[0].json()["choices"][0]["text"] == row["greedy_text"], got[0].body
        assert c.pid(name) == pid and not ended_with_4(c, name)
        assert c.metric("baton_workers_lost_total") == 0


def test_a_worker_whose_device_hangs_can_be_stopped(build, tmp_path):
    c = Cluster(tmp_path, build, decode_flags="--debug-fault hang_step=3 --shutdown-timeout 1",
                router_flags="--shutdown-timeout 1 --stall-timeout-s 2").up()
    try:
        assert ask(c, COUNT).status == 504
    finally:
        begun = time.monotonic()
        r = c.down()
    assert r.returncode == 6 and "d0" in r.stderr  # its work was cut
    assert time.monotonic() - begun < 15


def test_more_sequences_than_tokens_in_a_batch_are_right(build, tmp_path):
    """A step has a row per sequence, however few tokens a pass may have."""
    few = "--max-num-batched-tokens 2"
    with Cluster(tmp_path, build, decode_flags=few + " --debug-fault step_delay_ms=5") as c:
        got = in_parallel(lambda row: (ask(c, row), row), CONVERSATIONS[:16], 16)
        for r, row in got:
            assert r.status == 200 and r.json()["choices"][0]["text"] == row["greedy_text"], r.body
        assert c.metric("baton_decode_rows_max") > 4
