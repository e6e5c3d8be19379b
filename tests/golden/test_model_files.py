"""Checkpoint folders as other tools write them, each with one peculiarity of the demo model: the
same logits as the model it was made from, or a refusal that names file and member."""
import fnmatch
import json
import math
import pathlib
import re
import shutil
import struct
import subprocess
import sys

import pytest
import stfile

GOLDEN = pathlib.Path(__file__).resolve().parent
DEMO = GOLDEN.parent.parent / "deploy" / "demo-model"
IDS = stfile.ids([5, 300, 700, 1100, 9, 33])


@pytest.fixture(scope="module")
def bf16(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "bf16"
    subprocess.run([sys.executable, GOLDEN / "make_bf16_demo.py", DEMO, folder], check=True, timeout=60)
    return folder


class Folder:
    """A copy of a model; tensors: name -> (dtype, shape, bytes)."""

    def __init__(self, source, path):
        shutil.copytree(source, path)
        self.path = path
        blob = (path / "model.safetensors").read_bytes()
        size, = struct.unpack("<Q", blob[:8])
        header = json.loads(blob[8:8 + size])
        header.pop("__metadata__", None)
        data = memoryview(blob)[8 + size:]
        self.tensors = {n: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for n, t in header.items()}

    def edit(self, file, change):
        value = json.loads((self.path / file).read_text())
        change(value)
        (self.path / file).write_text(json.dumps(value))

    def text(self, **members):
        self.edit("config.json", lambda c: c["text_config"].update(members))

    def save(self, names=None, file="model.safetensors"):
        header, parts, at = {"__metadata__": {"format": "pt"}}, [], 0
        for name in names or self.tensors:
            dtype, shape, data = self.tensors[name]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
            parts.append(data)
            at += len(data)
        text = json.dumps(header).encode()
        (self.path / file).write_bytes(b"".join([struct.pack("<Q", len(text)), text, *parts]))

    def drop(self, *starts):
        self.tensors = {n: t for n, t in self.tensors.items() if not n.startswith(starts)}

    def prune(self, n):
        """The trunk with its first n experts; the head for drafts stays."""
        for name, (dtype, shape, data) in self.tensors.items():
            if name.startswith("model.") and (".mlp.experts." in name or name.endswith(".mlp.gate.weight")):
                self.tensors[name] = (dtype, [n, *shape[1:]], data[:len(data) // shape[0] * n])

    def shards(self, *kept):
        names = sorted(self.tensors)
        for i, part in enumerate((names[::2], names[1::2]), 1):
            if i in kept:
                self.save(part, f"model-0000{i}-of-00002.safetensors")
        (self.path / "model.safetensors").unlink()


def run(build, folder, out):
    given = out.with_suffix(".in")
    stfile.write(given, {"case.0.ids": IDS})
    done = subprocess.run([build / "bin/baton-logits", "--model", folder, "--in", given, "--out", out],
                          capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr, stfile.read(out) if done.returncode == 0 else None


def close(got, want):
    """Within the tolerance of tests/golden/test_golden.py: another run may add in another order."""
    a, b = got["case.0.logits"][2], want["case.0.logits"][2]
    return len(a) == len(b) > 0 and math.dist(a, b) <= 1e-4 * math.hypot(*b)


def merges_as_strings(t):
    t["model"]["merges"] = [" ".join(m) for m in t["model"]["merges"]]


def fp8_head(algorithm):
    """Experts of the head quantised by blocks, named by two spellings of the algorithm."""
    def change(f):
        for file, member, spelling in (("config.json", "quantization_config", algorithm),
                                       ("hf_quant_config.json", "quantization", "FP8_BLOCK_SCALES")):
            f.edit(file, lambda v, m=member, s=spelling: v[m].update(
                quant_algo="MIXED_PRECISION",
                quantized_layers={"mtp.layers.0.mlp.experts": {"quant_algo": s, "group_size": 128},
                                  **{f"model.language_model.layers.{i}.mlp.experts": {"quant_algo": "NVFP4", "group_size": 16}
                                     for i in range(8)}}))
    return change


def store_fp8_head(f, scale):
    """The experts of the head as matrices of 8 bits with one block each, their scales under this name."""
    for name in [n for n in f.tensors if n.startswith("mtp.layers.0.mlp.experts.")]:
        dtype, (n, rows, cols), _ = f.tensors.pop(name)
        assert dtype == "BF16"
        parts = [("gate_proj", rows // 2), ("up_proj", rows // 2)] if "gate_up" in name else [("down_proj", rows)]
        for expert in range(n):
            for part, count in parts:
                stem = f"mtp.layers.0.mlp.experts.{expert}.{part}."
                f.tensors[stem + "weight"] = ("F8_E4M3", [count, cols], b"\x38" * (count * cols))
                f.tensors[stem + scale] = ("F32", [1, 1], struct.pack("<f", 1))
    f.save()


def drop(*starts):
    def change(f):
        f.drop(*starts)
        f.save()
    return change


def pruned(config):
    def change(f):
        f.prune(12)
        f.save()
        if config:
            f.text(num_experts=12)
    return change


# What is said of them: tests/e2e/test_bad_models.py.
EQUAL = {
    "merges as strings": lambda f: f.edit("tokenizer.json", merges_as_strings),
    "infinities that nobody reads": lambda f: f.text(time_step_limit=[0.0, float("inf")], some_old_field=float("nan")),
    "a head announced and absent": drop("mtp."),
    "a head in part": drop("mtp.fc.weight", "mtp.layers.0.self_attn.k_proj"),
    "shards without an index": lambda f: f.shards(1, 2),
}
REFUSED = {
    "NaN that is read": (lambda f: f.text(rms_norm_eps=float("nan")), ["config.json", "rms_norm_eps NaN"]),
    "fewer experts than announced": (pruned(False), ["num_experts", "12 experts, num_experts is 16", ".mlp."]),
    "a shard lost": (lambda f: f.shards(1), ["model-00002-of-00002.safetensors is missing", "model.safetensors.index.json"]),
}


@pytest.mark.parametrize("name", EQUAL)
def test_gives_the_logits_of_its_base(name, build, bf16, tmp_path):
    _, _, want = run(build, bf16, tmp_path / "want")
    f = Folder(bf16, tmp_path / "model")
    EQUAL[name](f)
    status, said, got = run(build, f.path, tmp_path / "got")
    assert status == 0, said
    assert close(got, want)


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_by_name(name, build, bf16, tmp_path):
    change, expected = REFUSED[name]
    f = Folder(bf16, tmp_path / "model")
    change(f)
    status, said, _ = run(build, f.path, tmp_path / "got")
    assert status != 0 and all(part in said for part in expected), said


def test_a_pruned_trunk_serves_beside_a_wide_head(build, bf16, tmp_path):
    wide, none = Folder(bf16, tmp_path / "wide"), Folder(bf16, tmp_path / "none")
    pruned(True)(wide)
    none.drop("mtp.")
    pruned(True)(none)
    none.text(mtp_num_hidden_layers=0)
    status, said, got = run(build, wide.path, tmp_path / "got")
    assert status == 0, said
    assert close(got, run(build, none.path, tmp_path / "want")[2])


@pytest.mark.parametrize("algorithm, scale", [("FP8_PB_WO", "weight_scale_inv"), ("FP8_BLOCK_SCALES", "weight_scale_inv"),
                                              ("FP8_PB_WO", "weight_scale"), ("FP8_XYZ", "weight_scale_inv")])
def test_two_names_of_one_format_are_the_same_and_unknown_ones_are_named(algorithm, scale, build, tmp_path):
    f = Folder(DEMO, tmp_path / "model")
    fp8_head(algorithm)(f)
    store_fp8_head(f, scale)
    status, said, got = run(build, f.path, tmp_path / "got")
    if algorithm == "FP8_XYZ":
        assert status != 0 and "mtp.layers.0.mlp.experts" in said and '"FP8_XYZ"' in said, said
    else:
        assert status == 0 and close(got, run(build, DEMO, tmp_path / "want")[2]), said
        assert "stored otherwise" not in start_notices(build, f.path)


def start_notices(build, folder):
    done = subprocess.run([build / "bin/baton-prefill", "--plan", "--model", folder], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_what_contradicts_the_tensors_is_named_once_and_the_tensors_are_right(build, bf16, tmp_path):
    f = Folder(bf16, tmp_path / "model")
    for file in ("config.json", "hf_quant_config.json"):
        shutil.copy(DEMO / file, f.path / file)
    status, said, got = run(build, f.path, tmp_path / "got")
    assert status == 0 and close(got, run(build, bf16, tmp_path / "want")[2]), said
    notices = start_notices(build, f.path)
    assert notices.count("stored otherwise") == 1, notices
    assert "says NVFP4 of tensor model.language_model.layers.0.mlp.experts." in notices and "which is BF16" in notices
    assert f"; {8 * 3 * 16} matrices are stored otherwise" in notices, notices  # layers, matrices of an expert, experts


@pytest.mark.parametrize("model", ["demo", "bf16"])
def test_what_says_what_is_stored_starts_without_a_notice(model, build, bf16):
    assert start_notices(build, {"demo": DEMO, "bf16": bf16}[model]) == ""


def test_the_tables_of_the_readme_name_every_member_of_the_published_files():
    """Of config.json with its text_config and rope_parameters, and of both quantisation files."""
    text = (GOLDEN.parent.parent / "common/model/README.md").read_text().split("## What the files of a checkpoint say")[1]
    cells = " ".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| "))
    patterns = re.findall(r"[a-z_*]{2,}", cells.replace("\\*", "*"))
    files = sorted((GOLDEN / "configs").glob("*.json"))
    assert len(files) >= 12
    for file in files:
        whole = json.loads(file.read_text())
        objects = [whole, whole.get("text_config", {}), whole.get("text_config", {}).get("rope_parameters", {}),
                   whole.get("quantization_config", {}), whole.get("quantization", {})]
        unnamed = [m for o in objects for m in o if not any(fnmatch.fnmatch(m, p) for p in patterns)]
        assert not unnamed, f"{file.name}: {unnamed}"
