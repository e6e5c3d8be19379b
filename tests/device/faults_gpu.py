"""kill -9 of a prefill worker with pulls from it running and of a decode worker with rows in
its steps, in turn, many times, two workers of each role: requests are right elsewhere or fail
within 5 s, the dead process's GPU memory is back within 5 s, a replacement joins under the
same name and address, nothing grows.  usage: faults_gpu.py DIR [CYCLES]"""
import os
import pathlib
import sys
import threading
import time

import rig
from rig import cluster

ROW = cluster.CONVERSATIONS[60]  # "Count from 1 to 150.": 492 tokens
SHORT = cluster.CONVERSATIONS[:8]
WORKERS = ("p0", "p1", "d0", "d1")
WITHIN_S, BACK_MIB = 5.0, 1000  # of an arena of 1.4 GB
LIMIT_S = 500  # no new cycle after this
# Of a worker by what two fresh processes differ: its CUDA context alone has 1.8 GB.
MORE_KIB = {False: 4096, True: 65536}


class Tally:
    """How requests ended: right, error (and how long after the kill before it) or wrong."""

    def __init__(self):
        self.kinds = {"right": 0, "error": 0, "wrong": 0}
        self.texts, self.errors, self.kills, self.lock = [], [], [], threading.Lock()

    def add(self, kind, text=""):
        with self.lock:
            self.kinds[kind] += 1
            if kind == "error":
                self.errors.append(time.monotonic())
            if text:
                self.texts.append(f"{kind}: {text}")

    def slowest_error(self):
        """Seconds between an error and the kill before it; one without a kill is a fault."""
        waits = [min((e - k for k in self.kills if k <= e), default=1e9) for e in self.errors]
        return max(waits, default=0.0)


def ask(c, row, tally):
    try:
        r = c.post("/v1/completions", cluster.generate_body(row, prompt=row["prompt_ids"]), timeout=60)
    except OSError as e:
        return tally.add("error", str(e))
    if r.status != 200:
        return tally.add("error", f"{r.status} {r.body[:160]}")
    text = r.json()["choices"][0]["text"]
    return tally.add("right") if text == row["greedy_text"] else tally.add("wrong", text[:80])


def asking(c, rows, tally):
    askers = [threading.Thread(target=ask, args=(c, row, tally)) for row in rows]
    for a in askers:
        a.start()
    return askers


def count_of(c, name, text):
    return c.log(name).count(text)


def is_up(c, name):
    """Between its loss and its successor's hello the router shows no such worker."""
    want = {("worker", name), ("state", "up")}
    return any(v == 1 for (metric, labels), v in c.metrics().items() if metric == "baton_worker_state" and want <= labels)


def held(c, name):
    """Pulls that this process of the worker holds back at its fault point."""
    return c.metric("baton_worker_fault_hits_total", worker=name)


def sources(c, decode):
    """Prefill workers whose arenas this process of the decode worker has mapped."""
    ready = [line for line in c.log(decode).splitlines() if " ready role=" in line][-1]
    incarnation = ready.split("incarnation=")[1].split()[0]
    return [p for p in ("p0", "p1") if f"importer={decode} incarnation={incarnation} opened" in c.log(p)]


def kill(c, memory, victim, tally):
    """Its memory must be back soon: whoever has mapped it has to let go for that.
    (seconds until the memory was seen free or None, pid that was killed)"""
    gpu = int(rig.GPUS[0 if victim[0] == "p" else 1])
    before, pid = memory.now(gpu), c.pid(victim)
    c.kill(victim)
    killed = time.monotonic()
    tally.kills.append(killed)

    def freed():
        return next((t for t, g, u in list(memory.samples) if g == gpu and t > killed and before - u >= BACK_MIB), None)
    try:
        return cluster.wait_for(freed, WITHIN_S) - killed, pid
    except AssertionError:
        return None, pid


def wait_back(c, victim, pid, ready_before):
    """A new process of the same name has loaded, and the router counts on it."""
    cluster.wait_for(lambda: c.pid(victim) not in (pid, None), 30)
    cluster.wait_for(lambda: count_of(c, victim, " ready role=") > ready_before, 60)
    cluster.wait_for(lambda: is_up(c, victim), 30)


def cycle(c, memory, number, tally):
    """Streams lose a decode worker. When it is back, it holds the pulls that it begins, with
    the prefill workers' arenas mapped, and one of these dies, too."""
    d = f"d{number // 2 % 2}"
    ready = {w: count_of(c, w, " ready role=") for w in WORKERS}
    (c.runtime / "fault.pull.go").unlink(missing_ok=True)  # processes that start from here on stop there again
    askers = asking(c, [ROW] * 8, tally)
    time.sleep(0.4)  # a fifth of the answers is written
    freed_d, pid = kill(c, memory, d, tally)
    wait_back(c, d, pid, ready[d])
    askers += asking(c, SHORT, tally)
    cluster.wait_for(lambda: held(c, d) > 0, 20)
    time.sleep(0.2)  # the others of the eight, too
    p = (sources(c, d) * 2)[number % 2]
    cut = f"'the state could not be pulled' later=1: link to {p}:"
    lost = count_of(c, d, cut)
    freed_p, pid = kill(c, memory, p, tally)
    cluster.wait_for(lambda: count_of(c, d, cut) > lost, WITHIN_S)
    c.go("pull")
    for a in askers:
        a.join()
    wait_back(c, p, pid, ready[p])
    return [(d, freed_d), (p, freed_p)]


def standing(c, memory):
    """What must not grow. Workers that were killed count from their last start."""
    boss = next(int(n) for n in os.listdir("/proc") if n.isdigit() and
                str(c.conf).encode() in (pathlib.Path("/proc") / n / "cmdline").read_bytes() and
                b"--foreground" in (pathlib.Path("/proc") / n / "cmdline").read_bytes())
    names = {"launcher": boss, **{n: c.pid(n) for n in ("r0",) + WORKERS}}
    return {"GPU MiB": [memory.now(int(g)) for g in sorted(set(rig.GPUS))],
            "KiB": {n: int((pathlib.Path("/proc") / str(p) / "statm").read_text().split()[1]) * 4
                    for n, p in names.items()},
            "descriptors": {n: len(os.listdir(f"/proc/{p}/fd")) for n, p in names.items()},
            "files": {"run": sum(len(f) for _, _, f in os.walk(c.runtime)), "shm": len(os.listdir("/dev/shm"))}}


def settle(c):
    for _ in range(3):
        rig.at_once(lambda row: ask(c, row, Tally()), list(SHORT) * 6, 16)
    time.sleep(1.5)


def compare(table, first, last, kills):
    table.note(f"before {first}")
    table.note(f"after  {last}")
    grown = [b - a for a, b in zip(first["GPU MiB"], last["GPU MiB"])]
    table.add(max(grown) <= 64, f"GPU memory grew by {grown} MiB over {kills} kills")
    more = {n: last["descriptors"][n] - first["descriptors"][n] for n in first["descriptors"]}
    table.add(max(more.values()) <= 0, f"descriptors grew by {more}")
    more = {n: last["KiB"][n] - first["KiB"][n] for n in first["KiB"]}
    table.add(all(kib <= MORE_KIB[n in WORKERS] for n, kib in more.items()),
              f"KiB grew by {more}, at most {MORE_KIB[False]}, and {MORE_KIB[True]} of a worker")
    table.add(first["files"] == last["files"], "as many files in the runtime folder and in shared memory as before")


def run(table, c, memory, cycles):
    begun = time.monotonic()
    c.go("pull")
    settle(c)
    for number in range(4):  # what is made once is made in the first round of kills
        cycle(c, memory, number, Tally())
    settle(c)
    first, done, slow = standing(c, memory), 0, []
    tally = Tally()
    for number in range(cycles):
        if time.monotonic() - begun > LIMIT_S:
            break
        freed, at = cycle(c, memory, number, tally), time.monotonic() - begun
        done += 1
        slow += [w for w, s in freed if s is None]
        line = ", ".join(f"{w} {'NOT free' if s is None else f'free after {s:.2f} s'}" for w, s in freed)
        print(f"     cycle {number}, {at:.0f} s: {line}; {tally.kinds}", flush=True)
        table.lines.append(f"     {line}")
    settle(c)
    table.add(done == cycles, f"{done} of {cycles} kills of a decode worker with rows in its steps, and as many of a "
                              "prefill worker with pulls from it held")
    table.add(not slow, f"the GPU memory of each was back within {WITHIN_S:.0f} s; late: {slow}")
    table.add(tally.kinds["wrong"] == 0 and tally.kinds["right"] > 0, f"requests under the kills: {tally.kinds}")
    table.add(tally.slowest_error() <= WITHIN_S, f"slowest error {tally.slowest_error():.2f} s after the kill before it")
    for text in tally.texts[:10]:
        table.note(text)
    compare(table, first, standing(c, memory), 2 * done)


def main(folder, cycles="50"):
    table, build = rig.Table(), rig.programs(folder)
    memory = rig.Memory()
    c = rig.gpu_cluster(build, "faults", rig.GPUS, prefill=2, decode=2, transport="cuda_ipc",
                        launcher_keys="restart_delay_max = 0.2", router_flags="--max-replays 2",
                        decode_flags="--debug-fault pause@pull,step_delay_ms=2")
    try:
        c.up()
        run(table, c, memory, int(cycles))
    except BaseException as e:  # noqa: B902: shown, and the processes end
        table.add(False, str(e)[-1500:])
    finally:
        c.down()
        rig.keep_logs(c, "40_faults")
        memory.close()
    table.end("40_faults")


if __name__ == "__main__":
    main(*sys.argv[1:])
