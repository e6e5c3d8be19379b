"""kill -9 of the prefill worker with pulls running and of the decode worker with rows in
its steps, many times: no wrong text, the dead process's GPU memory is back within 5 s, a
replacement serves at the same address, nothing grows.  usage: faults_gpu.py DIR [CYCLES]"""
import pathlib
import sys
import threading
import time

import rig
from rig import cluster

ROW = cluster.CONVERSATIONS[60]  # "Count from 1 to 150.": 492 tokens
SHORT = cluster.CONVERSATIONS[:4]
BACK_S, BACK_MIB = 5.0, 1000  # of an arena of 1.4 GB


def ask(c, row, seen):
    try:
        r = c.post("/v1/completions", cluster.generate_body(row, prompt=row["prompt_ids"]), timeout=60)
    except OSError as e:
        seen.append(("error", str(e)))
        return
    if r.status != 200:
        seen.append(("error", f"{r.status} {r.body[:120]}"))
    elif r.json()["choices"][0]["text"] == row["greedy_text"]:
        seen.append(("right", ""))
    else:
        seen.append(("wrong", r.json()["choices"][0]["text"][:80]))


def right_again(c, seconds):
    """Until a request is answered rightly; a wrong answer ends it."""
    end = time.monotonic() + seconds
    while True:
        seen = []
        ask(c, SHORT[0], seen)
        if seen[0][0] != "error":
            return seen[0][0] == "right"
        if time.monotonic() > end:
            raise RuntimeError(f"no answer within {seconds} s: {seen[0][1]}")
        time.sleep(0.1)


def kill_and_watch(c, memory, victim, table):
    """Its GPU memory must be back soon; whoever mapped it has to let go for that."""
    gpu = int(rig.GPUS[0 if victim == "p0" else 1])
    before, pid = memory.now(gpu), c.pid(victim)
    c.kill(victim)
    killed = time.monotonic()
    cluster.wait_for(lambda: c.pid(victim) not in (pid, None), 30)
    time.sleep(max(0, 1 - (time.monotonic() - killed)))
    lowest = memory.lowest(gpu, killed, killed + BACK_S)
    ok = lowest is not None and before - lowest >= BACK_MIB
    first = next((t for t, g, u in list(memory.samples) if g == gpu and t > killed and before - u >= BACK_MIB), None)
    after = f"{first - killed:.2f} s" if first else "never"
    table.add(ok, f"kill {victim}: GPU {gpu} from {before} MiB to {lowest} MiB, first seen after {after}")


def opened(c):
    """Links that importers have opened to the prefill worker."""
    return sum(" opened" in line for line in c.log("p0").splitlines())


def starts(c):
    """How often the decode worker has become ready."""
    return c.log("d0").count(" ready role=decode")


def cycle(c, memory, table):
    """Eight streams lose their decode worker. When it is back, the pulls of others are held
    there, with the arenas mapped, and the prefill worker dies, too."""
    seen, begun = [], time.monotonic()
    c.stop_going("pull")
    askers = [threading.Thread(target=ask, args=(c, ROW, seen)) for _ in range(8)]
    for a in askers:
        a.start()
    time.sleep(0.5)  # a quarter of the answers is written
    links, started = opened(c), starts(c)
    kill_and_watch(c, memory, "d0", table)
    cluster.wait_for(lambda: starts(c) > started, 60)
    askers += [threading.Thread(target=ask, args=(c, SHORT[i], seen)) for i in range(4)]
    for a in askers[8:]:
        a.start()
    cluster.wait_for(lambda: opened(c) > links, 20)
    time.sleep(0.5)
    held = c.metric("baton_worker_fault_hits_total", worker="d0")
    kill_and_watch(c, memory, "p0", table)
    lost = sum("the peer closed the link" in line for line in c.log("d0").splitlines())
    c.go("pull")
    for a in askers:
        a.join()
    kinds = {k: sum(s[0] == k for s in seen) for k in ("right", "error", "wrong")}
    ok = right_again(c, 60) and kinds["wrong"] == 0
    table.add(ok, f"both killed under 12 requests: {kinds}, pulls held: {held:.0f}, links lost: {lost}, "
              f"cycle of {time.monotonic() - begun:.1f} s")
    for kind, text in seen:
        if kind == "wrong":
            table.note(text)


def standing(c, memory):
    """Of the processes that were not killed in between, and of both GPUs."""
    rss = int((pathlib.Path("/proc") / str(c.pid("r0")) / "statm").read_text().split()[1]) * 4
    return {"MiB": [memory.now(int(g)) for g in rig.GPUS], "router KiB": rss,
            "descriptors": {n: c.descriptors(n) for n in ("r0", "p0", "d0")}}


def settle_all(c):
    for _ in range(2):
        rig.at_once(lambda row: ask(c, row, []), SHORT * 8, 16)
    time.sleep(1.5)


def run(table, c, memory, cycles):
    c.go("pull")
    settle_all(c)
    cycle(c, memory, table)  # what is made once is made in the first
    settle_all(c)
    first = standing(c, memory)
    for _ in range(1, cycles):
        cycle(c, memory, table)
    settle_all(c)
    last = standing(c, memory)
    table.note(f"before {first}")
    table.note(f"after  {last}")
    grown = [b - a for a, b in zip(first["MiB"], last["MiB"])]
    table.add(max(grown) <= 64, f"GPU memory grew by {grown} MiB over {2 * cycles - 2} kills")
    table.add(first["descriptors"] == last["descriptors"], "descriptors are the same")
    table.add(last["router KiB"] - first["router KiB"] <= 8192,
              f"router's memory grew by {last['router KiB'] - first['router KiB']} KiB")


def main(folder, cycles="5"):
    table, build = rig.Table(), rig.programs(folder)
    memory = rig.Memory()
    c = rig.gpu_cluster(build, "faults", rig.GPUS, transport="cuda_ipc",
                        router_flags="--max-replays 2", decode_flags="--debug-fault pause@pull,step_delay_ms=2")
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
