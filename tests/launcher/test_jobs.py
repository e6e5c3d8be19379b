"""Orders, carried out on processes that do not exist: who starts and ends, and when."""
import signal
import time
import types

import pytest

from launcher import Refused
from launcher import jobs
from launcher.proc import Process, Spec


class Child:
    def __init__(self):
        self.pid, self.returncode, self.signals = 1, None, 0

    def send_signal(self, _):
        self.signals += 1


class Boss:
    """A supervisor whose processes serve or end when the test says so."""

    def __init__(self, *specs):
        self.processes, self.events, self.cut = [], [], []
        self.probe = types.SimpleNamespace(rounds=0)
        self.cluster = types.SimpleNamespace(refuse_long=lambda role, name: None)
        self.never = set()
        for s in specs:
            self.add(s)
        self.events.clear()

    def start(self, p):
        p.child, p.state, p.again_at = Child(), "running", None
        self.events.append(f"+{p.ident}")

    def add(self, spec, ident=None, trial=False):
        p = Process(spec, 1.0, ident)
        p.trial = trial
        self.processes.append(p)
        self.start(p)
        return p

    def remove(self, p):
        self.processes.remove(p)

    def save(self):
        pass

    def serves(self, p):
        return p.child is not None and p.ident not in self.never

    def end(self, p, code):
        p.child.returncode = code
        p.ended(False)
        self.events.append(f"-{p.ident}")

    def run(self, job):
        """Steps a job to its end; what was told to end does, one step later."""
        try:
            for _ in range(200):
                next(job)
                time.sleep(0.0005)
                self.probe.rounds += 1
                for p in self.processes:
                    if p.leaving and p.child:
                        assert p.child.signals == 1
                        self.end(p, 0)
        except StopIteration as e:
            return e.value
        raise AssertionError("the job does not end")


def worker(name, role="decode", gpus="cpu:0", **more):
    return Spec(name, role, "/bin/x", ("--gpus", gpus), (), f"/tmp/{name}.log", **more)


def router(name, port):
    return Spec(name, "router", "/bin/x", ("--port", str(port)), (), f"/tmp/{name}.log", port)


def order(**more):
    return {"wait": 5, **more}


def quiet(_):
    pass


def test_the_old_one_ends_after_the_new_one_serves():
    b = Boss(worker("d0"), worker("d1"))
    assert b.run(jobs.restart(b, order(target="decode"), quiet)) == (0, "restarted: d0, d1")
    assert b.events == ["+d0.2", "-d0", "+d1.2", "-d1"]
    assert b.run(jobs.restart(b, order(target="d1.2"), quiet))[0] == 0
    assert sorted(p.ident for p in b.processes) == ["d0.2", "d1"] and not any(p.trial for p in b.processes)


def test_drain_first_ends_the_old_one_and_keeps_its_id():
    b = Boss(worker("d0"))
    assert b.run(jobs.restart(b, order(target="all", drain_first=True), quiet))[0] == 0
    assert b.events == ["-d0", "+d0"]


def test_a_successor_that_does_not_serve_goes_and_the_rest_stays_as_it_was():
    b = Boss(worker("d0"), worker("d1"))
    b.never.add("d0.2")
    code, text = b.run(jobs.restart(b, order(target="decode", wait=0.01), quiet))
    assert code == 4 and "d0 goes on" in text and "not restarted: d1" in text
    assert sorted(p.ident for p in b.processes) == ["d0", "d1"] and b.events == ["+d0.2", "-d0.2"]


def test_a_successor_that_ends_is_not_waited_for():
    b = Boss(worker("d0"))
    job = jobs.restart(b, order(target="d0"), quiet)
    next(job)
    b.end(b.processes[1], 3)
    code, text = b.run(job)
    assert code == 1 and "d0.2 ended with status 3" in text and [p.ident for p in b.processes] == ["d0"]


def test_a_router_alone_on_its_port_is_refused_before_anything_is_done():
    b = Boss(worker("d0"), router("r0", 8000))
    with pytest.raises(Refused, match="port 8000"):
        b.run(jobs.restart(b, order(target="all"), quiet))
    assert not b.events
    b = Boss(worker("d0"), router("r0", 8000), router("r1", 8001))
    assert b.run(jobs.restart(b, order(target="all"), quiet))[0] == 0
    assert b.events == ["+d0.2", "-d0", "-r0", "+r0", "-r1", "+r1"]


def test_scale_copies_and_drains_copies_first():
    b = Boss(worker("d0"), worker("d5"))
    assert b.run(jobs.scale(b, order(counts={"decode": 4}), quiet)) == (0, "decode=4")
    assert b.events == ["+d1", "+d2"] and b.processes[2].spec.copy_of == "d5"
    assert b.processes[2].spec.log == "/tmp/d1.log"
    b.events.clear()
    assert b.run(jobs.scale(b, order(counts={"decode": 1}), quiet))[0] == 0
    assert b.events == ["-d2", "-d1", "-d5"] and [p.name for p in b.processes] == ["d0", "d5"]
    b.events.clear()
    assert b.run(jobs.scale(b, order(counts={"decode": 2}), quiet))[0] == 0
    assert b.events == ["+d5"]


def test_scale_puts_no_copy_on_a_gpu_that_another_has():
    b = Boss(worker("d0", gpus="0"))
    with pytest.raises(Refused, match="share its GPU"):
        b.run(jobs.scale(b, order(counts={"decode": 2}), quiet))
    assert not b.events


@pytest.mark.parametrize("counts", [None, {}, {"router": 2}, {"decode": "2"}, {"decode": 0}, {"decode": 65}, {"prefill": 1}])
def test_scale_refuses_what_it_cannot_do(counts):
    b = Boss(worker("d0"))
    with pytest.raises(Refused):
        b.run(jobs.scale(b, order(counts=counts), quiet))
    assert not b.events


def test_a_drain_that_cut_work_is_told():
    b = Boss(worker("d0"), worker("d1"))
    job = jobs.scale(b, order(counts={"decode": 1}), quiet)
    next(job)
    b.end(b.processes[1], 6)
    assert b.run(job)[0] == 0 and b.cut == ["d1"]


@pytest.mark.parametrize("stopping", [True, False])
def test_what_is_stopped_while_it_starts_cut_no_work(stopping):
    b = Boss(worker("d0"))
    p = b.processes[0]
    p.leaving = not stopping
    p.child.returncode = -signal.SIGTERM
    p.ended(stopping)
    assert (p.state, p.last_exit) == ("stopped", 0)


@pytest.mark.parametrize("wait", ["1", None, 0, -1, float("nan"), 1e9])
def test_a_wait_that_is_no_time_is_refused(wait):
    b = Boss(worker("d0"))
    with pytest.raises(Refused, match="wait"):
        b.run(jobs.restart(b, order(target="d0", wait=wait), quiet))
