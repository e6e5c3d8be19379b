"""`up`, `down` and `status` on what runs already: with its supervisor and without."""
import json
import os
import signal
import time

import pytest

from cluster import CONVERSATIONS, ROOT, Cluster, Stream, generate_body, wait_for
from launcher_rig import DECODE, kill_supervisor, pids, section


def drained_by_hand(c, name):
    c.kill(name, signal.SIGTERM)
    wait_for(lambda: c.rows()[name]["state"] == "stopped", 20)


def test_up_starts_a_process_that_was_added_to_the_file(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        before = pids(c)
        section(c, DECODE)
        r = c.launcher("up")
        assert r.returncode == 0 and "d9 starts" in r.stdout and "ready: " in r.stdout, r
        assert c.metric("baton_worker_state", worker="d9", state="up") == 1
        assert {n: p for n, p in pids(c).items() if n != "d9"} == before


def test_up_starts_a_drained_worker_again(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        drained_by_hand(c, "d0")
        begun = time.monotonic()
        r = c.launcher("up")
        assert r.returncode == 0 and "d0 starts" in r.stdout and time.monotonic() - begun < 60, r
        assert c.ready() and c.rows()["d0"]["state"] == "running"


def test_up_says_what_runs_otherwise_than_the_file(build, tmp_path):
    with Cluster(tmp_path, build, decode=2) as c:
        before = pids(c)
        text = c.conf.read_text()
        c.conf.write_text(text.replace("[decode d1]", "[decode dx]").replace(
            "--max-num-seqs 32", "--max-num-seqs 16", 1))
        r = c.launcher("up")
        assert r.returncode == 2 and "baton reload" in r.stderr, r
        assert "p0 runs with other settings" in r.stderr and "d1 runs and is not in the file" in r.stderr, r
        assert "dx starts" in r.stdout and {n: p for n, p in pids(c).items() if n != "dx"} == before
        c.conf.write_text(text.replace("--max-num-seqs 32", "--no-such-flag 1", 1))
        r = c.launcher("up")
        assert r.returncode == 2 and "p0" in r.stderr and "no_such_flag" in r.stderr.replace("-", "_"), r


def serving(c):
    """Ids of the workers that the router counts on."""
    return {dict(labels)["worker"] for (name, labels), v in c.metrics().items()
            if name == "baton_worker_state" and v == 1 and ("state", "up") in labels}


def test_up_takes_over_what_a_dead_supervisor_left(build, tmp_path):
    with Cluster(tmp_path, build, decode=2) as c:
        before = pids(c)
        kill_supervisor(c)
        os.kill(before["d1"], signal.SIGKILL)
        r = c.launcher("up")
        assert r.returncode == 0 and f"d0 ({before['d0']})" in r.stdout, r
        now = pids(c)
        assert {n: p for n, p in now.items() if n != "d1"} == {n: p for n, p in before.items() if n != "d1"}
        assert now["d1"] != before["d1"] and c.rows()["d1"]["state"] == "running"
        c.kill("d0")
        wait_for(lambda: c.pid("d0") not in (before["d0"], None), 30)
        wait_for(lambda: serving(c) >= {"d0", "d1", "p0"}, 30)
        assert "d0 ended with status 1, restarting" in c.log("launcher")


def test_a_process_that_was_taken_over_and_drained_is_not_started_again(build, tmp_path):
    with Cluster(tmp_path, build, decode=2) as c:
        kill_supervisor(c)
        assert c.launcher("up").returncode == 0
        drained_by_hand(c, "d1")
        assert c.rows()["d1"]["last_exit"] == 0


def test_status_shows_what_runs_without_a_supervisor(build, tmp_path):
    c = Cluster(tmp_path, build).up()
    kill_supervisor(c)
    r, j = c.launcher("status"), c.launcher("status", "-o", "json")
    gone = c.down()
    assert r.returncode == 1 and r.stdout.count("running") == 3 and "supervisor is gone" in r.stderr, r
    assert j.returncode == 1 and len(json.loads(j.stdout)["processes"]) == 3, j
    assert gone.returncode == 0, gone
    r = c.launcher("status")
    assert r.returncode == 3 and r.stdout.strip() == "nothing runs", r


@pytest.mark.parametrize("dead", [False, True], ids=["supervised", "supervisor_dead"])
def test_down_ends_the_router_and_its_streams_before_the_workers(build, tmp_path, dead):
    row = CONVERSATIONS[60]
    c = Cluster(tmp_path, build, decode_flags="--debug-fault step_delay_ms=4").up()
    s = Stream(c, "/v1/completions", generate_body(row, prompt=row["prompt_ids"]))
    events = s.events()
    text = "".join(x["text"] for x in next(events)["choices"])
    if dead:
        kill_supervisor(c)
    r = c.down()
    text += "".join(x["text"] for e in events for x in e.get("choices", []))
    assert r.returncode == 0, r
    assert s.done and text == row["greedy_text"]
    stamps = {n: next(t.split()[0] for t in c.log(n).splitlines() if "drain" in t) for n in ("r0", "p0", "d0")}
    ended = next(t.split()[0] for t in c.log("r0").splitlines() if "exit code=0" in t)
    assert stamps["r0"] < ended <= stamps["p0"] <= stamps["d0"], stamps


def test_down_without_a_supervisor_cuts_after_its_time(build, tmp_path):
    row = CONVERSATIONS[60]
    c = Cluster(tmp_path, build, decode_flags="--debug-fault step_delay_ms=500").up()
    s = Stream(c, "/v1/completions", generate_body(row, prompt=row["prompt_ids"]))
    next(s.events())
    kill_supervisor(c)
    r = c.launcher("down", "--timeout", "1")
    assert r.returncode == 6 and "r0" in r.stderr, r
    assert c.launcher("status").returncode == 3


def test_a_relative_runtime_dir_is_below_the_source_tree(build, tmp_path):
    c = Cluster(tmp_path, build)
    c.runtime = tmp_path / "rel"
    c.logs = c.runtime / "logs"
    relative = os.path.relpath(c.runtime, ROOT)
    c.conf.write_text(c.conf.read_text().replace(f"runtime_dir = {tmp_path}/run", f"runtime_dir = {relative}"))
    with c:
        assert c.ready() and (c.runtime / "launcher.json").exists()


def test_orders_without_a_cluster_say_that_nothing_runs(build, tmp_path):
    c = Cluster(tmp_path, build)
    for words in (("restart", "all"), ("reload",), ("scale", "decode=2")):
        r = c.launcher(*words)
        assert r.returncode == 3 and "nothing runs" in r.stderr, r
