#!/usr/bin/env python3
"""A BF16 checkpoint in each quantised format that is read, with scales that are no powers
of two, and the weights that each of them stands for.

    requant.py FORMAT MODEL_DIR OUT_DIR        writes the checkpoint; FORMAT: see FORMATS

Numpy only; nothing is taken from the loader that is to be tested."""
import json
import pathlib
import re
import shutil
import struct
import sys
import zlib

import numpy as np

E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6], np.float32)
E4M3 = np.array([m * 2.0**-9 if e == 0 else (1 + m / 8) * 2.0**(e - 7)
                 for e in range(16) for m in range(8)][:127], np.float32)
BLOCK, GROUP = 128, 16


def read(path):
    """{name: (dtype, array)}; BF16 as float32."""
    blob = pathlib.Path(path).read_bytes()
    size, = struct.unpack("<Q", blob[:8])
    out = {}
    for name, t in json.loads(blob[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + at for at in t["data_offsets"])
        data = blob[begin:end]
        if t["dtype"] == "BF16":
            a = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            a = np.frombuffer(data, {"F32": "<f4"}[t["dtype"]])
        out[name] = (t["dtype"], a.reshape(t["shape"]))
    return out


def write(path, tensors):
    head, blobs, at = {}, [], 0
    for name, (dtype, a) in tensors.items():
        if dtype == "BF16":
            blob = (np.ascontiguousarray(a, "<f4").view("<u4") >> 16).astype("<u2").tobytes()
        else:
            blob = np.ascontiguousarray(a).tobytes()
        head[name] = {"dtype": dtype, "shape": list(a.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def nearest(table, x):
    """Index of the nearest entry of a rising table."""
    return np.searchsorted((table[1:] + table[:-1]) / 2, x).astype(np.uint8)


def bf16(x):
    return (np.asarray(x, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def uneven(largest, most, rng):
    """A scale that fits the largest value, and is no power of two."""
    scale = np.maximum(largest, 1e-6) / most * rng.uniform(1.02, 1.5, np.shape(largest))
    return np.asarray(scale, np.float32)


def to_fp8(w, scale):
    code = nearest(E4M3, np.abs(w) / scale)
    return code | np.where(w < 0, 128, 0).astype(np.uint8), np.sign(w) * E4M3[code] * scale


def fp8_block(w, rng):
    n, k = w.shape
    edges = [np.arange(0, size, BLOCK) for size in (n, k)]
    largest = np.maximum.reduceat(np.maximum.reduceat(np.abs(w), edges[0], 0), edges[1], 1)
    scale = bf16(uneven(largest, 440, rng))
    wide = np.repeat(np.repeat(scale, BLOCK, 0)[:n], BLOCK, 1)[:, :k]
    code, value = to_fp8(w, wide)
    return {"weight": ("F8_E4M3", code), "weight_scale_inv": ("BF16", scale)}, value


def fp8_tensor(w, rng):
    scale = uneven(np.abs(w).max(), 440, rng)
    code, value = to_fp8(w, scale)
    return {"weight": ("F8_E4M3", code), "weight_scale": ("F32", scale),
            "input_scale": ("F32", np.array(0.37, np.float32))}, value


def fp8_channel(w, rng):
    scale = bf16(uneven(np.abs(w).max(1, keepdims=True), 440, rng))
    code, value = to_fp8(w, scale)
    return {"weight": ("F8_E4M3", code), "weight_scale": ("BF16", scale)}, value


def to_nvfp4(w, scale_2):
    n, k = w.shape
    groups = w.reshape(n, k // GROUP, GROUP)
    scale = np.clip(nearest(E4M3, np.abs(groups).max(-1) / 6 / scale_2), 1, 126)
    wide = E4M3[scale][..., None] * scale_2
    code = nearest(E2M1, np.abs(groups) / wide) | np.where(groups < 0, 8, 0).astype(np.uint8)
    value = np.where(groups < 0, -1, 1) * E2M1[code & 7] * wide
    code = code.reshape(n, k)
    return code[:, ::2] | code[:, 1::2] << 4, scale, value.reshape(n, k).astype(np.float32)


def nvfp4(w, rng):
    """ModelOpt: the global scale multiplies; each matrix has its own."""
    scale_2 = uneven(np.abs(w).max(), 2500, rng)
    packed, scale, value = to_nvfp4(w, scale_2)
    return {"weight": ("U8", packed), "weight_scale": ("F8_E4M3", scale),
            "weight_scale_2": ("F32", scale_2),
            "input_scale": ("F32", np.array(0.21, np.float32))}, value


def nvfp4_reciprocal(w, rng):
    """compressed-tensors: the global scale divides."""
    divisor = (1 / uneven(np.abs(w).max(), 2500, rng)).astype(np.float32)
    packed, scale, value = to_nvfp4(w, np.float32(1) / divisor)
    return {"weight_packed": ("U8", packed), "weight_scale": ("F8_E4M3", scale),
            "weight_global_scale": ("F32", divisor.reshape(1)),
            "input_global_scale": ("F32", np.array([5.3], np.float32))}, value


PROJECTIONS = r"self_attn\.[qkvo]_proj|linear_attn\.(in_proj_(qkv|z|qkvz)|out_proj)"
EXPERTS = r"mlp\.experts\.\d+\.\w+_proj"
SHARED = r"mlp\.(shared_expert\.)?(gate|up|down)_proj"
# Which modules each release of this kind quantises, and how.
FORMATS = {
    "fp8-block": {f"{PROJECTIONS}|{EXPERTS}|{SHARED}": fp8_block},
    "fp8-tensor": {f"{PROJECTIONS}|{EXPERTS}|{SHARED}": fp8_tensor},
    "fp8-channel": {f"{PROJECTIONS}|{EXPERTS}|{SHARED}": fp8_channel},
    "modelopt-nvfp4": {EXPERTS: nvfp4},
    "modelopt-mixed": {f"{EXPERTS}|{SHARED}|lm_head": nvfp4, PROJECTIONS: fp8_tensor},
    "compressed-nvfp4": {rf"{EXPERTS}|{SHARED}|self_attn\.[qkvo]_proj": nvfp4_reciprocal},
    "nvfp4-head": {"lm_head": nvfp4},
}


def split_experts(tensors):
    out = {}
    for name, (dtype, a) in tensors.items():
        if name.endswith("mlp.experts.gate_up_proj"):
            half = a.shape[1] // 2
            parts = {"gate_proj": a[:, :half], "up_proj": a[:, half:]}
        elif name.endswith("mlp.experts.down_proj"):
            parts = {"down_proj": a}
        else:
            out[name] = (dtype, a)
            continue
        root = name[:name.rindex(".")]
        for kind, stack in parts.items():
            out.update({f"{root}.{e}.{kind}.weight": (dtype, w) for e, w in enumerate(stack)})
    return out


def requantise(tensors, schemes):
    """(tensors of the checkpoint, {name: the weights they stand for})."""
    stored, meant = {}, {}
    for name, (dtype, a) in split_experts(tensors).items():
        module = name.removesuffix(".weight")
        scheme = next((fn for pattern, fn in schemes.items() if module != name and
                       re.fullmatch(rf"(model\.(language_model\.)?layers\.\d+\.)?({pattern})", module)), None)
        if scheme is None:
            stored[name], meant[name] = (dtype, a), a
            continue
        parts, meant[name] = scheme(a, np.random.default_rng(zlib.crc32(name.encode())))
        stored.update({f"{module}.{part}": tensor for part, tensor in parts.items()})
    return stored, meant


def make(name, source, target):
    """Writes the checkpoint; returns {name: array} of what it stands for."""
    source, target = pathlib.Path(source), pathlib.Path(target)
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / "config.json", target / "config.json")
    stored, meant = requantise(read(source / "model.safetensors"), FORMATS[name])
    write(target / "model.safetensors", stored)
    return meant


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in FORMATS:
        sys.exit(__doc__ + "\nFORMAT: " + ", ".join(FORMATS))
    make(*sys.argv[1:])
