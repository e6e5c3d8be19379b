#!/usr/bin/env python3
"""Refuse includes that point up a layer, words outside their home, long files, long
functions, and words that mark unfinished work. Run as a test; the tables are the rules."""
import pathlib
import re
import sys

COMMON = ["common/" + d for d in
          ("base", "wire", "model", "grammar", "loop", "state", "xfer", "engine", "worker")]
MAY_INCLUDE = {
    "common/base": [],
    "common/wire": ["common/base"],
    "common/model": ["common/base"],
    "common/grammar": ["common/base"],
    "kernels": ["common/base"],
    "common/loop": ["common/base", "common/wire"],
    "common/state": ["common/base", "common/model"],
    "common/xfer": ["common/base", "common/state", "common/wire", "common/loop", "common/model",
                    "kernels"],
    "common/engine": ["common/base", "common/grammar", "common/model", "common/state", "kernels"],
    "common/worker": COMMON + ["kernels"],
    "router": ["common/base", "common/grammar", "common/wire", "common/loop", "common/model"],
    "prefill-worker": COMMON + ["kernels"],
    "decode-worker": COMMON + ["kernels"],
    "deploy/ctl": ["common/base", "common/wire", "common/loop"],
    "deploy/tools": COMMON + ["kernels"],
}
# word -> the only places it may appear; tests may use any library to test with
HOME = {
    r"\b(s?getenv|secure_getenv|setenv)\b": ["common/loop/notify.c", "prefill-worker/main.c",
                                              "decode-worker/main.c"],
    r"\b[fvd]*printf\s*\(": ["common/base/log.c", "deploy/ctl/", "deploy/tools/"],
    r"\b(m|c|re)alloc\s*\(": ["common/base/mem.c"],
    r"<<<|\bcuda[A-Z]\w*\s*\(|cuda_runtime": ["kernels/cuda/"],
    r"\bcublas": ["kernels/cuda/"],
    r"\bnccl[A-Z]": [],
    r"\bzmq_": ["common/loop/bus.c", "common/loop/bus_"],
    r"\bmsgpack_": ["common/wire/"],
    r"\bMHD_": ["router/http"],
    r"\buv_": ["common/loop/"],
    r"jansson\.h|\bjson_t\b": [],
    r"\bjson_\w+\s*\(": ["common/base/json", "common/grammar/", "common/model/", "common/worker/report.c", "router/",
                        "deploy/ctl/"],
    r"\b(set|new|use)locale\b": [],
    r"\butf8proc": ["common/model/"],
    r"\bXXH|xxhash": ["common/base/hash"],
    r"\bpthread_mutex": ["common/base/"],
    r"\b(TODO|FIXME|XXX|HACK)\b|\bfor now\b|\blegacy\b|_v2\b": [],
}
# party of common/wire/schema.def -> where its handlers stand
_WORKER = ["common/worker/router_link.c", "common/worker/dispatch.c"]
HANDLERS = {
    "ROUTER": ["router/handlers.c"],
    "PREFILL": _WORKER + ["prefill-worker/"],
    "DECODE": _WORKER + ["decode-worker/"],
    "IMPORTER": ["common/xfer/peer.c"],
    "EXPORTER": ["common/xfer/exporter_msg.c"],
    "CTL": ["deploy/ctl/talk.c"],
}
LINES_MAX = 800
LINES_SOFT = 500
FUNCTION_MAX = 80
GENERATED = {"common/model/tok_classes.c"}
# An agreed exception with its reason.
LONG_OK = {}
SUFFIXES = (".c", ".h", ".cu", ".cuh", ".def")
NO_GO = re.compile(r"/work/|\bshared/golden|\bissue #?\d|\bsubagent|\bpypi\.org|\bdeb\.debian", re.I)


def layer_of(path):
    found = [layer for layer in MAY_INCLUDE if path.startswith(layer + "/")]
    return max(found, key=len, default=None)


def without_comments(text):
    """Blank comments and string literals, keep the lines."""
    def blank(m):
        return re.sub(r"[^\n]", " ", m[0])
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def long_functions(code):
    """Functions in this tree end with a brace in column one."""
    start = None
    for n, line in enumerate(code, 1):
        if line.startswith("{"):
            start = n
        elif line.startswith("}") and start is not None:
            if n - start - 1 > FUNCTION_MAX:
                yield start, n - start - 1
            start = None


def unhandled_messages(root):
    """Each message has one handler at each party that may receive it: an entry of a table
    of handlers, or a comparison with its type."""
    schema = (root / "common/wire/schema.def").read_text()
    both = {name: set(re.findall(r"WIRE_(\w+)", mask))
            for name, mask in re.findall(r"^#define (\w+) (\(WIRE_.*\))$", schema, re.M)}
    messages = re.findall(r"^MSG\((\w+), \d+, [^,]+, ([^,)]+)\)", schema, re.M)
    if not messages:
        yield "common/wire/schema.def: no message was found in it"
    for name, mask in messages:
        parties = {w for part in re.findall(r"\w+", mask)
                   for w in both.get(part, [part.removeprefix("WIRE_")])}
        for party in sorted(parties):
            files = [p for home in HANDLERS[party]
                     for p in sorted([root / home] if home.endswith(".c") else root.glob(home + "*.c"))]
            handled = rf"\{{MSG_{name},|== MSG_{name}\b"
            found = [p.name for p in files for _ in re.findall(handled, p.read_text())]
            if files and len(found) != 1:
                yield f"common/wire/schema.def: {name} has {len(found)} handlers at {party}: {found}"


def complaints(root):
    yield from unhandled_messages(root)
    for path in sorted(root.rglob("*")):
        rel = path.relative_to(root).as_posix()
        if rel.startswith(("build", ".git/", ".dev/")) or not path.is_file():
            continue
        if path.suffix not in SUFFIXES:
            continue
        text = path.read_text(errors="replace")
        raw, code = text.split("\n"), without_comments(text).split("\n")
        if rel not in GENERATED and len(raw) > LINES_MAX:
            yield f"{rel}: {len(raw)} lines, the limit is {LINES_MAX}"
        elif rel not in GENERATED and rel not in LONG_OK and len(raw) > LINES_SOFT + 100:
            yield f"{rel}: {len(raw)} lines, a file should stay near {LINES_SOFT}"
        me = layer_of(rel)
        is_test = rel.startswith("tests/")
        for n, line in enumerate(raw, 1):
            inc = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            to = layer_of(inc[1]) if inc else None
            if me and to and to != me and to not in MAY_INCLUDE[me]:
                yield f"{rel}:{n}: {me} may not include {to}"
        if is_test:
            continue
        for n, line in enumerate(code, 1):
            for word, homes in HOME.items():
                if re.search(word, line) and not rel.startswith(tuple(homes) or "\0"):
                    if "#pragma GCC poison" in line or "__attribute__((format" in line:
                        continue
                    yield f"{rel}:{n}: {word} belongs in {homes or 'no file'}"
        for start, length in long_functions(code):
            if rel not in GENERATED:
                yield f"{rel}:{start}: function of {length} lines, the limit is {FUNCTION_MAX}"
    for path in sorted(root.rglob("*")):
        rel = path.relative_to(root).as_posix()
        if rel.startswith(("build", ".git/", ".dev/", "tests/golden/")) or not path.is_file():
            continue
        if path.suffix not in SUFFIXES + (".py", ".sh", ".md", ".txt", ".cmake", ".conf"):
            continue
        if rel == "tests/check_tree.py":
            continue
        for n, line in enumerate(path.read_text(errors="replace").split("\n"), 1):
            if NO_GO.search(line):
                yield f"{rel}:{n}: speaks of something outside the project: {line.strip()[:60]}"


if __name__ == "__main__":
    found = list(complaints(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
    print("\n".join(found) or "tree rules hold")
    sys.exit(bool(found))
