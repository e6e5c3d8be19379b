"""Models without their files: memory plans of the published configurations against sizes
worked out here, and dummy weights that run."""
import concurrent.futures
import json
import math
import pathlib
import re
import resource
import subprocess

import pytest
import stfile

GOLDEN = pathlib.Path(__file__).resolve().parent
CONFIGS = sorted(p for p in (GOLDEN / "configs").glob("*_config.json") if "quant" not in p.name)
ONE, EIGHT = "cpu:0", ",".join(f"cpu:{i}" for i in range(8))
ALLOWED = 1_200_000_000_000
LITTLE = 1 << 30  # bytes of address space
PAGE, SEQS = 64, 32
# Every configuration as released, one of each size also in BF16 and on eight ranks.
CASES = [(p.name, "nvfp4", ONE) for p in CONFIGS]
CASES += [(p.name, *how) for p in CONFIGS if p.name.startswith("Qwen--")
          for how in (("bf16", ONE), ("nvfp4", EIGHT))]


def sizes(config):
    """(narrow weights: routed experts or MLPs; other weights of matrices; vectors; bytes
    of a page and of a slot) by the published shapes."""
    c = config.get("text_config", config)
    h, d, n_q, n_kv = (c[k] for k in ("hidden_size", "head_dim", "num_attention_heads",
                                      "num_key_value_heads"))
    n_k, n_v = c["linear_num_key_heads"], c["linear_num_value_heads"]
    dk, dv, taps = (c[k] for k in ("linear_key_head_dim", "linear_value_head_dim",
                                   "linear_conv_kernel_dim"))
    kd, vd = n_k * dk, n_v * dv
    attn = sum(t == "full_attention" for t in c["layer_types"])
    gdn = len(c["layer_types"]) - attn
    narrow, vectors = 0, h + gdn * ((2 * kd + vd) * taps + 2 * n_v + dv) + attn * 2 * d
    wide = c["vocab_size"] * h * (1 if config.get("tie_word_embeddings") else 2)
    wide += attn * (2 * n_q * d * h + 2 * n_kv * d * h + n_q * d * h)
    wide += gdn * (h * (2 * kd + vd) + h * vd + 2 * h * n_v + vd * h)
    for _ in c["layer_types"]:
        vectors += 2 * h
        if c.get("num_experts"):
            narrow += 3 * c["num_experts"] * c["moe_intermediate_size"] * h
            wide += c["num_experts"] * h + 3 * c["shared_expert_intermediate_size"] * h + h
        else:
            narrow += 3 * c["intermediate_size"] * h
    slot = gdn * (n_v * dk * dv * 4 + (2 * kd + vd) * (taps - 1) * 2)
    return narrow, wide, vectors, attn * 2 * n_kv * d * 2 * PAGE, slot, n_kv


def little_memory():
    resource.setrlimit(resource.RLIMIT_AS, (LITTLE, LITTLE))


def plan(build, config, weights, gpus):
    """The plan is made by a process that could hold nothing of what it speaks of."""
    return subprocess.run(
        [build / "bin" / "baton-prefill", "--id=p0", "--plan", "--load-format=dummy",
         f"--model-config={GOLDEN / 'configs' / config}", f"--dummy-format={weights}",
         f"--gpus={gpus}", f"--memory-bytes={ALLOWED}", f"--max-num-seqs={SEQS}",
         "--kv-dtype=bf16", "--state-dtype=bf16"], capture_output=True, text=True, timeout=120,
        preexec_fn=little_memory)


@pytest.fixture(scope="module")
def plans(build):
    """All plans, two at a time: {case: finished process}."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return dict(zip(CASES, pool.map(lambda case: plan(build, *case), CASES)))


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0].split('_')[0]}-{c[1]}-{c[2].count(',') + 1}")
def test_the_plan_of_a_published_model(case, plans):
    config, weights, gpus = case
    done, ranks = plans[case], gpus.count(",") + 1
    assert done.returncode == 0, done.stderr
    part = {m[1]: int(m[2]) for m in re.finditer(r"^  (\w+) +(\d+) bytes", done.stdout, re.M)}
    count = {m[1]: (int(m[2]), int(m[3])) for m in
             re.finditer(r"^  (\w+) +\d+ bytes: (\d+) of (\d+)$", done.stdout, re.M)}
    narrow, wide, vectors, page, slot, n_kv = sizes(json.loads((GOLDEN / "configs" / config).read_text()))
    if ranks == 1:
        bits = 16 if weights == "bf16" else 4.5
        want = narrow * bits / 8 + wide * 2 + vectors * 4
        # Parts start at multiples of 256 bytes; each expert has a global scale.
        assert want <= part["weights"] <= want * 1.0005
    assert count["pages"][1] == page // min(ranks, n_kv)
    assert count["slots"] == (SEQS + 1, math.ceil(slot / ranks / 256) * 256)
    for kind in ("pages", "slots"):
        assert part[kind] == math.prod(count[kind])
    assert part["workspace"] > 0 and part["pinned"] > 0
    total = part["weights"] + part["workspace"] + part["pages"] + part["slots"]
    assert total <= part["total"] < total + (1 << 20) and part["total"] <= ALLOWED
    assert part["weights"] > 2 * LITTLE
    tokens, requests, each = map(int, re.search(
        r"^(\d+) tokens, at most (\d+) requests of (\d+) tokens$", done.stdout, re.M).groups())
    assert tokens == (count["pages"][0] - 1) * PAGE and each == 262144
    assert requests == min(SEQS, tokens // each) > 0


BIG, CARD = "nvidia--Qwen3.5-397B-A17B-NVFP4_config.json", 92_000_000_000


def plan_of_gpus(build, gpus, *flags):
    return subprocess.run(
        [build / "bin" / "baton-decode", "--plan", "--load-format=dummy",
         f"--model-config={GOLDEN / 'configs' / BIG}", f"--gpus={gpus}", *flags],
        capture_output=True, text=True, timeout=60, preexec_fn=little_memory)


@pytest.mark.parametrize("ranks", [4, 8])
def test_the_plan_of_gpus_that_are_not_here(ranks, build):
    gpus = ",".join(str(900 + i) for i in range(ranks))
    done = plan_of_gpus(build, gpus, f"--memory-bytes={CARD}")
    assert done.returncode == 0, done.stderr
    part = {m[1]: int(m[2]) for m in re.finditer(r"^  (\w+) +(\d+) bytes", done.stdout, re.M)}
    narrow, wide, _, page, slot, n_kv = sizes(json.loads((GOLDEN / "configs" / BIG).read_text()))
    assert part["weights"] > (narrow * 4.5 / 8 + wide * 2) / ranks
    assert f" of {page // n_kv}\n" in done.stdout and f" of {math.ceil(slot / ranks / 256) * 256}\n" in done.stdout
    assert part["total"] <= CARD < part["total"] + page
    pages = int(re.search(r"^  pages +\d+ bytes: (\d+) of", done.stdout, re.M)[1])
    fit = re.search(r"at most (\d+) requests of 262144 tokens$", done.stdout, re.M)
    assert int(fit[1]) == (pages - 1) * PAGE // 262144 > 0
    assert f"of {ranks} GPUs not here, as memory_bytes says: no kernel was run" in done.stdout
    assert f"this version does not serve a model on {ranks} GPUs" in done.stdout


def test_a_plan_of_gpus_that_are_not_here_wants_their_memory(build):
    done = plan_of_gpus(build, "900,901,902,903")
    assert done.returncode == 2
    assert "they are not here, so memory_bytes must say what a rank may use" in done.stderr


def test_a_plan_of_gpus_says_which_numbers_of_ranks_the_model_allows(build):
    done = plan_of_gpus(build, "900,901,902", f"--memory-bytes={CARD}")
    assert done.returncode in (2, 3)
    assert "3 ranks do not divide the model's 32 query heads; these numbers of ranks do: 1, 2, 4, 8" in done.stderr


def test_a_plan_that_does_not_fit_says_by_how_much(build):
    done = subprocess.run(
        [build / "bin" / "baton-prefill", "--id=p0", "--plan", "--load-format=dummy",
         f"--model-config={GOLDEN / 'tiny-moe/config.json'}", "--memory-bytes=1000000"],
        capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert re.search(r"weights \d+, workspace \d+, .* do not fit in 1000000 bytes", done.stderr)


@pytest.fixture
def logits(build, tmp_path):
    def run(config, *flags, n=90):
        ids = [(7 * i * i + 3 * i + 1) % 384 for i in range(n)]
        stfile.write(tmp_path / "in.safetensors", {"case.0.ids": stfile.ids(ids)})
        done = subprocess.run(
            [build / "bin" / "baton-logits", "--load-format=dummy", f"--model-config={config}",
             f"--in={tmp_path}/in.safetensors", f"--out={tmp_path}/out.safetensors", *flags],
            capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return stfile.read(tmp_path / "out.safetensors")["case.0.logits"][2]
    return run


@pytest.mark.parametrize("weights", ["bf16", "nvfp4"])
@pytest.mark.parametrize("model", ["tiny-moe", "tiny-dense", "tiny-next"])
def test_dummy_weights_run_and_stay_in_range(model, weights, logits):
    config = GOLDEN / model / "config.json"
    whole = logits(config, f"--dummy-format={weights}")
    assert all(map(math.isfinite, whole))
    spread = math.sqrt(sum(x * x for x in whole) / len(whole))
    assert 0.3 < spread < 3
    # The clock chooses among right kernels, whose last bits differ.
    again = logits(config, f"--dummy-format={weights}")
    assert math.dist(again, whole) < 1e-4 * math.dist(whole, [0] * len(whole)), "another process, another model"
    ranks = logits(config, f"--dummy-format={weights}", "--gpus=cpu:0,cpu:1", "--decode=5")
    assert math.dist(ranks, whole) < 1e-4 * math.dist(whole, [0] * len(whole))


def test_the_two_formats_are_two_models(logits):
    config = GOLDEN / "tiny-moe/config.json"
    a, b = (logits(config, f"--dummy-format={w}") for w in ("bf16", "nvfp4"))
    assert math.dist(a, b) > 0.1 * math.dist(a, [0] * len(a))
