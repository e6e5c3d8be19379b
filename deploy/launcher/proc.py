"""One process: what it shall be, how it is started, and pid and start time as its name."""
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NEVER_AGAIN = {0, 2, 3}
DELAY_FIRST, STEADY = 0.2, 30.0
STOP_ORDER = ["router", "prefill", "decode"]
UNKNOWN_EXIT = 1  # of a process that is no child of ours and did not log how it ended


def note(text):
    try:
        print(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} launcher: {text}", flush=True)
    except OSError:  # the log's disk is full; the processes matter more
        pass


def birth(pid):
    """Start time of a process in clock ticks: with the pid, it names one process for good."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return None if fields[0] in "ZX" else fields[19]  # a zombie is gone
    except (OSError, IndexError):
        return None


def alive(row):
    return bool(row.get("pid")) and birth(row["pid"]) == row.get("birth") is not None


@dataclasses.dataclass(frozen=True)
class Spec:
    """What shall run under a name. copy_of: the name whose settings `scale` copied."""
    name: str
    role: str
    program: str
    rest: tuple  # of the command line, without the id
    cpus: tuple
    log: str
    port: int | None = None
    copy_of: str | None = None

    def argv(self, ident):
        return [self.program, "--id", ident, *self.rest]


class Adopted:
    """A living process that another supervisor started. It is no child of ours: how it ended
    is what it logged."""

    def __init__(self, row):
        self.pid, self.birth, self.returncode = row["pid"], row["birth"], None
        self.log, self.mark = row["log"], f" {row['role']}/{row['id']} "

    def poll(self):
        if self.returncode is None and birth(self.pid) != self.birth:
            self.returncode = self.told_exit()
        return self.returncode

    def told_exit(self):
        try:
            with open(self.log, "rb") as f:
                f.seek(max(0, os.fstat(f.fileno()).st_size - 65536))
                own = [t for t in f.read().decode(errors="replace").splitlines() if self.mark in t]
        except OSError:
            own = []
        for text in reversed(own):
            said = re.search(r": (?:exit code=(\d{1,3})$|\d+\.\d+\.\d+ id=)", text)
            if said:  # the end of this run, or its start
                return int(said[1]) if said[1] else UNKNOWN_EXIT
        return UNKNOWN_EXIT

    def send_signal(self, sign):
        if birth(self.pid) == self.birth:
            os.kill(self.pid, sign)

    def kill(self):
        self.send_signal(signal.SIGKILL)


class Process:
    """leaving: told to end, and not started again. trial: to take the place of one that
    runs as soon as it serves."""

    def __init__(self, spec, delay_max, ident=None):
        self.spec, self.delay_max, self.ident = spec, delay_max, ident or spec.name
        self.child = None
        self.state = "stopped"
        self.restarts = 0
        self.last_exit = None
        self.started = 0.0
        self.delay = DELAY_FIRST
        self.again_at = None
        self.leaving = self.trial = False

    @classmethod
    def adopt(cls, row, delay_max):
        """row: of the state file, alive."""
        fields = {f.name: row[f.name] for f in dataclasses.fields(Spec)}
        p = cls(Spec(**{**fields, "rest": tuple(row["rest"]), "cpus": tuple(row["cpus"])}), delay_max, row["id"])
        p.child, p.state, p.restarts, p.last_exit = Adopted(row), row["state"], row["restarts"], row["last_exit"]
        p.started, p.leaving, p.trial = time.monotonic(), row["leaving"], row["trial"]
        return p

    name = property(lambda self: self.spec.name)
    role = property(lambda self: self.spec.role)
    wanted = property(lambda self: bool(self.child or self.again_at is not None) and not self.leaving)

    def argv(self):
        return self.spec.argv(self.ident)

    def start(self):
        try:
            out = open(self.spec.log, "ab")
        except OSError as e:  # no room for a new file, say
            note(f"{self.ident} runs without its log: {e}")
            out = open(os.devnull, "ab")
        before = os.sched_getaffinity(0)
        with out:
            if self.spec.cpus:  # a child has its parent's CPUs from its first instruction on
                try:
                    os.sched_setaffinity(0, self.spec.cpus)
                except OSError as e:
                    raise OSError(f"it cannot be pinned to CPUs {list(self.spec.cpus)}") from e
            try:
                self.child = subprocess.Popen(self.argv(), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                              cwd=ROOT, start_new_session=True)
            finally:
                os.sched_setaffinity(0, before)
        self.started = time.monotonic()
        self.state, self.again_at = "running", None

    def leave(self):
        """Drains it, once: a second SIGTERM would cut its work."""
        if not self.leaving:
            self.leaving, self.again_at = True, None
            self.state = "draining" if self.child else "stopped"
            if self.child:
                self.child.send_signal(signal.SIGTERM)

    def ended(self, stopping):
        code, self.child = self.child.returncode, None
        if code == -signal.SIGTERM and (stopping or self.leaving):
            code = 0  # it was starting: who serves handles the signal
        if time.monotonic() - self.started > STEADY:
            self.delay = DELAY_FIRST
        self.last_exit = code
        if stopping or self.leaving or code in NEVER_AGAIN:
            self.state = "stopped" if code == 0 else \
                f"cut ({code})" if stopping or self.leaving else f"failed ({code})"
            return
        self.restarts += 1
        self.try_later()

    def try_later(self):
        self.state, self.again_at = "restarting", time.monotonic() + self.delay
        self.delay = min(self.delay * 2, self.delay_max)

    def wait_left(self):
        return max(0, self.again_at - time.monotonic())

    def row(self):
        pid = self.child.pid if self.child else None
        return {**dataclasses.asdict(self.spec), "id": self.ident, "pid": pid, "birth": birth(pid) if pid else None,
                "state": self.state, "leaving": self.leaving, "trial": self.trial, "restarts": self.restarts,
                "last_exit": self.last_exit}


def stop_in_order(processes, reap, pressure):
    """One role after the other, so that routers finish their streams first. pressure()
    grows: each step is one more SIGTERM for all (the second one means now), beyond 3 a
    SIGKILL."""
    seen = pressure()
    for role in STOP_ORDER:
        live = [p for p in processes if p.role == role and p.child]
        for p in live:
            p.leave()
        while any(p.child for p in live):
            reap()
            now = pressure()
            for p in processes:
                if p.child and now > 3:
                    p.child.kill()
                elif p.child and now > seen:
                    p.child.send_signal(signal.SIGTERM)
            seen = now
            time.sleep(0.02)
