"""Every format of weights against a forward pass in numpy over the weights that the
format stands for. Errors are relative, ||a - b|| / ||b||."""
import pathlib
import re
import subprocess

import numpy as np
import pytest
import reference
import requant
import stfile

GOLDEN = pathlib.Path(__file__).resolve().parent
TOLERANCE = 1e-4
IDS = [(7 * i * i + 3 * i + 1) % 384 for i in range(40)]
MODELS = ["tiny-moe", "tiny-dense", "tiny-next"]
# tiny-dense has no lm_head and no experts.
CASES = [(m, f) for m in MODELS for f in requant.FORMATS
         if m != "tiny-dense" or f not in ("nvfp4-head", "modelopt-nvfp4")]


@pytest.fixture
def run(build, tmp_path):
    """baton-logits over IDS; the logits as an array, or the message with fails=True."""
    def logits(model, *flags, fails=False):
        stfile.write(tmp_path / "in.safetensors", {"case.0.ids": stfile.ids(IDS)})
        done = subprocess.run(
            [build / "bin" / "baton-logits", "--model", model, "--in", tmp_path / "in.safetensors",
             "--out", tmp_path / "out.safetensors", *flags],
            capture_output=True, text=True, timeout=60)
        assert (done.returncode != 0) == fails, done.stderr
        if fails:
            return done.stderr
        _, shape, values = stfile.read(tmp_path / "out.safetensors")["case.0.logits"]
        return np.array(values).reshape(shape)
    return logits


def error(got, want):
    return np.linalg.norm(got - want) / np.linalg.norm(want)


def made(name, model, folder):
    """The checkpoint, and the logits of the weights that it stands for."""
    weights = requant.make(name, GOLDEN / model, folder)
    return weights, reference.logits(weights, reference.config_of(folder), IDS)


@pytest.mark.parametrize("model", MODELS)
def test_the_reference_equals_the_golden_logits(model):
    """So that it may judge: nothing of it is taken from what it judges."""
    tensors = requant.split_experts(requant.read(GOLDEN / model / "model.safetensors"))
    golden = stfile.read(GOLDEN / model / "golden.safetensors")
    ids = golden["case.0.ids"][2]
    want = golden["case.0.logits"]
    got = reference.logits({n: a for n, (_, a) in tensors.items()},
                           reference.config_of(GOLDEN / model), list(ids))
    assert error(got[-want[1][0]:], np.array(want[2]).reshape(want[1])) < 1e-5


@pytest.mark.parametrize("model, name", CASES)
def test_logits_are_those_of_the_weights_that_the_format_stands_for(model, name, run, tmp_path):
    weights, want = made(name, model, tmp_path / "m")
    e = error(run(tmp_path / "m"), want)
    assert e <= TOLERANCE, f"relative error {e:.3g}"
    original = requant.split_experts(requant.read(GOLDEN / model / "model.safetensors"))
    unquantised = reference.logits({n: a for n, (_, a) in original.items()},
                                   reference.config_of(tmp_path / "m"), IDS)
    assert error(want, unquantised) > 10 * TOLERANCE, "nothing was quantised"


# Two ranks of the dense MLP of 160 hold five groups of 16 each.
@pytest.mark.parametrize("model, name", [
    ("tiny-moe", "modelopt-nvfp4"), ("tiny-moe", "nvfp4-head"), ("tiny-dense", "modelopt-mixed"),
    ("tiny-dense", "compressed-nvfp4"), ("tiny-dense", "fp8-tensor"), ("tiny-dense", "fp8-channel"),
    ("tiny-next", "fp8-channel"), ("tiny-next", "modelopt-mixed")])
def test_two_ranks_read_the_same_weights(model, name, run, tmp_path):
    _, want = made(name, model, tmp_path / "m")
    assert error(run(tmp_path / "m", "--gpus", "cpu:0,cpu:1"), want) <= TOLERANCE


@pytest.mark.parametrize("model, name, tensor, block", [
    ("tiny-moe", "fp8-block", r"mlp\.experts\.0\.gate_proj\.weight", "128 x 128"),
    ("tiny-moe", "compressed-nvfp4", r"mlp\.shared_expert\.down_proj\.weight_packed", "1 x 16"),
    ("tiny-moe", "modelopt-mixed", r"mlp\.shared_expert\.down_proj\.weight", "1 x 16"),
    ("tiny-dense", "fp8-block", r"mlp\.gate_proj\.weight", "128 x 128")])
def test_a_slice_that_cuts_a_scale_block_is_refused(model, name, tensor, block, run, tmp_path):
    requant.make(name, GOLDEN / model, tmp_path / "m")
    text = run(tmp_path / "m", "--gpus", "cpu:0,cpu:1", fails=True)
    assert re.search(rf"model\.safetensors: tensor model\.language_model\.layers\.0\.{tensor}: "
                     rf"the slice of rank 0 of 2 .* cuts a scale block of {block}", text), text


def spoil(folder, change):
    """Changes tensors of a checkpoint: what a loader with that mistake would read."""
    path = folder / "model.safetensors"
    blob = path.read_bytes()
    size = int.from_bytes(blob[:8], "little")
    head = requant.json.loads(blob[8:8 + size])
    data = bytearray(blob)
    for name, t in head.items():
        begin, end = (8 + size + at for at in t["data_offsets"])
        new = change(name, t["dtype"], bytes(data[begin:end]))
        if new is not None:
            assert len(new) == end - begin
            data[begin:end] = new
    path.write_bytes(data)


def nibbles_swapped(name, dtype, data):
    if name.endswith(("proj.weight", "lm_head.weight", "weight_packed")):
        a = np.frombuffer(data, np.uint8)
        return (a >> 4 | a << 4).astype(np.uint8).tobytes()


def reciprocal(name, dtype, data):
    if name.endswith(("weight_scale_2", "weight_global_scale")):
        return (1 / np.frombuffer(data, "<f4")).astype("<f4").tobytes()


def all_scales_2_alike(name, dtype, data):
    if name.endswith("up_proj.weight_scale_2"):
        return (np.frombuffer(data, "<f4") * np.float32(1.1)).tobytes()


def scales_one_on(name, dtype, data):
    if name.endswith(("weight_scale", "weight_scale_inv")) and dtype in ("BF16", "F8_E4M3"):
        step = 2 if dtype == "BF16" else 1
        return data[step:] + data[:step]


@pytest.mark.parametrize("name, change", [
    ("modelopt-nvfp4", nibbles_swapped), ("modelopt-nvfp4", reciprocal),
    ("modelopt-nvfp4", all_scales_2_alike), ("modelopt-nvfp4", scales_one_on),
    ("compressed-nvfp4", reciprocal), ("compressed-nvfp4", nibbles_swapped),
    ("nvfp4-head", nibbles_swapped), ("fp8-channel", scales_one_on), ("fp8-block", scales_one_on)])
def test_a_mistake_in_reading_would_be_seen(name, change, run, tmp_path):
    """The test of the tests above: each mistake, made in the file, is far outside."""
    _, want = made(name, "tiny-moe", tmp_path / "m")
    spoil(tmp_path / "m", change)
    assert not error(run(tmp_path / "m"), want) <= 10 * TOLERANCE
