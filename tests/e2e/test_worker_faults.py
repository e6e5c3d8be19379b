"""What workers do when a peer, a router or they themselves die, stop or drain."""
import json
import shutil
import signal
import struct
import time

import wire
from worker_rig import MODEL, conversations

TALKS = conversations()
SHORT = TALKS[0]
LONG = TALKS[16]  # an answer of 243 tokens


def exported(r, talk, worker="p0"):
    request = r.prefill(worker, talk["prompt_ids"])
    done = r.take("prefilled", request, "rejected")
    return request, done, done["first"][0]["token"]


def adopt(r, worker, talk, request, done, first, source="p0", **fields):
    r.adopt(worker, source, request, done, [first], len(talk["prompt_ids"]), **fields)


def is_hit(r, worker):
    return lambda: r.ask(worker, "status")["stats"]["fault_hits"] == 1


# ---- death of a worker ----


def test_prefill_dies_before_the_pull(rig):
    p, _, r = rig.pair()
    r.run("p0", "d0", SHORT["prompt_ids"])  # so that its arena is mapped
    request, done, first = exported(r, SHORT)
    old = r.workers["p0"]
    p.kill()
    adopt(r, "d0", SHORT, request, done, first, source=old)
    answer = r.take("rejected", request, "adopted")
    assert answer["reason"] == wire.REJECT["SOURCE"] and answer["later"] == 1
    r.send("d0", "peer_down", id="p0", incarnation=old["incarnation"])
    r.until(lambda: ("d0", "peer_gone") in [(w, n) for w, n, _ in r.inbox], "peer_gone", 2)
    assert r.ask("d0", "pools")["peers"] == 0
    r.pools_back("d0")
    # The same name again is somebody else, and all goes on.
    rig.worker("prefill", "p0")
    r.until(lambda: r.workers.get("p0", old)["incarnation"] != old["incarnation"], "the new p0")
    assert r.run("p0", "d0", SHORT["prompt_ids"])[0] == SHORT["greedy_ids"]


def test_prefill_dies_during_the_pull(rig):
    p, _, r = rig.pair(decode=dict(debug_fault="pause@pull"))
    request, done, first = exported(r, SHORT)
    adopt(r, "d0", SHORT, request, done, first)
    r.until(is_hit(r, "d0"), "the pull")
    p.kill()
    r.send("d0", "peer_down", id="p0", incarnation=r.workers["p0"]["incarnation"])
    rig.go("pull")
    answer = r.take("rejected", request, "adopted")
    assert answer["reason"] == wire.REJECT["SOURCE"] and answer["later"] == 1
    r.until(lambda: ("d0", "peer_gone") in [(w, n) for w, n, _ in r.inbox], "peer_gone", 2)
    r.pools_back("d0")


def test_decode_dies_during_the_pull_and_another_takes_the_lease(rig):
    _, d, r = rig.pair(decode=dict(debug_fault="pause@pull"))
    request, done, first = exported(r, SHORT)
    adopt(r, "d0", SHORT, request, done, first)
    r.until(is_hit(r, "d0"), "the pull")
    d.kill()
    (rig.runtime / "fault.pull.go").touch()
    rig.worker("decode", "d1")
    r.connected("d1")
    adopt(r, "d1", SHORT, request, done, first)
    r.take("adopted", request, "rejected")
    r.take("finished", request)
    assert [first] + r.tokens(request) == SHORT["greedy_ids"]
    r.pools_back("p0", "d1")


def test_decode_dies_in_the_middle_of_an_answer(rig):
    """What was received is prefilled again; the answer is the one without the death."""
    _, d, r = rig.pair(decode=dict(debug_fault="step_delay_ms=5"))
    rig.worker("decode", "d1")
    r.connected("d1")
    prompt = LONG["prompt_ids"]
    request, done, first = exported(r, LONG)
    adopt(r, "d0", LONG, request, done, first)
    r.until(lambda: len(r.tokens(request)) > 60, "60 tokens")
    d.kill()
    r.pump(0.2)
    got = [first] + r.tokens(request)
    assert got == LONG["greedy_ids"][:len(got)]
    again = (request[0], request[1], 1)
    r.prefill("p0", prompt + got, request=again, n_prompt=len(prompt))
    done = r.take("prefilled", again, "rejected")
    got.append(done["first"][0]["token"])
    r.adopt("d1", "p0", again, done, got, len(prompt))
    r.take("finished", again, "rejected")
    assert got + r.tokens(again) == LONG["greedy_ids"]
    r.pools_back("p0", "d1")


# ---- routers ----


def test_a_silent_router_is_lost_and_found(rig):
    """Its sequences end, its leases run out, and it is greeted again."""
    _, d, r = rig.pair(decode=dict(debug_fault="step_delay_ms=20"))
    other = rig.router("r1")
    other.connected("p0", "d0")
    request, done, first = exported(r, LONG)
    kept, _, _ = exported(r, SHORT)
    adopt(r, "d0", LONG, request, done, first)
    r.until(lambda: len(r.tokens(request)) > 2, "tokens")
    r.silent = True
    end = time.monotonic() + 1.6  # lost after 0.4 s, leases of 1 s after that traffic
    while time.monotonic() < end:
        r.pump(0.02)
    other.pools_back("p0", "d0", seconds=1)
    assert other.ask("p0", "status")["stats"]["lease_expired"] == 1
    r.silent = False
    r.hellos.clear()
    r.until(lambda: set(r.hellos) == {"p0", "d0"}, "hello again", 3)
    assert r.run("p0", "d0", SHORT["prompt_ids"])[0] == SHORT["greedy_ids"]


def test_a_beating_router_keeps_its_leases(rig):
    _, _, r = rig.pair()
    request, done, first = exported(r, SHORT)
    r.pump(2.5)  # twice the life of a lease
    adopt(r, "d0", SHORT, request, done, first)
    r.take("finished", request, "rejected")
    assert [first] + r.tokens(request) == SHORT["greedy_ids"]


def test_a_router_that_restarts_is_greeted_as_a_new_one(rig):
    _, _, r = rig.pair(decode=dict(debug_fault="step_delay_ms=20"))
    request, done, first = exported(r, LONG)
    adopt(r, "d0", LONG, request, done, first)
    r.until(lambda: len(r.tokens(request)) > 2, "tokens")
    r.close()
    new = rig.router()
    new.connected("p0", "d0")
    new.pools_back("p0", "d0", seconds=2)
    assert new.run("p0", "d0", SHORT["prompt_ids"])[0] == SHORT["greedy_ids"]


def test_two_routers_share_the_workers(rig):
    _, _, r = rig.pair()
    other = rig.router("r1")
    other.connected("p0", "d0")
    jobs = []
    for talk in TALKS[:6]:
        for router in (r, other):
            jobs.append((router, talk, *exported(router, talk)))
    for router, talk, request, done, first in jobs:
        adopt(router, "d0", talk, request, done, first)
    for router, talk, request, done, first in jobs:
        router.take("finished", request, "rejected")
        assert [first] + router.tokens(request) == talk["greedy_ids"]
    assert r.ask("d0", "status")["routers"] == 2
    r.pools_back("p0", "d0")


def test_a_request_of_another_router_is_refused(rig):
    _, _, r = rig.pair()
    r.prefill("p0", SHORT["prompt_ids"], request=(r.incarnation + 1, 1, 0))
    r.pump(0.3)
    assert r.inbox == [] and r.ask("p0", "status")["stats"]["malformed"] == 1


def test_refusals(rig):
    """A wrong version ends the worker; an id in use is waited for, then ends it too;
    a worker that was declared lost says hello again."""
    r = rig.router()
    r.refuse = (wire.REFUSED["COMPAT"], "compat hash 1, not 2")
    p = rig.worker("prefill", "p0", wait=False)
    assert p.exit_code() == 5 and "compat hash 1, not 2" in p.log()
    r.refuse = (wire.REFUSED["ID_IN_USE"], "p1 is alive")
    p = rig.worker("prefill", "p1", wait=False)
    assert p.exit_code() == 5
    assert r.hellos.count("p1") > 5  # every 2 beats for 20 beats
    p = rig.worker("prefill", "p2", wait=False)
    r.until(lambda: r.hellos.count("p2") > 2, "hello of p2")
    r.refuse = None
    hellos = r.hellos.count("p2")
    r.until(lambda: r.hellos.count("p2") > hellos, "p2 after the refusal")
    request, _, _ = exported(r, SHORT, "p2")
    hellos = r.hellos.count("p2")
    r.send("p2", "refused", code=wire.REFUSED["LOST"], text="lost")
    r.until(lambda: r.hellos.count("p2") > hellos, "hello again")
    assert p.process.poll() is None


def test_a_stopped_worker_comes_back(rig):
    """SIGSTOP beyond every limit, then SIGCONT: it serves again when it is greeted."""
    p, _, r = rig.pair()
    p.kill(signal.SIGSTOP)
    r.pump(1.0)
    p.kill(signal.SIGCONT)
    assert r.run("p0", "d0", SHORT["prompt_ids"])[0] == SHORT["greedy_ids"]
    assert "did not run for" in p.log()


# ---- limits ----


def test_queues_are_bounded(rig):
    """No slots: max_queued wait, the next is rejected for later; all others finish."""
    _, _, r = rig.pair(prefill=dict(state_slots=3, max_queued=2),
                           decode=dict(state_slots=3, max_queued=1, debug_fault="step_delay_ms=10"))
    jobs = [r.prefill("p0", SHORT["prompt_ids"]) for _ in range(5)]
    full = r.take("rejected", jobs[4])  # two slots, two places
    assert full["reason"] == wire.REJECT["FULL"] and full["later"] == 1
    done = {}
    for job in jobs[:2]:
        done[job] = r.take("prefilled", job)
    for job in jobs[:2]:
        adopt(r, "d0", SHORT, job, done[job], done[job]["first"][0]["token"])
    for job in jobs[2:4]:
        done[job] = r.take("prefilled", job)
        adopt(r, "d0", SHORT, job, done[job], done[job]["first"][0]["token"])
    full = r.take("rejected", jobs[3])
    assert full["reason"] == wire.REJECT["FULL"] and full["later"] == 1
    r.take("finished", jobs[0])
    r.until(lambda: [n for w, n, m in r.inbox if w == "d0" and n == "freed"], "a place")
    r.pump(0.05)
    adopt(r, "d0", SHORT, jobs[3], done[jobs[3]], done[jobs[3]]["first"][0]["token"])
    for job in jobs[1:4]:
        r.take("finished", job)
    for job in jobs[:4]:
        assert [done[job]["first"][0]["token"]] + r.tokens(job) == SHORT["greedy_ids"]
    r.pools_back("p0", "d0")


def test_out_of_pages_one_is_evicted_and_replayed(rig):
    """Four answers of 265 tokens want 20 pages of 12: some are evicted, all come out."""
    _, _, r = rig.pair(decode=dict(kv_pages=13, max_model_len=512))
    prompt, answer = LONG["prompt_ids"], LONG["greedy_ids"]
    got, attempt = {}, {}
    for _ in range(4):
        request, done, first = exported(r, LONG)
        got[request[1]], attempt[request[1]] = [first], 0
        adopt(r, "d0", LONG, request, done, first)
    open_, evictions = set(got), 0
    while open_:
        for seq in list(open_):
            request = (r.incarnation, seq, attempt[seq])
            names = [n for _, n, m in r.inbox if n in ("finished", "evicted", "rejected")
                     and (m["seq"], m["attempt"]) == request[1:]]
            if "finished" in names:
                got[seq] += r.tokens(request)
                open_.discard(seq)
            elif "evicted" in names:
                evictions += 1
                got[seq] += r.tokens(request)
                attempt[seq] += 1
                again = (r.incarnation, seq, attempt[seq])
                r.prefill("p0", prompt + got[seq], request=again, n_prompt=len(prompt))
                done = r.take("prefilled", again, "rejected")
                got[seq].append(done["first"][0]["token"])
                r.adopt("d0", "p0", again, done, got[seq], len(prompt))
            assert "rejected" not in names
        r.pump(0.01)
    assert evictions > 0 and r.ask("d0", "status")["stats"]["evicted"] == evictions
    assert all(ids == answer for ids in got.values())
    r.pools_back("p0", "d0")


def test_short_prompts_overtake_a_long_one(rig):
    _, _, r = rig.pair(prefill=dict(max_num_batched_tokens=128))
    long = r.prefill("p0", TALKS[59]["prompt_ids"])
    short = r.prefill("p0", SHORT["prompt_ids"])
    r.take("prefilled", long)
    order = [m["seq"] for _, n, m in r.inbox if n in ("prefilled", "progress")]
    at = order.index(short[1])
    # Two passes may be with the engine already when it comes.
    assert order[:at].count(long[1]) <= 3, order


# ---- the end ----


def test_a_prefill_worker_leaves_when_nobody_needs_its_pages(rig):
    p, _, r = rig.pair()
    request, done, first = exported(r, SHORT)
    p.kill(signal.SIGTERM)
    p.wait_for("draining")
    late = r.prefill("p0", SHORT["prompt_ids"])
    answer = r.take("rejected", late)
    assert answer["reason"] == wire.REJECT["DRAINING"] and answer["later"] == 1
    r.pump(1.5)
    assert p.process.poll() is None  # the lease is still there
    adopt(r, "d0", SHORT, request, done, first)
    r.take("finished", request, "rejected")
    assert [first] + r.tokens(request) == SHORT["greedy_ids"]
    assert p.exit_code() == 0
    assert ("p0", "drained", {"clean": 1}) in r.inbox


def test_a_decode_worker_finishes_its_answers(rig):
    _, d, r = rig.pair(decode=dict(debug_fault="step_delay_ms=2"))
    request, done, first = exported(r, LONG)
    other, done2, _ = exported(r, SHORT)
    adopt(r, "d0", LONG, request, done, first)
    r.until(lambda: len(r.tokens(request)) > 2, "tokens")
    d.kill(signal.SIGTERM)
    r.until(lambda: "draining" in d.log(), "draining")
    adopt(r, "d0", SHORT, other, done2, done2["first"][0]["token"])
    assert r.take("rejected", other)["reason"] == wire.REJECT["DRAINING"]
    r.take("finished", request)
    assert [first] + r.tokens(request) == LONG["greedy_ids"]
    assert d.exit_code() == 0 and ("d0", "drained", {"clean": 1}) in r.inbox


def test_a_second_signal_and_the_time_limit_cut(rig):
    for name, flags, signals in (("d1", {}, 2), ("d2", {"shutdown_timeout": 0.3}, 1)):
        d = rig.worker("decode", name, debug_fault="step_delay_ms=50", **flags)
        if name == "d1":
            rig.worker("prefill", "p0")
            r = rig.router()
        r.connected("p0", name)
        request, done, first = exported(r, LONG)
        adopt(r, name, LONG, request, done, first)
        r.until(lambda: len(r.tokens(request)) > 1, "tokens")
        for _ in range(signals):
            d.kill(signal.SIGTERM)
            r.pump(0.1)
        assert r.take("finished", request)["reason"] == wire.FINISH["DRAINED"]
        r.take("freed", request)
        assert d.exit_code() == 6 and (name, "drained", {"clean": 0}) in r.inbox
    r.pools_back("p0")


def test_drain_by_message_can_be_undone(rig):
    _, d, r = rig.pair()
    for name in ("p0", "d0"):
        r.send(name, "drain", deadline_ms=0, migrate=0)
        r.until(lambda: (name, "drained", {"clean": 1}) in r.inbox, "drained")
        assert r.ask(name, "status")["state"] == "drained"
        r.until(lambda: r.beats.get(name, {}).get("drained") == 1, "a beat that says so")
        assert (r.beats[name]["draining"], r.beats[name]["ends"]) == (1, 0)
    request = r.prefill("p0", SHORT["prompt_ids"])
    assert r.take("rejected", request)["reason"] == wire.REJECT["DRAINING"]
    for name in ("p0", "d0"):
        r.send(name, "undrain")
        r.until(lambda: r.beats.get(name, {}).get("draining") == 0, "serving")
    assert r.run("p0", "d0", SHORT["prompt_ids"])[0] == SHORT["greedy_ids"]
    d.kill(signal.SIGTERM)
    assert d.exit_code() == 0


def test_nan_never_becomes_a_token(rig, tmp_path):
    """A model whose embedding of one id is NaN: prompts with it end with FINISH_NAN,
    others are right; three in a row take the worker out of service."""
    model = tmp_path / "model"
    shutil.copytree(MODEL, model)
    path = model / "model.safetensors"
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    name = next(k for k in header if k.endswith("embed_tokens.weight"))
    hidden = header[name]["shape"][1]
    poison = 1999
    assert not any(poison in t["prompt_ids"] + t["greedy_ids"] for t in TALKS)
    at = 8 + n + header[name]["data_offsets"][0] + poison * hidden * 2
    data[at:at + 2] = b"\xc0\x7f"
    path.write_bytes(data)
    p, d, r = rig.pair(prefill=dict(model=model), decode=dict(model=model))
    bad = SHORT["prompt_ids"] + [poison]
    assert r.run("p0", "d0", SHORT["prompt_ids"])[0] == SHORT["greedy_ids"]
    for _ in range(2):
        request = r.prefill("p0", bad)
        assert r.take("finished", request, "prefilled")["reason"] == wire.FINISH["NAN"]
        r.take("freed", request)
    # In decode: the first generated token is the poisoned one.
    request, done, _ = exported(r, SHORT)
    adopt(r, "d0", SHORT, request, done, poison)
    end = r.take("finished", request, "rejected")
    assert end["reason"] == wire.FINISH["NAN"] and r.tokens(request) == []
    assert r.run("p0", "d0", SHORT["prompt_ids"])[0] == SHORT["greedy_ids"]
    r.pools_back("p0", "d0")
    for _ in range(3):
        request = r.prefill("p0", bad)
        r.take("finished", request)
    assert p.exit_code() == 4 and "3 requests in a row" in p.log()


def test_exit_codes_of_a_start_that_fails(rig, tmp_path):
    cases = [(dict(no_such_key=1), 2), (dict(max_num_seqs=0), 2), (dict(load_format="gguf"), 2),
             (dict(transport="cuda_ipc"), 2), (dict(debug_fault="pause@nowhere"), 2),
             (dict(lost_ms=60), 2), (dict(kv_pages=5), 2), (dict(memory_bytes=1000000), 2),
             (dict(model=tmp_path), 3), (dict(gpus="99"), 4),
             (dict(gpus="cpu:x"), 2)]
    for flags, code in cases:
        w = rig.worker("prefill", "p9", wait=False, **flags)
        assert w.exit_code() == code, (flags, w.log())
        errors = [line for line in w.log().splitlines() if "Z error " in line]
        assert len(errors) == 1, (flags, errors)
