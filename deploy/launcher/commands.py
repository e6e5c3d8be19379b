"""What the operator may say: up, down, status, logs."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

from launcher import Refused
from launcher.conf import HERE
from launcher.state import alive, fits, running
from launcher.supervisor import Supervisor


def ready(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1) as r:
            return r.status == 200
    except (urllib.error.URLError, OSError):
        return False


def print_tails(rows):
    for r in rows:
        try:
            tail = pathlib.Path(r["log"]).read_text(errors="replace").strip().split("\n")[-3:]
        except OSError as e:
            tail = [f"(its log: {e})"]
        print(f"{r['name']} {r['state']}, last exit {r['last_exit']}:\n  " + "\n  ".join(tail), file=sys.stderr)


def take_lock(cluster, args):
    """None: the lock is ours and nobody supervises. Else another starts or runs this cluster,
    and this is the exit status of waiting for it."""
    deadline = time.monotonic() + args.wait
    while True:
        cluster.make_folders()
        try:
            ours = cluster.lock.take(cluster.conf)
        except OSError as e:
            raise Refused(f"{cluster.lock.path}: {e.strerror}") from e
        boss, _ = running(cluster)
        if ours and not boss:
            return None
        cluster.lock.release()
        other = boss or cluster.lock.holder()
        if other:
            if other["conf"] != cluster.conf:
                raise Refused(f"{cluster.runtime} belongs to the cluster of {other['conf']} (supervisor "
                              f"{other['pid']}); stop that one, or give this one a runtime_dir of its own")
            print(f"already running (supervisor {boss['pid']})" if boss else
                  f"being started by process {other['pid']}", flush=True)
            code = wait_ready(cluster, args, None)
            if code is not None:
                return code
        elif time.monotonic() > deadline:
            print(f"{cluster.lock.path} is held by a process that does not sign it", file=sys.stderr)
            return 4
        time.sleep(0.02)


def wait_ready(cluster, args, child):
    """Exit status of `up`. child: the supervisor that it started; None: another did, and the
    return value None says that this one is gone."""
    deadline = time.monotonic() + args.wait
    while True:
        if child and child.poll() is not None:
            print(f"the supervisor ended with {child.returncode}; see {cluster.logs}/launcher.log",
                  file=sys.stderr)
            return 1
        boss, _ = running(cluster)
        if not child and not boss and not cluster.lock.held():
            return None
        rows = boss["processes"] if boss else []
        all_ready = rows and all(ready(p) for p in cluster.ports)
        bad = [r for r in rows if r["state"].startswith("failed")]
        if bad and (child or not all_ready):
            print_tails(bad)
            if child:
                child.terminate()
                child.wait()
            return 1
        if all_ready:
            print("ready: " + ", ".join(f"http://127.0.0.1:{p}" for p in cluster.ports))
            return 0
        if time.monotonic() > deadline:
            print_tails([r for r in rows if r["state"] != "running" or r["restarts"]])
            print(f"not ready after {args.wait} s, what started goes on running; `baton status --conf "
                  f"{cluster.path}` and `baton logs --conf {cluster.path}` tell more", file=sys.stderr)
            return 4
        time.sleep(0.05)


def up(cluster, args):
    log = cluster.logs / "launcher.log"
    if args.lock_fd is not None:
        cluster.lock.fd = args.lock_fd
        cluster.lock.sign(cluster.conf)
        return Supervisor(cluster, log).run()
    code = take_lock(cluster, args)
    if code is not None:
        return code
    _, rows = running(cluster)
    if rows:
        raise Refused("left over from a supervisor that died: " + ", ".join(
            f"{r['name']} ({r['pid']})" for r in rows) + "; `baton down` stops them")
    cluster.prepare()
    if args.foreground:
        return Supervisor(cluster).run()
    with open(log, "ab") as out:
        child = subprocess.Popen([sys.executable, "-I", HERE / "baton", "up", "--foreground", "--conf", cluster.conf,
                                  "--lock-fd", str(cluster.lock.fd)], pass_fds=[cluster.lock.fd],
                                 stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    cluster.lock.release()
    return wait_ready(cluster, args, child)


def told_end(cluster, boss):
    """What the supervisor said of its end: whether every process finished its work."""
    try:
        last = json.loads(cluster.last_path.read_text())
    except (OSError, ValueError):
        last = None
    cut = last["cut"] if boss and fits(last, {"pid": int, "cut": list}) and last["pid"] == boss["pid"] else None
    if cut == []:
        print("stopped")
        return 0
    print("stopped, with work cut: " + (", ".join(map(str, cut or [])) or "the supervisor was gone"), file=sys.stderr)
    return 6


def refuse_stranger(cluster, boss):
    """What runs in this runtime folder belongs to another conf file."""
    if boss and boss["conf"] != cluster.conf:
        raise Refused(f"{cluster.runtime} belongs to the cluster of {boss['conf']} (supervisor {boss['pid']}); "
                      f"use --conf {boss['conf']} for that one, or give this one a runtime_dir of its own")


def down(cluster, args):
    boss, rows = running(cluster)
    refuse_stranger(cluster, boss)
    deadline = time.monotonic() + args.timeout
    while not boss and cluster.lock.held():  # being started: what comes up is stopped then
        if time.monotonic() > deadline:
            print(f"{starting(cluster)}, no supervisor after {args.timeout} s", file=sys.stderr)
            return 4
        time.sleep(0.02)
        boss, rows = running(cluster)
        refuse_stranger(cluster, boss)
    if not boss and not rows:
        print("nothing runs")
        return 0
    targets = [boss] if boss else rows
    for sign in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        for row in [r for r in targets if alive(r)]:
            os.kill(row["pid"], sign)
        deadline = time.monotonic() + (args.timeout if sign == signal.SIGTERM else 5)
        while any(alive(r) for r in targets + rows) and time.monotonic() < deadline:
            time.sleep(0.02)
        if not any(alive(r) for r in targets + rows):
            return told_end(cluster, boss)
        targets = targets + rows
    print("some processes did not end", file=sys.stderr)
    return 4


def starting(cluster):
    holder = cluster.lock.holder()
    return "being started or ended" + (f" by process {holder['pid']}" if holder else "")


def status(cluster, args):
    boss, rows = running(cluster)
    refuse_stranger(cluster, boss)
    if args.output == "json":
        print(json.dumps(boss or {"processes": rows}))
        return 0 if boss else 3
    if not boss and not rows:
        print(starting(cluster) if cluster.lock.held() else "nothing runs")
        return 3
    print(f"{'NAME':<12} {'ROLE':<8} {'PID':>8} {'STATE':<12} {'RESTARTS':>8} LAST-EXIT")
    for r in (boss["processes"] if boss else rows):
        print(f"{r['name']:<12} {r['role']:<8} {r['pid'] or '-':>8} {r['state']:<12} {r['restarts']:>8} "
              f"{'-' if r['last_exit'] is None else r['last_exit']}")
    return 0 if boss else 3


def logs(cluster, args):
    names = [args.name] if args.name else ["launcher"] + [p.name for p in cluster.processes]
    files = [cluster.logs / f"{n}.log" for n in names]
    missing = [f for f in files if not f.exists()]
    if args.name and missing:
        print(f"no log {missing[0]}", file=sys.stderr)
        return 1
    tail = ["tail", "-n", "200"] + (["-F"] if args.follow else [])
    return subprocess.run(tail + [str(f) for f in files if f.exists()], check=False).returncode
