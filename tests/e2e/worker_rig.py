"""Real worker processes and a router made of a ROUTER socket, for tests of the worker
protocol. Nothing runs in the background: every wait pumps the socket and the beats."""
import json
import os
import pathlib
import random
import signal
import subprocess
import time

import zmq

import wire

ROOT = wire.ROOT
MODEL = ROOT / "deploy/demo-model"
DEADLINE = 30  # seconds; everything here takes a small part of it

DEFAULTS = dict(
    # A tenth of the worker's own, so that what is lost is lost soon.
    beat_ms=50, lost_ms=400, lease_ms=1000,
    max_model_len=2048, kv_pages=257, max_num_seqs=16)


class Died(Exception):
    pass


class Worker:
    """One process of build/bin; role "prefill" or "decode". Routers of the test go on
    beating while it is waited for."""

    def __init__(self, build, runtime, routers, role, name, wait=True, **flags):
        self.name, self.routers = name, routers
        self.log_path = pathlib.Path(runtime) / f"{name}.{random.getrandbits(32):08x}.log"
        flags = {**DEFAULTS, "model": MODEL, **flags}
        args = [f"{build}/bin/baton-{role}", "--id", name, "--runtime-dir", str(runtime)]
        args += [f"--{key}={value}" for key, value in flags.items()]
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(args, stderr=log)
        if wait:
            self.wait_for("ready role=")

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_for(self, text, seconds=DEADLINE):
        end = time.monotonic() + seconds
        while text not in self.log():
            if self.process.poll() is not None:
                raise Died(f"{self.name} exit {self.process.returncode}\n{self.log()}")
            if time.monotonic() > end:
                raise TimeoutError(f"{self.name}: no '{text}' in\n{self.log()}")
            self._sleep()

    def kill(self, sig=signal.SIGKILL):
        self.process.send_signal(sig)
        if sig == signal.SIGKILL:
            self.process.wait()

    def exit_code(self, seconds=DEADLINE):
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.name} does not end\n{self.log()}")
            self._sleep()
        self._sleep()  # its last words
        return self.process.returncode

    def _sleep(self):
        if self.routers:
            self.routers[0].pump(0.02)
        else:
            time.sleep(0.02)

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()


class Router:
    """Says hello, beats, and keeps every message it received, in order."""

    def __init__(self, runtime, family, name="r0"):
        self.family = family  # all routers of the test, this one included
        family.append(self)
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.socket.setsockopt(zmq.LINGER, 200)
        os.makedirs(f"{runtime}/routers", mode=0o700, exist_ok=True)
        self.socket.bind(f"ipc://{runtime}/routers/{name}.sock")
        self.incarnation = random.getrandbits(63) + 1
        self.workers = {}  # id -> hello, with "peer": routing id
        self.inbox = []  # (worker id, message name, fields), beats and hellos left out
        self.beats = {}  # id -> last beat
        self.hellos = []  # ids, in order
        self.refuse = None  # (code, text): the answer to every hello
        self.silent = False
        self.says = None  # what a beat says besides: a function of the worker's id
        self.next_beat = 0
        self.seq = 0

    def close(self):
        self.family.remove(self)
        self.socket.close()
        self.context.term()

    def send(self, worker, name, **fields):
        self.socket.send_multipart([self.workers[worker]["peer"], wire.encode(name, **fields)])

    def send_raw(self, worker, frame):
        self.socket.send_multipart([self.workers[worker]["peer"], frame])

    def _hello(self, peer, m):
        m["peer"] = peer
        self.hellos.append(m["id"])
        self.workers[m["id"]] = m
        if self.refuse is not None:
            self.send(m["id"], "refused", code=self.refuse[0], text=self.refuse[1])
            return
        self.send(m["id"], "hello", proto_min=wire.PROTO, proto_max=wire.PROTO, build="test", id="r0",
                  incarnation=self.incarnation, role=wire.ROUTER, boot_id="test")

    def _beat(self):
        now = time.monotonic()
        if self.silent or now < self.next_beat:
            return
        self.next_beat = now + 0.05
        for name in list(self.workers):
            try:
                self.send(name, "beat", incarnation=self.incarnation, **(self.says(name) if self.says else {}))
            except zmq.ZMQError:
                del self.workers[name]  # it is not connected any more

    def _take_in(self):
        self._beat()
        while self.socket.poll(0):
            peer, frame = self.socket.recv_multipart()
            if self.silent:
                continue
            name, m = wire.decode(frame)
            worker = peer.split(b"#")[0].decode()
            if name == "hello":
                self._hello(peer, m)
            elif name == "beat":
                self.beats[worker] = m
            else:
                self.inbox.append((worker, name, m))

    def pump(self, seconds=0.0):
        """Takes in what comes within this time, for all routers of the test."""
        end = time.monotonic() + seconds
        while True:
            for router in self.family:
                router._take_in()
            left = end - time.monotonic()
            if left <= 0:
                return
            self.socket.poll(min(left, 0.02) * 1000)

    def until(self, condition, what, seconds=DEADLINE):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"waited for {what}; inbox: {self.inbox[-10:]}")
            self.pump(0.01)

    def connected(self, *names):
        self.until(lambda: all(n in self.workers for n in names), f"hello of {names}")

    def take(self, name, request, *others, seconds=DEADLINE):
        """The first message of this name about the request, taken out of the inbox. One
        of `others` that comes instead is a failure."""
        def find(names):
            for i, (_, n, m) in enumerate(self.inbox):
                if n in names and (m["seq"], m["attempt"]) == request[1:]:
                    return i
            return None
        self.until(lambda: find((name,) + others) is not None, f"{name} {request}", seconds)
        at = find((name,) + others)
        assert self.inbox[at][1] == name, self.inbox[at]
        return self.inbox.pop(at)[2]

    def request(self):
        self.seq += 1
        return (self.incarnation, self.seq, 0)

    def triple(self, request):
        return dict(router=request[0], seq=request[1], attempt=request[2])

    def prefill(self, worker, ids, request=None, n_prompt=None, **fields):
        request = request or self.request()
        values = dict(GREEDY, ids=ids, n_prompt=n_prompt or len(ids), n=1, **self.triple(request))
        values.update(fields)
        self.send(worker, "prefill", **values)
        return request

    def adopt(self, worker, source, request, prefilled, generated, n_prompt, **fields):
        hello = self.workers[source] if isinstance(source, str) else source
        values = dict(GREEDY, source_id=hello["id"], source_incarnation=hello["incarnation"],
                      link_path=hello["link_path"], lease=prefilled["lease"],
                      pages=prefilled["pages"], slot=prefilled["slot"],
                      n_tokens=prefilled["n_tokens"], generated=generated, n_prompt=n_prompt,
                      max_tokens=512, stop_ids=[EOS], final=1, choice=0, **self.triple(request))
        values.update(fields)
        self.send(worker, "adopt", **values)

    def tokens(self, request):
        return [r["token"] for _, n, m in self.inbox if n == "tokens"
                for r in m["records"] if (r["seq"], r["attempt"]) == request[1:]]

    def ask(self, worker, what):
        self.seq += 1
        tag = self.seq
        self.send(worker, "ask", what=what, tag=tag)
        def find():
            return [m for _, n, m in self.inbox if n == "answer" and m["tag"] == tag]
        self.until(find, f"answer to {what}")
        return json.loads(find()[0]["json"])

    def pools_back(self, *workers, seconds=10):
        """Every page, slot, job and byte of request memory is free again."""
        def back():
            for w in workers:
                p = self.ask(w, "pools")
                if any(p[k]["free"] != p[k]["total"] for k in ("pages", "slots")):
                    return False
                if p["jobs"] or p["leases"] or p["pulls"]:
                    return False
            return True
        self.until(back, f"pools of {workers}", seconds)

    def run(self, prefill, decode, ids, **fields):
        """Prefill and decode one greedy request to its end: (ids, finish reason)."""
        request = self.prefill(prefill, ids)
        done = self.take("prefilled", request, "rejected", "finished")
        first = done["first"][0]["token"]
        self.adopt(decode, prefill, request, done, [first], len(ids), **fields)
        self.take("adopted", request, "rejected")
        end = self.take("finished", request, "rejected", "evicted")
        return [first] + self.tokens(request), end["reason"]


EOS = 2025
GREEDY = dict(temperature=0, top_p=1, top_k=0, min_p=0, seed=1)


def conversations():
    path = ROOT / "tests/golden/demo_conversations.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]
