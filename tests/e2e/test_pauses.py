"""Processes that are stopped for a while and go on: nothing hangs, nothing leaks, nothing
wrong is answered with 200, and what slept together loses nothing.

The times of the cluster are a fourth of their defaults here. The whole campaign, with the
defaults and up to 40 s, is run by hand, all its clusters beside each other:

    python3 tests/e2e/test_pauses.py --build build/dev
"""
import argparse
import collections
import http.client
import json
import pathlib
import random
import re
import signal
import socket
import tempfile
import threading
import time

import pytest

from cluster import CONVERSATIONS, ROOT, Cluster, Stream, free_port, generate_body, wait_for
from lone_router import Router

IN_FLIGHT = 8
# Prompts of one page and of several, answers of one page and of several.
ROWS = [CONVERSATIONS[i] for i in (0, 11, 13, 32, 58)]
TARGETS = {"router": ["r0"], "prefill": ["p0"], "decode": ["d0"], "all": ["r0", "p0", "d0"]}
# A fourth of the defaults, and a pause longer than silence is borne, shorter than a lease.
QUICK = "--beat-ms 125 --lost-ms 1000"
QUICK_PAUSE, QUICK_BACK = 1.5, 8


class Load:
    """Clients that ask for known answers until they are told to stop."""

    def __init__(self, cluster, seed):
        self.cluster, self.going = cluster, True
        self.kinds = collections.Counter()  # "right", or how it failed
        self.wrong, self.longest = [], 0.0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(random.Random(seed * 100 + i),), daemon=True)
                        for i in range(IN_FLIGHT)]
        for t in self.threads:
            t.start()

    def run(self, draw):
        while self.going:
            row, begun = draw.choice(ROWS), time.monotonic()
            try:
                kind = self.streamed(row) if draw.random() < 0.5 else self.whole(row)
            except (OSError, http.client.HTTPException) as e:
                kind = type(e).__name__
            with self.lock:
                self.kinds[kind] += 1
                self.longest = max(self.longest, time.monotonic() - begun)
            if kind != "right":
                time.sleep(0.1)

    def check(self, row, text):
        if text == row["greedy_text"]:
            return "right"
        self.wrong.append((row["greedy_text"], text))
        return "wrong"

    def whole(self, row):
        a = self.cluster.post("/v1/completions", generate_body(row, prompt=row["prompt_ids"]), timeout=120)
        if a.status != 200:
            return a.json()["error"]["code"]
        return self.check(row, a.json()["choices"][0]["text"])

    def streamed(self, row):
        s = Stream(self.cluster, "/v1/completions", generate_body(row, prompt=row["prompt_ids"]), timeout=120)
        if s.status != 200:
            return json.loads(s.answer.read())["error"]["code"]
        text, finish = "", None
        for event in s.events():
            if "error" in event:
                return event["error"]["code"]
            text += event["choices"][0]["text"]
            finish = event["choices"][0]["finish_reason"] or finish
        if finish is None:
            return "cut"
        return self.check(row, text)

    def end(self, seconds):
        """All have their answer within this time; false: one hangs."""
        self.going = False
        deadline = time.monotonic() + seconds
        for t in self.threads:
            t.join(max(0, deadline - time.monotonic()))
        return not any(t.is_alive() for t in self.threads)


def all_free(cluster):
    """Nothing is held of any worker, and none is missing."""
    try:
        m = cluster.metrics()
    except OSError:
        return False
    pools = {(name, dict(labels)["worker"]): v for (name, labels), v in m.items()
             if name.startswith(("baton_worker_pages_", "baton_worker_slots_", "baton_worker_jobs"))}
    held = [k for k, v in pools.items() if not k[0].endswith("_free") and v > 0]
    return {w for _, w in pools} == {"p0", "d0"} and not held and cluster.ready()


def pause(cluster, names, seconds, back, seed):
    """One pause under load: what was answered, and when everything was free again."""
    load = Load(cluster, seed)
    time.sleep(0.5 + seed % 5 * 0.1)
    pids = [cluster.pid(n) for n in names]
    for name in names:
        cluster.kill(name, signal.SIGSTOP)
    time.sleep(seconds)
    for name in names:
        cluster.kill(name, signal.SIGCONT)
    resumed = time.monotonic()
    time.sleep(0.5)
    ended = load.end(back)
    while not all_free(cluster) and time.monotonic() - resumed < back:
        time.sleep(0.05)
    return {"kinds": load.kinds, "wrong": load.wrong, "ended": ended, "longest": load.longest,
            "free": all_free(cluster), "free_s": time.monotonic() - resumed,
            "same": pids == [cluster.pid(n) for n in names]}


def check(seen, names, seconds):
    assert not seen["wrong"], seen
    assert seen["ended"] and seen["free"], seen
    assert seen["same"], "a process that slept was replaced"
    assert seen["kinds"]["right"] > 0, seen
    assert set(seen["kinds"]) <= {"right", "worker_lost", "no_workers"}, seen
    if len(names) > 1:  # whoever slept with the others has missed nothing
        assert set(seen["kinds"]) == {"right"}, seen


def make(folder, build, replays, router_flags="", worker_flags=""):
    return Cluster(folder, build, router_flags=f"--max-replays {replays} {router_flags}",
                   prefill_flags=worker_flags, decode_flags=worker_flags)


@pytest.mark.parametrize("replays", [0, 1])
def test_a_pause_costs_no_capacity_and_no_wrong_answer(build, tmp_path, replays):
    with make(tmp_path, build, replays, f"{QUICK} --silent-ms 500", f"{QUICK} --lease-ms 2500") as c:
        for seed, (target, names) in enumerate(TARGETS.items()):
            seen = pause(c, names, QUICK_PAUSE, QUICK_BACK, seed)
            print(target, seen)
            check(seen, names, QUICK_PAUSE)


ANSWER_WORDS = 800_000  # /tokenize answers several times what a socket holds


def test_a_router_that_slept_blames_neither_a_slow_reader_nor_its_own_loop(build, runtime):
    """A whole answer half read, whose reader may pause for less than the router sleeps, and a
    health probe whose thread may wake before the loop does."""
    probe = free_port()
    r = Router(build, runtime, ROOT / "deploy/demo-model", "--stream-drain-s=3", f"--probe-port={probe}")
    try:
        body = json.dumps({"prompt": "word " * ANSWER_WORDS, "return_token_strs": True})
        s = socket.socket()
        s.settimeout(30)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        s.connect(("127.0.0.1", r.port))
        s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
                  % (len(body), body.encode()))
        data = s.recv(1 << 16)
        time.sleep(0.6)  # it was seen to be slow
        r.process.send_signal(signal.SIGSTOP)
        asks = socket.create_connection(("127.0.0.1", probe), timeout=30)
        asks.sendall(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(5.5)
        r.process.send_signal(signal.SIGCONT)
        assert asks.recv(4096).startswith(b"HTTP/1.1 200 ")
        time.sleep(0.5)
        while part := s.recv(1 << 20):
            data += part
        head, _, answer = data.partition(b"\r\n\r\n")
        length = int(re.search(rb"Content-Length: (\d+)", head)[1])
        assert len(answer) == length and json.loads(answer)["count"] > ANSWER_WORDS / 2
    finally:
        r.close()


# ---- the campaign ----


def campaign_of(build, target, replays, lengths, times, out):
    names = TARGETS[target]
    with tempfile.TemporaryDirectory(prefix="baton-p-", dir="/tmp") as folder:
        with make(folder, build, replays) as c:
            for seconds in lengths:
                rows = [pause(c, names, seconds, 15, i) for i in range(times)]
                for seen in rows:
                    check(seen, names, seconds)
                kinds = sum((r["kinds"] for r in rows), collections.Counter())
                out.append(f"{target:8} replays={replays} {seconds:3} s x {times}: "
                           f"all free after {max(r['free_s'] for r in rows):4.1f} s at most, "
                           f"longest request {max(r['longest'] for r in rows):4.1f} s, {dict(kinds)}")
                print(out[-1], flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/dev")
    p.add_argument("--lengths", type=int, nargs="+", default=[1, 3, 6, 10, 40])
    p.add_argument("--times", type=int, default=5)
    p.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    a = p.parse_args()
    build, errors = pathlib.Path(a.build).resolve(), []

    def run(target, replays):
        try:
            campaign_of(build, target, replays, a.lengths, a.times, [])
        except BaseException as e:  # noqa: B902: shown and counted below
            errors.append(f"{target} replays={replays}: {type(e).__name__}: {e}")
            print(errors[-1], flush=True)
    threads = [threading.Thread(target=run, args=(t, r)) for t in a.targets for r in (0, 1)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print(f"{len(errors)} of {len(threads)} failed")
    return 1 if errors else 0


if __name__ == "__main__":
    raise SystemExit(main())
