"""What the device scripts share: where things are, clusters on GPUs, nvidia-smi, and a
table of results that decides the exit status. Needs numpy, not pytest."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tests/golden")]
import cluster  # noqa: E402

OUT = pathlib.Path(os.environ.get("OUT") or tempfile.mkdtemp())
WORK = pathlib.Path(tempfile.mkdtemp(prefix="baton-dev-"))
DEMO = ROOT / "deploy/demo-model"
GOLDEN = ROOT / "tests/golden"


def gpus():
    """First and last GPU: prefill and decode run there, on one if there is only one."""
    try:
        n = len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines())
    except OSError:
        n = 0
    return ["0", str(max(n - 1, 0))]


GPUS = gpus()


def programs(folder):
    """The build folder whose bin/ is the packed one."""
    build = WORK / "build"
    build.mkdir(exist_ok=True)
    (build / "bin").symlink_to(pathlib.Path(folder).resolve())
    return build


def bf16_demo():
    path = WORK / "demo-bf16"
    if not path.exists():
        subprocess.run([sys.executable, GOLDEN / "make_bf16_demo.py", DEMO, path], check=True)
    return path


def gpu_cluster(build, name, gpus, model=DEMO, transport="auto", **more):
    folder = WORK / name
    folder.mkdir()
    flags = dict(more)
    flags["router_flags"] = f"--python {sys.executable} " + more.get("router_flags", "")
    flags["decode_flags"] = f"--transport {transport} " + more.get("decode_flags", "")
    return cluster.Cluster(folder, build, model=str(model), gpus=gpus[0], decode_gpus=gpus[1], **flags)


def keep_logs(c, name):
    """One file per cluster, since few files come back from the device machine."""
    text = "".join(f"\n--- {p.name}\n{p.read_text(errors='replace')}" for p in sorted(c.logs.glob("*.log")))
    (OUT / f"{name}.log").write_text(text[-8000000:])


def at_once(work, items, threads):
    """[work(item)], exceptions as results."""
    def run(item):
        try:
            return work(item)
        except Exception as e:  # noqa: B902: shown as the result of this item
            return e
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, items))


class Memory:
    """Used MiB per GPU, sampled all the time by one nvidia-smi."""

    def __init__(self):
        self.samples = []  # (time, gpu, MiB)
        self.smi = subprocess.Popen(
            ["nvidia-smi", "--query-gpu=index,memory.used", "--format=csv,noheader,nounits", "-lms", "50"],
            stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.smi.stdout:
            gpu, used = line.split(",")
            self.samples.append((time.monotonic(), int(gpu), int(used)))

    def now(self, gpu):
        begun = time.monotonic()
        cluster.wait_for(lambda: any(t > begun and g == gpu for t, g, _ in self.samples[-40:]), 5)
        return [u for t, g, u in self.samples[-40:] if g == gpu][-1]

    def lowest(self, gpu, since, until):
        return min((u for t, g, u in self.samples if g == gpu and since <= t <= until), default=None)

    def close(self):
        self.smi.kill()
        self.smi.wait()


class Table:
    """Lines of results; a failed one makes the exit status 1."""

    def __init__(self):
        self.lines, self.failed = [], 0

    def add(self, ok, text):
        self.failed += not ok
        line = f"{'ok  ' if ok else 'FAIL'} {text}"
        self.lines.append(line)
        print(line, flush=True)

    def note(self, text):
        self.lines.append(f"     {text}")
        print(f"     {text}", flush=True)

    def end(self, name):
        (OUT / f"{name}.txt").write_text("\n".join(self.lines) + "\n")
        print(f"{name}: {len(self.lines)} lines, {self.failed} failed", flush=True)
        sys.exit(self.failed > 0)
