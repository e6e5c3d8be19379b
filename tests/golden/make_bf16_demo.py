#!/usr/bin/env python3
"""The demo model in BF16, made from its ModelOpt NVFP4 form.

    make_bf16_demo.py NVFP4_DIR OUT_DIR

Every routed expert is dequantised (w = e2m1(code) * e4m3(scale) * weight_scale_2) and
the experts of a layer are joined into gate_up_proj and down_proj; every other tensor is
copied as it is. The demo's weight_scale_2 are powers of two, so each weight is exact in
BF16; a weight that is not is an error, not a rounding. Standard library only.
"""
import array
import functools
import json
import pathlib
import re
import shutil
import struct
import sys

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
E2M1 += [-v for v in E2M1]
EXPERT = re.compile(
    r"(model\.language_model\.layers\.\d+\.mlp\.experts)\.(\d+)\.(gate|up|down)_proj\.(\w+)$")


def e4m3(code):
    if code & 0x7F == 0x7F:
        sys.exit("NaN block scale")
    exponent, mantissa = code >> 3 & 15, code & 7
    value = mantissa * 2.0**-9 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -value if code & 0x80 else value


def bf16(value):
    word, = struct.unpack("<I", struct.pack("<f", value))
    if word & 0xFFFF or struct.unpack("<f", struct.pack("<I", word))[0] != value:
        sys.exit(f"{value!r} is not exact in BF16")
    return word >> 16


@functools.lru_cache(maxsize=None)
def table(scale_code, scale_2):
    """Two BF16 weights for each byte of two codes, as one 32-bit little-endian word."""
    scale = e4m3(scale_code) * scale_2
    half = [bf16(v * scale) for v in E2M1]
    return [half[byte & 15] | half[byte >> 4] << 16 for byte in range(256)]


def dequantise(weight, scales, scale_2):
    """weight: U8 [N, K/2]; scales: E4M3 [N, K/16]; both row-major, so that each scale
    byte belongs to the next 8 bytes of weight."""
    out = array.array("I")
    for i, code in enumerate(scales):
        words = table(code, scale_2)
        out.extend([words[byte] for byte in weight[8 * i:8 * i + 8]])
    if sys.byteorder == "big":
        out.byteswap()
    return out.tobytes()


def read(path):
    blob = path.read_bytes()
    size, = struct.unpack("<Q", blob[:8])
    header = json.loads(blob[8:8 + size])
    header.pop("__metadata__", None)
    base = 8 + size
    return {name: (t["dtype"], t["shape"],
                   blob[base + t["data_offsets"][0]:base + t["data_offsets"][1]])
            for name, t in header.items()}


def fuse(tensors):
    """The same tensors with the experts of each layer joined."""
    out, experts = {}, {}
    for name, tensor in tensors.items():
        m = EXPERT.match(name)
        if not m:
            out[name] = tensor
            continue
        experts.setdefault(m[1], {}).setdefault((int(m[2]), m[3]), {})[m[4]] = tensor
    for prefix, parts in experts.items():
        count = 1 + max(e for e, _ in parts)
        joined = {"gate_up_proj": [], "down_proj": []}
        for e in range(count):
            for kind in ("gate", "up", "down"):
                p = parts[e, kind]
                scale_2, = struct.unpack("<f", p["weight_scale_2"][2])
                data = dequantise(p["weight"][2], p["weight_scale"][2], scale_2)
                joined["down_proj" if kind == "down" else "gate_up_proj"].append(data)
        n, half_k = parts[0, "gate"]["weight"][1]
        out[prefix + ".gate_up_proj"] = (
            "BF16", [count, 2 * n, 2 * half_k], b"".join(joined["gate_up_proj"]))
        n, half_k = parts[0, "down"]["weight"][1]
        out[prefix + ".down_proj"] = ("BF16", [count, n, 2 * half_k],
                                      b"".join(joined["down_proj"]))
    return out


def write(path, tensors):
    """Wider types first, then by name: the order in which such files usually are."""
    names = sorted(tensors, key=lambda n: (tensors[n][0] != "F32", n))
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name in names:
        dtype, shape, data = tensors[name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            f.write(tensors[name][2])


def main(source, target):
    target.mkdir(parents=True, exist_ok=True)
    write(target / "model.safetensors", fuse(read(source / "model.safetensors")))
    config = json.loads((source / "config.json").read_text())
    config.pop("quantization_config", None)
    (target / "config.json").write_text(json.dumps(config, indent=1))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json",
                 "chat_template.jinja"):
        shutil.copyfile(source / name, target / name)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
