"""The process that starts the others, starts them again, and stops them in order."""
import os
import shlex
import signal
import sys
import time
import traceback

from launcher import Refused
from launcher.control import Orders
from launcher.jobs import JOBS
from launcher.notify import Notify
from launcher.probe import Probe
from launcher.proc import Process, note, stop_in_order
from launcher.state import ENDED, RUNNING, identity, running, same_file, save, saved

TURN = 0.05
START_MORE = 60  # seconds that systemd is asked for while processes start


class Supervisor:
    def __init__(self, cluster, log=None):
        """log: the path behind our output, if that is ours to open again."""
        self.cluster, self.log, self.stops = cluster, log, 0
        self.wrote, self.trouble, self.look_at = None, None, 0.0
        self.processes = []
        self.left_over = []  # of a replacement that a dead supervisor had begun
        self.orders = Orders(cluster.socket_path)
        self.job, self.client, self.what, self.probe = None, None, None, None
        self.cut = []  # of what a job drained
        self.last = (saved(cluster) or {}).get("last")
        self.notify = Notify()
        self.waiting = None  # for the cluster to be ready, which systemd wants to know

    def on_stop(self, *_):
        self.stops += 1

    def tell(self, trouble):
        """Once, while it lasts; supervision goes on and watch() tries again."""
        if trouble != self.trouble:
            note(trouble)
        self.trouble = trouble

    def save(self, phase=RUNNING):
        self.wrote = None
        if not self.cluster.lock.stands():  # the folder may be another's by now
            return
        try:
            self.wrote = save(self.cluster, phase, [p.row() for p in self.processes], self.last)
        except OSError as e:
            self.tell(f"cannot write {self.cluster.state_path}: {e.strerror}")

    def lost(self):
        """What others go by and is not as we left it."""
        c = self.cluster
        stands = {c.runtime: c.lock.stands(), c.logs: c.logs.is_dir(), c.socket_path: self.orders.stands(),
                  c.state_path: self.wrote is not None and self.wrote == identity(c.state_path),
                  self.log: self.log is None or same_file(sys.stdout.fileno(), self.log)}
        return ", ".join(str(path) for path, good in stands.items() if not good)

    def watch(self):
        """Once a second: a supervisor that nobody finds cannot be stopped."""
        if time.monotonic() < self.look_at:
            return
        self.look_at = time.monotonic() + 1
        lost = self.lost()
        if not lost:
            self.trouble = None
            return
        try:
            self.cluster.make_folders()
            if not self.cluster.lock.stands() and not self.cluster.lock.take():
                raise Refused(f"{self.cluster.runtime} was replaced, and another holds the new one")
            self.save()
            if not self.orders.stands():
                self.orders.open()
            if self.log:
                with open(self.log, "ab") as f:
                    os.dup2(f.fileno(), 1)
                    os.dup2(f.fileno(), 2)
            if self.wrote:
                note(f"not as left, made again: {lost}")
        except (OSError, Refused) as e:
            self.tell(str(e))

    def reap(self, stopping=False):
        for p in list(self.processes):
            if p.child is None or p.child.poll() is None:
                continue
            p.ended(stopping)
            code = p.last_exit
            how = f"signal {-code}" if code < 0 else f"status {code}"
            wait = f" in {p.wait_left():.1f} s" if p.again_at is not None else ""
            note(f"{p.ident} ended with {how}, {p.state}{wait}")
            if p in self.left_over:
                self.processes.remove(p)
            self.save()

    def start(self, p):
        try:
            self.cluster.make_folders()  # for the log; a process refuses what this refuses
            p.start()
            note(f"{p.ident} started{' again' if p.restarts else ''}, pid {p.child.pid}: {shlex.join(p.argv())}")
        except (OSError, Refused) as e:  # its program is being replaced, or there is no room for one more
            p.try_later()
            note(f"{p.ident} could not be started: {e}; tried again in {p.wait_left():.1f} s")

    def start_due(self):
        for p in self.processes:
            if p.again_at is not None and time.monotonic() >= p.again_at:
                self.start(p)
                self.save()

    def add(self, spec, ident=None, trial=False):
        p = Process(spec, self.cluster.delay_max, ident)
        p.trial = trial
        self.processes.append(p)
        self.start(p)
        self.save()
        return p

    def remove(self, p):
        self.processes.remove(p)
        self.save()

    def serves(self, p):
        return self.probe.serves(p)

    def take_order(self, client, order):
        if order["order"] not in JOBS:
            client.done(2, f"no such order; there are {', '.join(sorted(JOBS))}")
        elif self.job:
            client.done(5, f"busy with `{self.what}`")
        else:
            self.what, self.client, self.probe = order["order"], client, Probe(self.ports())
            self.job, self.cut = JOBS[order["order"]](self, order, client.say), []

    def ports(self):
        return {p.spec.port for p in self.processes if p.role == "router"}

    def step_job(self):
        """One step of what was ordered; jobs end with (exit status, text)."""
        if not self.job:
            return
        self.probe.ports = self.ports()
        try:
            next(self.job)
            return
        except StopIteration as e:
            code, text = e.value
        except Refused as e:
            code, text = 2, str(e)
        except Exception as e:  # noqa: B902: what goes wrong here must not end what supervises
            code, text = 1, f"the launcher's own fault: {traceback.format_exc(limit=-3)}{e}"
        if code == 0 and self.cut:
            code, text = 6, f"{text}; with work cut: {', '.join(self.cut)}"
        note(f"{self.what}: {text or 'done'}")
        self.end_job(code, text)

    def end_job(self, code, text):
        self.save()
        self.client.done(code, text)
        self.probe.close()
        self.job = self.client = self.probe = None

    def turn_while_stopping(self):
        self.notify.turn()
        self.reap(True)

    def begin(self):
        """Takes over what a dead supervisor left, and starts the rest of the file."""
        _, rows = running(self.cluster)
        for row in rows:
            p = Process.adopt(row, self.cluster.delay_max)
            twin = next((q for q in self.processes if q.name == p.name and not q.leaving), None)
            self.processes.append(p)
            note(f"{p.ident} taken over, pid {p.child.pid}")
            if twin and not p.leaving:  # the dead one was replacing it
                (p if p.trial else twin).leave()
            p.trial = False
        self.left_over = [p for p in self.processes if p.leaving]
        for spec in self.cluster.specs:
            if spec.name not in [p.name for p in self.processes if not p.leaving]:
                p = Process(spec, self.cluster.delay_max)
                self.processes.append(p)
                self.start(p)
        self.save()

    def tell_systemd(self):
        self.notify.turn()
        if not self.waiting:
            return
        failed = [p.ident for p in self.processes if p.state.startswith("failed")]
        self.waiting.ports = self.ports()
        if self.waiting.ports and self.waiting.ports <= self.waiting.ready:
            self.notify.ready()
            self.notify.status("serving on " + ", ".join(f"port {p}" for p in sorted(self.waiting.ports)))
            self.waiting = self.waiting.close()
        elif failed:
            self.notify.status("failed: " + ", ".join(failed))
        else:
            self.notify.status("starting")
            self.notify.extend(START_MORE)

    def run(self):
        signal.signal(signal.SIGTERM, self.on_stop)
        signal.signal(signal.SIGINT, self.on_stop)
        self.begin()
        try:
            self.orders.open()
        except OSError as e:
            self.tell(f"cannot listen on {self.cluster.socket_path}: {e.strerror}")
        self.waiting = Probe(self.ports()) if self.notify.address else None
        while not self.stops:
            self.tell_systemd()
            self.reap()
            self.start_due()
            self.watch()
            self.step_job()
            for client, order in self.orders.turn(TURN):
                self.take_order(client, order)
        note("draining")
        self.notify.stopping()
        self.notify.status("draining")
        if self.job:
            self.end_job(1, "the cluster was stopped meanwhile")
        self.orders.close()
        stop_in_order(self.processes, self.turn_while_stopping, lambda: self.stops)
        cut = [p.ident for p in self.processes if p.last_exit not in (0, None)]
        self.last = {"pid": os.getpid(), "cut": cut}
        self.processes = []
        self.save(ENDED)
        note("stopped" + (f", not clean: {', '.join(cut)}" if cut else ""))
        return 6 if cut else 0
