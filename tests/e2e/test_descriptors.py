"""Standard descriptors that are closed, a log that nobody reads, and few descriptors: what a
process is started with never ends it later, and never shows in an answer."""
import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import time

import pytest

from cluster import CONVERSATIONS, ROOT, free_port, generate_body, wait_for
from lone_router import Router

DEMO = ROOT / "deploy/demo-model"
PROGRAMS = ["router", "prefill", "decode"]
LINES = 1500  # of 300 bytes: more than a pipe and the queue hold
CLOSED = {0: "<&-", 1: ">&-", 2: "2>&-"}


class Trio:
    """Router, prefill and decode worker, each started by the test's own way."""

    def __init__(self, build, runtime):
        self.build, self.runtime, self.port = build, runtime, free_port()
        self.processes = {}

    def argv(self, name):
        flags = {"router": [f"--port={self.port}", "--served-model-name=demo"]}.get(
            name, [f"--id={name[0]}0", "--gpus=cpu:0", "--memory-bytes=1500000000", "--max-num-seqs=8"])
        return [str(self.build / f"bin/baton-{name}"), f"--model={DEMO}", f"--runtime-dir={self.runtime}", *flags]

    def start(self, name, closed="", **popen):
        argv = ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *self.argv(name)]
        self.processes[name] = subprocess.Popen(argv, **popen)

    def ask(self, method, path, body=None, timeout=60):
        return Router.ask(self, method, path, body)

    def ready(self):
        for name, p in self.processes.items():
            assert p.poll() is None, f"{name} ended with {p.returncode}"
        try:
            return self.ask("GET", "/ready")[0] == 200
        except OSError:
            return False

    def stop(self, name):
        self.processes[name].send_signal(signal.SIGTERM)
        return self.processes.pop(name).wait(30)

    def close(self):
        for p in self.processes.values():
            p.kill()
            p.wait()


@pytest.fixture
def trio(build, runtime):
    t = Trio(build, runtime)
    yield t
    t.close()


def check_answers(trio, n=4):
    for row in CONVERSATIONS[:n]:
        status, body = trio.ask("POST", "/v1/completions", json.dumps(
            generate_body(row, prompt=row["prompt_ids"])))
        assert status == 200, body
        assert json.loads(body)["choices"][0]["text"] == row["greedy_text"]


def targets(pid):
    return [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)]


def test_closed_standard_descriptors_change_no_answer_and_end_no_process(trio):
    for name in PROGRAMS:
        trio.start(name, " ".join(CLOSED.values()))
    wait_for(trio.ready, 60)
    for name in PROGRAMS:
        assert targets(trio.processes[name].pid) == ["/dev/null"] * 3
    check_answers(trio)
    for name in PROGRAMS:
        assert trio.stop(name) == 0


@pytest.mark.parametrize("closed", [[0], [1], [2], [0, 2]])
def test_a_router_with_closed_standard_descriptors_starts_serves_and_stops(trio, closed):
    trio.start("router", " ".join(CLOSED[fd] for fd in closed))
    wait_for(lambda: listens(trio), 60)
    pid = trio.processes["router"].pid
    assert [targets(pid)[fd] for fd in closed] == ["/dev/null"] * len(closed)
    assert trio.ask("POST", "/tokenize", json.dumps({"prompt": "one two"}))[0] == 200
    assert trio.stop("router") == 0


def listens(trio):
    try:
        return trio.ask("GET", "/live")[0] == 200
    except OSError:
        return False


def test_a_launcher_with_closed_standard_descriptors_starts_and_stops_a_cluster(build, tmp_path):
    from cluster import LAUNCHER, Cluster
    c = Cluster(tmp_path, build)
    launch = 'exec /usr/bin/python3 -I "$0" "$@" ' + " ".join(CLOSED.values())
    up = ["/bin/sh", "-c", launch, str(LAUNCHER), "up", "--conf", str(c.conf)]
    assert subprocess.run(up, timeout=120).returncode == 0
    try:
        assert c.ready()
        assert targets(json.loads((c.runtime / "launcher.json").read_text())["pid"])[0] == "/dev/null"
    finally:
        assert c.down().returncode == 0


def say(trio):
    """LINES lines of the router's log, over one connection."""
    conn = http.client.HTTPConnection("127.0.0.1", trio.port, timeout=10)
    for i in range(LINES):
        conn.request("POST", f"/{i:0190}", "")
        answer = conn.getresponse()
        assert answer.status == 404 and answer.read()
    conn.close()


def test_a_log_that_nobody_reads_holds_up_no_process(trio):
    """Every program writes into a full pipe; all serve, and end when told to."""
    pipes = []
    for name in PROGRAMS:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(writer, b"x" * 65536)
        os.set_blocking(writer, True)
        trio.start(name, stderr=writer)
        os.close(writer)
        pipes.append(reader)
    wait_for(trio.ready, 60)
    check_answers(trio)
    say(trio)
    assert re.search(r"\nbaton_log_dropped_total [1-9]", trio.ask("GET", "/metrics")[1].decode())
    begun = time.monotonic()
    assert trio.ask("GET", "/live")[0] == 200 and time.monotonic() - begun < 1
    check_answers(trio, 1)
    for name in PROGRAMS:
        begun = time.monotonic()
        assert trio.stop(name) == 0 and time.monotonic() - begun < 10
    for reader in pipes:
        os.close(reader)


def test_lines_that_were_not_read_are_counted_where_the_log_goes_on(trio):
    reader, writer = os.pipe()
    trio.start("router", stderr=writer)
    os.close(writer)
    wait_for(lambda: listens(trio), 60)
    say(trio)
    log = b""
    while b" log lines were dropped" not in log:
        log += os.read(reader, 65536)
    assert trio.ask("POST", "/after", "")[0] == 404
    while b"path=/after " not in log:
        log += os.read(reader, 65536)
    seen = len(re.findall(rb"path=/\d{190} ", log))
    dropped = sum(int(n) for n in re.findall(rb": (\d+) log lines were dropped", log))
    assert dropped > 0 and seen + dropped == LINES
    metrics = trio.ask("GET", "/metrics")[1].decode()
    assert f"\nbaton_log_dropped_total {dropped}\n" in metrics
    os.close(reader)


def with_limit(soft, hard):
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))}


@pytest.mark.parametrize("name", PROGRAMS)
def test_too_few_descriptors_are_refused_at_start(trio, name):
    trio.start(name, stderr=subprocess.PIPE, **with_limit(24, 24))
    p = trio.processes.pop(name)
    _, err = p.communicate(timeout=30)
    assert p.returncode == 2
    assert b"may open 24 descriptors (ulimit -Hn), it needs 512" in err


def test_the_soft_limit_of_descriptors_is_raised_to_the_hard_one(trio):
    for name in PROGRAMS:
        trio.start(name, **with_limit(24, 2000))
    wait_for(trio.ready, 60)
    for p in trio.processes.values():
        assert resource.prlimit(p.pid, resource.RLIMIT_NOFILE) == (2000, 2000)


def test_idle_connections_leave_descriptors_for_workers_that_come_back(trio, runtime):
    with open(runtime / "r0.log", "w") as log:
        trio.start("router", stderr=log, **with_limit(1024, 1024))
    trio.start("prefill")
    trio.start("decode")
    wait_for(trio.ready, 60)
    assert "connections_max is 768, not 4096" in (runtime / "r0.log").read_text()
    idle = []
    for _ in range(1200):
        s = socket.socket()
        s.settimeout(5)
        s.connect(("127.0.0.1", trio.port))
        idle.append(s)
    pid = trio.processes["router"].pid
    wait_for(lambda: len(os.listdir(f"/proc/{pid}/fd")) >= 768, 10)
    trio.processes["decode"].kill()
    trio.processes["decode"].wait()
    trio.start("decode")
    wait_for(lambda: (runtime / "r0.log").read_text().count(" role=decode gpus=") > 1, 30)
    assert len(os.listdir(f"/proc/{pid}/fd")) < 1024
    for s in idle:
        s.close()
    wait_for(trio.ready, 30)
    check_answers(trio, 1)
