"""What an operator gets: the installed tree serves by itself, systemd is told when it does, and
the package and the unit hold what they should."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from cluster import CONVERSATIONS, free_port, wait_for


def run(*cmd, **kw):
    r = subprocess.run([str(c) for c in cmd], capture_output=True, text=True, timeout=120, **kw)
    assert r.returncode == 0, f"{cmd}: {r.stdout}{r.stderr}"
    return r.stdout + r.stderr


@pytest.fixture(scope="module")
def tree(build, tmp_path_factory):
    prefix = tmp_path_factory.mktemp("i") / "baton"
    run("cmake", "--install", build, "--prefix", prefix)
    return prefix


@pytest.fixture
def conf(tree, runtime):
    """The cluster file that was installed, on a free port, with small workers and a short folder for sockets."""
    path, port = tree / "etc/baton/cluster.conf", free_port()
    text = path.read_text()
    for old, new in (("port = 8000", f"port = {port}"), ("gpus = cpu:0", "gpus = cpu:0\nflags = --memory-bytes 1500000000"),
                     (f"runtime_dir = {tree}/run", f"runtime_dir = {runtime}/run"),
                     (f"log_dir = {tree}/log", f"log_dir = {runtime}/log")):
        assert old in text, old
        text = text.replace(old, new)
    mine = runtime / "cluster.conf"
    mine.write_text(text)
    return mine, port


class Systemd:
    """The socket that systemd would listen on; lines in the order of their coming."""

    def __init__(self, folder):
        self.path = str(folder / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(0.1)
        self.lines = []

    def read(self):
        try:
            while True:
                self.lines += self.socket.recv(4096).decode().split("\n")
        except TimeoutError:
            return self.lines

    def said(self, line):
        return line in self.read()


def answer(port, c):
    conn = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    conn.request("POST", "/v1/completions", json.dumps({"model": "demo-model", "prompt": c["prompt"], "temperature": 0,
                                                        "max_tokens": 64}), {"Content-Type": "application/json"})
    r = conn.getresponse()
    body = json.loads(r.read())
    assert r.status == 200, body
    return body["choices"][0]["text"]


def ready(port):
    try:
        conn = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        conn.request("GET", "/ready")
        return conn.getresponse().status == 200
    except OSError:
        return False


def children(pid):
    return [int(p) for p in open(f"/proc/{pid}/task/{pid}/children").read().split()]


@pytest.fixture
def service(tree, conf, runtime):
    """As the unit starts it: in the foreground, with the variables that systemd sets."""
    systemd = Systemd(runtime)
    env = dict(os.environ, NOTIFY_SOCKET=systemd.path, WATCHDOG_USEC="1000000")
    log = open(runtime / "launcher.out", "w")
    p = subprocess.Popen([tree / "bin/baton", "up", "--foreground", "--conf", conf[0]], env=env, stdout=log, stderr=log, cwd="/")
    yield p, systemd
    if p.poll() is None:
        p.terminate()
        p.wait(60)
    print((runtime / "launcher.out").read_text()[-3000:])


def test_an_installed_tree_serves_and_tells_systemd_ready_only_then(service, conf):
    p, systemd = service
    port = conf[1]
    wait_for(lambda: systemd.said("READY=1"), 60)
    assert ready(port)
    first = systemd.lines.index("READY=1")
    assert "STATUS=starting" in systemd.lines[:first]
    assert any(line.startswith("EXTEND_TIMEOUT_USEC=") for line in systemd.lines[:first])
    assert f"STATUS=serving on port {port}" in systemd.read()
    c = CONVERSATIONS[0]
    assert answer(port, c) == c["greedy_text"]
    for child in children(p.pid):
        env = open(f"/proc/{child}/environ", "rb").read()
        assert b"NOTIFY_SOCKET" not in env and b"WATCHDOG" not in env, f"process {child} could speak for the service"
    p.terminate()
    assert p.wait(60) == 0
    assert "STOPPING=1" in systemd.read() and systemd.lines.count("READY=1") == 1


def test_the_watchdog_is_fed_by_the_loop_and_by_nothing_else(service):
    p, systemd = service
    wait_for(lambda: systemd.said("READY=1"), 60)
    count = lambda: systemd.read().count("WATCHDOG=1")
    before = count()
    wait_for(lambda: count() >= before + 3, 20)
    p.send_signal(signal.SIGSTOP)
    systemd.read()
    before = count()
    time.sleep(1.5)
    assert count() == before, "a stopped loop was called alive"
    p.send_signal(signal.SIGCONT)
    wait_for(lambda: count() > before, 20)


@pytest.mark.parametrize("program", ["baton", "batonctl", "baton-router", "baton-prefill", "baton-decode"])
def test_the_manual_of_a_program_is_its_help(tree, program):
    page = (tree / f"share/man/man1/{program}.1").read_text()
    assert page.startswith(f'.TH {program} 1 ') and f".SH NAME\n{program} \\- " in page
    shown = [line.removeprefix("\\&") for line in page.split(".nf\n")[1].split("\n.fi")[0].replace("\\e", "\\").split("\n")]
    assert "\n".join(shown).replace("\\-", "-").strip() == run(tree / "bin" / program, "--help").strip()
    assert not any(line.startswith((".", "'")) for line in page.split(".nf\n")[1].split("\n.fi")[0].split("\n"))


def test_a_cluster_file_that_is_there_is_kept(tree, build, conf):
    own = tree / "etc/baton/cluster.conf"
    kept = own.read_text()
    own.write_text(kept + "# mine\n")
    try:
        run("cmake", "--install", build, "--prefix", tree)
        assert own.read_text() == kept + "# mine\n"
    finally:
        own.write_text(kept)


def test_systemd_takes_the_unit_and_calls_it_well_confined(tree, tmp_path):
    unit = tmp_path / "baton.service"
    text = (tree / "lib/systemd/system/baton.service").read_text()
    # This machine need not have the user that the package makes.
    unit.write_text(text.replace("User=baton", "User=daemon").replace("Group=baton", "Group=daemon"))
    out = run("systemd-analyze", "verify", "--man=no", unit)
    assert out == "", out
    score = re.search(r"Overall exposure level for \S+: ([\d.]+)", run("systemd-analyze", "security", "--offline=yes", unit))
    assert float(score.group(1)) <= 3.0, score.group(0)
    assert f"ExecStart={tree}/bin/baton up --foreground --conf {tree}/etc/baton/cluster.conf" in text
    # Hopper, Blackwell and the unified memory's device must stay within reach.
    for device in ("char-nvidia ", "char-nvidia-uvm ", "char-nvidia-caps "):
        assert f"DeviceAllow={device}rw" in text


def test_a_debian_package_holds_every_program_and_keeps_the_cluster_file(build, tmp_path):
    run("cpack", "-G", "DEB", "-B", tmp_path, "--config", build / "CPackConfig.cmake")
    deb, = tmp_path.glob("baton_*_*.deb")
    names = [line.split()[-1] if "->" not in line else line.split()[-3]
             for line in run("dpkg-deb", "-c", deb).splitlines()]
    programs = ("baton", "baton-router", "baton-prefill", "baton-decode", "batonctl")
    for want in [f"./usr/bin/{p}" for p in programs] + ["./etc/baton/cluster.conf", "./usr/lib/systemd/system/baton.service",
                                                         "./usr/lib/baton/deploy/launcher/supervisor.py"]:
        assert want in names, want
    assert all(n.startswith(("./etc/", "./usr/")) for n in names), names
    fields = run("dpkg-deb", "-I", deb)
    for need in ("libzmq5", "libmicrohttpd12", "python3-jinja2", "conffiles", "postinst", "prerm"):
        assert need in fields, need
    root = tmp_path / "root"
    run("dpkg-deb", "-x", deb, root)
    assert "model = /usr/share/baton/demo-model" in (root / "etc/baton/cluster.conf").read_text()
    assert "runtime_dir = /run/baton" in (root / "etc/baton/cluster.conf").read_text()
    unit = (root / "usr/lib/systemd/system/baton.service").read_text()
    assert "ExecStart=/usr/bin/baton up --foreground --conf /etc/baton/cluster.conf" in unit
    for script in ("postinst", "prerm"):
        (tmp_path / script).write_text(run("dpkg-deb", "-I", deb, script))
        run("sh", "-n", tmp_path / script)
