"""What a start shows and refuses: kernels that are wrong on purpose, the table of kernels
(--doctor, the start log, a running worker when asked), forced kernels, and a decode worker
in a PID namespace of its own.  usage: start_gpu.py DIR [DEVICE]; with DEVICE cpu:0 only
what needs no GPU."""
import ctypes
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import rig
import wire
from rig import cluster

ROWS = [row for row in cluster.CONVERSATIONS if row["min_margin"] >= 0.3][:3]
SMALL = ["--memory-bytes", "1500000000", "--max-num-seqs", "32"]
OPS = re.findall(r"X\((\w+),", (rig.ROOT / "kernels/table.h").read_text().split("#define OP_MAP(X)")[1].split("\n\n")[0])
LINE = re.compile(r"(\w+) +(any|\w+) +(\w+/\w+) +(chosen|right|refused) +(oracle|-|[\d.]+%) +[\d.]+(  .*)?")

INNER = re.compile(r" +(\S.*?) +rows((?: \d+)+)")


def run(argv, seconds=60):
    return subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=seconds)


def lines_of(table):
    """[(op, format, variant, verdict)] of a report."""
    found = [LINE.fullmatch(line) for line in table.splitlines()]
    return [m.groups()[:4] for m in found if m]


def inner_of(table):
    """{(op, format, variant): [(kernel inside, row counts that it was run with)]} of a report."""
    found, at = {}, None
    for line in table.splitlines():
        row, inner = LINE.fullmatch(line), INNER.fullmatch(line)
        if row:
            at = found.setdefault(row.groups()[:3], [])
        elif inner and at is not None:
            at.append((inner[1], [int(n) for n in inner[2].split()]))
    return found


def complaint(table):
    """What is wrong with the table of a model that has every op; None: nothing."""
    rows = lines_of(table)
    bare = [key for key, kernels in inner_of(table).items() if not kernels]
    if bare:
        return f"no kernel that was run: {bare}"
    wanted = {row[:2] for row in rows}
    chosen = [row[:2] for row in rows if row[3] == "chosen"]
    if {op for op, _ in wanted} != set(OPS):
        return f"ops {sorted({op for op, _ in wanted} ^ set(OPS))}"
    if sorted(chosen) != sorted(wanted):
        return f"chosen {chosen}"
    refused = [row for row in rows if row[3] == "refused"]
    return f"refused {refused}" if refused else None


def doctor(build, device, *flags):
    return run([build / "bin/baton-prefill", "--doctor", "--model", rig.DEMO, "--gpus", device, *SMALL, *flags])


def wrong_kernels(table, folder):
    begun = time.monotonic()
    done = run([pathlib.Path(folder) / "wrong_test", rig.GPUS[0]], 110)
    (rig.OUT / "wrong_test.log").write_text(done.stdout + done.stderr)
    table.add(done.returncode == 0, f"wrong_test: exit {done.returncode}, "
              f"{len(re.findall('^ .* refused ', done.stdout, re.M))} lines of wrong kernels refused, "
              f"{time.monotonic() - begun:.1f} s")
    for line in done.stdout.splitlines():
        if done.returncode == 0 or line.startswith("FAIL"):
            table.note(re.sub(" +", " ", line)[:230])
    if done.returncode != 0:
        table.note((done.stdout + done.stderr)[-1500:])


def doctors(table, build, device):
    done = doctor(build, device)
    table.add(done.returncode == 0 and complaint(done.stdout) is None,
              f"--doctor: exit {done.returncode}, {len(lines_of(done.stdout))} lines, {complaint(done.stdout) or 'nothing'} wrong")
    for line in lines_of(done.stdout):
        if line[3] == "chosen":
            table.note(" ".join(line[:3]))
    for key, kernels in inner_of(done.stdout).items():
        if len(kernels) > 1:
            table.note(" ".join(key) + ": " + "; ".join(f"{name} {' '.join(map(str, counts))}" for name, counts in kernels))
    if not device.startswith("cpu"):
        met = {name for (op, _, _), kernels in inner_of(done.stdout).items() if op in ("linear", "moe", "head") for name, _ in kernels}
        wanted = {"stream 8", "stream 16", "large 128", "experts, large 128"}
        table.add(met >= wanted, f"--doctor names the products' kernels inside: {sorted(wanted - met) or 'none'} missing")
    # The slow ones, which are not what the clock would choose.
    done = doctor(build, device, "--kernels", "linear/plain,head/plain")
    rows = [row for row in lines_of(done.stdout) if row[0] in ("linear", "head") and row[3] == "chosen"]
    table.add(done.returncode == 0 and complaint(done.stdout) is None and len(rows) >= 2
              and all(row[2].endswith("/plain") for row in rows), f"forced plain kernels: exit {done.returncode}, {rows}")
    done = doctor(build, device, "--kernels", "linear/plain,linear/best")
    kind = "cpu" if device.startswith("cpu") else "cuda"
    table.add(done.returncode == 2 and f'no variant for {kind} is named "linear/best"' in done.stderr and not done.stdout,
              f"a forced name that nobody has: exit {done.returncode}, {done.stderr.strip()[-100:]}")


class Control:
    """Asks a router as an operator's tool does. Only libzmq itself comes with the programs."""

    def __init__(self, runtime):
        self.zmq = z = ctypes.CDLL("libzmq.so.5")
        z.zmq_ctx_new.restype = z.zmq_socket.restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(z.zmq_ctx_new())
        self.socket = ctypes.c_void_p(z.zmq_socket(self.context, 5))  # DEALER
        for option, value in ((17, 0), (27, 10000)):  # LINGER, RCVTIMEO in ms
            z.zmq_setsockopt(self.socket, option, ctypes.byref(ctypes.c_int(value)), 4)
        if z.zmq_connect(self.socket, f"ipc://{runtime}/routers/r0.sock".encode()) != 0:
            raise OSError("zmq_connect")

    def ask(self, what, worker):
        frame, room = wire.encode("ask", what=what, tag=7, id=worker), ctypes.create_string_buffer(5 << 20)
        self.zmq.zmq_send(self.socket, frame, ctypes.c_size_t(len(frame)), 0)
        n = self.zmq.zmq_recv(self.socket, room, ctypes.c_size_t(len(room)), 0)
        if n <= 0:
            raise TimeoutError(f"no answer to {what} of {worker}")
        name, m = wire.decode(room.raw[:n])
        if name != "answer" or m["tag"] != 7:
            raise ValueError(f"{name} {m}")
        return json.loads(m["json"])

    def close(self):
        self.zmq.zmq_close(self.socket)
        self.zmq.zmq_ctx_term(self.context)


def complete(c, row):
    r = c.post("/v1/completions", cluster.generate_body(row, prompt=row["prompt_ids"]))
    return r, c.outcome(r.headers["X-Request-Id"])


def right(c, table, what):
    """Three conversations; the transports that they used."""
    results = [complete(c, row) for row in ROWS]
    good = [r.status == 200 and r.json()["choices"][0]["text"] == row["greedy_text"]
            for (r, _), row in zip(results, ROWS)]
    table.add(all(good), f"{what}: {sum(good)} of {len(good)} conversations right")
    return {outcome["transport"] for _, outcome in results}


def running(table, build, gpus):
    """The same table from the log of a worker's start and from the worker when asked."""
    c = rig.gpu_cluster(build, "doctor", gpus)
    try:
        c.up()
        control = Control(c.runtime)
        for name in ("p0", "d0"):
            told = control.ask("doctor", name)["kernels"]
            logged = [line.split(": ", 1)[-1] for line in c.log(name).splitlines()]
            missing = [line for line in told.splitlines() if line not in logged]
            table.add(complaint(told) is None and not missing,
                      f"ask doctor of {name}: {len(lines_of(told))} lines, {complaint(told) or 'nothing'} wrong, "
                      f"{len(missing)} not in its start log")
        control.close()
        table.note(f"transport of one namespace: {right(c, table, 'one namespace')}")
        table.add(c.down().returncode == 0, "drained and stopped")
    finally:
        c.down()
        rig.keep_logs(c, "start_doctor")


def foreign():
    """(command that starts a program in a PID namespace of its own, inode of such a
    namespace or None when it looks like ours); a text that says why there is none."""
    why = ""
    for more in (["--mount-proc"], []):
        argv = ["unshare", "--pid", "--fork", "--kill-child", *more]
        try:
            done = run([*argv, "stat", "-Lc", "%i", "/proc/self/ns/pid"], 20)
        except OSError as e:
            return str(e)
        if done.returncode == 0:
            other = int(done.stdout) != namespace("self")
            return argv, int(done.stdout) if other else None
        why = why or done.stderr.strip()
    return why


def end(child):
    """unshare itself does not listen; it ends with its child's status."""
    os.killpg(child.pid, signal.SIGTERM)
    try:
        return child.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return "killed"


class Pair:
    """A router and p0 of the launcher, and d0 in a namespace of its own."""

    def __init__(self, build, name, argv, gpus, transport):
        folder = rig.WORK / name
        folder.mkdir()
        self.c = cluster.Cluster(folder, build, decode=0, model=str(rig.DEMO), gpus=gpus[0],
                                 router_flags=f"--python {sys.executable}")
        self.c.logs.mkdir(parents=True)
        self.c.runtime.chmod(0o700)
        with open(self.c.logs / "d0.log", "w") as log:
            self.d0 = subprocess.Popen(
                [*argv, build / "bin/baton-decode", "--id", "d0", "--runtime-dir", self.c.runtime, "--model", rig.DEMO,
                 "--gpus", gpus[1], *SMALL, "--transport", transport], stdout=log, stderr=log, start_new_session=True)

    def started(self):
        if self.d0.poll() is not None:
            raise RuntimeError(f"d0 ended with {self.d0.returncode}: {self.c.log('d0')[-600:]}")
        return " ready role=decode" in self.c.log("d0")

    def __enter__(self):
        try:
            cluster.wait_for(self.started, 60)
            self.c.up()
        except BaseException:
            self.__exit__()
            raise
        return self.c

    def __exit__(self, *_):
        self.down = self.c.down().returncode, end(self.d0)
        rig.keep_logs(self.c, f"start_{self.c.folder.name}")


def namespace(pid):
    return os.stat(f"/proc/{pid}/ns/pid").st_ino


def sentence(c):
    """Why CUDA IPC is not for the pair; p0 is in our namespace, d0 in one of its own."""
    ours = namespace(c.pid("p0"))
    return re.compile(f"(transport=cuda_ipc not used from .*|transport cuda_ipc from .* is not possible): the peer is in "
                      f"PID namespace {ours}, this process in (?!{ours}:)[0-9]+: CUDA IPC needs one for both")


def namespaces(table, build, gpus):
    found = foreign()
    if isinstance(found, str):
        table.note(f"foreign PID namespace: not run: {found}")
        return
    argv, inode = found
    cpu = gpus[0].startswith("cpu")
    pair = Pair(build, "foreign_auto", argv, gpus, "auto")
    with pair as c:
        seen, log = right(c, table, "d0 in its own PID namespace, transport auto"), c.log("d0")
        said = [line.split(": ", 1)[-1] for line in log.splitlines() if " not used from " in line]
        names = any(sentence(c).search(line) for line in log.splitlines())
        if cpu or inode is None:
            table.note(f"used {seen}" + ("" if cpu else ": this kernel gives both namespaces one number, "
                                         f"so nothing can tell them apart; said: {said}"))
        else:
            table.add(seen == {"cuda_host"} and names, f"the pair uses {seen} and says why: {said[-1:]}")
    table.add(pair.down == (0, 0), f"drained and stopped, status {pair.down}")
    if cpu or inode is None:
        return
    pair = Pair(build, "foreign_ipc", argv, gpus, "cuda_ipc")
    with pair as c:
        r, _ = complete(c, ROWS[0])
        said = [line for line in c.log("d0").splitlines() if sentence(c).search(line)]
        table.add(r.status >= 500 and bool(said), f"the same with --transport cuda_ipc: status {r.status}, "
                  f"{said[-1:] or c.log('d0')[-600:]}")
    table.add(pair.down == (0, 0), f"drained and stopped, status {pair.down}")


def main(folder, device=None):
    table, build = rig.Table(), rig.programs(folder)
    gpus = [device, device] if device else rig.GPUS
    steps = [lambda: wrong_kernels(table, folder)] if not device else []
    steps += [lambda: doctors(table, build, gpus[0]), lambda: running(table, build, gpus),
              lambda: namespaces(table, build, gpus)]
    for step in steps:
        try:
            step()
        except BaseException as e:  # noqa: B902: the other steps go on
            table.add(False, str(e)[-1500:])
    table.end("15_start")


if __name__ == "__main__":
    main(*sys.argv[1:])
