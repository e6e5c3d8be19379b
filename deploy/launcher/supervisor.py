"""The process that starts the others, starts them again, and stops them in order."""
import json
import os
import shlex
import signal
import sys
import time

from launcher import Refused
from launcher.proc import note
from launcher.state import identity, same_file, save

STOP_ORDER = ["router", "prefill", "decode"]


class Supervisor:
    def __init__(self, cluster, log=None):
        """log: the path behind our output, if that is ours to open again."""
        self.cluster, self.log, self.stops = cluster, log, 0
        self.wrote, self.trouble, self.look_at = None, None, 0.0

    def on_stop(self, *_):
        self.stops += 1

    def tell(self, trouble):
        """Once, while it lasts; supervision goes on and watch() tries again."""
        if trouble != self.trouble:
            note(trouble)
        self.trouble = trouble

    def save(self):
        self.wrote = None
        if not self.cluster.lock.stands():  # the folder may be another's by now
            return
        try:
            self.wrote = save(self.cluster)
        except OSError as e:
            self.tell(f"cannot write {self.cluster.state_path}: {e.strerror}")

    def lost(self):
        """What `status`, `down` and `logs` go by and is not as we left it."""
        c = self.cluster
        stands = {c.lock.path: c.lock.stands(), c.logs: c.logs.is_dir(),
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
            if not self.cluster.lock.stands() and not self.cluster.lock.take(self.cluster.conf):
                raise Refused(f"{self.cluster.lock.path} was replaced, and another holds the new one")
            self.save()
            if self.log:
                with open(self.log, "ab") as f:
                    os.dup2(f.fileno(), 1)
                    os.dup2(f.fileno(), 2)
            if self.wrote:
                note(f"not as left, made again: {lost}")
        except (OSError, Refused) as e:
            self.tell(str(e))

    def reap(self, stopping):
        for p in self.cluster.processes:
            if p.child is None or p.child.poll() is None:
                continue
            code = p.child.returncode
            p.ended(code, stopping)
            how = f"signal {-code}" if code < 0 else f"status {code}"
            wait = f" in {p.wait_left():.1f} s" if p.again_at else ""
            note(f"{p.name} ended with {how}, {p.state}{wait}")
            self.save()

    def start(self, p):
        try:
            self.cluster.make_folders()  # for the log; a process refuses what this refuses
            p.start()
            note(f"{p.name} started{' again' if p.restarts else ''}, pid {p.child.pid}: {shlex.join(p.argv)}")
        except (OSError, Refused) as e:  # its program is being replaced, or there is no room for one more
            p.try_later()
            note(f"{p.name} could not be started: {e}; tried again in {p.wait_left():.1f} s")

    def start_due(self):
        for p in self.cluster.processes:
            if p.again_at is not None and time.monotonic() >= p.again_at:
                self.start(p)
                self.save()

    def drain(self):
        """One role after the other, so that routers finish their streams first. A second
        stop signal is passed on: now."""
        seen = self.stops
        for role in STOP_ORDER:
            live = [p for p in self.cluster.processes if p.role == role and p.child]
            for p in live:
                p.child.send_signal(signal.SIGTERM)
            while any(p.child for p in live):
                self.reap(True)
                if self.stops > seen:
                    for p in self.cluster.processes:
                        if p.child:
                            p.child.send_signal(signal.SIGTERM)
                    seen = self.stops
                if self.stops > 3:
                    for p in self.cluster.processes:
                        if p.child:
                            p.child.kill()
                time.sleep(0.02)

    def run(self):
        signal.signal(signal.SIGTERM, self.on_stop)
        signal.signal(signal.SIGINT, self.on_stop)
        for p in self.cluster.processes:
            self.start(p)
        self.save()
        while not self.stops:
            self.reap(False)
            self.start_due()
            self.watch()
            time.sleep(0.05)
        note("draining")
        self.drain()
        cut = [p.name for p in self.cluster.processes if p.last_exit not in (0, None)]
        if self.cluster.lock.stands():
            try:
                self.cluster.last_path.write_text(json.dumps({"pid": os.getpid(), "cut": cut}))
            except OSError as e:
                note(f"cannot write {self.cluster.last_path}: {e.strerror}")
            self.cluster.state_path.unlink(missing_ok=True)
        note("stopped" + (f", not clean: {', '.join(cut)}" if cut else ""))
        return 6 if cut else 0
