"""Every kind of client at once against a cluster with little request memory: answers are right
or refused, each request has one outcome line, /live answers all the while, and when the clients
are gone nothing of them is left: descriptors, threads and memory as they were before.

The suite runs some seconds. Minutes are run by hand:

    python3 tests/e2e/test_mixed_load.py --build build/dev --seconds 120
"""
import argparse
import asyncio
import collections
import http.client
import json
import multiprocessing
import os
import pathlib
import random
import re
import socket
import tempfile
import time

from cluster import CONVERSATIONS, Cluster, generate_body, wait_for

ROUTER_FLAGS = "--request-memory-mb 16 --body-max-mb 1 --stream-drain-s 5 --idle-timeout-s 30"
SECONDS = 10
IDLE = 200
# Clients that come again as soon as they are done, by kind.
CLIENTS = {"known": 8, "stream": 150, "slow": 60, "leaving": 60, "garbage": 20, "large": 20}
# /live goes through the loop that serves all this: so long it may take, beyond what the process
# that asks waited for its own turn on a busy machine meanwhile.
LIVE_S = 1.0
# Left of the clients at the end: what the allocator keeps for the next ones.
GROWTH_BYTES = 24 << 20
# Longest wait of a client for anything.
PATIENCE_S = 90

SAMPLED = {"model": "demo", "prompt": "one two three", "max_tokens": 30, "ignore_eos": True}
# By the HTTP server, before there is a request; the second also where an answer found no memory.
REFUSED_EARLY = (b"The body is over ", b"The server has no memory for this request now.")


class Client:
    """One connection: a request out, what comes back in."""

    def __init__(self, load, kind):
        self.load, self.kind = load, kind
        self.id = f"{kind}-{load.next_number()}"
        self.reader = self.writer = None

    async def connect(self, buffer=None):
        s = socket.socket()
        s.setblocking(False)
        if buffer is not None:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        await asyncio.get_running_loop().sock_connect(s, ("127.0.0.1", self.load.port))
        self.reader, self.writer = await asyncio.open_connection(sock=s, limit=8192)

    def send(self, path, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.load.asked.add(self.id)
        self.writer.write(b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: %s\r\n"
                          b"Content-Length: %d\r\n\r\n" % (path.encode(), self.id.encode(), len(data)) + data)

    async def receive(self):
        """(status, body) of an answer that ends with its connection."""
        data = bytearray()
        while part := await asyncio.wait_for(self.reader.read(1 << 16), PATIENCE_S):
            data += part
        head, _, body = bytes(data).partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if b"transfer-encoding: chunked" in head.lower():
            body = unchunked(body)
        return status, body

    async def answer(self):
        """The body of a whole answer with status 200; None after a refusal, which is counted."""
        status, body = await self.receive()
        if status == 200:
            self.load.counts[self.kind, 200] += 1
            self.load.answered.add(self.id)
            return body
        code = json.loads(body)["error"]["code"]
        self.load.counts[self.kind, code] += 1
        assert status in (413, 503), (self.id, status, body)
        if not any(text in body for text in REFUSED_EARLY):
            self.load.answered.add(self.id)
        return None

    def close(self):
        if self.writer is not None:
            self.writer.transport.abort()


def unchunked(data):
    """The bytes of a chunked body; one that was cut short is an error here."""
    out, at = b"", 0
    while True:
        end = data.index(b"\r\n", at)
        n = int(data[at:end], 16)
        if n == 0:
            return out
        assert data[end + 2 + n:end + 4 + n] == b"\r\n"
        out, at = out + data[end + 2:end + 2 + n], end + 4 + n


# ---- kinds of clients ----


async def known(c, draw):
    """A greedy answer that is known: right or refused."""
    row = draw.choice(CONVERSATIONS[:20])
    c.send("/v1/completions", generate_body(row, prompt=row["prompt_ids"]))
    body = await c.answer()
    if body is not None:
        text = json.loads(body)["choices"][0]["text"]
        assert text == row["greedy_text"], (c.id, row["greedy_text"], text)


async def stream(c, draw):
    """Events with many likelier tokens, read to their end: finished, or said why not."""
    c.send("/v1/completions", dict(SAMPLED, stream=True, logprobs=draw.choice([5, 20]), n=draw.choice([1, 4]),
                                   max_tokens=draw.choice([1, 10, 30])))
    body = await c.answer()
    if body is None:
        return
    events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
    assert events[-1] == b"[DONE]", (c.id, body[-300:])
    last = json.loads(events[-2])
    if "error" in last:
        c.load.counts[c.kind, last["error"]["code"]] += 1
    else:
        assert any(choice["finish_reason"] == "length" for choice in last["choices"]), (c.id, last)


async def slow(c, draw):
    """Takes nothing for a while, of an answer that the socket does not hold."""
    c.send("/v1/completions", dict(SAMPLED, stream=draw.random() < 0.5, logprobs=20, n=8))
    await asyncio.sleep(draw.choice([0.5, 2, 7]))
    for _ in range(draw.randrange(20)):
        if not await asyncio.wait_for(c.reader.read(4096), PATIENCE_S):
            break


async def leaving(c, draw):
    """Leaves at any moment: before, in and after its request."""
    body = json.dumps(dict(SAMPLED, stream=draw.random() < 0.5, logprobs=5, n=draw.choice([1, 8]))).encode()
    if draw.random() < 0.3:
        c.writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
                       + body[:draw.randrange(len(body))])
    else:
        c.send("/v1/completions", body)
    await asyncio.sleep(draw.random() * 2)


GARBAGE = [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
           b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
           b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX",
           b"GET /live HTTP/1.1\r\nHost : x\r\n\r\n", b"GET /live HTTP/1.1\r\nX: \x00\r\n\r\n"]


async def garbage(c, draw):
    """What is no request, in pieces: 400 and closed."""
    raw = draw.choice([*GARBAGE, draw.randbytes(2000)])
    cut = draw.randrange(len(raw))
    c.writer.write(raw[:cut])
    await asyncio.sleep(draw.random() * 0.2)
    c.writer.write(raw[cut:])
    try:
        status, _ = await c.receive()
    except (IndexError, ConnectionError):  # random bytes may end a head early, and the rest resets
        return
    assert status in (400, 408, 501), (c.id, raw[:40], status)
    c.load.counts[c.kind, status] += 1


async def large(c, draw):
    """Near the limit of a body, and beyond it."""
    n = draw.choice([60_000, 120_000, 200_000, 260_000])
    c.send("/v1/completions", b'{"model": "demo", "max_tokens": 1, "prompt": "one", "x": [' + b"1234," * n + b"0]}")
    try:
        await c.answer()
    except (IndexError, ConnectionError):  # refused and closed with more on its way than is thrown away
        c.load.counts[c.kind, "reset"] += 1


KINDS = {f.__name__: f for f in (known, stream, slow, leaving, garbage, large)}


class Load:
    def __init__(self, port, seed):
        self.port, self.seed, self.number = port, seed, 0
        self.asked, self.answered = set(), set()
        self.counts = collections.Counter()

    def next_number(self):
        self.number += 1
        return f"{self.seed}-{self.number}"

    async def one(self, kind, draw):
        c = Client(self, kind)
        try:
            await c.connect(4096 if kind == "slow" else None)
            await KINDS[kind](c, draw)
        except ConnectionError:
            assert kind in ("slow", "leaving"), c.id
        finally:
            c.close()

    async def again(self, kind, draw, until):
        await asyncio.sleep(draw.random())
        while time.monotonic() < until:
            await self.one(kind, draw)

    async def idle(self, until):
        """Connections of which nothing comes; the router may close them, then they come again."""
        while time.monotonic() < until:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                await asyncio.wait_for(reader.read(1), max(0.1, until - time.monotonic()))
            except (asyncio.TimeoutError, ConnectionError):
                pass
            writer.transport.abort()

    async def main(self, seconds):
        until = time.monotonic() + seconds
        work = [self.again(kind, random.Random(f"{self.seed} {kind} {i}"), until)
                for kind, n in CLIENTS.items() for i in range(n)]
        await asyncio.gather(*work, *(self.idle(until) for _ in range(IDLE)))


# ---- what is looked at ----


def watch_live(port, stop, result):
    """In a process of its own: (answers, longest wait, longest time overslept, statuses)."""
    n, longest, overslept, statuses = 0, 0.0, 0.0, set()
    while not stop.is_set():
        conn = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        begun = time.monotonic()
        conn.request("GET", "/live")
        answer = conn.getresponse()
        answer.read()
        longest = max(longest, time.monotonic() - begun)
        statuses.add(answer.status)
        conn.close()
        n += 1
        begun = time.monotonic()
        time.sleep(0.02)
        overslept = max(overslept, time.monotonic() - begun - 0.02)
    result.put((n, longest, overslept, statuses))


NAMES = ("r0", "p0", "d0")


def held(cluster):
    """{process: (descriptors, threads)}"""
    return {name: (cluster.descriptors(name), len(os.listdir(f"/proc/{cluster.pid(name)}/task"))) for name in NAMES}


def memory_of(cluster):
    """Without the pools of pages and slots, which are shared, of a fixed size, and come in with their first use."""
    def of(pid):
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+)", text)[1]) << 10
    return {name: of(cluster.pid(name)) for name in NAMES}


def is_quiet(cluster):
    m = cluster.metrics()
    value = {name: v for (name, labels), v in m.items() if not labels}
    # The question itself is one connection, one request and what it takes.
    return (value["baton_http_connections"] <= 1 and value["baton_request_memory_bytes"] < 100_000
            and sum(v for (name, _), v in m.items() if name == "baton_requests") == 0)


def check_outcomes(cluster, load):
    lines = collections.Counter(re.findall(r" outcome req=(\S+)", cluster.log("r0")))
    twice = [i for i in load.asked if lines[i] > 1]
    none = [i for i in load.answered if lines[i] == 0]
    assert not twice and not none, (twice[:5], none[:5])
    left = len(re.findall(r" outcome .* status=499 ", cluster.log("r0")))
    assert left == cluster.metric("baton_http_answers_total", status="499")


def one_load(cluster, seconds, seed):
    """Everything at once for a while; what was seen, after all are gone."""
    stop, result = multiprocessing.Event(), multiprocessing.Queue()
    watcher = multiprocessing.Process(target=watch_live, args=(cluster.port, stop, result))
    watcher.start()
    load = Load(cluster.port, seed)
    try:
        asyncio.run(load.main(seconds))
    finally:
        stop.set()
        n, longest, overslept, statuses = result.get(timeout=60)
        watcher.join()
    print(f"{n} times /live, at most {longest:.3f} s (overslept {overslept:.3f} s); "
          + ", ".join(f"{k} {v}: {c}" for (k, v), c in sorted(load.counts.items(), key=str)), flush=True)
    begun = time.monotonic()
    wait_for(lambda: is_quiet(cluster), 60, 0.2)
    print(f"quiet after {time.monotonic() - begun:.1f} s", flush=True)
    check_outcomes(cluster, load)
    assert statuses == {200} and longest < LIVE_S + overslept, (longest, overslept, statuses)
    assert load.counts["known", 200] > 0 and load.counts["stream", 200] > 0, load.counts
    return load


def check_mixed_load(cluster, seconds):
    pids = {name: cluster.pid(name) for name in NAMES}
    # The first part starts threads and brings the allocators of all processes to their size.
    one_load(cluster, seconds / 3, 1)
    before, memory = held(cluster), memory_of(cluster)
    one_load(cluster, seconds * 2 / 3, 2)
    assert {name: cluster.pid(name) for name in NAMES} == pids
    now, grown = held(cluster), memory_of(cluster)
    print("memory MB", {n: (memory[n] >> 20, grown[n] >> 20) for n in NAMES}, "held", before, now, flush=True)
    assert all(now[n] <= before[n] for n in NAMES), (before, now)
    assert all(grown[n] - memory[n] < GROWTH_BYTES for n in NAMES), (memory, grown)


def test_every_kind_of_client_at_once_leaves_nothing_behind(build, tmp_path):
    with Cluster(tmp_path, build, router_flags=ROUTER_FLAGS) as c:
        check_mixed_load(c, SECONDS)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/dev")
    p.add_argument("--seconds", type=int, default=120)
    a = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="baton-l-", dir="/tmp") as folder:
        with Cluster(folder, pathlib.Path(a.build).resolve(), router_flags=ROUTER_FLAGS) as c:
            check_mixed_load(c, a.seconds)


if __name__ == "__main__":
    main()
