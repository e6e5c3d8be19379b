"""Prefill and decode workers against the protocol, with a router made of a socket."""
import random

import pytest

import wire
from worker_rig import EOS, conversations

TALKS = conversations()
COUNT = TALKS[16]  # "Count from ...": long, one wrong token is visible


def test_greedy_answers_are_the_reference_ones(rig):
    """62 conversations at once: the ids are those of the reference implementation."""
    _, _, r = rig.pair(prefill=dict(max_num_seqs=64), decode=dict(max_num_seqs=64))
    jobs = [(t, r.prefill("p0", t["prompt_ids"])) for t in TALKS]
    firsts = {}
    for talk, request in jobs:
        done = r.take("prefilled", request, "rejected", "finished")
        assert done["n_tokens"] == len(talk["prompt_ids"])
        firsts[request] = done["first"][0]["token"]
        r.adopt("d0", "p0", request, done, [firsts[request]], len(talk["prompt_ids"]),
                max_tokens=1024)
    for talk, request in jobs:
        adopted = r.take("adopted", request, "rejected")
        end = r.take("finished", request, "rejected", "evicted")
        ids = [firsts[request]] + r.tokens(request)
        assert ids == talk["greedy_ids"], talk["prompt"]
        assert end["reason"] == wire.FINISH["STOP_TOKEN"] and end["n_generated"] == len(ids)
        pages = -(-len(talk["prompt_ids"]) // 64)
        assert adopted["bytes"] == pages * 524288 + 1646592 and adopted["transport"] == "shm"
        r.take("freed", request)
    r.pools_back("p0", "d0")
    status = r.ask("d0", "status")
    assert status["incarnation"] == f"{r.workers['d0']['incarnation']:016x}", status
    stats = status["stats"]
    assert stats["handover_count"] == len(TALKS) and stats["decode_rows_max"] > 1


def test_chunked_prefill_gives_the_same_state(rig):
    """A prompt over several passes is announced chunk by chunk and gives the same text."""
    _, _, r = rig.pair(prefill=dict(max_num_batched_tokens=128))
    talk = TALKS[59]  # 1365 tokens
    request = r.prefill("p0", talk["prompt_ids"])
    done = r.take("prefilled", request, "rejected")
    progress = [m["tokens_final"] for _, n, m in r.inbox if n == "progress"]
    assert progress == list(range(128, 1365, 128))
    first = done["first"][0]["token"]
    r.adopt("d0", "p0", request, done, [first], len(talk["prompt_ids"]))
    r.take("finished", request, "rejected")
    assert [first] + r.tokens(request) == talk["greedy_ids"]
    r.pools_back("p0", "d0")


def test_hand_over_between_unequal_tensor_parallelism(rig):
    """One rank to two and two to one: the same answers."""
    for p, d, gpus in (("p1", "d2", ("cpu:0", "cpu:0,cpu:1")), ("p2", "d1", ("cpu:0,cpu:1", "cpu:0"))):
        rig.worker("prefill", p, gpus=gpus[0])
        rig.worker("decode", d, gpus=gpus[1])
        r = rig.routers[0] if rig.routers else rig.router()
        r.connected(p, d)
        for talk in (TALKS[0], TALKS[11], TALKS[59]):
            assert r.run(p, d, talk["prompt_ids"])[0] == talk["greedy_ids"]
        r.pools_back(p, d)


def test_replay_goes_on_where_it_stopped(rig):
    """Prompt and part of the answer prefilled again: the rest is the same."""
    _, _, r = rig.pair()
    prompt, answer = COUNT["prompt_ids"], COUNT["greedy_ids"]
    for cut in (1, 43, 44, 100):  # 22 + 42 = 64: a page boundary lies between
        request = r.prefill("p0", prompt + answer[:cut], n_prompt=len(prompt))
        done = r.take("prefilled", request, "rejected")
        first = done["first"][0]["token"]
        assert done["n_tokens"] == len(prompt) + cut
        r.adopt("d0", "p0", request, done, answer[:cut] + [first], len(prompt))
        end = r.take("finished", request, "rejected")
        assert answer[:cut] + [first] + r.tokens(request) == answer
        assert end["n_generated"] == len(answer)
    r.pools_back("p0", "d0")


WILD = dict(temperature=2, top_p=1, top_k=0, min_p=0, seed=5)
PAGE, SLOT = 524288, 1646592


def test_choices_of_one_prefill(rig):
    """Four choices of one prefill are what four prefills give, each with its choice; the
    full pages come to the decode worker once, the last page and the slot for each."""
    _, _, r = rig.pair()
    prompt = TALKS[59]["prompt_ids"][:300]
    def adopt(request, done, k, n, shared):
        one = dict(done, lease=done["lease"] + k)
        mine = r.request() if shared else request
        more = dict(shared=done["lease"]) if shared else {}
        r.adopt("d0", "p0", mine, one, [done["first"][k]["token"]], len(prompt), choice=n, max_tokens=20,
                stop_ids=[], **more, **WILD)
        return mine
    alone = []
    for k in range(4):
        request = r.prefill("p0", prompt, choice=k, **WILD)
        done = r.take("prefilled", request, "rejected")
        assert done["first"][0]["choice"] == k
        adopt(request, done, 0, k, False)
        assert r.take("adopted", request, "rejected")["bytes"] == 5 * PAGE + SLOT
        r.take("finished", request, "rejected")
        alone.append([done["first"][0]["token"]] + r.tokens(request))
    request = r.prefill("p0", prompt, n=4, **WILD)
    done = r.take("prefilled", request, "rejected")
    mine = [adopt(request, done, k, k, True) for k in range(4)]
    moved = [r.take("adopted", m, "rejected")["bytes"] for m in mine]
    assert sorted(moved) == 3 * [PAGE + SLOT] + [5 * PAGE + SLOT]
    for m in mine:
        r.take("finished", m, "rejected", "evicted")
    assert [[done["first"][k]["token"]] + r.tokens(m) for k, m in enumerate(mine)] == alone
    assert len({tuple(a) for a in alone}) == 4
    r.take("freed", request)  # when the last reader had ended, not before
    r.pools_back("p0", "d0")


def test_readers_end_by_themselves(rig):
    """Of four readers one adopts, one is released, two vanish with a cancel."""
    _, _, r = rig.pair()
    prompt = TALKS[0]["prompt_ids"]
    request = r.prefill("p0", prompt, n=4, **WILD)
    done = r.take("prefilled", request, "rejected")
    one = dict(done, lease=done["lease"] + 2)
    mine = r.request()
    r.adopt("d0", "p0", mine, one, [done["first"][2]["token"]], len(prompt), choice=2, max_tokens=4, **WILD)
    r.take("finished", mine, "rejected")
    r.send("p0", "release", lease=done["lease"] + 1, **r.triple(request))
    r.pump(0.2)
    assert not [n for _, n, m in r.inbox if n == "freed" and m["seq"] == request[1]]
    r.send("p0", "cancel", **r.triple(request))
    r.take("freed", request)
    r.pools_back("p0", "d0")


def test_logprobs_and_penalties_between_workers(rig):
    _, _, r = rig.pair(prefill=dict(max_num_batched_tokens=128))
    talk = TALKS[59]
    prompt = talk["prompt_ids"]
    request = r.prefill("p0", prompt, prompt_logprobs=2, top_logprobs=3)
    done = r.take("prefilled", request, "rejected")
    parts = [m for _, n, m in r.inbox if n == "prompt_logprobs"]
    entries = [e for m in parts for e in m["entries"]]
    assert len(parts) == -(-len(prompt) // 128) and [m["from"] for m in parts] == list(range(1, len(prompt), 128))
    assert [e["token"] for e in entries[::3]] == prompt[1:]
    assert all(a["logprob"] >= b["logprob"] for a, b in zip(entries[1::3], entries[2::3]))
    assert len(done["tops"]) == done["first"][0]["n_tops"] == 3
    r.adopt("d0", "p0", request, done, [done["first"][0]["token"]], len(prompt), top_logprobs=3)
    r.take("finished", request, "rejected")
    tops = [t for _, n, m in r.inbox if n == "tokens" for t in m["tops"]]
    assert [t["token"] for t in tops[::3]] == r.tokens(request) == talk["greedy_ids"][1:]
    # A repetition penalty needs the prompt.
    request = r.prefill("p0", prompt, repetition=20)
    done = r.take("prefilled", request, "rejected")
    first = [done["first"][0]["token"]]
    r.adopt("d0", "p0", request, done, first, len(prompt), repetition=20)
    assert r.take("rejected", request)["reason"] == wire.REJECT["INVALID"]
    mine = r.request()
    r.adopt("d0", "p0", mine, done, first, len(prompt), repetition=20, prompt=prompt, max_tokens=40)
    r.take("finished", mine, "rejected")
    assert first + r.tokens(mine) != talk["greedy_ids"][:40]
    r.pools_back("p0", "d0")


def test_a_penalised_answer_is_the_same_after_a_replay(rig):
    """The counts of a replay are those that the first worker had."""
    _, _, r = rig.pair()
    prompt = COUNT["prompt_ids"]
    how = dict(presence=0.7, frequency=0.3, repetition=1.2, bias=[(77, 2.5)], min_tokens=30, bans=[EOS],
               temperature=1, top_p=1, top_k=0, min_p=0, seed=3)
    def run(generated):
        request = r.prefill("p0", prompt + generated, n_prompt=len(prompt), **how)
        done = r.take("prefilled", request, "rejected")
        ids = generated + [done["first"][0]["token"]]
        r.adopt("d0", "p0", request, done, ids, len(prompt), prompt=prompt, max_tokens=60, **how)
        r.take("finished", request, "rejected")
        return ids + r.tokens(request)
    whole = run([])
    assert len(whole) >= 30 and EOS not in whole[:30]
    for cut in (1, 20, 45):
        assert run(whole[:min(cut, len(whole) - 2)]) == whole
    r.pools_back("p0", "d0")


PREFILL_PHASES = ["queued", "prefill", "prefilled", None]
DECODE_PHASES = ["adopt", "claim", "pull", "adopted", "decode", None]


@pytest.mark.parametrize("phase", PREFILL_PHASES)
def test_cancel_in_each_phase_of_prefill(rig, phase):
    p = rig.worker("prefill", "p0", **({"debug_fault": f"pause@{phase}"} if phase else {}))
    r = rig.router()
    r.connected("p0")
    request = r.prefill("p0", COUNT["prompt_ids"])
    if phase:
        r.until(lambda: r.ask("p0", "status")["stats"]["fault_hits"] == 1, phase)
    else:
        r.take("prefilled", request)
    r.send("p0", "cancel", **r.triple(request))
    if phase:
        assert r.take("finished", request)["reason"] == wire.FINISH["CANCELLED"]
    r.take("freed", request, seconds=1)
    r.pools_back("p0")
    r.send("p0", "cancel", **r.triple(request))  # a second one finds nothing
    r.take("freed", request, seconds=1)
    r.prefill("p0", COUNT["prompt_ids"], request=request)
    assert r.take("rejected", request)["reason"] == wire.REJECT["DUPLICATE"]
    assert p.process.poll() is None


@pytest.mark.parametrize("phase", DECODE_PHASES)
def test_cancel_in_each_phase_of_decode(rig, phase):
    fault = {"debug_fault": f"pause@{phase}"} if phase else {"debug_fault": "step_delay_ms=20"}
    p, d, r = rig.pair(decode=fault)
    request = r.prefill("p0", COUNT["prompt_ids"])
    done = r.take("prefilled", request)
    r.adopt("d0", "p0", request, done, [done["first"][0]["token"]], len(COUNT["prompt_ids"]))
    if phase:
        r.until(lambda: r.ask("d0", "status")["stats"]["fault_hits"] == 1, phase)
    else:
        r.until(lambda: len(r.tokens(request)) >= 3, "tokens")
    r.send("d0", "cancel", **r.triple(request))
    assert r.take("finished", request)["reason"] == wire.FINISH["CANCELLED"]
    r.send("p0", "cancel", **r.triple(request))
    r.until(lambda: {w for w, n, m in r.inbox if n == "freed"} == {"d0", "p0"}, "freed",
            seconds=2 if phase not in ("claim", "pull") else 10)
    r.pools_back("p0", "d0")
    if phase:
        rig.go(phase)
    ids, _ = r.run("p0", "d0", TALKS[0]["prompt_ids"])
    assert ids == TALKS[0]["greedy_ids"]


def test_first_token_rules_and_stops(rig):
    """max_tokens, stop ids, stop strings and ignore_eos end an answer where they should."""
    _, _, r = rig.pair()
    prompt, answer = TALKS[0]["prompt_ids"], TALKS[0]["greedy_ids"]
    n = len(answer)

    def run(**fields):
        return r.run("p0", "d0", prompt, **fields)

    assert run(max_tokens=2) == (answer[:2], wire.FINISH["LENGTH"])
    assert run(max_tokens=n) == (answer, wire.FINISH["STOP_TOKEN"])
    assert run(max_tokens=n - 1) == (answer[:-1], wire.FINISH["LENGTH"])
    assert run(stop_ids=[answer[4], EOS]) == (answer[:5], wire.FINISH["STOP_TOKEN"])
    text = TALKS[0]["greedy_text"]
    assert "topaz br" in text
    stop = b"".join(len(s).to_bytes(2, "little") + s for s in (b"never", b"topaz br"))
    ids, why = run(stop_strings=stop)
    assert why == wire.FINISH["STOP_STRING"] and ids == answer[:len(ids)] and len(ids) < n
    ids, why = run(ignore_eos=1, max_tokens=n + 5)
    assert why == wire.FINISH["LENGTH"] and len(ids) == n + 5 and ids[:n] == answer
    r.pools_back("p0", "d0")


def test_nothing_is_kept(rig):
    """Request memory, pages and slots after many requests are those after a few."""
    _, _, r = rig.pair()
    held = []
    for _ in range(3):
        for talk in TALKS[:4]:
            r.run("p0", "d0", talk["prompt_ids"])
        r.pools_back("p0", "d0")
        held.append([r.ask(w, "pools")["request_bytes"] for w in ("p0", "d0")])
    assert held[1] == held[2]


def test_an_answer_that_ended_already_is_not_pulled(rig):
    _, _, r = rig.pair()
    prompt = TALKS[0]["prompt_ids"]
    for fields in (dict(max_tokens=1), dict(stop_ids=[TALKS[0]["greedy_ids"][0]])):
        request = r.prefill("p0", prompt)
        done = r.take("prefilled", request)
        r.adopt("d0", "p0", request, done, [done["first"][0]["token"]], len(prompt), **fields)
        assert r.take("finished", request)["n_generated"] == 1
        r.take("freed", request)
        r.send("p0", "release", lease=done["lease"], **r.triple(request))
        r.take("freed", request)
    r.pools_back("p0", "d0")
    assert r.ask("d0", "status")["stats"]["handover_count"] == 0


def test_the_end_of_the_sequence_length(rig):
    """prompt + answer never exceed max_model_len; a longer prompt is refused by name."""
    _, _, r = rig.pair(prefill=dict(max_model_len=64), decode=dict(max_model_len=64))
    prompt = COUNT["prompt_ids"]
    ids, why = r.run("p0", "d0", prompt)
    assert why == wire.FINISH["LENGTH"] and ids == COUNT["greedy_ids"][:64 - len(prompt)]
    request = r.prefill("p0", prompt * 3)
    bad = r.take("rejected", request)
    assert bad["reason"] == wire.REJECT["TOO_LONG"] and bad["later"] == 0 and "64" in bad["text"]
    request = r.prefill("p0", (prompt * 3)[:64])
    r.take("prefilled", request)
    r.send("p0", "cancel", **r.triple(request))
    r.pools_back("p0", "d0")


def test_what_is_wrong_is_refused_with_a_sentence(rig):
    _, _, r = rig.pair()
    ids = TALKS[0]["prompt_ids"]
    bad = [dict(ids=[]), dict(ids=ids + [10**6]), dict(n_prompt=len(ids) + 1), dict(n=0), dict(repetition=-1),
           dict(temperature=-1), dict(top_p=0), dict(min_p=-0.5)]
    for fields in bad:
        request = r.prefill("p0", **dict(dict(ids=ids, n_prompt=len(ids)), **fields))
        answer = r.take("rejected", request, "prefilled")
        assert answer["reason"] == wire.REJECT["INVALID"] and answer["later"] == 0
        assert answer["text"]
    good = r.prefill("p0", ids)
    done = r.take("prefilled", good)
    first = done["first"][0]["token"]
    for fields in [dict(generated=[]), dict(n_tokens=len(ids) + 1), dict(pages=[1, 2]),
                   dict(slot=0), dict(generated=[10**6]), dict(n_prompt=0), dict(top_p=-0.5),
                   dict(source_id=""), dict(stop_strings=b"\x05\x00ab"),
                   dict(stop_strings=b"\x00\x00")]:
        request = r.request()
        values = dict(dict(generated=[first], n_prompt=len(ids)), **fields)
        r.adopt("d0", "p0", request, done, values.pop("generated"), values.pop("n_prompt"), **values)
        answer = r.take("rejected", request, "adopted")
        assert answer["reason"] == wire.REJECT["INVALID"] and answer["later"] == 0, fields
    early = r.request()
    r.adopt("d0", "p0", early, done, [first], len(ids), final=0)
    answer = r.take("rejected", early)
    assert answer["reason"] == wire.REJECT["SOURCE"] and answer["later"] == 1
    wrong = r.request()  # a lease that does not exist
    r.adopt("d0", "p0", wrong, dict(done, lease=done["lease"] + 1000), [first], len(ids))
    answer = r.take("rejected", wrong)
    assert answer["reason"] == wire.REJECT["LEASE"] and answer["later"] == 1
    r.adopt("d0", "p0", wrong, done, [first], len(ids))  # the same attempt, offered again
    r.take("finished", wrong, "rejected")
    assert [first] + r.tokens(wrong) == TALKS[0]["greedy_ids"]
    r.pools_back("p0", "d0")


def test_malformed_bytes_change_nothing(rig):
    """Random, cut and mutated frames on the bus: counted, and the next request works."""
    _, _, r = rig.pair()
    rng = random.Random(7)
    good = wire.encode("prefill", **dict(
        temperature=0, top_p=1, top_k=0, min_p=0, seed=1, ids=TALKS[0]["prompt_ids"],
        n_prompt=19, n=1, router=r.incarnation + 1, seq=1, attempt=0))
    frames = [bytes([t]) + rng.randbytes(rng.randrange(200)) for t in range(1, 60) for _ in range(20)]
    frames += [good[:i] for i in range(1, len(good), 3)]
    for _ in range(500):
        b = bytearray(good)
        b[rng.randrange(1, len(b))] = rng.randrange(256)
        frames.append(bytes(b))
    frames = [f for f in frames if f[0] not in (2, 24)]  # refused and drain do what they say
    for w in ("p0", "d0"):
        for f in frames:
            r.send_raw(w, f)
        r.pump(0.05)
    for w in ("p0", "d0"):
        assert r.ask(w, "status")["stats"]["malformed"] > 1000
    ids, _ = r.run("p0", "d0", TALKS[0]["prompt_ids"])
    assert ids == TALKS[0]["greedy_ids"]
    r.pools_back("p0", "d0")
