"""A reader and a writer of safetensors files for the golden tests, on the standard
library alone: a tensor is (dtype, shape, array)."""
import array
import json
import struct

CODES = {"F32": "f", "I32": "i", "BF16": "H", "U8": "B"}


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    tensors = {}
    for name, t in head.items():
        if name == "__metadata__" or t["dtype"] not in CODES:
            continue
        begin, end = t["data_offsets"]
        values = array.array(CODES[t["dtype"]])
        values.frombytes(data[8 + size + begin:8 + size + end])
        tensors[name] = (t["dtype"], t["shape"], values)
    return tensors


def write(path, tensors):
    head, at = {}, 0
    for name, (dtype, shape, values) in tensors.items():
        end = at + len(values) * values.itemsize
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, values in tensors.values():
            values.tofile(f)


def ids(values):
    return ("I32", [len(values)], array.array("i", values))


def floats(values):
    return array.array("f", values)
