"""Very long texts through /tokenize of a router that has one core, while /health is
asked every 10 ms. With the demo's vocabulary, and the real one where it can be had."""
import http.client
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import threading
import time

import pytest

from cluster import ROOT, free_port, wait_for

sys.path.insert(0, str(ROOT / "tests/golden"))
from test_tok_oracle import oracle, real_vocabulary  # noqa: E402,F401: fixtures

DEMO = ROOT / "deploy/demo-model"
TRIES = 5  # a busy machine may spoil some
SECONDS, HEALTH_MS = 2.0, 100


class Router:
    """baton-router alone, on one core."""

    def __init__(self, build, runtime, model):
        self.port = free_port()
        core = min(os.sched_getaffinity(0))
        self.log = pathlib.Path(runtime) / "r0.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [build / "bin/baton-router", f"--model={model}", f"--runtime-dir={runtime}",
                 f"--port={self.port}", "--served-model-name=demo"], stderr=log,
                preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        wait_for(self.listens, 60)

    def listens(self):
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.ask("GET", "/live")[0] == 200
        except OSError:
            return False

    def ask(self, method, path, body=None):
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        conn.request(method, path, body, {"Content-Type": "application/json"})
        answer = conn.getresponse()
        out = answer.status, answer.read()
        conn.close()
        return out

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module", params=["demo", "real"])
def model(request, tmp_path_factory):
    """The demo's folder, also with the real tokenizer.json."""
    if request.param == "demo":
        return DEMO
    real = request.getfixturevalue("real_vocabulary")
    folder = tmp_path_factory.mktemp("tok") / "real"
    folder.mkdir()
    for name in ("chat_template.jinja", "generation_config.json"):
        shutil.copyfile(DEMO / name, folder / name)
    config = json.loads((DEMO / "config.json").read_text())
    config["text_config"]["vocab_size"] = 248320
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").symlink_to(real / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}))
    return folder


@pytest.fixture
def router(build, runtime, model):
    r = Router(build, runtime, model)
    yield r
    r.close()


class Health(threading.Thread):
    """Asks /health every 10 ms on one connection; keeps the longest wait."""

    def __init__(self, router):
        super().__init__()
        self.conn = http.client.HTTPConnection("127.0.0.1", router.port, timeout=60)
        self.stop, self.waits = threading.Event(), []

    def run(self):
        while not self.stop.is_set():
            begun = time.monotonic()
            self.conn.request("GET", "/health")
            answer = self.conn.getresponse()
            answer.read()
            self.waits.append(time.monotonic() - begun)
            time.sleep(0.01)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.join()


def mixed_text():
    """1 MB of UTF-8: words, digits, spaces, scripts of every plane, marks."""
    rng = random.Random(3)
    kinds = [lambda: rng.choice(["the ", "Count ", "naïve ", "\n\n", "  ", "don't ", "x = {1};\n"]),
             lambda: chr(rng.randrange(0x3040, 0x30FF)), lambda: chr(rng.randrange(0x4E00, 0x9FFF)),
             lambda: "e\u0301", lambda: str(rng.randrange(10**6)), lambda: chr(rng.randrange(0x400, 0x530)),
             lambda: chr(rng.randrange(0x1F300, 0x1FAFF)), lambda: chr(rng.randrange(0x20000, 0x2A6DF)),
             lambda: chr(rng.randrange(0x10330, 0x10350)), lambda: "a" * rng.randrange(60)]
    parts, size = [], 0
    while size < 1_000_000:
        parts.append(rng.choice(kinds)())
        size += len(parts[-1].encode())
    return "".join(parts)


def normal(text):
    import unicodedata
    return unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("text", ["a" * 1_000_000, mixed_text(), " " * 1_000_000, "\u0301" * 500_000],
                         ids=["a million a", "a megabyte of everything", "a million spaces", "marks alone"])
def test_long_texts_take_two_seconds_and_delay_nobody(text, router):
    body = json.dumps({"prompt": text, "add_special_tokens": False}).encode()
    took = waited = None
    for _ in range(TRIES):
        with Health(router) as health:
            begun = time.monotonic()
            status, answer = router.ask("POST", "/tokenize", body)
            seconds = time.monotonic() - begun
        assert status == 200, answer[:300]
        took = min(seconds, took or seconds)
        waited = min(max(health.waits), waited or 1e9)
        assert len(health.waits) > 3
        if took < SECONDS and waited * 1000 < HEALTH_MS:
            break
    print(f"took {took:.3f} s, longest wait for /health {waited * 1000:.1f} ms")
    ids = json.loads(answer)["tokens"]
    back = json.loads(router.ask("POST", "/detokenize", json.dumps({"tokens": ids}).encode())[1])
    assert normal(back["prompt"]) == normal(text)
    assert took < SECONDS
    assert waited * 1000 < HEALTH_MS
