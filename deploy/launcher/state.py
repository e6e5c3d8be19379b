"""What a supervisor leaves for others in the runtime directory, and who may act there."""
import fcntl
import json
import os

from launcher import Refused
from launcher.proc import alive, birth

# What launcher.json and launcher.lock must hold for anybody to act on them.
OWNER = {"pid": int, "birth": (str, type(None)), "conf": str}
ROW = {"name": str, "role": str, "pid": (int, type(None)), "birth": (str, type(None)), "state": str,
       "restarts": int, "last_exit": (int, type(None)), "log": str}


def fits(value, shape):
    return isinstance(value, dict) and all(isinstance(value.get(k, ...), t) for k, t in shape.items())


def same_file(fd, path):
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False


def identity(path):
    """Changes when another hand removes, replaces or writes the file."""
    try:
        info = os.stat(path)
        return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns
    except OSError:
        return None


class Lock:
    """launcher.lock: held by the `up` that starts a cluster and then, through the inherited
    descriptor, by its supervisor for life; it names its holder. Nobody removes it: a lock
    whose path leads elsewhere keeps nobody out."""

    def __init__(self, path):
        self.path, self.fd = path, None

    def stands(self):
        return self.fd is not None and same_file(self.fd, self.path)

    def take(self, conf):
        """false: another holds it."""
        while not self.stands():
            self.release()
            self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.release()
                return False
        self.sign(conf)
        return True

    def sign(self, conf):
        """One write, never a shorter one: readers see the old text or the new."""
        text = json.dumps({"pid": os.getpid(), "birth": birth(os.getpid()), "conf": conf})
        os.pwrite(self.fd, text.ljust(os.fstat(self.fd).st_size).encode(), 0)

    def release(self):
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def held(self):
        try:
            fd = os.open(self.path, os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(fd)

    def holder(self):
        try:
            row = json.loads(self.path.read_text())
        except (OSError, ValueError, RecursionError):
            return None
        return row if fits(row, OWNER) and alive(row) else None


def saved(cluster):
    """What the last supervisor wrote; None: nothing."""
    try:
        saved = json.loads(cluster.state_path.read_text())
    except FileNotFoundError:
        return None
    except OSError as e:
        raise Refused(f"{cluster.state_path}: {e.strerror}") from e
    except (ValueError, RecursionError):
        saved = None
    if not fits(saved, {**OWNER, "processes": list}) or not all(fits(r, ROW) for r in saved["processes"]):
        raise Refused(f"{cluster.state_path} is not as a supervisor writes it; one that runs mends it within "
                      "a second, else remove it after a look at what runs")
    return saved


def save(cluster):
    """Returns the identity of what now stands."""
    new = cluster.state_path.with_suffix(".new")
    new.write_text(json.dumps({"pid": os.getpid(), "birth": birth(os.getpid()), "conf": cluster.conf,
                               "processes": [p.row() for p in cluster.processes]}))
    wrote = identity(new)
    new.rename(cluster.state_path)
    return wrote


def running(cluster):
    """Rows of processes and the supervisor that are alive, by pid and birth."""
    last = saved(cluster)
    if last is None:
        return None, []
    return (last if alive(last) else None), [r for r in last["processes"] if alive(r)]
