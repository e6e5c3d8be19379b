"""Logits of the GPU engine against the reference outputs, by prefill and by decode steps
after a hand-over between two processes; experts forced where a near tie may fall either
way.  usage: logits_gpu.py DIR"""
import subprocess
import sys

import numpy as np
import rig
import stfile

MODELS = {"tiny-dense": 2e-2, "demo": 2e-2, "demo-bf16": 2e-2, "tiny-moe": 5e-2, "tiny-next": 5e-2}
MEDIAN = 2e-2


def model_of(name):
    return {"demo": rig.DEMO, "demo-bf16": rig.WORK / "demo-bf16"}.get(name, rig.GOLDEN / name)


def golden_of(name):
    return rig.GOLDEN / ("demo_golden.safetensors" if name.startswith("demo") else f"{name}/golden.safetensors")


def tensors(path):
    return {k: np.array(v, dtype=np.float32 if d == "F32" else np.int32).reshape(s)
            for k, (d, s, v) in stfile.read(path).items()}


def run(build, name, label, given, *flags):
    out = rig.WORK / f"{name}.{label}.safetensors"
    done = subprocess.run([build / "bin/baton-logits", "--model", model_of(name), "--in", given, "--out", out,
                           *map(str, flags)], capture_output=True, text=True, timeout=120)
    (rig.WORK / f"{name}.{label}.log").write_text(done.stdout + done.stderr)
    if done.returncode != 0:
        raise RuntimeError(f"{name} {label}: exit {done.returncode}: {done.stderr.strip()[-600:]}")
    return tensors(out)


def errors(got, want):
    """Per position: largest difference over the largest logit."""
    got = got[-len(want):]
    return np.abs(got - want).max(axis=1) / np.abs(want).max(axis=1)


def prompts(want):
    return [f"case.{i}" for i in range(99) if f"case.{i}.ids" in want]


def with_answers(name, want):
    path = rig.WORK / f"{name}.answers.safetensors"
    stfile.write(path, {f"{c}.ids": stfile.ids([*map(int, want[f"{c}.ids"]), *map(int, want[f"{c}.greedy"][:-1])])
                        for c in prompts(want)})
    return path


def flips(a, b):
    """(rows whose set of experts differs, rows) over all layers."""
    n = total = 0
    for name in a:
        x, y = np.sort(a[name], axis=2), np.sort(b[name], axis=2)
        n += int((x != y).any(axis=2).sum())
        total += x.shape[0] * x.shape[1]
    return n, total


def check(table, what, errs, bound, median=None):
    worst, middle = float(errs.max()), float(np.median(errs))
    ok = np.isfinite(errs).all() and worst <= bound and (median is None or middle <= median)
    table.add(bool(ok), f"{what}: largest {worst:.4f} (bound {bound}), median {middle:.4f}"
              + (f" (bound {median})" if median else "") + f", {len(errs)} positions")


def free_run(table, build, name, gpu, want):
    """Chunks, hidden states of the deep set, and steps after a hand-over."""
    moe = name in ("tiny-moe", "tiny-next")
    for chunk in (3, 64, 512):
        got = run(build, name, f"chunk{chunk}", golden_of(name), "--gpus", gpu, "--chunk", chunk)
        errs = np.concatenate([errors(got[f"{c}.logits"], want[f"{c}.logits"]) for c in prompts(want)])
        if moe:
            check(table, f"{name} chunk {chunk}, experts free", errs, 0.5, 5e-2)
        else:
            check(table, f"{name} chunk {chunk}", errs, MODELS[name])
    answers = with_answers(name, want)
    for devices, transport in ((gpu, gpu), "cuda_ipc"), (rig.GPUS, "cuda_ipc"), (rig.GPUS[::-1], "cuda_host"):
        g = len(want["case.0.greedy"])
        got = run(build, name, f"steps.{devices[0]}{devices[1]}.{transport}", answers, "--gpus", devices[0], "--decode", g,
                  "--gpus-decode", devices[1], "--transport", transport)
        errs = np.concatenate([errors(got[f"{c}.logits"], want[f"{c}.step_logits"]) for c in prompts(want)])
        what = f"{name} {g} steps, GPU {devices[0]} to {devices[1]} by {transport}"
        if moe:
            check(table, what + ", experts free", errs, 0.5, 5e-2)
        else:
            check(table, what, errs, MODELS[name])


def forced_run(table, build, name, gpu):
    """Every position against the CPU backend, with its experts forced; then without."""
    given, route, own = golden_of(name), rig.WORK / f"{name}.route", rig.WORK / f"{name}.own"
    want = run(build, name, "cpu", given, "--gpus", "cpu:0", "--dump-route", route)
    got = run(build, name, "forced", given, "--gpus", gpu, "--route", route)
    errs = np.concatenate([errors(got[c], want[c]) for c in want])
    check(table, f"{name} all positions, experts of the CPU run", errs, MODELS[name], MEDIAN)
    got = run(build, name, "free", given, "--gpus", gpu, "--dump-route", own)
    n, total = flips(tensors(route), tensors(own))
    errs = np.concatenate([errors(got[c], want[c]) for c in want])
    table.note(f"{name} experts free: {n} of {total} choices differ from the CPU's, "
               f"largest {errs.max():.4f}, median {np.median(errs):.4f}")


def main(folder):
    table, build = rig.Table(), rig.programs(folder)
    rig.bf16_demo()
    work = []
    for i, name in enumerate(MODELS):
        want, gpu = tensors(golden_of(name)), rig.GPUS[i % 2]
        work.append((name, lambda n=name, g=gpu, w=want: free_run(table, build, n, g, w)))
        if name != "tiny-dense":
            work.append((name, lambda n=name, g=gpu: forced_run(table, build, n, g)))
    for (name, _), result in zip(work, rig.at_once(lambda w: w[1](), work, 6)):
        if isinstance(result, Exception):
            table.add(False, f"{name}: {result}")
    logs = "".join(f"\n--- {p.name}\n{p.read_text()}" for p in sorted(rig.WORK.glob("*.log")))
    (rig.OUT / "20_logits.log").write_text(logs)
    table.end("20_logits")


if __name__ == "__main__":
    main(sys.argv[1])
