"""The whole product at the shapes of a published config on one GPU, with random weights: start by stage,
prompts of 1k, 8k and 32k tokens, decode of 1 to 256 rows of 4096 tokens, all through HTTP; then, with --trace, where a step's
and a pass's time goes, by op, beside the bytes that a step must read at 4.3 TB/s.

usage: model_gpu.py DIR [--format nvfp4|released|bf16] [--rows N,N] [--prefill N,N] [--ctx N] [--trace]
Rates come from the router's counters over a window in which all rows decode, so no client is timed. A trace is taken after the
figures, of the same steps; it makes a step some 5 % longer."""
import argparse
import collections
import glob
import json
import pathlib
import re
import shutil
import sys
import threading
import time

import rig
from rig import cluster

CONFIG = rig.GOLDEN / "configs/Qwen--Qwen3.5-35B-A3B_config.json"
TB_S = 4.3e12
LEN_MAX = 36000


def options():
    p = argparse.ArgumentParser()
    p.add_argument("dir")
    p.add_argument("--format", default="nvfp4")
    p.add_argument("--rows", default="1,16,64,256")
    p.add_argument("--prefill", default="1024,8192,32768")
    p.add_argument("--ctx", type=int, default=4096)
    p.add_argument("--window", type=float, default=3)
    p.add_argument("--trace", action="store_true")
    p.add_argument("--flags", default="", help="more flags of both workers")
    return p.parse_args()


def numbers(text):
    return [int(x) for x in text.split(",") if x]


# ---- floors -----------------------------------------------------------------------------------------------------------------

def step_bytes(rows, ctx, fmt):
    """What a decode step of the 35B-A3B shapes must read and write, by op."""
    c = json.loads(CONFIG.read_text())["text_config"]
    h, layers, attn = c["hidden_size"], c["num_hidden_layers"], c["num_hidden_layers"] // c["full_attention_interval"]
    gdn, e, k, i = layers - attn, c["num_experts"], c["num_experts_per_tok"], c["moe_intermediate_size"]
    nv, nk, d = c["linear_num_value_heads"], c["linear_num_key_heads"], c["linear_key_head_dim"]
    four, rest = 9 / 16, {"nvfp4": 2, "released": 1, "bf16": 2}[fmt]
    distinct = e * (1 - (1 - k / e) ** rows)
    shared = 2 if fmt != "released" else four
    return {
        "moe": layers * 3 * h * i * (distinct * (2 if fmt == "bf16" else four) + shared),
        "gdn step": rows * gdn * 2 * 4 * nv * d * d,
        "attention": rows * attn * ctx * 2 * c["num_key_value_heads"] * c["head_dim"] * 2,
        "projections": rest * (gdn * h * (2 * nk * d + 3 * nv * d + 2 * nv)
                               + attn * h * (3 * c["num_attention_heads"] + 2 * c["num_key_value_heads"]) * c["head_dim"]),
        "head": c["vocab_size"] * h * (four if fmt == "released" else 2),
        "router, norms": layers * e * h * 2,
    }


# ---- traces -----------------------------------------------------------------------------------------------------------------

HEAD_BLOCKS = 900  # a product over the vocabulary has more
KINDS = [(r"moe_rings|moe_sort|moe_sum", "moe"), (r"gdn_(steps|chunks|pairs)", "gdn step"), (r"gdn_(prep|conv)|attn_prep", "preparation"),
         (r"attn_", "attention"), (r"moe_route|add_norm", "router, norms"), (r"sample", "sample"),
         (r"embed|gather", "embed, copies")]


def kind_of(name, blocks, rows):
    for pattern, kind in KINDS:
        if re.search(pattern, name):
            return kind
    m = re.search(r"(stream|tile|large)_kernelILi(\d)ELi(\d)", name)  # format and output, see kernels/cuda/product.cuh
    if m and (m[3] == "2" or m[2] == "2"):
        return "head" if blocks > HEAD_BLOCKS and m[3] == "1" and rows <= 256 and m[2] != "2" else "moe"
    if m and m[3] == "1":
        return "head" if blocks > HEAD_BLOCKS else "moe"
    return "projections"


def read_trace(path):
    """Segments of (start, end, blocks, name)."""
    segments, now = [], []
    for line in path.read_text(errors="replace").splitlines():
        word = line.split(" ", 3)
        if word[0] == "--":
            segments.append(sorted(now))
            now = []
        elif len(word) == 4:
            now.append((int(word[0]), int(word[1]), int(word[2]), word[3]))
    return segments


def show_trace(table, what, kernels, rows, floors, once):
    """Time by op and kernel of one step or pass; once: a kernel of which each has one."""
    at = [i for i, k in enumerate(kernels) if once in k[3]]
    if len(at) < 2:
        table.note(f"{what}: no whole step in the trace")
        return
    kernels, n = kernels[at[0]:at[-1]], len(at) - 1
    span, busy, end, between = (kernels[-1][1] - kernels[0][0]) / 1e3 / n, 0, 0, 0
    by, names, count = collections.Counter(), collections.Counter(), collections.Counter()
    for start, stop, blocks, name in kernels:
        busy += max(0, stop - max(start, end))
        between += max(0, start - end) if end and "gather" in name else 0
        end = max(end, stop)
        short = re.sub(r"^_Z\w*?\d+(?=[a-z])", "", name)[:60]
        by[kind_of(name, blocks, rows)] += stop - start
        names[short] += stop - start
        count[short] += 1
    table.note(f"{what}: {n} traced, {len(kernels) / n:.0f} kernels, {span:.0f} us, of it idle {span - busy / 1e3 / n:.0f} us: "
               f"{between / 1e3 / n:.0f} before the copies that begin it")
    for kind, ns in by.most_common():
        us = ns / 1e3 / n
        floor = floors.get(kind, 0) / TB_S * 1e6
        table.note(f"  {kind:14} {us:9.1f} us" + (f"  floor {floor:8.1f} us, {100 * floor / us:3.0f} %" if floor else ""))
    for short, ns in names.most_common(22):
        table.note(f"    {ns / 1e3 / n:9.1f} us x{count[short] / n:6.1f} of {ns / 1e3 / count[short]:8.2f} us  {short}")


class Tracer:
    """Wraps the workers of a build folder so that they write their kernels."""

    def __init__(self, build, folder):
        programs = (build / "bin").resolve()
        (build / "bin").unlink()
        (build / "bin").mkdir()
        for p in programs.iterdir():
            (build / "bin" / p.name).symlink_to(p)
        places = ["/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/lib64", "/opt/torch/.venv/lib/python3*/site-packages/nvidia/*/lib"]
        found = [f for p in places for f in glob.glob(p + "/libcupti.so.13*")]
        for role in ("prefill", "decode"):
            program = build / "bin" / f"baton-{role}"
            program.unlink()
            program.write_text(f"#!/bin/sh\nexport TRACE_ON={rig.WORK}/on-{role} TRACE_OUT={rig.WORK}/trace-{role}.txt "
                               f"TRACE_CUPTI={(found or ['libcupti.so.13'])[0]} LD_PRELOAD={folder}/kernel_trace.so\n"
                               f"exec {programs}/baton-{role} \"$@\"\n")
            program.chmod(0o755)

    def take(self, role, work):
        switch = rig.WORK / f"on-{role}"
        switch.touch()
        time.sleep(0.15)
        work()
        switch.unlink()
        time.sleep(0.8)
        return read_trace(rig.WORK / f"trace-{role}.txt")[-1]


# ---- measurements -----------------------------------------------------------------------------------------------------------

def ids(n, salt):
    return [(i * 7919 + salt * 104729 + (i * i) % 977) % 1900 + 5 for i in range(n)]


def body(n_prompt, n_answer, salt):
    return {"model": "demo", "prompt": ids(n_prompt, salt), "max_tokens": n_answer, "temperature": 0, "ignore_eos": True}


def metrics(c):
    return c.get("/metrics").body.decode()


def value(text, name):
    """Of all workers together."""
    return sum(float(x.rsplit(" ", 1)[1]) for x in text.splitlines() if x.startswith(name))


def show_start(table, c, seconds):
    table.note(f"start: {seconds:.1f} s until both workers serve")
    for name in ("p0", "d0"):
        for line in c.log(name).splitlines():
            if re.search(r"percent=(0|100)\b|graphs rank|total  |weights  |tokens, at most", line):
                table.note(f"  {name} {line[:150]}")


def prompt(c, n, salt):
    words = body(n, 1, salt)
    begun = time.monotonic()
    r = c.post("/v1/completions", words, timeout=300)
    if r.status != 200:
        raise RuntimeError(f"status {r.status}: {r.body[:200]}")
    return time.monotonic() - begun


def measure_prefill(table, c, n, tracer):
    took = sorted(prompt(c, n, 50 + i) for i in range(4))[1]
    table.add(True, f"prefill {n}: {1e3 * took:.1f} ms, {n / took:.0f} tokens/s")
    if tracer:
        kernels = tracer.take("prefill", lambda: [prompt(c, n, s) for s in (98, 99)])
        show_trace(table, f"prefill {n}", kernels, n, {}, "embed_kernel")


def measure_decode(table, c, rows, o, tracer):
    socks = [cluster.cut_request(c, "/v1/completions", body(o.ctx, 6000 if rows > 100 else 4000, 1000 * rows + i))
             for i in range(rows)]
    try:
        cluster.wait_for(lambda: value(metrics(c), 'baton_requests{state="decode"}') == rows, 150, 0.2)
        time.sleep(0.7)
        a, t = metrics(c), time.monotonic()
        time.sleep(o.window)
        b, seconds = metrics(c), time.monotonic() - t
        tokens = value(b, "vllm:generation_tokens_total") - value(a, "vllm:generation_tokens_total")
        steps = value(b, "baton_worker_decode_steps_total") - value(a, "baton_worker_decode_steps_total")
        floor = sum(step_bytes(rows, o.ctx, o.format).values()) / TB_S
        table.add(tokens > 0, f"decode {rows} rows of {o.ctx}: {tokens / seconds:.0f} tokens/s, {1e3 * seconds / max(steps, 1):.3f} ms a step, "
                              f"{tokens / max(steps, 1):.1f} rows a step; floor {1e3 * floor:.3f} ms, {100 * floor * steps / seconds:.0f} %")
        if tracer:
            kernels = tracer.take("decode", lambda: time.sleep(0.2))
            show_trace(table, f"decode {rows}", kernels, rows, step_bytes(rows, o.ctx, o.format), "embed_kernel")
    finally:
        for s in socks:
            s.close()
    cluster.wait_for(lambda: value(metrics(c), 'baton_requests{state="decode"}') == 0, 60, 0.1)


def model_folder():
    """The demo model's tokenizer; the random model may be longer than it."""
    path = rig.WORK / "model"
    shutil.copytree(rig.DEMO, path)
    config = json.loads((path / "config.json").read_text())
    config["text_config"]["max_position_embeddings"] = 262144
    (path / "config.json").write_text(json.dumps(config))
    return path


def main():
    o = options()
    table = rig.Table()
    build = rig.programs(o.dir)
    tracer = Tracer(build, pathlib.Path(o.dir).resolve()) if o.trace else None
    dummy = f"--load-format dummy --dummy-format {o.format} --model-config {CONFIG} --max-model-len {LEN_MAX} {o.flags} "
    c = rig.gpu_cluster(build, "run", ("0", "0"), model=model_folder(), router_flags="--max-queued 1024",
                        prefill_flags=dummy + "--max-num-batched-tokens 8192 --max-queued 1024 --memory-bytes 46000000000",
                        decode_flags=dummy + "--max-num-seqs 256 --memory-bytes 86000000000", decode_seqs=256)
    c.conf.write_text(c.conf.read_text().replace("--memory-bytes 1500000000 ", "").replace("--max-num-seqs 256 ", "", 1))
    begun = time.monotonic()
    try:
        c.up()
        show_start(table, c, time.monotonic() - begun)
        for n in numbers(o.prefill):
            measure_prefill(table, c, n, tracer)
        for rows in numbers(o.rows):
            measure_decode(table, c, rows, o, tracer)
    except Exception as e:  # noqa: B902: what was measured before is shown
        table.add(False, f"{e!r}"[:1500])
    finally:
        c.down()
        rig.keep_logs(c, f"model-{o.format}")
    table.end(f"model-{o.format}")


if __name__ == "__main__":
    main()
