"""What a router's beats say that it holds at a worker, and what the worker makes of it: real
workers, a router made of a socket."""
import signal
import time

import wire
from worker_rig import conversations

TALKS = conversations()
SHORT = TALKS[0]
LONG = TALKS[16]  # an answer of 243 tokens


class Books:
    """What the router's beats say, per worker: held are (seq, attempt, wanted)."""

    def __init__(self, router, *workers):
        self.held = {w: [] for w in workers}
        self.placed = {w: 0 for w in workers}
        self.number, self.router = 0, router
        router.says = self.says

    def says(self, name):
        self.number += 1
        return dict(number=self.number, seen=self.router.beats.get(name, {}).get("number", 0),
                    held=self.held[name], placed=self.placed[name])

    def holds(self, name, request, wanted=1):
        self.held[name] = [h for h in self.held[name] if h[:2] != request[1:]] + [(*request[1:], wanted)]


def start(r, books, talk):
    """A request with a lease at p0."""
    request = r.request()
    books.holds("p0", request)
    r.prefill("p0", talk["prompt_ids"], request)
    done = r.take("prefilled", request, "rejected", "finished")
    return request, done, done["first"][0]["token"]


def adopt(r, books, talk, request, done, first):
    books.holds("d0", request)
    r.adopt("d0", "p0", request, done, [first], len(talk["prompt_ids"]))


def test_what_is_named_stays_and_what_is_not_is_ended(rig):
    _, _, r = rig.pair(decode=dict(debug_fault="step_delay_ms=10"))
    books = Books(r, "p0", "d0")
    named, done, first = start(r, books, LONG)
    other, done2, first2 = start(r, books, LONG)
    adopt(r, books, LONG, named, done, first)
    adopt(r, books, LONG, other, done2, first2)
    r.until(lambda: len(r.tokens(other)) > 3, "tokens")
    books.held["d0"] = [(*named[1:], 1)]
    assert r.take("finished", other, seconds=5)["reason"] == wire.FINISH["CANCELLED"]
    r.take("freed", other)
    r.take("finished", named)
    assert [first] + r.tokens(named) == LONG["greedy_ids"]
    r.pools_back("p0", "d0")


def test_a_lease_that_is_not_named_runs_out_and_one_that_is_does_not(rig):
    _, _, r = rig.pair()
    books = Books(r, "p0", "d0")
    named, done, first = start(r, books, SHORT)
    other, _, _ = start(r, books, SHORT)
    books.held["p0"] = [(*named[1:], 1)]
    begun = time.monotonic()
    r.take("freed", other, seconds=5)
    assert time.monotonic() - begun > 0.5, "an importer may have been about to read it"
    r.pump(1)
    adopt(r, books, SHORT, named, done, first)
    r.take("finished", named, "rejected")
    assert [first] + r.tokens(named) == SHORT["greedy_ids"]
    r.pools_back("p0", "d0")


def test_what_is_named_and_not_wanted_ends_at_once(rig):
    _, _, r = rig.pair()
    books = Books(r, "p0", "d0")
    request, _, _ = start(r, books, SHORT)
    books.holds("p0", request, wanted=0)
    begun = time.monotonic()
    r.take("freed", request, seconds=5)
    assert time.monotonic() - begun < 0.8, "it waited for the lease"
    r.pools_back("p0")


def test_what_is_named_and_not_there_is_said(rig):
    _, _, r = rig.pair()
    books = Books(r, "p0", "d0")
    for name in ("p0", "d0"):
        request = r.request()
        books.holds(name, request)
        assert 0 < r.take("absent", request)["number"] <= books.number


def test_a_drain_takes_what_was_placed_and_ends_after_it(rig):
    _, d, r = rig.pair()
    books = Books(r, "p0", "d0")
    request, done, first = start(r, books, SHORT)
    books.placed["d0"] = 1
    r.pump(0.2)
    d.kill(signal.SIGTERM)
    r.until(lambda: r.beats["d0"].get("draining") == 1, "a beat that says so", 2)
    r.pump(1)
    assert d.process.poll() is None and not [m for m in r.inbox if m[1] == "drained"]
    adopt(r, books, SHORT, request, done, first)
    books.placed["d0"] = 0
    r.take("finished", request, "rejected")
    assert [first] + r.tokens(request) == SHORT["greedy_ids"]
    assert d.exit_code(5) == 0 and ("d0", "drained", {"clean": 1}) in r.inbox


def test_an_incarnation_is_connected_once(rig):
    """Another socket that claims to be the same router gets no say in its requests."""
    p, d, r = rig.pair()
    other = rig.router("r1")
    other.incarnation = r.incarnation
    other.connected("p0", "d0")
    p.wait_for("connected already: ignored")
    d.wait_for("connected already: ignored")
    assert r.run("p0", "d0", SHORT["prompt_ids"])[0] == SHORT["greedy_ids"]
    assert "r1.sock: hello -> live" not in p.log()
