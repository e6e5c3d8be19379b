"""Speed of one worker alone, as a router sees it: prefill and decode of real processes,
beside the floors that this machine's memory and arithmetic set (bench_engine):

    /usr/bin/python3 tests/bench/bench_worker.py --build build/release

Exits with 1 when a figure is below what the project promises of a CPU."""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from worker_rig import MODEL, Router, Worker  # noqa: E402

PREFILL_MIN, DECODE_MIN = 2000, 300  # tokens/s; decode for one stream
CONTEXT, TOKENS, RUNS = 256, 300, 5


def machine():
    """Model, cores, last cache; and how busy the machine is already."""
    info = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
    model = re.search(r"Model name:\s*(.*)", info).group(1)
    cache = re.search(r"L3 cache:\s*(\d+ \w+)", info)
    cache = cache.group(1) if cache else "unknown"
    return f"{model}, {os.cpu_count()} cores, L3 {cache}, load {os.getloadavg()[0]:.1f} at the start"


def prompt(n, salt):
    return [(i * 7919 + salt * 131 + 13) % 1900 + 10 for i in range(n)]


def prefill(r, ids):
    """(seconds from sending to the answer, seconds of computing, request, answer)"""
    begun = time.monotonic()
    request = r.prefill("p0", ids)
    done = r.take("prefilled", request, "rejected", "finished")
    return time.monotonic() - begun, done["compute_ns"] / 1e9, request, done


def prefill_rate(r, n):
    best = wall = 1e9
    for salt in range(RUNS):
        seconds, compute, request, done = prefill(r, prompt(n, salt))
        best, wall = min(best, compute), min(wall, seconds)
        r.send("p0", "release", lease=done["lease"], **r.triple(request))
        r.take("freed", request)
    return n / best, wall


def decode_rate(r, streams):
    """Tokens per second of all streams together, between the first and the last token
    that are on their way while all of them run."""
    best = 0
    for run in range(RUNS):
        ready = [prefill(r, prompt(CONTEXT, 100 * run + s))[2:] for s in range(streams)]
        for request, done in ready:
            r.adopt("d0", "p0", request, done, [done["first"][0]["token"]], CONTEXT, max_tokens=TOKENS,
                    stop_ids=[])
        for request, _ in ready:
            r.take("adopted", request, "rejected")
        first = sum(len(r.tokens(request)) for request, _ in ready)
        begun = time.monotonic()
        while all(len(r.tokens(request)) < TOKENS - 1 for request, _ in ready):
            r.pump(0.01)
        tokens = sum(len(r.tokens(request)) for request, _ in ready) - first
        best = max(best, tokens / (time.monotonic() - begun))
        for request, _ in ready:
            r.take("finished", request, "evicted", "rejected")
        r.pools_back("p0", "d0")
        r.inbox.clear()
    return best


def floors(build):
    """Bytes and operations of a token, and how fast one thread does them."""
    text = subprocess.run([f"{build}/bench/bench_engine", str(MODEL)], capture_output=True, text=True,
                          check=True).stdout
    numbers = [float(x) for x in re.findall(r"([\d.]+) (?:GB/s|GFLOP/s|MB|MFLOP)", text)]
    assert len(numbers) == 5, text
    return text, numbers


def line(what, n, rate, floor):
    print(f"{what:8} {n:5} {rate:10.0f} tok/s {1e6 / rate:9.1f} us/tok  floor {floor * 1e6:7.1f} us  "
          f"ratio {1 / rate / floor:.1f}")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--build", default="build/release")
    build = (ROOT / options.parse_args().build).resolve()
    print(f"{machine()}\n\nthe engine alone (bench_engine):")
    text, (gbs, gflops, weight_mb, state_mb, mflop) = floors(build)
    print(text + "\nworkers (baton-prefill, baton-decode), demo model, best of", RUNS)
    runtime = pathlib.Path(tempfile.mkdtemp(prefix="baton-b-"))
    family, workers = [], []
    try:
        flags = dict(max_num_batched_tokens=512, lease_ms=10000, lost_ms=4000)
        workers += [Worker(build, runtime, family, "prefill", "p0", **flags),
                    Worker(build, runtime, family, "decode", "d0", **flags)]
        r = Router(runtime, family)
        r.connected("p0", "d0")
        compute_floor = mflop / gflops / 1e3
        rates = {}
        for n in (64, 512):
            rates[n], wall = prefill_rate(r, n)
            line("prefill", n, rates[n], compute_floor)
            print(f"{'':14} {wall * 1e3:.1f} ms from the request to its first token")
        for streams in (1, 2, 4, 8):
            rate = rates[-streams] = decode_rate(r, streams)
            line("decode", streams, rate, max((weight_mb / streams + state_mb) / gbs / 1e3, compute_floor))
        good = rates[512] >= PREFILL_MIN and rates[-1] >= DECODE_MIN
        print(f"promised: prefill {PREFILL_MIN} tok/s, decode {DECODE_MIN} tok/s of one stream: "
              f"{'held' if good else 'NOT HELD'}")
        return 0 if good else 1
    finally:
        for w in workers:
            w.close()
        for r in family[:]:
            r.close()
        shutil.rmtree(runtime, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
