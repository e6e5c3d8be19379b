"""What the demo model does per second through HTTP on GPUs: decode, prefill, and pulls
against the link's copy rate. usage: figures_gpu.py DIR"""
import re
import subprocess
import sys
import time

import rig
from rig import cluster

TWO = "two GPUs" if rig.GPUS[0] != rig.GPUS[1] else "the same GPU"
PLACES = [("one GPU", "one", ("0", "0"), "cuda_ipc"), (f"{TWO}, cuda_ipc", "ipc", rig.GPUS, "cuda_ipc"),
          (f"{TWO}, cuda_host", "host", rig.GPUS, "cuda_host")]
ANSWER, PROMPT = 1000, 16000


def ids(n, salt):
    return [(i * 7919 + salt * 104729) % 2000 + 5 for i in range(n)]


def generate(c, n_prompt, n_answer, salt):
    """ignore_eos: an answer of exactly n_answer tokens."""
    r = c.post("/v1/completions", {"model": "demo", "prompt": ids(n_prompt, salt), "max_tokens": n_answer,
                                   "temperature": 0, "ignore_eos": True}, timeout=120)
    if r.status != 200:
        raise RuntimeError(f"status {r.status}: {r.body[:200]}")
    return r.json()["usage"]["completion_tokens"]


def many(c, n, n_prompt, n_answer, salt):
    """(tokens written, seconds) of n requests at once."""
    begun = time.monotonic()
    got = rig.at_once(lambda i: generate(c, n_prompt, n_answer, salt * 1000 + i), range(n), n)
    seconds = time.monotonic() - begun
    bad = [g for g in got if isinstance(g, Exception)]
    if bad:
        raise bad[0]
    return sum(got), seconds


def pulled(c, transport):
    """(bytes, seconds) of the copies so far."""
    return (c.metric("baton_handover_bytes_total", transport=transport),
            c.metric("baton_handover_seconds_total", transport=transport))


def measure(table, what, c, transport):
    many(c, 4, 100, 50, 1)  # warm
    for n in (1, 8, 32):
        tokens, seconds = many(c, n, 64, ANSWER, 10 + n)
        table.add(True, f"{what}: decode, {n} at once: {tokens / seconds:.0f} tokens/s, {1e3 * seconds * n / tokens:.3f} ms a token and row")
    for n in (1, 8):
        _, seconds = many(c, n, PROMPT, 1, 100 + n)
        table.add(True, f"{what}: prefill, {n} at once of {PROMPT}: {n * PROMPT / seconds:.0f} tokens/s")
    before = pulled(c, transport)
    many(c, 8, PROMPT, 2, 200)
    after = pulled(c, transport)
    moved, seconds = after[0] - before[0], after[1] - before[1]
    table.add(True, f"{what}: 8 pulls of {moved / 8 / 1e6:.1f} MB: {moved / 1e9 / seconds:.1f} GB/s while they are copied")
    for line in c.log("d0").splitlines():
        m = re.search(r"copy=(.*)", line)
        if m:
            table.note(f"{what}: link, {m[1][:220]}")


def main(folder):
    table, build = rig.Table(), rig.programs(folder)
    table.note(subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                                            capture_output=True, text=True).stdout.strip().replace("\n", "; "))
    for what, name, gpus, transport in PLACES:
        c = rig.gpu_cluster(build, f"figures-{name}", gpus, transport=transport,
                            prefill_flags="--max-num-batched-tokens 8192", memory_bytes=12_000_000_000)
        try:
            c.up()
            measure(table, what, c, transport)
        except BaseException as e:  # noqa: B902: the other places go on
            table.add(False, f"{what}: {str(e)[-800:]}")
        finally:
            c.down()
            rig.keep_logs(c, f"60_figures-{name}")
    table.end("60_figures")


if __name__ == "__main__":
    main(sys.argv[1])
