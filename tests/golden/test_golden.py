"""Numerics: baton-logits against outputs of the reference implementation, whatever the
chunks, the hand-over or the number of ranks. Errors are relative, ||a - b|| / ||b||."""
import json
import math
import pathlib
import random
import shutil
import subprocess
import sys

import pytest
import stfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = pathlib.Path(__file__).resolve().parent
DEMO = ROOT / "deploy" / "demo-model"
# FP32 in another order of summation is within 1e-5; a wrong constant is not within 1e-3.
TOLERANCE = 1e-4
CHUNKS = [1, 2, 3, 63, 64, 65, 128, 512]
TINY = ["tiny-moe", "tiny-dense", "tiny-next"]
# Logits of each case, hidden states of each layer and the final ones, two per GDN layer.
TENSORS = {"tiny-moe": 22, "tiny-dense": 22, "tiny-next": 22, "demo": 25}


def model_of(name):
    return DEMO if name == "demo" else GOLDEN / name


def golden_path(name):
    return GOLDEN / ("demo_golden.safetensors" if name == "demo" else f"{name}/golden.safetensors")


@pytest.fixture(scope="module")
def golden():
    return {name: stfile.read(golden_path(name)) for name in TINY + ["demo"]}


@pytest.fixture
def logits(build, tmp_path):
    """Runs baton-logits on a file or on tensors; gives the tensors it wrote, and its text."""
    def run(model, given, *flags, fails=False, out="out.safetensors"):
        if isinstance(given, dict):
            stfile.write(tmp_path / "in.safetensors", given)
            given = tmp_path / "in.safetensors"
        done = subprocess.run(
            [build / "bin" / "baton-logits", "--model", model, "--in", given, "--out",
             tmp_path / out, *map(str, flags)], capture_output=True, text=True, timeout=60)
        assert (done.returncode != 0) == fails, done.stderr
        run.text = done.stdout + done.stderr
        return None if fails else stfile.read(tmp_path / out)
    return run


def error(got, want):
    assert len(got) == len(want)
    return math.dist(got, want) / math.dist(want, [0.0] * len(want))


def check(name, got, want):
    e = error(got, want)
    assert e <= TOLERANCE, f"{name}: relative error {e:.3g}"


def rows(tensor, first, n):
    width = tensor[1][1]
    return tensor[2][first * width:(first + n) * width]


def check_all(got, want):
    """Every tensor of the golden file that the tool can write; how many there were."""
    n = 0
    for name, (dtype, shape, values) in want.items():
        if name.endswith(".logits"):
            total = got[name][1][0]
            check(name, rows(got[name], total - shape[0], shape[0]), values)
        elif name.startswith("deep.") and dtype == "F32":
            assert got[name][1] == shape, name
            check(name, got[name][2], values)
        else:
            continue
        n += 1
    return n


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("name", TINY + ["demo"])
def test_every_tensor_whatever_the_chunks(name, chunk, logits, golden):
    got = logits(model_of(name), golden_path(name), "--deep", "--chunk", chunk)
    assert check_all(got, golden[name]) == TENSORS[name]
    tokens = len(golden[name]["deep.ids"][2])
    sizes = [min(chunk, tokens - at) for at in range(0, tokens, chunk)]
    assert "deep chunks: " + " ".join(map(str, sizes)) in logits.text.splitlines()


def with_answers(want):
    """Prompt and greedy answer as one case: its last rows are the step logits."""
    given = {}
    while f"case.{len(given)}.ids" in want:
        i = len(given)
        prompt, answer = (want[f"case.{i}.{kind}"][2] for kind in ("ids", "greedy"))
        given[f"case.{i}.ids"] = stfile.ids([*prompt, *answer[:-1]])
    return given


def check_steps(got, want):
    for name, (_, shape, values) in want.items():
        if name.endswith("step_logits"):
            tensor = got[name.replace("step_", "")]
            check(name, rows(tensor, tensor[1][0] - shape[0], shape[0]), values)


@pytest.mark.parametrize("decode", [0, 1, 2, 3, "G"])
@pytest.mark.parametrize("name", TINY + ["demo"])
def test_greedy_answers_by_prefill_and_by_steps(name, decode, logits, golden):
    want = golden[name]
    if decode == "G":
        decode = len(want["case.0.greedy"][2])
    check_steps(logits(model_of(name), with_answers(want), "--decode", decode), want)
    assert ("handed over" in logits.text) == (decode > 0)


def test_nvfp4_equals_bf16_bit_for_bit(logits, tmp_path):
    bf16 = tmp_path / "bf16"
    subprocess.run([sys.executable, GOLDEN / "make_bf16_demo.py", DEMO, bf16], check=True,
                   timeout=60)
    a = logits(DEMO, golden_path("demo"), "--deep")
    b = logits(bf16, golden_path("demo"), "--deep")
    assert a == b and len(a) == TENSORS["demo"]


def model_line(text):
    return [line for line in text.splitlines() if line.startswith("model ")]


CHANGED = ["language_model.norm.weight", "embed_tokens.weight", "layers.0.linear_attn.in_proj_qkv.weight",
           "layers.0.linear_attn.A_log", "layers.1.mlp.experts.down_proj", "layers.3.self_attn.k_proj.weight"]


def test_a_model_is_known_by_its_weights(logits, tmp_path):
    """What a hand-over compares: the same tensors in other files agree; other formats of them, and
    one bit in any tensor, do not."""
    given, seen = {"case.0.ids": stfile.ids([1])}, {}
    subprocess.run([sys.executable, GOLDEN / "make_bf16_demo.py", DEMO, tmp_path / "bf16"],
                   check=True, timeout=60)
    weights = stfile.read(GOLDEN / "tiny-moe" / "model.safetensors")
    for name in CHANGED:
        shutil.copytree(GOLDEN / "tiny-moe", tmp_path / name)
        tensor = next(v for k, v in weights.items() if k.endswith(name))
        before = bytes(tensor[2])
        as_bytes = memoryview(tensor[2]).cast("B")
        as_bytes[len(as_bytes) // 3] ^= 1
        stfile.write(tmp_path / name / "model.safetensors", weights)
        as_bytes[:] = before
    shards = tmp_path / "shards"
    shutil.copytree(GOLDEN / "tiny-moe", shards)
    (shards / "model.safetensors").unlink()
    names = sorted(weights)
    parts = {"b.safetensors": names[::2], "a.safetensors": names[1::2]}
    for file, part in parts.items():
        stfile.write(shards / file, {name: weights[name] for name in part})
    (shards / "model.safetensors.index.json").write_text(json.dumps(
        {"weight_map": {name: file for file, part in parts.items() for name in part}}))
    for model in (DEMO, tmp_path / "bf16", GOLDEN / "tiny-moe", *(tmp_path / name for name in CHANGED), shards):
        logits(model, given)
        seen[model], = model_line(logits.text)
    assert seen[shards] == seen[GOLDEN / "tiny-moe"]
    assert len(set(seen.values())) == len(seen) - 1


def random_ids(n, below):
    return stfile.ids([random.Random(n).randrange(below) for _ in range(n)])


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 128, 129, 1365])
def test_a_hand_over_of_any_length_changes_nothing(tokens, logits):
    steps = 3
    given = {"case.0.ids": random_ids(tokens + steps, 2000)}
    whole = logits(DEMO, given)["case.0.logits"]
    moved = logits(DEMO, given, "--decode", steps)["case.0.logits"]
    check("moved", rows(moved, tokens, steps), rows(whole, tokens, steps))
    assert f"handed over: {tokens} tokens" in logits.text


@pytest.mark.parametrize("flip", ["slot", "page:0", "page:1"])
def test_a_damaged_hand_over_is_seen(flip, logits):
    """The test of the tests above: one byte of the state, and they would fail."""
    given = {"case.0.ids": random_ids(70, 384)}
    good = rows(logits(GOLDEN / "tiny-moe", given, "--decode", 2)["case.0.logits"], 68, 2)
    bad = rows(logits(GOLDEN / "tiny-moe", given, "--decode", 2, "--flip", flip)
               ["case.0.logits"], 68, 2)
    assert not error(bad, good) <= TOLERANCE


@pytest.mark.parametrize("chunk", [3, 64, 512])
@pytest.mark.parametrize("name", TINY + ["demo"])
def test_two_ranks(name, chunk, logits, golden):
    got = logits(model_of(name), golden_path(name), "--deep", "--chunk", chunk, "--gpus",
                 "cpu:0,cpu:1")
    assert check_all(got, golden[name]) == TENSORS[name]


@pytest.mark.parametrize("name", ["tiny-moe", "tiny-next"])
def test_two_ranks_with_some_of_the_experts_each(name, logits, golden):
    got = logits(model_of(name), golden_path(name), "--deep", "--gpus", "cpu:0,cpu:1", "--expert-parallel")
    assert check_all(got, golden[name]) == TENSORS[name]


@pytest.mark.parametrize("ranks", [(1, 2), (2, 1), (2, 2)])
@pytest.mark.parametrize("name", TINY + ["demo"])
def test_hand_over_between_other_numbers_of_ranks(name, ranks, logits, golden):
    devices = ["", "cpu:0", "cpu:0,cpu:1"]
    got = logits(model_of(name), with_answers(golden[name]), "--decode", 3, "--gpus",
                 devices[ranks[0]], "--gpus-decode", devices[ranks[1]])
    check_steps(got, golden[name])


def conversations():
    with open(GOLDEN / "demo_conversations.jsonl", encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def test_the_demo_answers_its_conversations(logits):
    """At every position of an answer the largest logit is the token that the reference
    gave, where the reference was sure."""
    sure = [c for c in conversations() if c["min_margin"] > 0.05]
    sure.sort(key=lambda c: -len(c["greedy_ids"]))
    chosen = sure[:3] + sure[-3:]
    given = {f"case.{i}.ids": stfile.ids(c["prompt_ids"] + c["greedy_ids"][:-1])
             for i, c in enumerate(chosen)}
    got = logits(DEMO, given, "--chunk", 100)
    for i, c in enumerate(chosen):
        first = len(c["prompt_ids"]) - 1
        for k, token in enumerate(c["greedy_ids"]):
            row = rows(got[f"case.{i}.logits"], first + k, 1)[:2032]
            assert row.index(max(row)) == token, (i, k)


def test_expert_ids_can_be_dumped_and_forced(logits, tmp_path):
    given = {"case.0.ids": random_ids(70, 384)}
    route = tmp_path / "route.safetensors"
    free = logits(GOLDEN / "tiny-moe", given, "--chunk", 30, "--dump-route", route)
    ids = stfile.read(route)["case.0.route"]
    assert ids[1] == [4, 70, 3] and all(0 <= e < 16 for e in ids[2])
    assert logits(GOLDEN / "tiny-moe", given, "--route", route, "--chunk", 64) == free
    for i in range(0, len(ids[2]), 3):
        ids[2][i:i + 3] = type(ids[2])("i", [0, 1, 2])
    stfile.write(route, {"case.0.route": ids})
    other = logits(GOLDEN / "tiny-moe", given, "--route", route)
    assert error(other["case.0.logits"][2], free["case.0.logits"][2]) > TOLERANCE


REFUSED = [
    ({"case.0.ids": stfile.ids([1, 384])}, [], "not all below 384"),
    ({"case.0.ids": stfile.ids([1, -2])}, [], "id 1 is negative"),
    ({"case.0.ids": ("F32", [1], stfile.floats([1.0]))}, [], "not a 1-d tensor of I32"),
    ({"case.0.ids": stfile.ids([1, 2])}, ["--deep"], "no deep.ids"),
    ({"case.0.ids": stfile.ids([1, 2])}, ["--decode", "1", "--flip", "page:7"], "I below 1"),
    ({"case.0.ids": stfile.ids([1, 2])}, ["--gpus", "cpu:0,cpu:1,cpu:2"], "3"),
    ({"case.0.ids": stfile.ids([1, 2])}, ["--gpus", "cpu:0,,"], "a device of 0 bytes"),
    ({"case.0.ids": stfile.ids([1, 2])}, ["--backend", "tpu"], "backend 'tpu'"),
    ({"case.0.ids": stfile.ids([1, 2])}, ["--backend", "cuda", "--gpus", "cpu:0"], "devices 'cpu:0'"),
]


@pytest.mark.parametrize("given, flags, text", REFUSED)
def test_what_cannot_be_done_is_refused_with_its_reason(given, flags, text, logits):
    logits(GOLDEN / "tiny-moe", given, *flags, fails=True)
    assert text in logits.text
