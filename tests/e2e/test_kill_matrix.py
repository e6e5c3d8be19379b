"""Who may die when: phase of a request x role that is killed or stopped x a spare of that role or none.

A row passes when the phase was reached while the process was hit, and the answer is the golden one; where no
spare is, a clear error within the stated bound passes, too. Of a killed router the connection breaks, and the
same request, sent once more (to the spare, or to the one that the launcher starts), gets the answer.
The whole table, by hand: `tests/e2e/test_kill_matrix.py --build build/dev [--signals KILL STOP2 STOP6 STOP30]`."""
import argparse
import concurrent.futures
import copy
import http.client
import itertools
import json
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time

import pytest

from cluster import CONVERSATIONS, Cluster, Stream, free_port, generate_body, wait_for
from launcher_rig import supervisor

ROW = CONVERSATIONS[60]  # "Count from 1 to 150."
LOST_S, WAIT_S = 4, 20   # silence before a worker is lost; wait for a role without workers
SLACK_S = 6

# phase: which role holds the request there, and the fault point
PHASES = {
    "queued": ("router", "pause@queued"),
    "prefilling": ("prefill", "pause@prefill"),
    "prefilled": ("prefill", "pause@prefilled"),
    "adopting": ("decode", "pause@pull"),
    "decoding": ("decode", "step_delay_ms=4"),
}
ROLES = ["prefill", "decode", "router", "launcher"]
SIGNALS = ["KILL", "STOP2", "STOP6", "STOP30"]


def cluster_of(folder, build, phase, role, spare):
    """The cluster, and the router that a client turns to when the first is gone."""
    holder, fault = PHASES[phase]
    c = Cluster(folder, build, prefill=1 + (spare and role == "prefill"), decode=1 + (spare and role == "decode"),
                memory_bytes=500_000_000, **{f"{holder}_flags": f"--debug-fault {fault}"})
    other = c
    if spare and role == "router":
        other = copy.copy(c)
        other.port = free_port()
        c.conf.write_text(f"{c.conf.read_text()}\n[router r1]\nport = {other.port}\nflags = --served-model-name demo\n")
    return c, other


def joined(c):
    """The workers that a router knows."""
    return {dict(labels)["worker"] for name, labels in c.metrics() if name == "baton_worker_jobs"}


def reached(c, phase):
    """The workers that have hit the fault point, or the router."""
    if phase == "queued":
        return ["r0"] if c.metric("baton_requests", state="queued") == 1 else []
    if phase == "decoding":
        return [d for d in c.rows() if d[0] == "d" and c.metric("vllm:generation_tokens_total") >= 30 and
                c.metric("baton_worker_jobs", worker=d) > 0]
    return [w for w in c.rows() if w[0] in "pd" and c.metric("baton_worker_fault_hits_total", worker=w) > 0]


def victim_of(c, role, holders):
    if role == "launcher":
        return "launcher", supervisor(c)
    letter = {"prefill": "p", "decode": "d", "router": "r"}[role]
    name = next((h for h in holders if h[0] == letter), letter + "0")
    return name, c.pid(name)


def answer(c, seconds):
    """"right", "broken" (the connection), an error's code, or "wrong"."""
    body = generate_body(ROW, prompt=ROW["prompt_ids"])
    try:
        s = Stream(c, "/v1/completions", body, timeout=seconds)
        if s.status != 200:
            return json.loads(s.answer.read())["error"]["code"]
        text = ""
        for event in s.events():
            if "error" in event:
                return event["error"]["code"]
            text += "".join(x["text"] for x in event["choices"])
        if not s.done:
            return "broken"
        return "right" if text == ROW["greedy_text"] else "wrong"
    except TimeoutError:
        return "hangs"
    except (OSError, http.client.HTTPException, AssertionError):
        return "broken"


def hit(pid, sign):
    os.kill(pid, signal.SIGKILL if sign == "KILL" else signal.SIGSTOP)
    if sign != "KILL":
        threading.Timer(int(sign[4:]), os.kill, (pid, signal.SIGCONT)).start()


def bound_s(sign, spare):
    """Until the answer or an error is there; an undisturbed answer is far below the slack."""
    stopped = 0 if sign == "KILL" else int(sign[4:])
    return stopped + SLACK_S + (LOST_S if spare else LOST_S + WAIT_S)


def play(folder, build, phase, role, spare, sign):
    """One row: what was answered, after how many seconds; raises when the row fails."""
    c, other = cluster_of(folder, build, phase, role, spare)
    with c:
        wait_for(lambda: other.ready() and all(joined(r) >= {n for n in c.rows() if n[0] in "pd"} for r in (c, other)), 30)
        got = []
        asking = threading.Thread(target=lambda: got.append((answer(c, bound_s(sign, spare)), time.monotonic())))
        asking.start()
        holders = wait_for(lambda: reached(c, phase), 15)
        name, pid = victim_of(c, role, holders)
        hit(pid, sign)
        begun = time.monotonic()
        if PHASES[phase][1].startswith("pause@"):
            c.go(PHASES[phase][1][6:])
        asking.join(bound_s(sign, spare) + 5)
        outcome, at = got[0] if got else ("hangs", time.monotonic())
        first = outcome
        if outcome == "broken" and role == "router" and sign == "KILL":
            wait_for(other.ready, 15)
            outcome, at = answer(other, 30), time.monotonic()
            first = f"broken, then {outcome}"
        took = at - begun
        errors = [] if spare or role in ("router", "launcher") else ["worker_lost", "no_workers"]
        assert outcome in ["right", *errors], f"{first} after {took:.1f} s"
        if sign != "KILL":  # it goes on before the cluster is stopped
            time.sleep(max(0, begun + int(sign[4:]) + 0.5 - time.monotonic()))
        elif role == "launcher":
            c.up()
        wait_for(lambda: c.ready() and answer(c, 30) == "right", 30)
    return name, first, took


QUICK = [("queued", "decode", True), ("prefilling", "prefill", True), ("prefilled", "prefill", False),
         ("adopting", "decode", True), ("adopting", "prefill", True), ("decoding", "decode", True),
         ("decoding", "decode", False), ("decoding", "router", True), ("decoding", "launcher", False)]


@pytest.mark.parametrize("phase,role,spare", QUICK, ids=[f"{p}-{r}-{'spare' if s else 'alone'}" for p, r, s in QUICK])
def test_a_process_is_killed_and_the_answer_is_whole(build, tmp_path, phase, role, spare):
    name, outcome, took = play(tmp_path, build, phase, role, spare, "KILL")
    print(f"{name}: {outcome} after {took:.1f} s")


# ---- the whole table ----


def row_of(build, phase, role, spare, sign):
    words = f"{phase:10} {role:8} {'spare' if spare else 'alone':5} {sign:6}"
    with tempfile.TemporaryDirectory(prefix="baton-k-", dir="/tmp") as folder:
        try:
            name, outcome, took = play(folder, build, phase, role, spare, sign)
            return f"{words} {name:8} {took:5.1f} s  {outcome}", True
        except BaseException as e:  # noqa: B902: shown and counted
            return f"{words} FAILED: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}", False


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/dev")
    p.add_argument("--signals", nargs="+", choices=SIGNALS, default=SIGNALS)
    p.add_argument("--phases", nargs="+", choices=PHASES, default=list(PHASES))
    p.add_argument("--roles", nargs="+", choices=ROLES, default=ROLES)
    p.add_argument("--jobs", type=int, default=2)
    a = p.parse_args()
    build = pathlib.Path(a.build).resolve()
    rows = list(itertools.product(a.phases, a.roles, [True, False], a.signals))
    done = []
    print("phase      role     spare signal victim      took  outcome")
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for row in [pool.submit(row_of, build, *row) for row in rows]:
            done.append(row.result())
            print(done[-1][0], flush=True)
    print(f"{sum(not right for _, right in done)} of {len(done)} failed")
    return 0 if all(right for _, right in done) else 1


if __name__ == "__main__":
    sys.exit(main())
