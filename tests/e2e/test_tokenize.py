"""Very long texts through /tokenize, and very many ids through /detokenize, of a router
that has one core, while /health is asked every 10 ms. With the demo's vocabulary, and the
real one where it can be had."""
import http.client
import json
import random
import shutil
import sys
import threading
import time

import pytest

from cluster import MEMORY_ROUNDING, ROOT, wait_for
from lone_router import Router

sys.path.insert(0, str(ROOT / "tests/golden"))
from test_tok_oracle import oracle, real_vocabulary  # noqa: E402,F401: fixtures

DEMO = ROOT / "deploy/demo-model"
TRIES = 5  # a busy machine may spoil some
SECONDS, HEALTH_MS = 2.0, 100


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


def ask_beside_health(router, path, body):
    """(answer, seconds, longest wait for /health): the best of some tries."""
    took = waited = 1e9
    for _ in range(TRIES):
        with Health(router) as health:
            begun = time.monotonic()
            status, answer = router.ask("POST", path, body)
            seconds = time.monotonic() - begun
        assert status == 200, answer[:300]
        assert len(health.waits) > 3
        took, waited = min(seconds, took), min(max(health.waits), waited)
        if took < SECONDS and waited * 1000 < HEALTH_MS:
            break
    print(f"took {took:.3f} s, longest wait for /health {waited * 1000:.1f} ms")
    return json.loads(answer), took, waited


@pytest.mark.parametrize("text", ["a" * 1_000_000, mixed_text(), " " * 1_000_000, "\u0301" * 500_000],
                         ids=["a million a", "a megabyte of everything", "a million spaces", "marks alone"])
def test_long_texts_take_two_seconds_and_delay_nobody(text, router):
    body = json.dumps({"prompt": text, "add_special_tokens": False}).encode()
    answer, took, waited = ask_beside_health(router, "/tokenize", body)
    back = json.loads(router.ask("POST", "/detokenize", json.dumps({"tokens": answer["tokens"]}).encode())[1])
    assert normal(back["prompt"]) == normal(text)
    assert took < SECONDS
    assert waited * 1000 < HEALTH_MS


def test_a_million_ids_take_two_seconds_and_delay_nobody(router):
    text = mixed_text()
    ids = json.loads(router.ask("POST", "/tokenize", json.dumps({"prompt": text}).encode())[1])["tokens"]
    repeats = 1_000_000 // len(ids) + 1
    body = json.dumps({"tokens": (ids * repeats)[:1_000_000]}).encode()
    answer, took, waited = ask_beside_health(router, "/detokenize", body)
    whole = normal(text) * repeats
    assert len(answer["prompt"]) > len(whole) * (repeats - 1) // repeats - 1
    assert whole.startswith(normal(answer["prompt"])[:-1])
    assert took < SECONDS
    assert waited * 1000 < HEALTH_MS


def test_a_client_that_leaves_its_ids_behind_costs_nothing_after(router):
    """The job goes on without it; the next one is answered, and the memory comes back."""
    def memory():
        lines = router.ask("GET", "/metrics")[1].decode().splitlines()
        return float(next(line for line in lines if line.startswith("baton_request_memory_bytes")).split()[1])

    before = memory()
    for _ in range(3):
        conn = http.client.HTTPConnection("127.0.0.1", router.port, timeout=60)
        conn.request("POST", "/detokenize", json.dumps({"tokens": [7] * 1_000_000}))
        time.sleep(0.02)
        conn.close()
    assert json.loads(router.ask("POST", "/detokenize", b'{"tokens": []}')[1])["prompt"] == ""
    wait_for(lambda: memory() <= before + MEMORY_ROUNDING, 10)


@pytest.mark.parametrize("tokens, param", [([1, 1 << 30], "tokens"), ([1, -1], "tokens[1]"), ("x", "tokens")])
def test_ids_that_are_none_are_refused_by_name(router, tokens, param):
    status, answer = router.ask("POST", "/detokenize", json.dumps({"tokens": tokens}))
    error = json.loads(answer)["error"]
    assert status == 400 and error["code"] == "invalid_value" and error["param"] == param, answer
