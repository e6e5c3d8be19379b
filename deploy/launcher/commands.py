"""What the operator may say."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from launcher import Refused
from launcher.control import ask
from launcher.probe import ready
from launcher.proc import ROOT, Process, alive, stop_in_order
from launcher.state import ENDED, STARTING, fits, refuse_stranger, running, save, saved, starter
from launcher.supervisor import Supervisor

BUSY = 5


def say(text, code=0):
    print(text, file=sys.stderr if code else sys.stdout, flush=True)


def print_tails(rows):
    for r in rows:
        try:
            tail = pathlib.Path(r["log"]).read_text(errors="replace").strip().split("\n")[-3:]
        except OSError as e:
            tail = [f"(its log: {e})"]
        say(f"{r['id']} {r['state']}, last exit {r['last_exit']}:\n  " + "\n  ".join(tail), 1)


# ---- up

def join(cluster, args):
    """The supervisor starts what is missing. Exit status; None: it is gone."""
    cluster.prepare(running(cluster)[1])
    deadline = time.monotonic() + args.wait
    while True:
        code = ask(cluster, {"order": "up", "wait": args.wait}, lambda t, c: None if c == BUSY else say(t, c))
        if code is None and cluster.lock.held():
            code = BUSY  # it listens in a moment, or ends
        if code != BUSY:
            break
        if time.monotonic() > deadline:
            say(f"the supervisor was busy with another order for {args.wait:g} s", 1)
            return 4
        time.sleep(0.1)
    if code:
        bad = [r for r in (saved(cluster) or {"processes": []})["processes"] if r["state"].startswith("failed")]
        print_tails(bad)
    return wait_ready(cluster, args, None) if code == 0 else code


def take_lock(cluster, args):
    """None: the lock is ours and nobody supervises. Else another starts or runs this cluster,
    and this is the exit status of joining it."""
    deadline = time.monotonic() + args.wait
    told = False
    while True:
        cluster.make_folders()
        try:
            ours = cluster.lock.take()
        except OSError as e:
            raise Refused(f"{cluster.runtime}: {e.strerror}") from e
        boss, _ = running(cluster)
        if ours and not boss:
            return None
        cluster.lock.release()
        refuse_stranger(cluster)
        if boss:
            say(f"already running (supervisor {boss['pid']})")
            code = join(cluster, args)
            if code is not None:
                return code
        elif starter(cluster) and not told:
            told = True
            say(f"being started by process {starter(cluster)['pid']}")
        if time.monotonic() > deadline:
            say(f"{starting(cluster)}, not ready after {args.wait:g} s", 1)
            return 4
        time.sleep(0.02)


def wait_ready(cluster, args, child):
    """Exit status of `up`. child: the supervisor that it started; None: another did, and the
    return value None says that this one is gone."""
    deadline = time.monotonic() + args.wait
    while True:
        if child and child.poll() is not None:
            say(f"the supervisor ended with {child.returncode}; see {cluster.logs}/launcher.log", 1)
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
            say("ready: " + ", ".join(f"http://127.0.0.1:{p}" for p in cluster.ports))
            return 0
        if time.monotonic() > deadline:
            print_tails([r for r in rows if r["state"] != "running" or r["restarts"]])
            say(f"not ready after {args.wait} s, what started goes on running; `baton status --conf {cluster.path}` "
                f"and `baton logs --conf {cluster.path}` tell more", 1)
            return 4
        time.sleep(0.05)


def up(cluster, args):
    log = cluster.logs / "launcher.log"
    if args.lock_fd is not None:
        cluster.lock.fd = args.lock_fd
        return Supervisor(cluster, log).run()
    code = take_lock(cluster, args)
    if code is not None:
        return code
    refuse_stranger(cluster)
    _, rows = running(cluster)
    last = (saved(cluster) or {}).get("last")
    save(cluster, STARTING, rows, last)
    cluster.prepare(rows)
    if rows:
        say("taken over from a supervisor that died: " + ", ".join(f"{r['id']} ({r['pid']})" for r in rows))
    if args.foreground:
        return Supervisor(cluster).run()
    with open(log, "ab") as out:
        child = subprocess.Popen([sys.executable, "-I", ROOT / "deploy" / "baton", "up", "--foreground", "--conf",
                                  cluster.conf, "--lock-fd", str(cluster.lock.fd)], pass_fds=[cluster.lock.fd],
                                 stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    cluster.lock.release()
    if not rows:
        return wait_ready(cluster, args, child)
    code = join(cluster, args)
    if code is None:
        say(f"the supervisor ended with {child.wait()}; see {log}", 1)
    return 1 if code is None else code


# ---- down

def told_end(cluster, pid):
    """What the supervisor said of its end: whether every process finished its work."""
    last = (saved(cluster) or {}).get("last")
    cut = last["cut"] if fits(last, {"pid": int, "cut": list}) and last["pid"] == pid else None
    if cut == []:
        say("stopped")
        return 0
    say("stopped, with work cut: " + (", ".join(map(str, cut or [])) or "the supervisor was gone"), 6)
    return 6


def stop_left(cluster, rows, timeout):
    """What a dead supervisor left, in the order in which it would have stopped it."""
    left = [Process.adopt(r, 1.0) for r in rows]
    begun = time.monotonic()

    def reap():
        for p in left:
            if p.child and p.child.poll() is not None:
                p.ended(True)
                say(f"{p.ident} {p.state}")

    def pressure():
        waited = time.monotonic() - begun
        return 4 if waited > 2 * timeout else 1 if waited > timeout else 0

    stop_in_order(left, reap, pressure)
    save(cluster, ENDED, [], {"pid": os.getpid(), "cut": [p.ident for p in left if p.last_exit != 0]})
    return told_end(cluster, os.getpid())


def down(cluster, args):
    refuse_stranger(cluster)
    boss, rows = running(cluster)
    deadline = time.monotonic() + args.timeout
    while not boss and cluster.lock.held():  # being started: what comes up is stopped then
        if time.monotonic() > deadline:
            say(f"{starting(cluster)}, no supervisor after {args.timeout} s", 1)
            return 4
        time.sleep(0.02)
        refuse_stranger(cluster)
        boss, rows = running(cluster)
    if not boss and rows and cluster.lock.take():
        return stop_left(cluster, rows, args.timeout)
    if not boss:
        say("nothing runs")
        return 0
    targets = [boss]
    for sign in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        for row in [r for r in targets if alive(r)]:
            os.kill(row["pid"], sign)
        deadline = time.monotonic() + (args.timeout if sign == signal.SIGTERM else 5)
        while any(alive(r) for r in targets + rows) and time.monotonic() < deadline:
            time.sleep(0.02)
        if not any(alive(r) for r in targets + rows):
            return told_end(cluster, boss["pid"])
        targets = targets + rows
    say("some processes did not end", 1)
    return 4


# ---- status and logs

def starting(cluster):
    holder = starter(cluster)
    return "being started or ended" + (f" by process {holder['pid']}" if holder else "")


def status(cluster, args):
    refuse_stranger(cluster)
    boss, rows = running(cluster)
    code = 0 if boss else 1 if rows and not cluster.lock.held() else 3
    if args.output == "json":
        print(json.dumps(boss or {"processes": rows}))
        return code
    if not boss and not rows:
        print(starting(cluster) if cluster.lock.held() else "nothing runs")
        return code
    print(f"{'ID':<12} {'ROLE':<8} {'PID':>8} {'STATE':<12} {'RESTARTS':>8} LAST-EXIT")
    for r in (boss["processes"] if boss else rows):
        print(f"{r['id']:<12} {r['role']:<8} {r['pid'] or '-':>8} {r['state']:<12} {r['restarts']:>8} "
              f"{'-' if r['last_exit'] is None else r['last_exit']}", flush=True)
    if code == 1:
        say("the supervisor is gone: nothing is started again; `baton up` takes these over, `baton down` stops them", 1)
    return code


def logs(cluster, args):
    copies = [r["name"] for r in running(cluster)[1] if r["copy_of"]]
    names = [args.name] if args.name else ["launcher"] + [s.name for s in cluster.specs] + copies
    files = [cluster.logs / f"{n}.log" for n in names]
    missing = [f for f in files if not f.exists()]
    if args.name and missing:
        say(f"no log {missing[0]}", 1)
        return 1
    tail = ["tail", "-n", "200"] + (["-F"] if args.follow else [])
    return subprocess.run(tail + [str(f) for f in files if f.exists()], check=False).returncode


# ---- orders to the supervisor

def order(cluster, verb, args, **more):
    refuse_stranger(cluster)
    boss, rows = running(cluster)
    if not boss:
        say("the supervisor is gone; `baton up` takes over what runs" if rows else "nothing runs", 3)
        return 1 if rows else 3
    code = ask(cluster, {"order": verb, "wait": args.wait, **more}, say)
    if code is None:
        say("the supervisor did not answer", 1)
    return 1 if code is None else code


def scale(cluster, args):
    counts = {}
    for text in args.counts:
        role, _, n = text.partition("=")
        if role in counts or not n.isascii() or not n.isdigit() or len(n) > 4:
            raise Refused(f"{text!r}: expected prefill=N, decode=N or both")
        counts[role] = int(n)
    return order(cluster, "scale", args, counts=counts)


def restart(cluster, args):
    return order(cluster, "restart", args, target=args.target, drain_first=args.drain_first)


def reload(cluster, args):
    if running(cluster)[0]:
        cluster.prepare(running(cluster)[1])
    return order(cluster, "reload", args, drain_first=args.drain_first)
