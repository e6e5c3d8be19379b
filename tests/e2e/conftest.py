"""Processes of one test: all of them are gone when it ends, however it ends."""
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
