"""How a router ends while it works for /tokenize and /detokenize or waits for slow readers,
what clients that do not read may hold of its memory, and whose socket file it takes."""
import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from cluster import CONVERSATIONS, MEMORY_ROUNDING, ROOT, Cluster, free_port, generate_body, wait_for
from lone_router import Router

DEMO = ROOT / "deploy/demo-model"
CLIENTS = 4
TRIES = 10
IDS = 1_000_000


@pytest.fixture
def start(build, runtime):
    """Starts a router with these flags."""
    routers = []

    def begin(*flags):
        routers.append(Router(build, runtime, DEMO, *flags))
        return routers[-1]
    yield begin
    for r in routers:
        r.close()


def metric(router, name):
    for line in router.ask("GET", "/metrics")[1].decode().splitlines():
        if line.startswith(name + " "):
            return float(line.split()[1])
    raise KeyError(name)


def long_answer(router):
    """A body whose answer is 12 MB (the text twice): no socket's buffers hold it."""
    ids = json.loads(router.ask("POST", "/tokenize", json.dumps({"prompt": "\x01"}))[1])["tokens"]
    assert len(ids) == 1
    return json.dumps({"tokens": ids * IDS}, separators=(",", ":")).encode()


def post(port, path, body, buffer=None, missing=0):
    """Sends a request but for its last bytes; the socket, of which nothing was read."""
    s = socket.socket()
    if buffer:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    s.settimeout(60)
    s.connect(("127.0.0.1", port))
    s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
              b"Content-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body[:len(body) - missing])
    return s


def read_all(s, head=b""):
    """Status, header text, body; the body is as long as the header says."""
    parts = [head]
    while part := s.recv(1 << 20):
        parts.append(part)
    s.close()
    head, body = b"".join(parts).split(b"\r\n\r\n", 1)
    length = re.search(rb"Content-Length: (\d+)", head)
    assert length is None or len(body) == int(length[1])
    return int(head.split()[1]), head.decode(), body


def exit_code(router):
    return router.process.wait(timeout=30)


JOBS = [("/detokenize", {"tokens": [(i * 7919) % 1000 for i in range(IDS)]}),
        ("/tokenize", {"prompt": "hello world " * 90_000}),
        ("/tokenize", {"messages": [{"role": "user", "content": "hello " * 150_000}]})]


def busy(start, path, body, *flags):
    """A router at work for all CLIENTS, and their sockets."""
    router = start(*flags)
    data = json.dumps(body).encode()
    for _ in range(TRIES):  # a fast machine may be done before it is seen at work
        sockets = [post(router.port, path, data, missing=1) for _ in range(CLIENTS)]
        for s in sockets:
            s.sendall(data[-1:])
        seen, until = 0, time.monotonic() + 1
        while (now := metric(router, "baton_http_requests")) >= seen and time.monotonic() < until:
            seen = now
            if seen == CLIENTS:
                return router, sockets
        assert [read_all(s)[0] for s in sockets] == [200] * CLIENTS
    pytest.fail("never seen at work for all clients")


@pytest.mark.parametrize("path, body", JOBS, ids=["ids", "text", "messages"])
def test_a_drain_answers_what_is_worked_on(start, path, body):
    router, sockets = busy(start, path, body)
    router.process.send_signal(signal.SIGTERM)
    assert [read_all(s)[0] for s in sockets] == [200] * CLIENTS
    assert exit_code(router) == 0
    open_then = int(re.search(r"draining: (\d+) requests are open", router.log.read_text())[1])
    assert 1 <= open_then <= CLIENTS


@pytest.mark.parametrize("path, body", JOBS, ids=["ids", "text", "messages"])
def test_what_a_stop_cuts_is_told_so_and_the_exit_code_is_6(start, path, body):
    router, sockets = busy(start, path, body, "--shutdown-timeout", "0")
    router.process.send_signal(signal.SIGTERM)
    answers = [read_all(s) for s in sockets]
    cut = [json.loads(body)["error"]["code"] for status, _, body in answers if status == 503]
    assert cut and set(cut) == {"draining"}
    assert {status for status, _, _ in answers} <= {200, 503}
    assert exit_code(router) == 6
    said = int(re.search(r"cutting (\d+) requests", router.log.read_text())[1])
    assert len(cut) <= said <= CLIENTS


def slow_reader(router):
    """A client that has read the head of a long answer."""
    s = post(router.port, "/detokenize", long_answer(router), buffer=4096)
    head = s.recv(100)
    assert head.startswith(b"HTTP/1.1 200")
    return s, head


def test_a_drain_waits_for_slow_readers(start):
    router = start()
    s, head = slow_reader(router)
    assert metric(router, "baton_http_requests") == 1
    router.process.send_signal(signal.SIGTERM)
    time.sleep(1.5)
    assert router.process.poll() is None
    status, _, body = read_all(s, head)
    assert status == 200 and json.loads(body)["prompt"] == "\x01" * IDS
    assert exit_code(router) == 0
    assert "draining: 1 requests are open" in router.log.read_text()


def test_a_drain_waits_for_readers_no_longer_than_shutdown_timeout(start):
    router = start("--shutdown-timeout", "0.5")
    s, _ = slow_reader(router)
    router.process.send_signal(signal.SIGTERM)
    assert exit_code(router) == 6
    assert "cutting 1 requests" in router.log.read_text()
    s.close()


def test_a_drain_waits_for_slow_readers_of_generations(build, tmp_path):
    """The workers are done long before the client has read its stream."""
    body = generate_body(CONVERSATIONS[0], prompt=CONVERSATIONS[0]["prompt"], max_tokens=300, stream=True,
                         ignore_eos=True, n=16, logprobs=20)
    with Cluster(tmp_path, build) as c:
        s = post(c.port, "/v1/completions", json.dumps(body).encode(), buffer=4096)
        head = s.recv(100)
        assert head.startswith(b"HTTP/1.1 200")
        wait_for(lambda: c.metric("vllm:num_requests_running") == 0, 60)
        assert c.metric("baton_http_requests") == 1
        pid = c.pid("r0")
        c.kill("r0", signal.SIGTERM)
        time.sleep(1.5)
        os.kill(pid, 0)
        assert read_all(s, head)[2].endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        wait_for(lambda: c.rows()["r0"]["pid"] != pid, 15)
        assert c.rows()["r0"]["last_exit"] == 0
        assert "draining: 1 requests are open" in c.log("r0")


def test_clients_that_do_not_read_hold_no_more_than_the_budget(start):
    budget_mb = 64
    router = start("--request-memory-mb", str(budget_mb))
    body, before = long_answer(router), metric(router, "baton_request_memory_bytes")
    clients, heads = [], []
    for _ in range(10):  # of 12 MB each
        clients.append(post(router.port, "/detokenize", body, buffer=4096))
        heads.append(clients[-1].recv(1000, socket.MSG_PEEK))
        assert metric(router, "baton_request_memory_bytes") <= budget_mb << 20
    statuses = [int(h.split()[1]) for h in heads]
    assert statuses.count(200) >= 3 and statuses[-1] == 503, statuses
    for status, s in zip(statuses, clients):
        if status == 503:
            _, head, text = read_all(s)
            assert "Retry-After: " in head and json.loads(text)["error"]["code"] == "overloaded"
        s.close()
    wait_for(lambda: metric(router, "baton_request_memory_bytes") <= before + MEMORY_ROUNDING, 10)
    assert router.ask("POST", "/detokenize", body)[0] == 200


def test_a_socket_path_that_is_not_ours_ends_the_start(build, runtime, start):
    path = runtime / "http.sock"
    command = [build / "bin/baton-router", f"--model={DEMO}", f"--runtime-dir={runtime}/2", f"--uds={path}",
               "--id=r1"]
    path.write_text("keep")
    r = subprocess.run([*command, f"--port={free_port()}"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 2 and f"{path} exists and is not a socket" in r.stderr
    assert path.read_text() == "keep"
    path.unlink()
    router = start(f"--uds={path}")
    r = subprocess.run([*command, f"--port={free_port()}"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 2 and f"{path} is in use by another process" in r.stderr
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(path))
    router.process.kill()
    router.process.wait()
    assert path.is_socket()
    start(f"--uds={path}").process.send_signal(signal.SIGTERM)
    wait_for(lambda: not path.exists(), 10)
