"""Routers beside each other and one after another: what workers have is shared, and a
router that ended leaves nothing in the way of the next."""
import copy
import os
import signal
import socket
import time

import pytest

from cluster import CONVERSATIONS, Cluster, free_port, generate_body, in_parallel, wait_for
from lone_router import Router as LoneRouter
from worker_rig import MODEL, conversations

LARGE = max(CONVERSATIONS, key=lambda row: len(row["prompt_ids"]))
SMALL = CONVERSATIONS[0]


def two_routers(folder, build, worker_flags):
    """A cluster with the routers r0 and r1, as two objects that differ in their port."""
    first = Cluster(folder, build, router_flags="--queue-timeout-s 20")
    other = copy.copy(first)
    other.port = free_port()
    first.conf.write_text(first.conf.read_text().replace("--max-num-seqs 32", worker_flags) +
                          f"\n[router r1]\nport = {other.port}\n"
                          "flags = --served-model-name demo --queue-timeout-s 20\n")
    return first, other


def check(router, row):
    answer = router.post("/v1/completions", generate_body(row, prompt=row["prompt_ids"]))
    assert answer.status == 200, answer.body
    assert answer.json()["choices"][0]["text"] == row["greedy_text"]


def sees_both(*routers):
    """The workers are connected to both, and their beats have said so."""
    for router in routers:
        wait_for(router.ready, 30)
    wait_for(lambda: all(routers[0].log(w).count("-> live") == 2 for w in ("p0", "d0")), 10)
    time.sleep(1)  # two beats


def pages_of(row):
    return -(-(len(row["prompt_ids"]) + len(row["greedy_ids"]) + 8) // 64)


def test_a_request_larger_than_a_share_is_served(build, tmp_path_factory):
    # Page 0 is nobody's: a share is less than half of what there is.
    pages = pages_of(LARGE) + 3
    assert (pages - 1) // 2 < len(LARGE["prompt_ids"]) // 64
    first, other = two_routers(tmp_path_factory.mktemp("r"), build,
                               f"--kv-pages {pages} --max-model-len {(pages - 1) * 64} --max-num-seqs 6")
    with first:
        sees_both(first, other)
        check(first, LARGE)
        in_parallel(lambda job: check(*job), [(first, LARGE), (first, SMALL), (other, LARGE), (other, SMALL)] * 2)


@pytest.mark.parametrize("queue", ["", " --max-queued 0"])
def test_one_slot_serves_two_routers(build, tmp_path_factory, queue):
    first, other = two_routers(tmp_path_factory.mktemp("r"), build, "--max-num-seqs 1" + queue)
    with first:
        sees_both(first, other)
        in_parallel(lambda router: check(router, SMALL), [first, other] * 4)
        for router in (first, other):
            assert router.metric("baton_replays_total") == 0


# ---- one after another ----


def dead_file(runtime, name):
    """What a router that was killed leaves."""
    path = runtime / "routers" / f"{name}.sock"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))


def test_dead_files_take_no_place_at_a_worker(rig):
    w = rig.worker("prefill", "p0")
    for i in range(20):
        dead_file(rig.runtime, f"dead{i}")
    rig.router().connected("p0")
    assert "there are 16 already" not in w.log()


def test_a_router_that_died_gives_its_place_back(rig):
    w = rig.worker("prefill", "p0")
    for i in range(18):
        r = rig.router(f"r{i}")
        r.connected("p0")
        r.close()
        dead_file(rig.runtime, f"r{i}")
    p, d, r = w, rig.worker("decode", "d0"), rig.router("last")
    r.connected("p0", "d0")
    talk = conversations()[0]
    assert r.run("p0", "d0", talk["prompt_ids"])[0] == talk["greedy_ids"]
    assert "there are 16 already" not in p.log() + d.log()


def test_a_router_that_is_started_again_is_found_again(rig):
    w = rig.worker("prefill", "p0")
    for _ in range(3):
        r = rig.router()
        r.connected("p0")
        r.close()
        dead_file(rig.runtime, "r0")
    assert "there are 16 already" not in w.log()


def test_a_clean_end_removes_the_socket_file(build, runtime):
    router = LoneRouter(build, runtime, MODEL)
    path = runtime / "routers" / "r0.sock"
    assert path.is_socket()
    router.process.send_signal(signal.SIGTERM)
    assert router.process.wait(20) == 0
    assert os.listdir(path.parent) == []


def test_a_router_that_ends_is_not_ready_before_it_refuses(build, tmp_path):
    """A balancer has drain_delay_s to see it; what comes meanwhile is answered."""
    row = CONVERSATIONS[0]
    with Cluster(tmp_path, build, router_flags="--drain-delay-s 3") as c:
        router = c.pid("r0")
        c.kill("r0", signal.SIGTERM)
        wait_for(lambda: c.get("/ready").status == 503, 5)
        r = c.post("/v1/completions", generate_body(row, prompt=row["prompt_ids"]))
        assert r.status == 200 and r.json()["choices"][0]["text"] == row["greedy_text"], r.body
        assert r.headers["Connection"] == "close", "its client connects anew, to another router"
        assert c.get("/ready").json()["reason"] == "draining"
        wait_for(lambda: not os.path.exists(f"/proc/{router}"), 20)


def test_a_clean_end_leaves_the_file_of_another(build, runtime):
    router = LoneRouter(build, runtime, MODEL)
    path = runtime / "routers" / "r0.sock"
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        router.process.send_signal(signal.SIGTERM)
        assert router.process.wait(20) == 0
        assert path.is_socket()
