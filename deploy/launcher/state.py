"""What a supervisor leaves for others in the runtime directory, and who may act there."""
import fcntl
import json
import os

from launcher import Refused
from launcher.proc import alive, birth

# What launcher.json must hold for anybody to act on it. `last`: how the last supervisor ended.
SHAPE = {"pid": int, "birth": (str, type(None)), "conf": str, "phase": str, "last": (dict, type(None)),
         "processes": list}
ROW = {"name": str, "role": str, "program": str, "rest": list, "cpus": list, "log": str, "port": (int, type(None)),
       "copy_of": (str, type(None)), "id": str, "pid": (int, type(None)), "birth": (str, type(None)), "state": str,
       "leaving": bool, "trial": bool, "restarts": int, "last_exit": (int, type(None))}
STARTING, RUNNING, ENDED = "starting", "running", "ended"


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
    """The runtime directory itself, locked by the `up` that starts a cluster and then, through
    the inherited descriptor, by its supervisor for life. Cleaners of temporary files leave a
    directory alone that is locked so. A lock whose path leads elsewhere keeps nobody out."""

    def __init__(self, folder):
        self.folder, self.fd = folder, None

    def stands(self):
        return self.fd is not None and same_file(self.fd, self.folder)

    def take(self):
        """false: another holds it."""
        while not self.stands():
            self.release()
            self.fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.release()
                return False
        return True

    def release(self):
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def held(self):
        try:
            fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(fd)


def saved(cluster):
    """What the last holder of the lock wrote; None: nothing."""
    try:
        last = json.loads(cluster.state_path.read_text())
    except FileNotFoundError:
        return None
    except OSError as e:
        raise Refused(f"{cluster.state_path}: {e.strerror}") from e
    except (ValueError, RecursionError):
        last = None
    if not fits(last, SHAPE) or not all(fits(r, ROW) for r in last["processes"]):
        raise Refused(f"{cluster.state_path} is not as a supervisor writes it; one that runs mends it within "
                      "a second, else remove it after a look at what runs")
    return last


def save(cluster, phase, rows, last):
    """By the holder of the lock. Returns the identity of what now stands."""
    new = cluster.state_path.with_suffix(".new")
    new.write_text(json.dumps({"pid": os.getpid(), "birth": birth(os.getpid()), "conf": cluster.conf,
                               "phase": phase, "last": last, "processes": rows}))
    wrote = identity(new)
    new.rename(cluster.state_path)
    return wrote


def running(cluster):
    """What the supervisor wrote, if it lives, and the rows of processes that are alive, by
    pid and birth."""
    last = saved(cluster)
    if last is None:
        return None, []
    boss = last if last["phase"] == RUNNING and alive(last) else None
    return boss, [r for r in last["processes"] if alive(r)]


def starter(cluster):
    """The `up` that prepares a start, by what it wrote; None: nobody."""
    try:
        last = saved(cluster)
    except Refused:
        return None
    return last if last and last["phase"] == STARTING and alive(last) else None


def refuse_stranger(cluster):
    """What runs in this runtime directory belongs to another conf file."""
    last = saved(cluster)
    if last is None or last["conf"] == cluster.conf:
        return
    boss, rows = running(cluster)
    by = f"supervisor {boss['pid']}" if boss else "its supervisor is gone" if rows else None
    if by is None and starter(cluster):
        by = f"being started by process {last['pid']}"
    if by:
        raise Refused(f"{cluster.runtime} belongs to the cluster of {last['conf']} ({by}); use --conf "
                      f"{last['conf']} for that one, or give this one a runtime_dir of its own")
