"""A real cluster for a test: launcher, router and workers as separate processes, on a
free port, in a runtime folder of its own. Standard library only."""
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LAUNCHER = ROOT / "deploy" / "baton"
CONVERSATIONS = [json.loads(line) for line in
                 (ROOT / "tests/golden/demo_conversations.jsonl").read_text().splitlines()]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# baton_request_memory_bytes counts what malloc reserved: the same pieces are some bytes more or
# less in another order. What a request left behind would be far more.
MEMORY_ROUNDING = 4096


def wait_for(what, seconds, step=0.02):
    """Calls what() until it is true; the last value otherwise fails the test."""
    deadline = time.monotonic() + seconds
    while True:
        value = what()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s: {what.__name__} gave {value!r}"
        time.sleep(step)


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


class Stream:
    """One streamed answer, read event by event."""

    def __init__(self, cluster, path, body, timeout=60):
        self.conn = http.client.HTTPConnection("127.0.0.1", cluster.port, timeout=timeout)
        self.begun = time.monotonic()
        self.conn.request("POST", path, json.dumps(dict(body, stream=True)),
                          {"Content-Type": "application/json"})
        self.answer = self.conn.getresponse()
        self.status = self.answer.status
        self.id = self.answer.getheader("X-Request-Id")
        self.done = False

    def events(self):
        """Decoded data events; sets done at [DONE]."""
        for line in self.answer:
            line = line.rstrip(b"\r\n")
            if not line.startswith(b"data: "):
                assert line == b"" or line.startswith(b":"), line
                continue
            if line == b"data: [DONE]":
                self.done = True
                continue
            yield json.loads(line[6:])

    def cut(self):
        """Leave without reading on: the socket closes now."""
        sock = self.conn.sock or self.answer.fp.raw._sock
        self.answer.close()
        sock.close()
        self.conn.close()


def cut_request(cluster, path, body):
    """Send a whole request; returns the open socket, to be closed at will."""
    data = json.dumps(body).encode()
    s = socket.create_connection(("127.0.0.1", cluster.port), timeout=10)
    s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
              b"Content-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
    return s


class Cluster:
    def __init__(self, folder, build, prefill=1, decode=1, router_flags="", prefill_flags="",
                 decode_flags="", model="deploy/demo-model", gpus="cpu:0", decode_gpus=None,
                 decode_seqs=32, memory_bytes=1_500_000_000, launcher_keys="", router_keys=""):
        self.folder = pathlib.Path(folder)
        self.port = free_port()
        self.runtime = self.folder / "run"
        self.conf = self.folder / "cluster.conf"
        self.logs = self.runtime / "logs"
        small = f"--memory-bytes {memory_bytes}"
        lines = ["[cluster]", f"model = {model}", f"bin = {build}/bin", f"runtime_dir = {self.runtime}",
                 launcher_keys, "",
                 "[router r0]", f"port = {self.port}",
                 f"flags = --served-model-name demo {router_flags}", router_keys, ""]
        for i in range(prefill):
            lines += [f"[prefill p{i}]", f"gpus = {gpus}", f"flags = {small} --max-num-seqs 32 {prefill_flags}", ""]
        for i in range(decode):
            lines += [f"[decode d{i}]", f"gpus = {decode_gpus or gpus}", f"flags = {small} --max-num-seqs {decode_seqs} {decode_flags}", ""]
        self.conf.write_text("\n".join(lines))

    def launcher(self, *words, timeout=180):
        return subprocess.run([sys.executable, "-I", str(LAUNCHER), *words, "--conf", str(self.conf)], timeout=timeout,
                              capture_output=True, text=True)

    def up(self):
        r = self.launcher("up", "--wait", "120")
        assert r.returncode == 0, f"{r.stdout}{r.stderr}{self.tails()}"
        return self

    def down(self):
        return self.launcher("down", "--timeout", "30")

    def __enter__(self):
        return self.up()

    def __exit__(self, kind, *_):
        """Every process must end clean: status 0, which under a sanitizer says no leak."""
        r = self.down()
        if kind is None:
            last = (self.logs / "launcher.log").read_text().strip().split("\n")[-1]
            assert r.returncode == 0 and "not clean" not in last, f"{last}{r.stderr}{self.tails()}"

    def tails(self):
        return "".join(f"\n--- {p.name}\n{p.read_text(errors='replace')[-3000:]}"
                       for p in sorted(self.logs.glob("*.log")))

    # processes
    def rows(self):
        return {p["name"]: p for p in json.loads((self.runtime / "launcher.json").read_text())["processes"]}

    def pid(self, name):
        return self.rows()[name]["pid"]

    def kill(self, name, sig=signal.SIGKILL):
        os.kill(self.pid(name), sig)

    def log(self, name):
        return (self.logs / f"{name}.log").read_text(errors="replace")

    def descriptors(self, name):
        return len(os.listdir(f"/proc/{self.pid(name)}/fd"))

    def go(self, phase):
        """End a pause at a fault point, for good."""
        (self.runtime / f"fault.{phase}.go").write_text("")

    # HTTP
    def request(self, method, path, body=None, headers=None, timeout=60):
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        data = None if body is None else body if isinstance(body, (bytes, str)) else json.dumps(body)
        conn.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        r = conn.getresponse()
        answer = Answer(r.status, dict(r.getheaders()), r.read())
        conn.close()
        return answer

    def post(self, path, body, **kw):
        return self.request("POST", path, body, **kw)

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def ready(self):
        try:
            return self.get("/ready", timeout=5).status == 200
        except OSError:
            return False

    def metrics(self):
        """{(name, frozenset of labels): value}"""
        out = {}
        for line in self.get("/metrics").body.decode().splitlines():
            m = re.match(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$", line)
            if m:
                labels = frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', m[2] or ""))
                out[m[1], labels] = float(m[3])
        return out

    def metric(self, name, **labels):
        want = set(labels.items())
        found = [v for (n, have), v in self.metrics().items() if n == name and want <= have]
        assert found, f"no metric {name} {labels}"
        return sum(found)

    # the access log
    def outcome(self, request_id, seconds=5):
        def line():
            for text in self.log("r0").splitlines():
                if " outcome " in text and f"req={request_id} " in text:
                    return dict(re.findall(r"(\S+?)=(\S*)", text))
            return None
        return wait_for(line, seconds)


def generate_body(row, **more):
    """A greedy request of /v1/completions for a golden conversation, room for its answer."""
    return {"model": "demo", "temperature": 0, "max_tokens": len(row["greedy_ids"]) + 8, **more}


def chat_body(row, **more):
    return {"model": "demo", "messages": row["messages"], "temperature": 0,
            "chat_template_kwargs": {"enable_thinking": row["enable_thinking"]}, **more}


def joined(row, reasoning, content):
    """What the model wrote, put together from the two parts of a chat answer."""
    if not row["enable_thinking"]:
        return content or ""
    if content is None:
        return reasoning
    return (reasoning or "") + "\n</think>\n\n" + content


def read_chat(stream):
    """(reasoning, content, finish_reason, number of events with text) of a chat stream."""
    reasoning = content = ""
    finish, n = None, 0
    for event in stream.events():
        assert "error" not in event, event
        for choice in event["choices"]:
            delta = choice["delta"]
            assert delta.get("reasoning") == delta.get("reasoning_content")
            reasoning += delta.get("reasoning_content") or ""
            content += delta.get("content") or ""
            n += bool(delta.get("reasoning_content") or delta.get("content"))
            finish = choice["finish_reason"] or finish
    return reasoning, content, finish, n


def in_parallel(work, items, threads=16):
    """work(item) for each, `threads` at a time; exceptions come out here."""
    todo, results, errors, lock = list(enumerate(items)), {}, [], threading.Lock()

    def run():
        while True:
            with lock:
                if not todo or errors:
                    return
                i, item = todo.pop(0)
            try:
                results[i] = work(item)
            except BaseException as e:  # noqa: B902: shown by the raise below
                errors.append(e)
                return
    pool = [threading.Thread(target=run) for _ in range(threads)]
    for t in pool:
        t.start()
    for t in pool:
        t.join()
    if errors:
        raise errors[0]
    return [results[i] for i in range(len(items))]
