"""Workers of several ranks: what they refuse and how they exit, how often they reduce,
and workers with dummy weights."""
import json

import pytest

import wire
from worker_rig import ROOT, conversations

DEMO = ROOT / "deploy/demo-model"
LAYERS = json.loads((DEMO / "config.json").read_text())["text_config"]["num_hidden_layers"]
TALK = conversations()[16]
PAIR = dict(gpus="cpu:0,cpu:1")


def refused(rig, role, code, text, **flags):
    w = rig.worker(role, f"{role[0]}9", wait=False, **flags)
    assert w.exit_code() == code, w.log()
    errors = [line for line in w.log().splitlines() if " error " in line]
    assert len(errors) == 1 and text in errors[0], w.log()


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize("ranks, text", [
    (3, "3 ranks do not divide the model's"), (5, "5 ranks do not divide the model's"),
    (8, "8 ranks do not divide the model's")])
def test_ranks_that_do_not_divide_the_model_exit_with_3(role, ranks, text, rig):
    refused(rig, role, 3, text, gpus=",".join(f"cpu:{i}" for i in range(ranks)))


def test_more_ranks_than_there_can_be_exit_with_2(rig):
    refused(rig, "prefill", 2, "1 to 8", gpus=",".join(f"cpu:{i}" for i in range(9)))


@pytest.mark.parametrize("field, value, text", [
    ("rope_parameters", {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e7,
                         "partial_rotary_factor": 0.25}, 'rope_parameters.rope_type "yarn"'),
    ("rope_parameters", {"rope_type": "dynamic", "rope_theta": 1e7}, 'rope_parameters.rope_type "dynamic"'),
    ("rope_scaling", {"type": "linear", "factor": 2.0}, 'rope_scaling.type "linear"'),
    ("rope_scaling", {"rope_type": "llama3", "factor": 8.0}, 'rope_scaling.rope_type "llama3"'),
    ("rope_scaling", {"rope_type": "longrope", "factor": 8.0}, 'rope_scaling.rope_type "longrope"'),
    ("architectures", ["Qwen2ForCausalLM"], 'architectures ["Qwen2ForCausalLM"]'),
    ("architectures", ["Qwen3_5VLForConditionalGeneration"], 'architectures ["Qwen3_5VL'),
    ("model_type", "llama", 'model_type "llama"'),
    ("model_type", "qwen4_exp", 'model_type "qwen4_exp"')])
def test_other_models_are_refused_by_field_and_value(field, value, text, rig, tmp_path):
    config = json.loads((DEMO / "config.json").read_text())
    (config if field in config else config["text_config"])[field] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    refused(rig, "decode", 3, text, load_format="dummy", model_config=tmp_path / "config.json")


def reduced(router, worker):
    stats = router.ask(worker, "status")["stats"]
    return stats["allreduces"], stats["prefill_steps"] + stats["decode_steps"]


def test_two_sums_over_ranks_per_layer_and_one_per_pass(rig):
    _, _, r = rig.pair(prefill=dict(PAIR, max_num_batched_tokens=64), decode=PAIR)
    assert r.run("p0", "d0", TALK["prompt_ids"] * 6)[0]
    for worker in ("p0", "d0"):
        sums, passes = reduced(r, worker)
        assert passes > 1 and sums == (2 * LAYERS + 1) * passes, (worker, sums, passes)


def test_ranks_with_some_of_the_experts_each_give_the_reference_answer(rig):
    _, _, r = rig.pair(prefill=dict(PAIR, expert_parallel="true"), decode=PAIR)
    ids, _ = r.run("p0", "d0", TALK["prompt_ids"])
    assert ids == TALK["greedy_ids"]
    r.pools_back("p0", "d0")


def test_a_lone_rank_reduces_nothing(rig):
    _, _, r = rig.pair()
    r.run("p0", "d0", TALK["prompt_ids"])
    for worker in ("p0", "d0"):
        sums, passes = reduced(r, worker)
        assert passes > 0 and sums == 0


@pytest.mark.parametrize("sides", [("cpu:0", "cpu:0"), ("cpu:0", "cpu:0,cpu:1")])
@pytest.mark.parametrize("weights", ["bf16", "nvfp4"])
def test_workers_with_dummy_weights_serve(weights, sides, rig):
    dummy = dict(load_format="dummy", dummy_format=weights)
    _, _, r = rig.pair(prefill=dict(dummy, gpus=sides[0]), decode=dict(dummy, gpus=sides[1]))
    ids, reason = r.run("p0", "d0", TALK["prompt_ids"], max_tokens=40)
    assert reason in (wire.FINISH["LENGTH"], wire.FINISH["STOP_TOKEN"])
    assert len(ids) > 1 and len(set(ids)) > 1
    for worker in ("p0", "d0"):
        assert r.ask(worker, "status")["stats"]["nan_rows"] == 0
    assert r.run("p0", "d0", TALK["prompt_ids"], max_tokens=40)[0] == ids
    r.pools_back("p0", "d0")


@pytest.mark.parametrize("flags, text", [
    (dict(load_format="gguf"), "load_format 'gguf': auto"),
    (dict(load_format="dummy", dummy_format="int4"), "dummy_format 'int4': bf16, nvfp4 or released"),
    (dict(model_config="x.json"), "model_config 'x.json' is for load_format dummy"),
    (dict(model="", load_format="dummy"), "model is not set")])
def test_what_dummy_flags_do_not_go_together_exits_with_2(flags, text, rig):
    refused(rig, "prefill", 2, text, **flags)
