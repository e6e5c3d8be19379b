"""One process: started, watched, and named for good by pid and start time."""
import os
import pathlib
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NEVER_AGAIN = {0, 2, 3}
DELAY_FIRST, STEADY = 0.2, 30.0


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


class Process:
    def __init__(self, name, role, argv, cpus, log, delay_max):
        self.name, self.role, self.argv, self.cpus, self.log = name, role, argv, cpus, log
        self.delay_max = delay_max
        self.child = None
        self.state = "stopped"
        self.restarts = 0
        self.last_exit = None
        self.started = 0.0
        self.delay = DELAY_FIRST
        self.again_at = None

    def start(self):
        try:
            out = open(self.log, "ab")
        except OSError as e:  # no room for a new file, say
            note(f"{self.name} runs without its log: {e}")
            out = open(os.devnull, "ab")
        cpus = self.cpus
        with out:
            try:
                self.child = subprocess.Popen(
                    self.argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=ROOT,
                    start_new_session=True,
                    preexec_fn=(lambda: os.sched_setaffinity(0, cpus)) if cpus else None)
            except subprocess.SubprocessError as e:  # all that preexec_fn does
                raise OSError(f"it cannot be pinned to CPUs {sorted(cpus)}") from e
        self.started = time.monotonic()
        self.state, self.again_at = "running", None

    def ended(self, code, stopping):
        if time.monotonic() - self.started > STEADY:
            self.delay = DELAY_FIRST
        self.last_exit, self.child = code, None
        if stopping or code in NEVER_AGAIN:
            self.state = "stopped" if code == 0 else f"cut ({code})" if stopping else f"failed ({code})"
            return
        self.restarts += 1
        self.try_later()

    def try_later(self):
        self.state, self.again_at = "restarting", time.monotonic() + self.delay
        self.delay = min(self.delay * 2, self.delay_max)

    def wait_left(self):
        return max(0, self.again_at - time.monotonic())

    def row(self):
        return {"name": self.name, "role": self.role, "pid": self.child.pid if self.child else None,
                "birth": birth(self.child.pid) if self.child else None, "state": self.state,
                "restarts": self.restarts, "last_exit": self.last_exit, "log": str(self.log)}
