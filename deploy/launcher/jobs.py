"""What a running supervisor can be ordered to do. A job is a generator: it yields while it
waits, and ends with (exit status, text). Each change is whole before the next begins: what
takes over serves before what it replaces is told to end."""
import dataclasses
import os
import time

from launcher import Refused
from launcher.conf import Cluster, other_id
from launcher.state import fits

OK, FAILED, BAD, TIMED_OUT = 0, 1, 2, 4
COPIES_MAX = 64
WAIT_MAX = 86400.0


def patience(order):
    wait = order.get("wait", 120.0)
    if not isinstance(wait, (int, float)) or not 0 < wait <= WAIT_MAX:
        raise Refused(f"wait: expected seconds, up to {WAIT_MAX:.0f}")
    return wait


def in_service(boss, role=None):
    return [p for p in boss.processes if not p.trial and not p.leaving and role in (None, p.role)]


def by_name(boss):
    return {p.name: p for p in in_service(boss)}


def until_serving(boss, p, wait):
    """None, or (exit status, why not)."""
    deadline, asked, restarts = time.monotonic() + wait, boss.probe.rounds, p.restarts
    while boss.probe.rounds < asked + 2 or not boss.serves(p):
        if p.child is None and p.again_at is None or p.restarts > restarts:
            return FAILED, f"{p.ident} ended with status {p.last_exit}; see {p.spec.log}"
        if time.monotonic() > deadline:
            return TIMED_OUT, f"{p.ident} does not serve after {wait:g} s"
        yield
    return None


def until_gone(p):
    while p.child:
        yield


def start(boss, spec, wait, say):
    """A new process, or the stopped one of that name."""
    p = by_name(boss).get(spec.name)
    if p is None:
        p = boss.add(spec)
    else:
        p.spec = spec
        boss.start(p)
        boss.save()
    say(f"{p.ident} starts")
    return (yield from until_serving(boss, p, wait))


def drain(boss, p, say, remove=True):
    say(f"{p.ident} drains")
    p.leave()
    boss.save()
    yield from until_gone(p)
    say(f"{p.ident} {p.state}")
    if p.last_exit not in (0, None):
        boss.cut.append(p.ident)
    p.leaving = False
    if remove:
        boss.remove(p)


# ---- up

def differences(boss, cluster):
    have, out = by_name(boss), []
    for s in cluster.specs:
        if s.name in have and have[s.name].spec != s:
            out.append(f"{s.name} runs with other settings than the file's")
    names = [s.name for s in cluster.specs]
    out += [f"{p.name} runs and is not in the file" for p in have.values()
            if p.name not in names and not p.spec.copy_of and p.wanted]
    return out


def up(boss, order, say):
    """Starts what the file wants and does not run: what was added to it, what was drained
    and what was given up."""
    cluster, wait = Cluster(boss.cluster.path), patience(order)
    begun = []
    for s in cluster.specs:
        p = by_name(boss).get(s.name)
        if p is None or not p.wanted:
            begun.append(s.name)
            if p is None:
                boss.add(s)
            else:
                p.spec = s
                boss.start(p)
            say(f"{s.name} starts")
    boss.save()
    for name in begun:
        bad = yield from until_serving(boss, by_name(boss)[name], wait)
        if bad:
            return bad
    differ = differences(boss, cluster)
    if differ:
        return BAD, "; ".join(differ) + "; `baton reload` makes them the same"
    return OK, None


# ---- restart

def alone_on_port(boss, p, spec, drain_first):
    """Two routers cannot listen on one port, so the old one has to end first."""
    if p.role != "router" or not p.child or spec.port != p.spec.port or drain_first:
        return None
    if any(q.wanted for q in in_service(boss, "router") if q is not p):
        return None
    return (f"router {p.name} alone listens on port {p.spec.port}, where its successor cannot listen before it "
            "ended: nobody would answer meanwhile; --drain-first does it all the same")


def replace(boss, p, spec, order, say):
    """None, or (exit status, why not); then the old one still runs."""
    wait = patience(order)
    same_port = p.role == "router" and spec.port == p.spec.port
    if not p.child or same_port or order.get("drain_first") is True:
        if p.child:
            yield from drain(boss, p, say, remove=False)
        p.spec = spec
        boss.start(p)
        boss.save()
        say(f"{p.ident} starts")
        return (yield from until_serving(boss, p, wait))
    new = boss.add(spec, other_id(p.name, p.ident), trial=True)
    say(f"{new.ident} starts")
    bad = yield from until_serving(boss, new, wait)
    if bad:
        new.leave()
        yield from until_gone(new)
        boss.remove(new)
        return bad[0], f"{bad[1]}; {p.ident} goes on"
    new.trial = False
    yield from drain(boss, p, say)
    return None


def restart(boss, order, say):
    target, have = order.get("target"), in_service(boss)
    chosen = [p for p in have if target in ("all", p.role, p.name, p.ident)]
    if not chosen:
        raise Refused(f"{target!r} names no process: expected all, a role, or one of "
                      f"{', '.join(p.name for p in have)}")
    chosen.sort(key=lambda p: ["prefill", "decode", "router"].index(p.role))
    first = order.get("drain_first") is True
    for why in filter(None, (alone_on_port(boss, p, p.spec, first) for p in chosen)):
        raise Refused(why)
    for n, p in enumerate(chosen):
        bad = yield from replace(boss, p, p.spec, order, say)
        if bad:
            left = [q.name for q in chosen[n + 1:]]
            return bad[0], bad[1] + (f"; not restarted: {', '.join(left)}" if left else "")
    return OK, f"restarted: {', '.join(p.name for p in chosen)}"


# ---- reload

def reload(boss, order, say):
    cluster, wait, have = Cluster(boss.cluster.path), patience(order), by_name(boss)
    if cluster.runtime != boss.cluster.runtime:
        raise Refused("runtime_dir: another one is another cluster; `baton down` with the old file, then `baton up`")
    wanted = {s.name: s for s in cluster.specs}
    changed = [(p, wanted[n]) for n, p in have.items() if n in wanted and (p.spec != wanted[n] or not p.wanted)]
    first = order.get("drain_first") is True
    for why in filter(None, (alone_on_port(boss, p, s, first) for p, s in changed)):
        raise Refused(why)
    boss.cluster.delay_max, boss.cluster.logs = cluster.delay_max, cluster.logs
    for p in boss.processes:
        p.delay_max = cluster.delay_max
    for s in cluster.specs:
        if s.name not in have:
            bad = yield from start(boss, s, wait, say)
            if bad:
                return bad
    for p, s in changed:
        bad = yield from replace(boss, p, s, order, say)
        if bad:
            return bad
    gone = [p for n, p in have.items() if n not in wanted]
    for p in gone:
        yield from drain(boss, p, say)
    done = {"started": [n for n in wanted if n not in have], "restarted": [p.name for p, _ in changed],
            "drained": [p.name for p in gone]}
    return OK, "; ".join(f"{k}: {', '.join(v)}" for k, v in done.items() if v) or "nothing differs"


# ---- scale

def copy_of(boss, model):
    """A process with the settings of another, under the next free name."""
    if "--gpus" in model.rest and not model.rest[model.rest.index("--gpus") + 1].startswith("cpu:"):
        raise Refused(f"a copy of {model.name} would share its GPU: add a [{model.role} NAME] with gpus of its own "
                      "to the file, then `baton reload`")
    base = model.name.rstrip("0123456789")
    taken = [p.name for p in boss.processes]
    name = next(n for n in (f"{base}{i}" for i in range(len(taken) + 2)) if n not in taken)
    boss.cluster.refuse_long(model.role, name)
    return dataclasses.replace(model, name=name, log=os.path.join(os.path.dirname(model.log), f"{name}.log"),
                               copy_of=model.copy_of or model.name)


def scale_role(boss, role, n, wait, say):
    while True:
        live = [p for p in in_service(boss, role) if p.wanted]
        if len(live) > n:  # copies go first, then the last of the file
            p = max(live, key=lambda p: (bool(p.spec.copy_of), live.index(p)))
            yield from drain(boss, p, say, remove=bool(p.spec.copy_of))
        elif len(live) < n:
            rest = [p for p in in_service(boss, role) if not p.wanted]
            spec = rest[0].spec if rest else copy_of(boss, live[-1].spec)
            bad = yield from start(boss, spec, wait, say)
            if bad:
                p = by_name(boss)[spec.name]
                yield from drain(boss, p, say, remove=bool(spec.copy_of))
                return bad
        else:
            return None


def scale(boss, order, say):
    counts, wait = order.get("counts"), patience(order)
    roles = {"prefill": int, "decode": int}
    if not isinstance(counts, dict) or not counts or not fits(counts, {r: roles.get(r, ()) for r in counts}):
        raise Refused("expected prefill=N, decode=N or both; a router has a port of its own, which the file names")
    for role, n in counts.items():
        if not 1 <= n <= COPIES_MAX:
            raise Refused(f"{role}={n}: expected 1 to {COPIES_MAX}")
        if not in_service(boss, role):
            raise Refused(f"{role}={n}: there is none whose settings could be copied")
    for role, n in counts.items():
        bad = yield from scale_role(boss, role, n, wait, say)
        if bad:
            return bad
    return OK, ", ".join(f"{role}={n}" for role, n in counts.items())


JOBS = {"up": up, "restart": restart, "reload": reload, "scale": scale}
