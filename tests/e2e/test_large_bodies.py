"""Bodies of many megabytes: the loop goes on answering while they are read, and a router
whose address space is used up refuses them with 503 and serves the next request."""
import http.client
import json
import multiprocessing
import resource
import signal
import time

import pytest

from cluster import CONVERSATIONS, MEMORY_ROUNDING, ROOT, Cluster, generate_body, wait_for
from lone_router import Router

TRIES = 5  # a busy machine may spoil some
PING_MS = 100


@pytest.fixture(scope="module")
def cluster(build, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("large"), build) as c:
        yield c


def serves(c):
    row = CONVERSATIONS[0]
    r = c.post("/v1/completions", generate_body(row, prompt=row["prompt_ids"]))
    assert r.status == 200 and r.json()["choices"][0]["text"] == row["greedy_text"]


def send(port, path, body, answers):
    """In a process of its own: (status, bytes of the answer). A body that is refused half-way is
    read no further than so much: the answer is there all the same."""
    conn = http.client.HTTPConnection("127.0.0.1", port, timeout=50)
    try:
        try:
            conn.request("POST", path, body)
        except BrokenPipeError:
            pass
        answer = conn.getresponse()
        answers.put((answer.status, len(answer.read())))
    except OSError as error:
        answers.put((repr(error), 0))


def start_senders(port, path, body, n):
    answers = multiprocessing.Queue()
    senders = [multiprocessing.Process(target=send, args=(port, path, body, answers)) for _ in range(n)]
    for s in senders:
        s.start()
    return senders, answers


def longest_ping(port, path, body):
    """(status, longest wait for /ping in ms) while the body is read."""
    conn = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    (sender,), answers = start_senders(port, path, body, 1)
    longest, status = 0.0, None
    while status is None:
        begun = time.monotonic()
        conn.request("GET", "/ping")
        conn.getresponse().read()
        longest = max(longest, time.monotonic() - begun)
        if not answers.empty():
            status = answers.get()[0]
        time.sleep(0.003)
    sender.join()
    return status, longest * 1000


ROW = CONVERSATIONS[0]
SMALL = json.dumps(generate_body(ROW, prompt=ROW["prompt_ids"]))[:-1]
BODIES = {
    "numbers that nobody reads": ("/v1/completions", SMALL + ', "x": [' + ("%d," % 10**26) * 1_100_000 + "0]}", 200),
    "objects that nobody reads": ("/v1/completions", SMALL + ', "x": [' + '{"a": "bcdefghijklmnopqrstuvwxyz"},' * 390_000
                                  + "0]}", 200),
    "a million ids": ("/v1/completions", json.dumps({"prompt": [7] * 1_000_000}), 400),
    "a long prompt": ("/v1/completions", json.dumps({"prompt": "word " * 6_000_000, "max_tokens": 1}), 400),
    "a long chat": ("/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": "word " * 2_000_000}]}),
                    400),
    "a million ids to text": ("/detokenize", json.dumps({"tokens": [7] * 1_000_000}), 200),
    "a million tokens with their pieces": ("/tokenize", json.dumps({"prompt": "word " * 1_000_000, "with_pieces": True,
                                                                    "return_token_strs": True}), 200),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_read_delays_nobody(cluster, name):
    path, body, expected = BODIES[name]
    waited = 1e9
    for _ in range(TRIES):
        status, longest = longest_ping(cluster.port, path, body.encode())
        assert status == expected
        waited = min(waited, longest)
        if waited < PING_MS:
            break
    print(f"{len(body)} bytes, longest wait for /ping {waited:.1f} ms")
    assert waited < PING_MS


def test_a_client_that_leaves_while_its_body_is_read_costs_nothing(cluster):
    def memory():
        return cluster.metric("baton_request_memory_bytes")

    before = memory()
    body = BODIES["objects that nobody reads"][1].encode()
    for _ in range(3):
        conn = http.client.HTTPConnection("127.0.0.1", cluster.port, timeout=60)
        conn.request("POST", "/v1/completions", body)
        time.sleep(0.02)
        conn.close()
    serves(cluster)
    wait_for(lambda: memory() <= before + MEMORY_ROUNDING, 20)


@pytest.mark.parametrize("path, body", [
    ("/v1/completions", json.dumps({"prompt": "x", "y": [[]] * 7_000_000}).encode()),
    ("/v1/completions", json.dumps({"prompt": "word " * 6_000_000}).encode()),
    ("/tokenize", json.dumps({"prompt": "word " * 6_000_000}).encode())], ids=["values", "prompt", "tokenize"])
def test_without_address_space_large_bodies_are_refused_and_the_next_is_served(build, tmp_path, path, body):
    with Cluster(tmp_path, build) as c:
        pid = c.pid("r0")
        used = next(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("VmSize")) * 1024
        resource.prlimit(pid, resource.RLIMIT_AS, (used + 100_000_000, resource.RLIM_INFINITY))
        senders, answers = start_senders(c.port, path, body, 6)
        got = [answers.get(timeout=60)[0] for _ in senders]
        for s in senders:
            s.join()
        assert 503 in got and set(got) <= {200, 400, 503}, got
        serves(c)
        assert c.pid("r0") == pid


def test_a_router_without_address_space_ends_when_it_is_told(build, runtime):
    r = Router(build, runtime, ROOT / "deploy/demo-model", address_space=250_000 * 1024)
    senders, answers = start_senders(r.port, "/tokenize", BODIES["objects that nobody reads"][1].encode(), 6)
    wait_for(lambda: not answers.empty(), 60)
    r.process.send_signal(signal.SIGTERM)
    assert r.process.wait(30) in (0, 6)
    for s in senders:
        s.terminate()
        s.join()
