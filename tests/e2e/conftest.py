"""Processes of one test: all of them are gone when it ends, however it ends."""
import fcntl
import json
import os
import pathlib
import subprocess
import sys

import pytest

from worker_rig import Router, Worker


class Rig:
    """Routers made of sockets, and workers as the test starts them."""

    def __init__(self, build, runtime):
        self.build, self.runtime = build, runtime
        self.processes, self.routers = [], []

    def worker(self, role, name, **flags):
        w = Worker(self.build, self.runtime, self.routers, role, name, **flags)
        self.processes.append(w)
        return w

    def router(self, name="r0"):
        return Router(self.runtime, self.routers, name)

    def pair(self, prefill={}, decode={}):
        """p0, d0 and the router r0, connected."""
        p = self.worker("prefill", "p0", **prefill)
        d = self.worker("decode", "d0", **decode)
        r = self.router()
        r.connected("p0", "d0")
        return p, d, r

    def go(self, phase):
        """Lets the fault point of this phase go on."""
        (self.runtime / f"fault.{phase}.go").touch()

    def close(self):
        for p in self.processes:
            p.close()
        for r in list(self.routers):
            r.close()


@pytest.fixture
def rig(build, runtime, request):
    c = Rig(build, runtime)
    yield c
    c.close()
    if getattr(request.node, "failed", False):
        for p in c.processes:
            print(f"--- {p.name}\n{p.log()[-4000:]}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if call.when == "call":
        item.failed = outcome.get_result().failed


CLIENTS = pathlib.Path(__file__).resolve().parent / "clients"


INSTALL_TRIES, INSTALL_SECONDS = 3, 900


def installed(venv, packages):
    """Makes the virtual environment; the last error, or None."""
    python = venv / "bin" / "python"
    for step in ([sys.executable, "-m", "venv", "--clear", venv],
                 [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "5", "--timeout", "60",
                  "-r", packages]):
        try:
            made = subprocess.run(step, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        except subprocess.TimeoutExpired:
            return f"no end in {INSTALL_SECONDS} s"
        if made.returncode != 0:
            return ((made.stderr or made.stdout).strip().splitlines() or ["no reason given"])[-1]
    (venv / "installed").write_text(packages.read_text())
    return None


@pytest.fixture(scope="session")
def client_python(build):
    """A Python with other people's clients, from PyPI, once for each build folder's parent. Runs
    beside each other wait for the one that installs. Without it their tests fail: what nobody
    tried is not known to hold."""
    venv, packages = build.parent / "clients-venv", CLIENTS / "packages.txt"
    with open(build.parent / "clients-venv.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for _ in range(INSTALL_TRIES):
            done = venv / "installed"
            if done.exists() and done.read_text() == packages.read_text():
                return venv / "bin" / "python"
            why = installed(venv, packages)
    if why is not None:
        pytest.fail(f"the clients' packages cannot be installed: {why}")
    return venv / "bin" / "python"


@pytest.fixture(scope="session")
def use(client_python):
    """use(program, port, **given): what clients/PROGRAM.py printed as JSON, given the rest as JSON."""
    def use(program, port, **given):
        done = subprocess.run([client_python, CLIENTS / f"{program}.py"], timeout=240, text=True, capture_output=True,
                              input=json.dumps({"port": port, **given}),
                              env={**os.environ, "NO_PROXY": "127.0.0.1", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
                                   "LITELLM_LOCAL_MODEL_COST_MAP": "True"})
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
        return json.loads(done.stdout.splitlines()[-1])
    return use
