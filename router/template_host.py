"""Renders chat templates for the router, one request at a time, as a child process.

Descriptor 3 is a stream socket to the router. Frames to the child: u32 length (little
endian), JSON. Frames from it: u32 length, one byte that says what it is, UTF-8 text:
  r  ready (answer to the first frame)   o  rendered prompt
  n  the model has no template; the child ends
  e  the template or the messages are wrong, with the reason
  m  out of memory; the child ends
The environment is the one in which Hugging Face transformers renders chat templates.
"""
import datetime
import decimal
import json
import os
import re
import struct
import sys

FD = 3
MARK = "\U0010fffe"
ERROR_CHARS = 250


def read_exactly(n):
    parts = []
    while n > 0:
        part = os.read(FD, min(n, 1 << 20))
        if not part:
            os._exit(0)
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


def read_frame():
    (n,) = struct.unpack("<I", read_exactly(4))
    return read_exactly(n)


def write_frame(kind, text):
    body = kind + text
    data = memoryview(struct.pack("<I", len(body)) + body)
    while data:
        data = data[os.write(FD, data):]


class Digits(float):
    """A number whose text says more than a Python number holds: shown as it came."""

    def __new__(cls, text):
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __str__(self):
        return self.text

    __repr__ = __str__

    def __format__(self, spec):
        return format(float(self), spec) if spec else self.text


# Python converts no longer ones: it would take the square of their length.
INT_DIGITS_MAX = 4300
# Any decimal of so many digits is what its nearest double shows.
FLOAT_DIGITS = 15


def read_int(text):
    return int(text) if len(text) <= INT_DIGITS_MAX else Digits(text)


def read_float(text):
    """As Hugging Face shows it (1e2 is 100.0), unless that would change the value."""
    number = float(text)
    if len(text) <= FLOAT_DIGITS and "e" not in text and "E" not in text:
        return number
    if number in (float("inf"), float("-inf")):
        return Digits(text)
    if number == 0:
        digits = text.lower().partition("e")[0]
        return number if not digits.strip("-0.") else Digits(text)
    same = decimal.Decimal(text) == decimal.Decimal(repr(number))
    return number if same else Digits(text)


def read_request(frame):
    return json.loads(frame, parse_int=read_int, parse_float=read_float)


def write_json(value, ensure_ascii, **options):
    """json.dumps, with Digits as they came. Each stands in as a text that begins with
    one mark, which no text of a request does: masks come behind a character."""
    kept = []

    def swap(v):
        if isinstance(v, Digits):
            kept.append(v.text)
            return MARK + str(len(kept) - 1)
        if isinstance(v, (list, tuple)):
            return [swap(x) for x in v]
        if isinstance(v, dict):
            return {k: swap(x) for k, x in v.items()}
        return v

    text = json.dumps(swap(value), ensure_ascii=ensure_ascii, **options)
    if kept:
        mark = json.dumps(MARK, ensure_ascii=ensure_ascii)[1:-1]
        found = re.compile('"' + re.escape(mark) + '([0-9]+)"')
        text = found.sub(lambda m: kept[int(m[1])], text)
    return text


class NoTemplate(Exception):
    """Nothing is broken: the model is not for chats."""


class Masks:
    """Keeps text of users from yielding these tokens (common/model/tokenizer.h)."""

    def __init__(self, tokens):
        self.begins = {t[:k] for t in tokens for k in range(1, len(t))}
        self.longest = max((len(t) for t in tokens), default=0)
        self.whole = re.compile("(?=" + "|".join(map(re.escape, tokens)) + ")")
        self.any = bool(tokens)

    def text(self, s):
        s = s.replace(MARK, MARK + MARK)
        if not self.any:
            return s
        at = {m.start() for m in self.whole.finditer(s)}
        for i in range(max(0, len(s) - self.longest + 1), len(s)):
            if s[i:] in self.begins:
                at.add(i)
        if not at:
            return s
        out, last = [], 0
        for i in sorted(at):
            out += (s[last:i + 1], MARK)
            last = i + 1
        out.append(s[last:])
        return "".join(out)

    def value(self, v):
        if isinstance(v, str):
            return self.text(v)
        if isinstance(v, list):
            return [self.value(x) for x in v]
        if isinstance(v, dict):
            return {self.text(k): self.value(x) for k, x in v.items()}
        return v


class Masker:
    """Which masks each string of a request gets. Text of an assistant keeps the tokens
    that are not special: templates look for </think> there."""

    def __init__(self, added):
        # Nothing stands inside of one character; a special token never is one.
        self.all = Masks([text for text, _ in added if len(text) > 1])
        self.special = Masks([text for text, special in added if special])

    def member(self, role, name, value):
        if name == "role":
            return value  # one of a fixed set, compared by templates
        if role == "assistant" and name in ("content", "reasoning_content"):
            return self.special.value(value)
        return self.all.value(value)

    def message(self, m):
        return {k: self.member(m["role"], k, x) for k, x in m.items()}


def make_environment():
    import jinja2
    import jinja2.ext
    import jinja2.nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(jinja2.ext.Extension):
        """{% generation %} marks answers for training; rendering shows its body."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.Scope(body, lineno=line)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return write_json(
            x, ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def strftime_now(fmt):
        return datetime.datetime.now().strftime(fmt)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def read_text(path):
    with open(path, encoding="utf-8", newline="") as f:
        return f.read()


def find_template(model_dir, path, config):
    if path:
        return read_text(path)
    own = os.path.join(model_dir, "chat_template.jinja")
    if os.path.exists(own):
        return read_text(own)
    found = config.get("chat_template")
    if isinstance(found, list):
        found = {t["name"]: t["template"] for t in found}.get("default")
    if found is None:
        raise NoTemplate(
            model_dir + " has neither chat_template.jinja nor a chat_template in"
            " tokenizer_config.json"
        )
    if not isinstance(found, str):
        raise ValueError(model_dir + "/tokenizer_config.json: chat_template is no text")
    return found


def special_names(config):
    """bos_token and its like, which templates may use by name."""
    names = {}
    for name, value in config.items():
        if name.endswith("_token"):
            if isinstance(value, dict):
                value = value.get("content")
            if isinstance(value, str):
                names[name] = value
    return names


def start(frame):
    options = json.loads(frame)
    config = {}
    path = os.path.join(options["model_dir"], "tokenizer_config.json")
    if os.path.exists(path):
        config = json.loads(read_text(path))
    text = find_template(options["model_dir"], options["template_path"], config)
    template = make_environment().from_string(text)
    return template, special_names(config), Masker(options["added"])


# Stands at the end of a message that is to be continued. The last one in a prompt is ours:
# no text of a request comes behind it.
TAIL = MARK + "tail" + "\U0010fffd"


def continued(messages):
    """The last message with the tail mark behind its text."""
    last = dict(messages[-1])
    last["content"] = last["content"] + TAIL
    return messages[:-1] + [last]


def cut_at_tail(text):
    head, mark, _ = text.rpartition(TAIL)
    if not mark:
        raise NoTail("continue_final_message: the template does not show the last message")
    return head


class NoTail(Exception):
    """The template leaves the text of the last message out, or changes its end."""


def render(template, names, masker, frame):
    request = read_request(frame)
    values = dict(names)
    values.update(masker.all.value(request.get("kwargs") or {}))
    messages = [masker.message(m) for m in request["messages"]]
    goes_on = request.get("continue_final_message")
    values.update(
        messages=continued(messages) if goes_on else messages,
        tools=masker.all.value(request.get("tools")) or None,
        documents=None,
        add_generation_prompt=request["add_generation_prompt"],
    )
    text = template.render(values)
    return (cut_at_tail(text) if goes_on else text).encode("utf-8")


def reason(error):
    """What raise_exception says goes out as it is; all else with its kind."""
    text = str(error)
    if type(error).__name__ != "TemplateError":
        text = type(error).__name__ + ": " + text
    return text[:ERROR_CHARS].encode("utf-8", "replace")


def attempt(fn, *args):
    try:
        return b"o", fn(*args)
    except NoTemplate as error:
        return b"n", str(error).encode("utf-8", "replace")
    except MemoryError:
        return b"m", b""
    except Exception as error:  # whatever a template does wrong is the request's fault
        return b"e", reason(error)


def main():
    kind, state = attempt(start, read_frame())
    ready = kind == b"o"
    write_frame(b"r" if ready else kind, b"" if ready else state)
    while ready:
        what, text = attempt(render, *state, read_frame())
        write_frame(what, text)
        ready = what != b"m"
    return 0


if __name__ == "__main__":
    sys.exit(main())
