"""More ranks than KV heads, and numbers of ranks that a model does not allow."""
import itertools
import json
import math
import pathlib
import subprocess

import pytest
import stfile

GOLDEN = pathlib.Path(__file__).resolve().parent
TOLERANCE = 1e-4
DEVICES = {n: ",".join(f"cpu:{i}" for i in range(n)) for n in (1, 2, 3, 4, 5, 6, 8)}


def derived(tmp_path, model, **fields):
    """config.json of a small model with other sizes."""
    config = json.loads((GOLDEN / model / "config.json").read_text())
    config.get("text_config", config).update(fields)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return path


@pytest.fixture
def logits(build, tmp_path):
    """baton-logits with dummy weights: its logits, or its message with fails=True."""
    def run(config, *flags, fails=False, weights="bf16"):
        ids = [(5 * i * i + i + 3) % 384 for i in range(75)]
        stfile.write(tmp_path / "in.safetensors", {"case.0.ids": stfile.ids(ids)})
        done = subprocess.run(
            [build / "bin" / "baton-logits", "--load-format=dummy", f"--model-config={config}",
             f"--in={tmp_path}/in.safetensors", f"--out={tmp_path}/out.safetensors",
             f"--dummy-format={weights}", *flags], capture_output=True, text=True, timeout=60)
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else stfile.read(tmp_path / "out.safetensors")["case.0.logits"][2]
    return run


def agree(a, b):
    assert len(a) == len(b)
    error = math.dist(a, b) / math.dist(b, [0] * len(b))
    assert error <= TOLERANCE, f"relative error {error:.3g}"


FOUR = dict(num_attention_heads=8, linear_num_key_heads=4, linear_num_value_heads=8,
            moe_intermediate_size=64)
# ranks per KV head: 2, 2, 4
REPLICATED = [("tiny-moe", 2, dict(num_key_value_heads=1)),
              ("tiny-moe", 4, dict(FOUR, num_key_value_heads=2)),
              ("tiny-next", 4, dict(FOUR, num_key_value_heads=1)),
              ("tiny-dense", 8, dict(linear_num_key_heads=8, linear_num_value_heads=16,
                                     num_attention_heads=16, num_key_value_heads=2))]


@pytest.mark.parametrize("model, ranks, fields", REPLICATED)
def test_kv_heads_shared_by_ranks_give_the_same_logits(model, ranks, fields, tmp_path, logits):
    config = derived(tmp_path, model, **fields)
    agree(logits(config, f"--gpus={DEVICES[ranks]}"), logits(config))


EIGHT = dict(num_attention_heads=8, linear_num_key_heads=8, linear_num_value_heads=8,
             moe_intermediate_size=128, shared_expert_intermediate_size=64, num_key_value_heads=2)


@pytest.mark.parametrize("sides", list(itertools.product((1, 2, 4, 8), repeat=2)))
def test_a_hand_over_between_any_two_numbers_of_ranks(sides, tmp_path, logits):
    config = derived(tmp_path, "tiny-moe", **EIGHT)
    moved = logits(config, "--decode=4", f"--gpus={DEVICES[sides[0]]}",
                   f"--gpus-decode={DEVICES[sides[1]]}")
    agree(moved, logits(config))


@pytest.mark.parametrize("weights", ["bf16", "nvfp4", "released"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_experts_shared_by_expert_give_the_same_logits(ranks, weights, tmp_path, logits):
    """Of a width that no number of ranks divides."""
    config = derived(tmp_path, "tiny-moe", **dict(EIGHT, moe_intermediate_size=48, num_experts=16, shared_expert_intermediate_size=128))
    flags = [f"--gpus={DEVICES[ranks]}", "--expert-parallel"]
    agree(logits(config, *flags, weights=weights), logits(config, weights=weights))


def test_experts_that_the_ranks_do_not_divide_are_refused_by_name(tmp_path, logits):
    config = derived(tmp_path, "tiny-moe", **dict(EIGHT, num_experts=12))
    assert "8 ranks do not divide the model's 12 experts; these numbers of ranks do: 1, 2, 4" in logits(
        config, f"--gpus={DEVICES[8]}", "--expert-parallel", fails=True)


def test_a_model_without_experts_has_none_to_share(tmp_path, logits):
    config = derived(tmp_path, "tiny-dense")
    assert "expert_parallel: the model has no experts" in logits(
        config, f"--gpus={DEVICES[2]}", "--expert-parallel", fails=True)


# model, fields, ranks, what the sentence says
REFUSED = [
    ("tiny-moe", {}, 3, "3 ranks do not divide the model's 4 query heads; these numbers of ranks do: 1, 2"),
    ("tiny-moe", {}, 4, "4 ranks do not divide the model's 2 GDN key heads"),
    ("tiny-dense", {}, 4, "4 ranks do not divide the model's 2 GDN key heads"),
    ("tiny-dense", dict(num_key_value_heads=8, linear_num_key_heads=6), 4, "6 GDN key heads; these numbers of ranks do: 1, 2"),
    ("tiny-moe", dict(FOUR, num_key_value_heads=8, moe_intermediate_size=66), 4, "66 columns of an expert"),
    ("tiny-moe", dict(FOUR, vocab_size=386), 4, "386 rows of the vocabulary; these numbers of ranks do: 1, 2"),
    ("tiny-moe", dict(FOUR, shared_expert_intermediate_size=50), 4, "50 columns of the shared expert"),
    ("tiny-dense", dict(linear_num_key_heads=4, linear_num_value_heads=8, intermediate_size=162), 4,
     "162 columns of the MLP"),
    ("tiny-dense", dict(num_attention_heads=15, num_key_value_heads=3, linear_num_key_heads=5,
                        linear_num_value_heads=5), 5, "3 KV heads neither divide nor are divided by 5 ranks; these numbers of ranks do: 1"),
    ("tiny-dense", dict(num_attention_heads=12, num_key_value_heads=4, linear_num_key_heads=3,
                        linear_num_value_heads=6), 3, "3 ranks do not divide the model's 4 KV heads"),
]


@pytest.mark.parametrize("model, fields, ranks, text", REFUSED)
def test_ranks_that_do_not_divide_are_refused_by_name(model, fields, ranks, text, tmp_path, logits):
    config = derived(tmp_path, model, **fields)
    assert text in logits(config, f"--gpus={DEVICES[ranks]}", fails=True)
