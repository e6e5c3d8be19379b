#!/usr/bin/env python3
"""Compare our tokenizer with the Hugging Face `tokenizers` package on random texts.

usage: tok_oracle.py TOK_CLI MODEL_DIR [N [SEED]]
needs: a Python with tokenizers==0.23.1; TOK_CLI is build/*/tests/tok_cli.

Four comparisons of N texts each: added tokens recognised; the text as plain; masked
texts of users between template texts; decoding of random ids. Exit 1 at a difference.
"""
import json
import random
import subprocess
import sys

from tokenizers import Tokenizer

MARK = "\U0010FFFE"
SPACES = ([*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029]
          + [0x202F, 0x205F, 0x3000, 0x1C, 0x1F, 0x180E, 0x200B, 0xFEFF])
WORDS = ["'s", "'S", "'\u017f", "'re", "'RE", "'ve", "'m", "'ll", "'lL", "'d", "'t", "'", "''",
         "hello", " the", "Count", "ſ", "K", "\r\n", "\n\n", " \n", "\t", "  ", "   ",
         "12345", "٣", "²", "½", "Ⅷ", "{}", "();", "->", "...", "你好", "Äpfel", "é", "e\u0301",
         "\u1100\u1161\u11a8", "가", "각", "\uac00\u11a8", "👩\u200d👩\u200d👧", "🇩🇪",
         "\u0344", "\u0958", "\u2126", "\u212b", "क्षि", "ไทย", "\ufb05", "'\ufb05", MARK]


def texts(rng, added, n):
    """Random texts of several kinds; each has at most about 200 characters."""
    marks = [c for r in ((0x300, 0x370), (0x591, 0x5C8), (0x7EB, 0x7F4), (0x898, 0x8FF),
                         (0x93C, 0x94E), (0x1AB0, 0x1ACF), (0x1DC0, 0x1E00), (0x302A, 0x3030),
                         (0x3099, 0x309B), (0x11930, 0x11945), (0x1D165, 0x1D1AE),
                         (0x1E8D0, 0x1E8D7), (0x16D60, 0x16D6B)) for c in range(*r)]
    bases = [*b"aeiouAEnSk", 0x1100, 0x1161, 0x11A8, 0xAC00, 0x915, 0x9C7, 0x3042, 0x30AB]

    def scalar(top):
        c = rng.randrange(top)
        return chr(c) if not 0xD800 <= c < 0xE000 else "x"

    def fragment(t):
        i, j = sorted((rng.randrange(len(t) + 1), rng.randrange(len(t) + 1)))
        return t[i:j]

    kinds = [
        lambda: scalar(0x110000), lambda: scalar(0x3000), lambda: scalar(0x20000),
        lambda: scalar(0x250), lambda: chr(rng.choice(SPACES)), lambda: rng.choice(WORDS),
        lambda: chr(rng.choice(marks)), lambda: chr(rng.choice(bases)),
        lambda: rng.choice(added), lambda: fragment(rng.choice(added)),
        lambda: chr(rng.randrange(32, 127)), lambda: rng.choice("'stmdrevl\u017f \n1"),
        lambda: rng.choice("abcdefghij") * rng.randrange(1, 40),
    ]
    for _ in range(n):
        some = rng.sample(kinds, rng.randrange(1, 6))
        yield "".join(rng.choice(some)() for _ in range(rng.randrange(1, 40)))


def mask(text, specials):
    """The rule of common/model/tokenizer.h, word for word."""
    text = text.replace(MARK, MARK + MARK)
    out = []
    for i, c in enumerate(text):
        rest = text[i:]
        out.append(c)
        if any(rest.startswith(s) or s.startswith(rest) for s in specials):
            out.append(MARK)
    return "".join(out)


class Cli:
    def __init__(self, path, model):
        self.p = subprocess.Popen([path, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, flags, data):
        self.p.stdin.write(f"{flags} {len(data)}\n".encode() + data)
        self.p.stdin.flush()
        return self.p.stdout.readline().decode().rstrip("\n")

    def encode(self, flags, text):
        line = self.ask(flags, text.encode())
        return line if line.startswith("!") else [int(x) for x in line.split()]

    def decode(self, ids):
        n = int(self.ask("b", " ".join(map(str, ids)).encode()))
        return self.p.stdout.read(n + 1)[:-1].decode()


def compare(what, pairs):
    n = bad = 0
    for given, ours, theirs in pairs:
        n += 1
        if ours != theirs:
            bad += 1
            if bad <= 5:
                print(f"{what}: {given!a}\n  ours   {ours}\n  theirs {theirs}")
    print(f"{what}: {n} compared, {bad} differ")
    return bad


def main():
    cli_path, model = sys.argv[1:3]
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 20000
    rng = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    spec = json.load(open(f"{model}/tokenizer.json", encoding="utf-8"))
    added = [t["content"] for t in spec["added_tokens"]]
    specials = [t["content"] for t in spec["added_tokens"] if t["special"]]
    hf = Tokenizer.from_str(json.dumps(spec))
    plain_only = Tokenizer.from_str(json.dumps({**spec, "added_tokens": []}))
    no_special = Tokenizer.from_str(json.dumps(
        {**spec, "added_tokens": [t for t in spec["added_tokens"] if not t["special"]]}))
    renumber = {no_special.token_to_id(t): hf.token_to_id(t) for t in added
                if no_special.token_to_id(t) is not None}
    cli = Cli(cli_path, model)
    vocab = hf.get_vocab_size(with_added_tokens=True)

    def ids(tok, text):
        return tok.encode(text, add_special_tokens=False).ids

    def masked():
        for a, b in zip(texts(rng, added, n), texts(rng, added, n)):
            prompt = "<|im_start|>" + mask(a, specials) + mask(b, specials) + "<|im_end|>"
            want = [renumber.get(i, i) for i in ids(no_special, a + b)]
            want = [hf.token_to_id("<|im_start|>"), *want, hf.token_to_id("<|im_end|>")]
            yield (a, b), cli.encode("am", prompt), want

    def decoded():
        for _ in range(n):
            some = [rng.randrange(vocab if rng.random() < .5 else 256)
                    for _ in range(rng.randrange(1, 30))]
            yield some, cli.decode(some), hf.decode(some, skip_special_tokens=False)

    bad = compare("added", ((s, cli.encode("a", s), ids(hf, s)) for s in texts(rng, added, n)))
    bad += compare("plain", ((s, cli.encode("-", s), ids(plain_only, s))
                             for s in texts(rng, added, n)))
    bad += compare("masked", masked())
    bad += compare("decode", decoded())
    sys.exit(1 if bad else 0)


main()
