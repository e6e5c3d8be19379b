"""Every malformed file of a model ends a worker with exit code 3 and one line that names
file, place and reason."""
import json
import re
import signal
import struct
import subprocess

import pytest

from small_model import SmallModel

P = "model.language_model."
L0, L3 = P + "layers.0.", P + "layers.3."
ST, SHARD_1, SHARD_2 = ("model.safetensors", "model-00001-of-00002.safetensors",
                        "model-00002-of-00002.safetensors")
NORM = L0 + "input_layernorm.weight"
QKV = L0 + "linear_attn.in_proj_qkv.weight"
GATE = L0 + "mlp.shared_expert.gate_proj.weight"
ROWS = []


def row(name, *expected):
    """Adds a row: the function damages a written model; its line holds all of `expected`."""
    def add(fn):
        ROWS.append(pytest.param(fn, expected, id=name))
        return fn
    return add


def header_row(name, change, *expected):
    """change(header) after which the header is written before the same data."""
    def damage(m):
        header, data = m.lay_out()
        changed = change(header)
        m.save(header if changed is None else changed, data)
    ROWS.append(pytest.param(damage, (ST, *expected), id=name))


def tensor_row(name, change, *expected):
    """change(tensors) before everything is laid out anew."""
    def damage(m):
        change(m.tensors)
        m.save(*m.lay_out())
    ROWS.append(pytest.param(damage, (ST, *expected), id=name))


def json_row(name, file, change, *expected):
    """change(value) of a JSON file; what it returns, if anything, is written instead."""
    def damage(m):
        path = m.folder / file
        value = json.loads(path.read_text())
        changed = change(value)
        path.write_text(changed if isinstance(changed, str) else json.dumps(value))
    ROWS.append(pytest.param(damage, (file, *expected), id=name))


# ---- the file ----

@row("no weights at all", "model.safetensors", "No such file")
def _(m):
    (m.folder / ST).unlink()


@row("empty file", ST, "0 bytes")
def _(m):
    (m.folder / ST).write_bytes(b"")


@row("seven bytes", ST, "7 bytes")
def _(m):
    (m.folder / ST).write_bytes(b"\0" * 7)


@row("header longer than the file", ST, "header")
def _(m):
    (m.folder / ST).write_bytes(struct.pack("<Q", 1 << 20) + b"{}")


@row("header of 2^63 bytes", ST, "header")
def _(m):
    (m.folder / ST).write_bytes(struct.pack("<Q", 1 << 63) + b"{}")


@row("header of all ones", ST, "header")
def _(m):
    (m.folder / ST).write_bytes(b"\xff" * 64)


@row("data cut by one byte", ST, "tensor ", "data_offsets")
def _(m):
    path = m.folder / ST
    path.write_bytes(path.read_bytes()[:-1])


@row("data cut in half", ST, "tensor ", "data_offsets")
def _(m):
    path = m.folder / ST
    path.write_bytes(path.read_bytes()[:900000])


@row("a byte too many", ST, "1 bytes after the last tensor")
def _(m):
    path = m.folder / ST
    path.write_bytes(path.read_bytes() + b"x")


@row("a directory", ST, "regular file")
def _(m):
    (m.folder / ST).unlink()
    (m.folder / ST).mkdir()


@row("a header that is no JSON", ST, "header", "byte 0")
def _(m):
    m.save(b"PK\3\4" * 32, b"")


# ---- the header ----

def edit(name, **fields):
    return lambda header: header[name].update(fields)


def span(header, name):
    return header[name]["data_offsets"]


def overlap(header):
    begin, end = span(header, NORM)
    header[NORM]["data_offsets"] = [begin - 2, end - 2]


def gap(header):
    del header[NORM]


def twice(header):
    return json.dumps(header).encode()[:-1] + \
        f', "{NORM}": {json.dumps(header[NORM])}}}'.encode()


def deep(_):
    return b'{"a":' * 20000 + b"1" + b"}" * 20000


header_row("overlapping tensors", overlap, "tensor " + NORM, "overlaps")
header_row("a gap", gap, "tensor ", "belong to no tensor")
header_row("a tensor twice", twice, "tensor " + NORM, "named twice")
header_row("negative offset", edit(NORM, data_offsets=[-128, 0]), "tensor " + NORM, "data_offsets[0]")
header_row("reversed offsets", edit(NORM, data_offsets=[256, 128]), "tensor " + NORM, "reversed")
header_row("offset beyond the data", edit(NORM, data_offsets=[1 << 40, (1 << 40) + 128]),
           "tensor " + NORM, "bytes of data")
header_row("offset of 2^64", edit(NORM, data_offsets=[0, 1 << 64]), "tensor " + NORM, "data_offsets[1]")
header_row("offset with a fraction", edit(NORM, data_offsets=[0.5, 128]), "tensor " + NORM,
           "data_offsets")
header_row("one offset", edit(NORM, data_offsets=[0]), "tensor " + NORM, "','")
header_row("shape that overflows", edit(NORM, shape=[1 << 62, 1 << 62]), "tensor " + NORM, "overflows")
header_row("shape of other size", edit(NORM, shape=[63]), "tensor " + NORM, "need 126 bytes")
header_row("shape of nine dimensions", edit(NORM, shape=[1] * 9), "tensor " + NORM, "dimensions")
header_row("negative dimension", edit(NORM, shape=[-64]), "tensor " + NORM, "dimension")
header_row("unknown dtype", edit(NORM, dtype="F13"), "tensor " + NORM, '"F13"')
header_row("dtype as number", edit(NORM, dtype=16), "tensor " + NORM, "dtype")
header_row("no dtype", lambda h: h[NORM].pop("dtype") and None, "tensor " + NORM, "dtype is missing")
header_row("unknown field", edit(NORM, colour="red"), "tensor " + NORM, '"colour"')
header_row("nested without end", deep, "tensor a", 'unknown field "a"')
header_row("a list", lambda _: b"[]", "'{'")


# ---- the tensors ----

def put(name, i, value):
    def change(t):
        t[name][i] = value
    return change


def words(name, at, data):
    """Overwrites bytes of a tensor."""
    def change(t):
        old = t[name][2]
        t[name][2] = old[:at] + data + old[at + len(data):]
    return change


def rename(old, new):
    def change(t):
        t[new] = t.pop(old)
    return change


def to_fp8(name, scale_name, scale):
    """The matrix as FP8 ones, with this scale beside it."""
    def change(t):
        n, k = t[name][1]
        t[name] = ["F8_E4M3", [n, k], b"\x38" * (n * k)]
        if scale_name:
            t[name.removesuffix("weight") + scale_name] = scale
    return change


def to_nvfp4(name, scale_code=0x38, scale_2=1.0, **other):
    """The matrix as NVFP4 ones; other: part -> [dtype, shape, bytes] or None."""
    def change(t):
        n, k = t[name][1]
        stem = name.removesuffix("weight")
        t[name] = ["U8", [n, k // 2], b"\x22" * (n * k // 2)]
        parts = {"weight_scale": ["F8_E4M3", [n, k // 16], bytes([scale_code]) * (n * k // 16)],
                 "weight_scale_2": ["F32", [], struct.pack("<f", scale_2)], **other}
        t.update({stem + part: value for part, value in parts.items() if value})
    return change


F32_NAN, BF16_INF = struct.pack("<f", float("nan")), b"\x80\x7f"
GATE_SCALE = GATE + "_scale"

tensor_row("a tensor missing", lambda t: t.pop(NORM) and None, "layers.0.input_layernorm.weight", "no tensor")
tensor_row("an expert stack missing", lambda t: t.pop(L3 + "mlp.experts.down_proj") and None, "layers.3.",
           "down_proj", "no tensor")
tensor_row("fewer experts than the config", lambda t: t[L3 + "mlp.experts.down_proj"].__setitem__(
    slice(1, 3), [[4, *t[L3 + "mlp.experts.down_proj"][1][1:]], t[L3 + "mlp.experts.down_proj"][2][:len(t[L3 + "mlp.experts.down_proj"][2]) // 2]]),
    L3 + "mlp.experts.down_proj: 4 experts, num_experts is 8")
tensor_row("no lm_head, not tied", lambda t: t.pop("lm_head.weight") and None, "lm_head.weight", "tie_word_embeddings")
tensor_row("an unknown tensor", rename(NORM, L0 + "input_norm.weight"), "tensor " + L0 + "input_norm.weight", "unknown")
tensor_row("a layer too many", rename(NORM, P + "layers.9.input_layernorm.weight"),
           "tensor " + P + "layers.9.", "num_hidden_layers")
tensor_row("attention in a GDN layer", rename(L3 + "self_attn.q_proj.weight", L0 + "self_attn.q_proj.weight"),
           "tensor " + L0 + "self_attn.q_proj.weight", "linear attention")
tensor_row("the same weights by two names", lambda t: t.update({"model.layers.0.input_layernorm.weight": t[NORM]}),
           "input_layernorm.weight", "are the same weights")
tensor_row("wrong shape", put(QKV, 1, [64, 1024]), "tensor " + QKV, "shape [64, 1024]", "[1024, 64]")
tensor_row("one dimension too few", put(QKV, 1, [65536]), "tensor " + QKV, "shape [65536]")
tensor_row("wrong dtype", put(QKV, 0, "F16"), "tensor " + QKV, "dtype F16")
tensor_row("dtype of a norm", put(NORM, 0, "I16"), "tensor " + NORM, "dtype I16")
tensor_row("NaN in a norm", words(NORM, 10, b"\xc0\x7f"), "tensor " + NORM, "nan at [5]")
tensor_row("infinity in A_log", words(L0 + "linear_attn.A_log", 4, struct.pack("<f", float("inf"))),
           "tensor " + L0 + "linear_attn.A_log", "inf at [1]")
tensor_row("FP8 without a scale", to_fp8(GATE, None, None), "tensor " + GATE, "which is missing")
tensor_row("FP8 scale of wrong shape", to_fp8(GATE, "weight_scale", ["F32", [3], b"\0\0\x80?" * 3]),
           "tensor " + GATE_SCALE, "shape [3]")
tensor_row("FP8 scale of wrong dtype", to_fp8(GATE, "weight_scale", ["I32", [], b"\1\0\0\0"]),
           "tensor " + GATE_SCALE, "dtype I32")
tensor_row("FP8 scale NaN", to_fp8(GATE, "weight_scale", ["F32", [], F32_NAN]), "tensor " + GATE_SCALE, "nan")
tensor_row("FP8 block scale infinite", to_fp8(GATE, "weight_scale_inv", ["BF16", [1, 1], BF16_INF]),
           "tensor " + GATE_SCALE + "_inv", "inf")
tensor_row("a scale beside BF16", lambda t: t.update({GATE_SCALE: ["F32", [], b"\0\0\x80?"]}),
           "tensor " + GATE_SCALE, "does not belong")
tensor_row("NVFP4 without its global scale", to_nvfp4(GATE, weight_scale_2=None), "tensor " + GATE,
           "weight_scale_2", "missing")
tensor_row("NVFP4 block scale NaN", to_nvfp4(GATE, scale_code=0x7f), "tensor " + GATE_SCALE, "NaN code 0x7f at [0][0]")
tensor_row("NVFP4 block scale negative", to_nvfp4(GATE, scale_code=0xb8), "tensor " + GATE_SCALE, "negative code 0xb8")
tensor_row("NVFP4 block scales of wrong shape", to_nvfp4(GATE, weight_scale=["F8_E4M3", [48, 2], b"\x38" * 96]),
           "tensor " + GATE_SCALE, "shape [48, 2]")
tensor_row("NVFP4 block scales of wrong dtype", to_nvfp4(GATE, weight_scale=["U8", [48, 4], b"\x38" * 192]),
           "tensor " + GATE_SCALE, "dtype U8")
tensor_row("NVFP4 global scale zero", to_nvfp4(GATE, scale_2=0.0), "tensor " + GATE_SCALE + "_2", "must be positive")
tensor_row("NVFP4 global scale negative", to_nvfp4(GATE, scale_2=-1.0), "tensor " + GATE_SCALE + "_2", "must be positive")
tensor_row("NVFP4 global scale NaN", to_nvfp4(GATE, scale_2=float("nan")), "tensor " + GATE_SCALE + "_2", "nan")
tensor_row("NVFP4 global scale a vector", to_nvfp4(GATE, weight_scale_2=["F32", [2], b"\0\0\x80?" * 2]),
           "tensor " + GATE_SCALE + "_2", "scalar")


# ---- several files ----

def index_row(name, change, *expected):
    def damage(m):
        index = m.save_shards()
        changed = change(m, index)
        m.save_index(index)
        if isinstance(changed, str):
            (m.folder / "model.safetensors.index.json").write_text(changed)
    ROWS.append(pytest.param(damage, expected, id=name))


def first_of(index, shard):
    return next(n for n, file in index["weight_map"].items() if file == shard)


def elsewhere(m, index):
    index["weight_map"][first_of(index, SHARD_1)] = SHARD_2


def not_listed(m, index):
    del index["weight_map"][first_of(index, SHARD_1)]


index_row("a shard missing", lambda m, _: (m.folder / SHARD_2).unlink(), SHARD_2, "No such file")
index_row("the index names a missing file", lambda m, i: i["weight_map"].update({NORM: "gone.safetensors"}),
          "gone.safetensors", "No such file")
index_row("the index leaves the folder", lambda m, i: i["weight_map"].update({NORM: "../x.safetensors"}),
          "index.json", "../x.safetensors")
index_row("the index names a tensor that is nowhere", lambda m, i: i["weight_map"].update({"no.such.tensor": SHARD_1}),
          "no.such.tensor", SHARD_1)
index_row("a tensor in another shard than said", elsewhere, "tensor ", SHARD_2)
index_row("the index names a file by number", lambda m, i: i["weight_map"].update({NORM: 7}), "index.json", NORM)
index_row("the index has no map", lambda m, i: i.pop("weight_map") and None, "index.json", "weight_map")
index_row("the index is no JSON", lambda m, i: "{", "index.json", "line 1")


@row("shards without an index, one missing", SHARD_2 + " is missing, one of 2 shards", "model.safetensors.index.json")
def _(m):
    m.save_shards()
    (m.folder / SHARD_2).unlink()


# ---- config.json ----

def text(field, value):
    def change(c):
        c["text_config"][field] = value
    return change


def without(field):
    return lambda c: c["text_config"].pop(field) and None


CONFIG = "config.json"
json_row("config is no JSON", CONFIG, lambda c: "{'a': 1}", "line 1")
json_row("config is a list", CONFIG, lambda c: "[]", "not a JSON object")
json_row("config is empty", CONFIG, lambda c: " ", "line 1")
json_row("config has a key twice", CONFIG, lambda c: '{"a": 1, "a": 2}', "twice")
json_row("config nested without end", CONFIG, lambda c: "[" * 100000, "deeper")
json_row("other architecture", CONFIG, lambda c: c.update(architectures=["LlamaForCausalLM"]),
         "architectures", "LlamaForCausalLM")
json_row("other model type", CONFIG, lambda c: c.update(model_type="qwen4_exp"), "model_type", "qwen4_exp")
json_row("sliding windows", CONFIG, text("use_sliding_window", True), "use_sliding_window true: only false")
json_row("a window without its switch", CONFIG, text("sliding_window", 4096), "sliding_window 4096")
json_row("capped logits", CONFIG, text("final_logit_softcapping", 30.0), "final_logit_softcapping 30.0: only null")
json_row("capped scores", CONFIG, text("attn_logit_softcapping", 50.0), "attn_logit_softcapping 50.0")
json_row("scaled routing", CONFIG, text("routed_scaling_factor", 2.5), "routed_scaling_factor 2.5: only 1")
json_row("a switch at the top", CONFIG, lambda c: c.update(mlp_bias=True), "mlp_bias true")
json_row("rope under rope_scaling", CONFIG, text("rope_scaling", {"rope_type": "default", "rope_theta": 5e5}),
         "rope_scaling.rope_theta 500000.0", "belongs into rope_parameters")


# ---- quantisation files ----

def quant(change):
    """quantization_config as one exporter writes it, after change."""
    def damage(c):
        q = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}
        q.update(change)
        c["quantization_config"] = q
    return damage


json_row("unknown method", CONFIG, quant({"quant_method": "gptq"}), 'quantization_config: quant_method "gptq"')
json_row("unknown algorithm", CONFIG, quant({"quant_algo": "NVFP4_AWQ"}), 'quant_algo "NVFP4_AWQ"', "not supported")
json_row("unknown algorithm of a layer", CONFIG,
         quant({"quant_algo": "MIXED_PRECISION", "quantized_layers": {"layers.0.mlp": {"quant_algo": "FP8_XYZ"}}}),
         "quantized_layers layers.0.mlp", "FP8_XYZ")
json_row("other groups", CONFIG, quant({"group_size": 32}), "group_size 32", "groups of 16")
json_row("other blocks", CONFIG, quant({"quant_method": "fp8", "quant_algo": None, "weight_block_size": [64, 64]}), "weight_block_size [64,64]")
json_row("rotations", CONFIG, quant({"transform_config": {"config_groups": {"R1": {"type": "hadamard"}}}}), "transform_config", "rotations")
json_row("integers", CONFIG, quant({"config_groups": {"g0": {"weights": {"num_bits": 4, "type": "int", "group_size": 16}}}}),
         "config_groups.g0.weights", 'type \"float\"')
json_row("groups of a config group", CONFIG, quant({"config_groups": {"g0": {"weights": {"num_bits": 4, "type": "float", "group_size": 64}}}}),
         "config_groups.g0.weights", "group_size must be 16")


@row("unknown algorithm beside the config", "hf_quant_config.json: quantization", 'quant_algo "W4A8_AWQ"')
def _(m):
    (m.folder / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "W4A8_AWQ"}}))


@row("groups of the tensors, not those that are said", "config.json: quantization_config", "tensor " + GATE,
     "one scale for 16 weights", "group_size", "32")
def _(m):
    to_nvfp4(GATE)(m.tensors)
    m.config["quantization_config"] = {"quant_method": "modelopt", "group_size": 32}
    m.write()


@row("blocks of the tensors, not those that are said of a layer", "hf_quant_config.json: quantization", "tensor " + QKV,
     "one scale for 128 weights", "group_size", "64")
def _(m):
    to_fp8(QKV, "weight_scale_inv", ["F32", [8, 1], struct.pack("<f", 1) * 8])(m.tensors)
    m.write()
    (m.folder / "hf_quant_config.json").write_text(json.dumps({"quantization": {
        "quantized_layers": {"model.layers.0.linear_attn.in_proj_qkv": {"group_size": 64}}}}))


json_row("NaN where a number is read", CONFIG, text("rms_norm_eps", float("nan")), "rms_norm_eps NaN", "(line 1)")
json_row("Infinity where an integer is read", CONFIG, text("head_dim", float("inf")), "head_dim Infinity")
json_row("no hidden_size", CONFIG, without("hidden_size"), "hidden_size is missing")
json_row("hidden_size as text", CONFIG, text("hidden_size", "64"), 'hidden_size "64"')
json_row("negative layers", CONFIG, text("num_hidden_layers", -1), "num_hidden_layers -1")
json_row("heads that do not divide", CONFIG, text("num_key_value_heads", 3), "num_key_value_heads 3")
json_row("biases", CONFIG, text("attention_bias", True), "attention_bias true")
json_row("other activation", CONFIG, text("hidden_act", "gelu"), 'hidden_act "gelu"')
json_row("rope of type yarn", CONFIG, lambda c: c["text_config"]["rope_parameters"].update(rope_type="yarn", factor=4.0),
         "rope_parameters.rope_type", '"yarn"')
json_row("rope of type dynamic, old spelling", CONFIG, text("rope_scaling", {"type": "dynamic", "factor": 2.0}),
         "rope_scaling.type", '"dynamic"')
json_row("layer_types too short", CONFIG, text("layer_types", ["linear_attention"]), "layer_types")
json_row("unknown layer type", CONFIG, text("layer_types", ["linear_attention"] * 3 + ["sliding_attention"]),
         "layer_types[3]", "sliding_attention")
json_row("top_k above the experts", CONFIG, text("num_experts_per_tok", 9), "num_experts_per_tok 9")


@row("no config", CONFIG, "No such file")
def _(m):
    (m.folder / CONFIG).unlink()


# ---- tokenizer.json ----

TOKENIZER = "tokenizer.json"


def vocabulary(text, value):
    return lambda t: t["model"]["vocab"].update({text: value})


json_row("tokenizer is no JSON", TOKENIZER, lambda t: "}", "line 1")
json_row("tokenizer of another model", TOKENIZER, lambda t: t["model"].update(type="Unigram"), "model.type", "Unigram")
json_row("no vocabulary", TOKENIZER, lambda t: t["model"].update(vocab={}), "model.vocab")
json_row("negative token id", TOKENIZER, vocabulary("zz", -1), "model.vocab", "zz")
json_row("token id beyond bounds", TOKENIZER, vocabulary("zz", 1 << 40), "model.vocab", "zz")
json_row("one id for two tokens", TOKENIZER, vocabulary("zz", 5), "model.vocab", "id 5 twice")
json_row("a merge of unknown parts", TOKENIZER, lambda t: t["model"].update(merges=[["qq", "zz"]]), "merges")
json_row("a merge of one part", TOKENIZER, lambda t: t["model"].update(merges=["ab"]), "merges[0]")
json_row("no merges", TOKENIZER, lambda t: (t["model"]["vocab"].update({"he": 300, "ll": 301}), t["model"].pop("merges")) and None, "merges")
json_row("empty merges", TOKENIZER, lambda t: t["model"]["vocab"].update({"he": 300, "ll": 301}),
         "model.merges: its 0 entries make 0 of the 2 longer tokens", 'token 300 "he"')
json_row("an added token with lstrip", TOKENIZER, lambda t: t["added_tokens"][3].update(lstrip=True), "added token 259", "lstrip is true")
json_row("a special token that is normalized", TOKENIZER, lambda t: t["added_tokens"][0].update(normalized=True),
         "added token 256", "normalized is true of a special token")
json_row("other normalizer", TOKENIZER, lambda t: t.update(normalizer={"type": "Lowercase"}), "normalizer", "Lowercase")
json_row("other split", TOKENIZER, lambda t: t["pre_tokenizer"]["pretokenizers"][0]["pattern"].update(Regex="\\s+"),
         "pre_tokenizer")
json_row("a byte without a symbol", TOKENIZER, lambda t: t["model"]["vocab"].pop("A") and None, "vocab", "41")
json_row("more tokens than rows of the vocabulary", TOKENIZER, lambda t: t["added_tokens"][-1].update(id=400),
         "401 token ids", "384 rows", "vocab_size of config.json")


json_row("tokenizer_config is no JSON", "tokenizer_config.json", lambda c: "{,}", "line 1")
json_row("an end token that is no token", "tokenizer_config.json", lambda c: c.update(eos_token="<|nothing|>"),
         "eos_token", "<|nothing|>")
json_row("generation_config is no JSON", "generation_config.json", lambda c: "]", "line 1")
json_row("end ids as text", "generation_config.json", lambda c: c.update(eos_token_id="two"),
         'eos_token_id "two"', "neither a number")
json_row("end id beyond the vocabulary", CONFIG, text("eos_token_id", 383), "383")


@row("other vocabulary", ST, "embed_tokens.weight", "shape [384, 64]", "[200, 64]")
def _(m):
    m.config["text_config"]["vocab_size"] = 200
    m.write()


@row("no tokenizer", TOKENIZER, "No such file")
def _(m):
    (m.folder / TOKENIZER).unlink()


# ---- the test ----

def start(build, runtime, folder, program):
    flags = ["--port=0"] if program == "router" else [
        "--max-num-seqs=2", "--kv-pages=9", "--max-num-batched-tokens=16"]
    return subprocess.run([build / f"bin/baton-{program}", "--id=x0", f"--model={folder}",
                           f"--runtime-dir={runtime}", *flags],
                          capture_output=True, text=True, timeout=30)


def check_refused(done, expected):
    errors = [line for line in done.stderr.splitlines() if re.match(r"\S+ error ", line)]
    assert done.returncode == 3, done.stderr
    assert len(errors) == 1, done.stderr
    assert all(part in errors[0] for part in expected), errors[0]
    assert "Sanitizer" not in done.stderr


@pytest.mark.asan
def test_there_are_enough_rows():
    assert len(ROWS) >= 80 and len({p.id for p in ROWS}) == len(ROWS)


@pytest.mark.asan
def test_the_model_starts_when_nothing_is_damaged(rig, tmp_path):
    m = SmallModel(tmp_path / "m")
    m.write()
    for sharded in (False, True):
        if sharded:
            m.save_index(m.save_shards())
        w = rig.worker("prefill", "p0", model=m.folder, max_model_len=128, kv_pages=9)
        w.kill(signal.SIGTERM)
        assert w.exit_code() == 0


def beside(m):
    m.config["text_config"]["rope_theta"] = 5e5


def announce(m):
    m.config["text_config"]["mtp_num_hidden_layers"] = 1


def half(m):
    announce(m)
    m.tensors["mtp.norm.weight"] = ["BF16", [64], bytes(128)]


def python_wrote(m):
    m.config["text_config"].update(time_step_limit=[0.0, float("inf")], some_old_field=float("nan"))
    m.tokenizer_config["model_max_length"] = 1000000000000000019884624838656


def says(m, **members):
    m.config["quantization_config"] = {"quant_method": "modelopt", "ignore": ["lm_head"], **members}


def all_nvfp4(m):
    says(m, quant_algo="NVFP4", group_size=16)


def one_layer_fp8(m):
    to_nvfp4(GATE)(m.tensors)
    says(m, quant_algo="MIXED_PRECISION",
         quantized_layers={"model.layers.0.mlp.shared_expert.gate_proj": {"quant_algo": "FP8"}})


def excluded_and_nvfp4(m):
    to_nvfp4(GATE)(m.tensors)
    says(m, quant_algo="NVFP4", ignore=["lm_head", "re:.*layers.*"])


def as_said(m):
    to_nvfp4(GATE)(m.tensors)
    says(m, quant_algo="MIXED_PRECISION", quantized_layers={GATE.removesuffix(".weight"): {"quant_algo": "NVFP4", "group_size": 16}})


STORED_OTHERWISE = "stored otherwise than it says"


@pytest.mark.parametrize("change, notice", [
    (all_nvfp4, f"quantization_config says NVFP4 of tensor {QKV}, which is BF16; "),
    (one_layer_fp8, f"quantization_config says FP8 of tensor {GATE}, which is NVFP4; 1 matrices are {STORED_OTHERWISE}"),
    (excluded_and_nvfp4, f"says no quantisation of tensor {GATE}, which is NVFP4; 1 matrices are {STORED_OTHERWISE}"),
    (beside, "rope_theta is 1e+07 in rope_parameters and 500000 beside it: 1e+07 is used"),
    (announce, "announces a head for drafts, and there is no tensor mtp.fc.weight"),
    (half, "of its tensors are missing: mtp.fc.weight, mtp.pre_fc_norm_embedding.weight"),
    (python_wrote, "members that are not known and not read: time_step_limit, some_old_field"),
    ("shards", "model.safetensors.index.json is missing; all 2 shards are there and are read"),
    ("kv cache", "its scheme for the KV cache is not used")])
def test_what_is_odd_and_harmless_starts_with_one_notice(change, notice, rig, tmp_path):
    m = SmallModel(tmp_path / "m")
    if callable(change):
        change(m)
    elif change == "kv cache":
        m.config["quantization_config"] = {"quant_algo": "NVFP4", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    m.write()
    if change == "shards":
        m.save_shards()
    w = rig.worker("prefill", "p0", model=m.folder, max_model_len=128, kv_pages=9)
    assert w.log().count(notice) == 1, w.log()
    w.kill(signal.SIGTERM)
    assert w.exit_code() == 0


def test_a_quantisation_that_says_what_is_stored_starts_without_a_notice(rig, tmp_path):
    m = SmallModel(tmp_path / "m")
    as_said(m)
    m.write()
    w = rig.worker("prefill", "p0", model=m.folder, max_model_len=128, kv_pages=9)
    assert STORED_OTHERWISE not in w.log()
    w.kill(signal.SIGTERM)
    assert w.exit_code() == 0


@pytest.mark.parametrize("member", ["top_p", "temperature", "repetition_penalty"])
@pytest.mark.parametrize("value", ["Infinity", "-Infinity", "NaN", "1e400"])
def test_the_router_refuses_defaults_that_no_request_could_have(member, value, build, runtime, tmp_path):
    m = SmallModel(tmp_path / "m")
    m.write()
    (m.folder / "generation_config.json").write_text(f'{{"eos_token_id": [258, 256],\n"{member}": {value}}}')
    check_refused(start(build, runtime, m.folder, "router"), ["generation_config.json", f"{member} {value}", "(line 2)"])


@pytest.mark.asan
@pytest.mark.parametrize("damage, expected", ROWS)
def test_refused_with_one_line(damage, expected, build, runtime, tmp_path):
    m = SmallModel(tmp_path / "m")
    m.write()
    damage(m)
    check_refused(start(build, runtime, m.folder, "prefill"), expected)


@pytest.mark.parametrize("program, name", [
    ("decode", "empty file"), ("decode", "NVFP4 global scale NaN"), ("decode", "config is no JSON"),
    ("decode", "negative token id"), ("router", "config is no JSON"), ("router", "other architecture"),
    ("router", "no tokenizer"), ("router", "negative token id"), ("router", "tokenizer is no JSON"),
    ("router", "config nested without end")])
def test_the_other_programs_refuse_alike(program, name, build, runtime, tmp_path):
    damage, expected = next(p.values for p in ROWS if p.id == name)
    m = SmallModel(tmp_path / "m")
    m.write()
    damage(m)
    check_refused(start(build, runtime, m.folder, program), expected)
