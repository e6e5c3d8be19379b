"""Messages between processes, read from common/wire/schema.def: nothing of the schema
is repeated here. A message is a type byte and a msgpack map with integer keys."""
import pathlib
import re
import struct

import msgpack

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _numbers(text, macro):
    body = re.search(macro + r"\(X\)(.*?)\nenum", text, re.S).group(1)
    return {name: i for i, name in enumerate(re.findall(r"X\((\w+),", body))}


def _schema():
    text = (ROOT / "common/wire/schema.def").read_text()
    groups = {}
    for name, body in re.findall(r"#define (\w+)\(m\) \\\n((?:.*\\\n)*.*)\n", text):
        groups[name] = [(key, kind if form == "F" else "records " + kind, member) for form, key, kind, member
                        in re.findall(r"([FR])\(m, (\d+), (struct \w+|\w+), (\w+)", body)]
    types, names = {}, {}
    for name, number, body in re.findall(r"^MSG\((\w+), (\d+),.*?\n(.*?)^END", text, re.S | re.M):
        fields = {}
        for line in body.splitlines():
            group = re.match(r"([A-Z]+)\(\w+\)", line)
            field = re.match(r"([FR])\(\w+, (\d+), (struct \w+|\w+), (\w+)", line)
            if group and group.group(1) in groups:
                for key, kind, member in groups[group.group(1)]:
                    fields[member] = (int(key), kind)
            elif field:
                kind = field.group(3) if field.group(1) == "F" else "records " + field.group(3)
                fields[field.group(4)] = (int(field.group(2)), kind)
        types[name] = (int(number), fields)
        names[int(number)] = name
    return types, names


TYPES, NAMES = _schema()
_HEADER = (ROOT / "common/wire/wire.h").read_text()
REJECT = _numbers(_HEADER, "WIRE_REJECT_MAP")
FINISH = _numbers(_HEADER, "WIRE_FINISH_MAP")
REFUSED = _numbers(_HEADER, "WIRE_REFUSAL_MAP")
PROTO = int(re.search(r"WIRE_PROTO_MAX\s+(\d+)u", _HEADER).group(1))
ROUTER, PREFILL, DECODE = 1, 2, 4

_RECORDS = {
    "uint32_t": ("<I", None),
    "uint64_t": ("<Q", None),
    "struct wire_token": ("<QIIHHf", ("seq", "attempt", "token", "choice", "n_tops", "logprob")),
    "struct wire_first": ("<IIfI", ("token", "n_tops", "logprob", "choice")),
    "struct wire_bias": ("<If", ("token", "add")),
    "struct wire_logprob": ("<If", ("token", "logprob")),
    "struct wire_held": ("<QII", ("seq", "attempt", "wanted")),
}


def _pack(kind, value):
    if not kind.startswith("records "):
        return float(value) if kind == "f64" else value
    form, members = _RECORDS[kind[8:]]
    return b"".join(struct.pack(form, *(v if members else [v])) for v in value)


def _unpack(kind, value):
    if not kind.startswith("records "):
        return value
    form, members = _RECORDS[kind[8:]]
    rows = list(struct.iter_unpack(form, value))
    return [dict(zip(members, r)) for r in rows] if members else [r[0] for r in rows]


def encode(name, **values):
    number, fields = TYPES[name]
    body = {fields[k][0]: _pack(fields[k][1], v) for k, v in values.items()}
    return bytes([number]) + msgpack.packb(body, use_bin_type=True)


def decode(frame):
    name = NAMES[frame[0]]
    fields = {key: (member, kind) for member, (key, kind) in TYPES[name][1].items()}
    body = msgpack.unpackb(frame[1:], raw=False, strict_map_key=False)
    return name, {fields[k][0]: _unpack(fields[k][1], v) for k, v in body.items()}
