"""The JSON reader and writer against Python's json: the same verdict on every text, and
the same values written again, numbers by their digits."""
import json
import random
import subprocess

import pytest

DEPTH_MAX = 256
# Each stands alone, in an array and as a member.
SCALARS = """
0 -0 1 -1 12 0.0 -0.0 0.5 1.50 1e5 1E5 1e+5 1e-5 1.5e300 1e400 -1e400 1e-400 0e0 0e+1
123456789012345678901234567890 18446744073709551615 18446744073709551616 9007199254740993
1000000000000000019884624838656 3.141592653589793238462643383279 true false null
00 01 -01 +1 .5 5. -.5 5.e3 1e 1e+ 1e- 1.e1 0x10 0b1 1_000 1,5 -- - + -a 1a 1.2.3 1e2.3 1e1e1 0e 0e+ 2.e3 -2. 9.e+
NaN -NaN +NaN Infinity -Infinity +Infinity nan inf Inf -inf infinity
True False None nul nulll tru truee fals TRUE Null undefined 'a' a \\u0061
"" "a" "\\"" "\\\\" "\\/" "\\b\\f\\n\\r\\t" "\\u0041" "\\u00e9" "\\u20ac" "\\ud83d\\ude00" "\\uD83D\\uDE00" "\\u0000" "\\uffff" "\\ufdd0"
"\\u2028\\u2029" "\\ufeff" "\\ud800\\udc00" "\\udbff\\udfff"
"\\ud800" "\\udc00" "\\ud800a" "\\ud800\\n" "\\ud800\\ud800" "\\udc00\\ud800" "\\ud83d\\u0041" "\\ude00\\ud83d" "x\\ud800" "\\ud800\\\\udc00"
"\\u" "\\u1" "\\u12" "\\u123" "\\u123g" "\\u+123" "\\u 123" "\\u-123" "\\U0041" "\\x41" "\\a" "\\'" "\\0" "\\ " "\\" "a "a\\ " """.split() + [
    '"é"', '"€ 漢字"', '"😀"', '"\x7f"', '"\u2028\u2029"', '"\ufeff"', '"\uffff"', '" a  b "', '"\\ud83d\\ude00é\\u00e9"',
    '"a\nb"', '"a\tb"', '"\x00"', '"\x1f"', '"a\x00b"', '"\r"', '\x00', '\x01', '\x0c1', '\u00a01', '\u20281', '\ufeff1', 'é', '1\x00']
STRUCTURES = r"""
[] {} [[]] [{}] {"a":[]} {"a":{}} {"a":{"b":{"c":[1,{"d":2}]}}} [1,2,3] [1,[2,[3,[4]]]] {"":0} {"a":1,"b":2} {"a":1,"A":2} [null,true,false]
{"a":1,"a":1} {"a":1,"b":2,"a":3} {"\u0061":1,"a":2} {"a":{"b":1},"b":{"b":1}} {"a":{"b":1,"b":2}} {"":1,"":2} {"a\u0000":1,"a":2} [{"a":1},{"a":1}]
[1,] [,1] [,] [1,,2] [1 2] [1;2] [1 ] [ 1] {"a":1,} {,"a":1} {"a"} {"a":} {"a",1} {:1} {1:1} {a:1} {'a':1} {null:1} {"a":1 "b":2} {"a"::1} {"a":1,,"b":2}
{"a":1;"b":2} {["a"]:1} {{}:1} {"a":1:2} [ ] { } [ { ] } [} {] [} ]] }} [1]] {"a":1}} [[1] {"a":[1} {"a":[1]] [1}{ [[[]] {"a":{"b":1} [1],[2] [1][2] {}{} 1 2 "a""b" [] []
["a" ["a {"a {"a" {"a": {"a":1 [1 [1, [tru [nul ["\ ["\u ["\u0 [- [1. [1e //1 /**/1 [1/*x*/] #1 [1]//x [1]x [1],  , : ; [:] [1:2] *
""".split() + [
    "", " ", "\n", "\t\r\n ", " 1 ", "\n[\n1\n,\n2\n]\n", "[1,\x0b2]", "[1,\x0c2]", "[1\u00a0]", "\ufeff[]", "[]\x00", "[]\n\x00", "[1] ", "[1]\x1a",
    " { \"a\" : [ 1 , 2 ] , \"b\" : null } ", "{\r\n\"a\"\r\n:\r\n1\r\n}"]
BYTES = [b"\xff", b'"\xff"', b'"\x80"', b'"\xc0\x80"', b'"\xc3"', b'"\xc3', b'"\xe2\x82"', b'"\xed\xa0\x80"', b'"\xed\xbf\xbf"', b'"\xf4\x90\x80\x80"',
         b'"\xf0\x80\x80\x80"', b'"\xf8\x88\x80\x80\x80"', b'"\xe0\x80\xaf"', b'"\xf0\x9f\x98"', b'"ab\xf0\x9f\x98\x80cdefgh\xe9ij"', b"[1,\xe9]",
         b'{"\xff":1}', b'"\xf4\x8f\xbf\xbf"', b'"\xee\x80\x80\xef\xbf\xbf"', b"\xfe\xff\x00[", b"[\x00]\x00"]


def texts():
    some = [s.encode() for s in SCALARS + STRUCTURES] + BYTES
    for s in SCALARS:
        some += [f"[{s}]".encode(), f'{{"k":{s}}}'.encode(), f'[0,{s} ,"z"]'.encode()]
    for pad in range(18):  # every phase of a reader that takes several bytes at once
        some += [f'["{"x" * pad}{s}"]'.encode() for s in ('"', "\\n", "\n", "é", "\\ud83d\\ude00", "\\ud800", "\x7f", "\\")]
    for depth in (1, 2, 255, 256, 257, 400):
        some += [b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth, b"[" * depth, b"[" * depth + b"]" * (depth - 1)]
    for n in (15, 16, 17, 18, 40, 300):
        members = [f'"m{i}":{i}' for i in range(n)]
        some += [("{" + ",".join(members) + "}").encode(), ("{" + ",".join(members + ['"m7":0']) + "}").encode()]
    rng = random.Random(17)
    seeds = [t for t in some if len(t) > 4]
    for _ in range(6000):
        t = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(t) + 1)
            new = rng.choice([b"", b",", b":", b"]", b"}", b"[", b"{", b'"', b"\\", b"0", b"-", b".", b"e", b" ", b"\\u", b"d8", b"\xe9", bytes([rng.randrange(256)])])
            t[at:at + rng.randint(0, 2)] = new
        some.append(bytes(t))
    return some


class Refused(Exception):
    pass


class Number(str):
    pass


def expected(text, python):
    """The values with numbers as their text, or Refused."""
    def members(pairs):
        if len({name for name, _ in pairs}) < len(pairs):
            raise Refused("a name twice")
        return dict(pairs)

    def constant(text):
        if not python:
            raise Refused(text)
        return Number(text)

    def check(value, depth):
        if isinstance(value, (list, dict)) and depth >= DEPTH_MAX:
            raise Refused("depth")
        if isinstance(value, str):
            value.encode()  # a lone surrogate cannot be
        elif isinstance(value, list):
            for v in value:
                check(v, depth + 1)
        elif isinstance(value, dict):
            for name, v in value.items():
                name.encode()
                check(v, depth + 1)

    try:
        value = json.loads(text.decode("utf-8"), parse_int=Number, parse_float=Number, parse_constant=constant, object_pairs_hook=members)
        check(value, 0)
    except (ValueError, Refused, RecursionError) as e:
        raise Refused(str(e)) from e
    return value


def quoted(text):
    short = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(short[c] if c in short else f"\\u{ord(c):04x}" if c < " " or c in "\x7f\u2028\u2029" else c for c in text) + '"'


def written(value):
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return "{" + ",".join(quoted(n) + ":" + written(v) for n, v in value.items()) + "}"


@pytest.mark.parametrize("python", [False, True])
def test_same_verdict_and_values_as_python(build, python):
    all_texts = texts()
    stdin = b"".join(b"%d\n%s" % (len(t), t) for t in all_texts)
    done = subprocess.run([build / "tests" / "json_cli", *(["python"] if python else [])], input=stdin, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    rest, taken = done.stdout, 0
    for text in all_texts:
        head, rest = rest.split(b"\n", 1)
        verdict, length = head.split()
        said, rest = rest[:int(length)], rest[int(length) + 1:]
        try:
            want = written(expected(text, python)).encode()
        except Refused as why:
            assert verdict == b"refused", (text, str(why), said)
            assert said.startswith(b"JSON line "), said
            said.decode()
        else:
            assert (verdict, said) == (b"ok", want), text
            taken += 1
    assert rest == b""
    assert 400 < taken < len(all_texts) - 400
