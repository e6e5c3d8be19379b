#!/usr/bin/env python3
"""Every test of the project in one run. Stages build and test in turn; a stage that
cannot be built or started counts as one failed test, and the others still run. The last
line is `N passed, N failed, N skipped`; the exit status is 0 only when nothing failed."""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "results"


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.names = []

    def add(self, name, outcome, text=""):
        setattr(self, outcome, getattr(self, outcome) + 1)
        if outcome == "failed":
            self.names.append(f"{name}: {text}".strip(": "))

    def junit(self, path, stage):
        """Count the cases of a JUnit file; a file that is missing or empty is a failure."""
        try:
            cases = list(ET.parse(path).getroot().iter("testcase"))
        except (OSError, ET.ParseError) as e:
            self.add(stage, "failed", f"no results ({e})")
            return
        if not cases:
            self.add(stage, "failed", "no test was run")
        for case in cases:
            name = f"{stage}: {case.get('classname', '')} {case.get('name', '')}"
            kinds = {c.tag for c in case}
            if kinds & {"failure", "error"}:
                self.add(name, "failed")
            elif "skipped" in kinds or case.get("status") in ("notrun", "disabled"):
                self.add(name, "skipped")
            else:
                self.add(name, "passed")


def run(cmd, minutes, **kw):
    text = "+ " + " ".join(map(str, cmd))
    print(text if len(text) < 200 else text[:197] + "...", flush=True)
    p = subprocess.Popen(cmd, cwd=ROOT, **kw)
    for limit, kill in ((minutes * 60, signal.SIGINT), (60, signal.SIGKILL), (None, 0)):
        try:
            rc = p.wait(limit)
            return rc if kill == signal.SIGINT else 124
        except subprocess.TimeoutExpired:
            # Interrupted, a test run still writes the results that it has.
            print(f"stopped after {minutes} minutes", flush=True)
            p.send_signal(kill)


def build(tally, preset, extra=()):
    jobs = str(os.cpu_count() or 2)
    if run(["cmake", "--preset", preset, *extra], 5, stdout=subprocess.DEVNULL) != 0:
        tally.add(f"configure {preset}", "failed")
        return False
    if run(["cmake", "--build", "--preset", preset, "-j", jobs], 30) != 0:
        tally.add(f"build {preset}", "failed")
        return False
    tally.add(f"build {preset}", "passed")
    return True


def ctest(tally, preset, extra=()):
    out = OUT / f"ctest-{preset}.xml"
    run(["ctest", "--preset", preset, "-j2", "--output-junit", out, *extra], 12)
    tally.junit(out, preset)


def pytest(tally, name, args, minutes):
    out = OUT / f"pytest-{name}.xml"
    rc = run(["/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider",
              "--durations=15", f"--junitxml={out}", *args], minutes)
    tally.junit(out, name)
    if rc == 124:
        tally.add(name, "failed", f"stopped after {minutes} minutes")


def fuzz(tally, seconds):
    """Each target from its seed corpus, into a scratch corpus; two at a time."""
    targets = sorted((ROOT / "build/fuzz/fuzz").glob("fuzz_*"))
    targets = [t for t in targets if t.is_file() and os.access(t, os.X_OK)]
    if not targets:
        tally.add("fuzz", "failed", "no target was built")
    pending, live = list(targets), []
    while pending or live:
        while pending and len(live) < 2:
            t = pending.pop(0)
            work = OUT / "corpus" / t.name
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            seeds = ROOT / "tests/fuzz/corpus" / t.name.replace("fuzz_", "", 1)
            log = open(OUT / f"{t.name}.log", "w")
            cmd = [t, work, seeds, f"-max_total_time={seconds}", "-rss_limit_mb=4096",
                   "-timeout=20", "-max_len=65536", f"-artifact_prefix={OUT}/{t.name}-"]
            live.append((t, subprocess.Popen(cmd, cwd=ROOT, stdout=log, stderr=log), log))
        time.sleep(0.5)
        for item in list(live):
            t, p, log = item
            if p.poll() is None:
                continue
            live.remove(item)
            log.close()
            text = (OUT / f"{t.name}.log").read_text(errors="replace")
            runs = re.findall(r"#(\d+)\s+DONE", text)
            ok = p.returncode == 0 and bool(runs)
            tally.add(f"fuzz {t.name}", "passed" if ok else "failed", text[-2000:])
            print(f"fuzz {t.name}: {'clean, ' + runs[-1] + ' runs' if ok else 'FAILED'}", flush=True)


def clang_format(tally):
    files = subprocess.run(["git", "ls-files", "*.c", "*.h", "*.cu", "*.cuh"], cwd=ROOT,
                           capture_output=True, text=True).stdout.split()
    files = [f for f in files if f != "common/model/tok_classes.c"]
    if not files:
        tally.add("format", "skipped")
        return
    rc = run(["clang-format", "--dry-run", "-Werror", *files], 5, stderr=subprocess.DEVNULL)
    tally.add("format", "passed" if rc == 0 else "failed", "clang-format -i the changed files")


def cuda(tally, mode):
    """The CUDA code for both architectures; without a toolkit it counts as skipped."""
    if mode == "OFF":
        return
    have = shutil.which("nvcc") or os.path.exists("/usr/local/cuda/bin/nvcc")
    if mode == "AUTO" and not have:
        tally.add("cuda build", "skipped")
        return
    log = OUT / "cuda-build.log"
    ok = run(["cmake", "--preset", "dev", "-B", "build/cuda", "-DWITH_CUDA=ON"], 5,
             stdout=subprocess.DEVNULL) == 0
    if ok:
        with open(log, "w") as f:
            ok = run(["cmake", "--build", "build/cuda", "-j", str(os.cpu_count() or 2), "-v"], 30,
                     stdout=f, stderr=f) == 0
    tally.add("cuda build", "passed" if ok else "failed", f"see {log}")
    if ok and (ROOT / "tests/check_ptxas.py").exists():
        rc = run(["/usr/bin/python3", "tests/check_ptxas.py", log], 1)
        tally.add("cuda spills", "passed" if rc == 0 else "failed")


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--cuda", choices=["AUTO", "ON", "OFF"], default="AUTO")
    ap.add_argument("--fuzz-seconds", type=int, default=10, help="per target; 0: none")
    ap.add_argument("--only", default="", help="comma-separated stages: " + ", ".join(
        ["format", "dev", "e2e", "asan", "tsan", "fuzz", "cuda"]))
    a = ap.parse_args()
    only = set(filter(None, a.only.split(",")))
    want = lambda stage: not only or stage in only
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    tally, started = Tally(), time.time()

    def stage(name):
        print(f"\n== {name} ({time.time() - started:.0f} s)", flush=True)

    if want("format"):
        stage("format")
        clang_format(tally)
    if want("dev") or want("e2e"):
        stage("dev")
        built = build(tally, "dev", ["-DWITH_CUDA=OFF"])
        if built and want("dev"):
            ctest(tally, "dev")
        if built and want("e2e"):
            pytest(tally, "golden", ["tests/golden", "--build", "build/dev"], 20)
            pytest(tally, "e2e", ["tests/launcher", "tests/e2e", "--build", "build/dev"], 40)
    if want("asan"):
        stage("asan")
        if build(tally, "asan"):
            ctest(tally, "asan")
            pytest(tally, "asan-e2e", ["tests/e2e", "--build", "build/asan", "-m", "asan"], 15)
    if want("tsan"):
        stage("tsan")
        if build(tally, "tsan"):
            ctest(tally, "tsan")
    if want("fuzz") and a.fuzz_seconds > 0:
        stage("fuzz")
        if build(tally, "fuzz"):
            fuzz(tally, a.fuzz_seconds)
    if want("cuda"):
        stage("cuda")
        cuda(tally, a.cuda)

    if tally.names:
        print("\nfailed:")
        for name in tally.names:
            print("  " + name)
    print(f"\n{time.time() - started:.0f} s")
    print(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
