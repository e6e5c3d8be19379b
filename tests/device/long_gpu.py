"""A prompt of 100,000 tokens through random weights of small models: every logit is a
number, and chunk sizes and a hand-over agree: closely in the dense model; in the one with
experts a near tie that falls the other way stays in the state, so only the median of the
last positions is bounded, loosely.  usage: long_gpu.py DIR [TOKENS]"""
import random
import subprocess
import sys
import time

import numpy as np
import rig
import stfile

LAST = 64
MODELS = {"dense": (rig.GOLDEN / "tiny-dense/config.json", 380, 5e-2), "experts": (rig.DEMO / "config.json", 2000, 0.2)}


def run(build, model, label, *flags):
    out = rig.WORK / f"long.{model}.{label}.safetensors"
    begun = time.monotonic()
    done = subprocess.run([build / "bin/baton-logits", "--load-format", "dummy", "--model-config", MODELS[model][0],
                           "--dummy-format", "bf16" if model == "dense" else "nvfp4", "--in", rig.WORK / f"{model}.ids",
                           "--out", out, "--last", str(LAST), *map(str, flags)],
                          capture_output=True, text=True, timeout=240)
    if done.returncode != 0:
        raise RuntimeError(f"{model} {label}: exit {done.returncode}: {done.stderr.strip()[-800:]}")
    logits = np.array(stfile.read(out)["case.0.logits"][2], dtype=np.float32)
    return logits.reshape(LAST, -1), time.monotonic() - begun


def compare(table, what, got, want, bound, seconds):
    errs = np.abs(got - want).max(axis=1) / np.abs(want).max(axis=1)
    ok = np.isfinite(got).all() and np.median(errs) <= bound
    table.add(bool(ok), f"{what}: median {np.median(errs):.4f} (bound {bound}), largest {errs.max():.4f}, all finite, {seconds:.0f} s")


def main(folder, tokens="100000"):
    table, build, n = rig.Table(), rig.programs(folder), int(tokens)
    a, b = rig.GPUS
    labels = [("4096", ["--gpus", a, "--chunk", 4096]), ("1000", ["--gpus", b, "--chunk", 1000]),
              ("16384", ["--gpus", a, "--chunk", 16384]),
              ("48 steps after a hand-over", ["--gpus", a, "--gpus-decode", b, "--chunk", 4096, "--decode", 48])]
    for model, (_, vocab, _) in MODELS.items():
        draw = random.Random(1)
        stfile.write(rig.WORK / f"{model}.ids", {"case.0.ids": stfile.ids([draw.randrange(vocab) for _ in range(n)])})
    runs = [(model, label, flags) for model in MODELS for label, flags in labels]
    results = dict(zip([r[:2] for r in runs], rig.at_once(lambda r: run(build, r[0], r[1].split()[0], *r[2]), runs, 4)))
    for model, (_, _, bound) in MODELS.items():
        want = results[model, "4096"]
        for label, _ in labels:
            got = results[model, label]
            if isinstance(got, Exception) or isinstance(want, Exception):
                table.add(False, f"{model} {label}: {got}")
            elif label == "4096":
                table.add(bool(np.isfinite(got[0]).all()), f"{model}, {n} tokens in chunks of 4096: every logit is finite, {got[1]:.0f} s")
            else:
                compare(table, f"{model}, {n} tokens, {label} against chunks of 4096", got[0], want[0], bound, got[1])
    table.end("50_long")


if __name__ == "__main__":
    main(*sys.argv[1:])
