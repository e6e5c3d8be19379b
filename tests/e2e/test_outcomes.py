"""The outcome line says what happened to an answer that its client did not get."""
import json
import socket

import pytest

from cluster import Cluster, wait_for

# Likelier tokens beside each make events of 2 KB: more than a Unix socket takes unread.
BODY = {"model": "demo", "prompt": "one two three", "max_tokens": 160, "ignore_eos": True, "logprobs": 5}


@pytest.fixture(scope="module")
def cluster(build, tmp_path_factory):
    folder = tmp_path_factory.mktemp("outcomes")
    with Cluster(folder, build, router_flags=f"--uds {folder}/http.sock --stream-drain-s 4") as c:
        c.uds = str(folder / "http.sock")
        yield c


def ask(cluster, name, **more):
    """A request over the Unix socket, of whose answer nothing was read."""
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(30)
    s.connect(cluster.uds)
    body = json.dumps(dict(BODY, **more)).encode()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: %s\r\nContent-Length: %d\r\n\r\n"
              % (name.encode(), len(body)) + body)
    return s


def read_all(s):
    data = b""
    while part := s.recv(1 << 20):
        data += part
    return data


@pytest.mark.parametrize("more", [{"stream": True, "n": 4}, {"n": 16}], ids=["stream", "whole"])
def test_an_answer_that_its_client_never_read_is_logged_as_such(cluster, more):
    name = f"unread-{len(more)}-{more['n']}"
    s = ask(cluster, name, **more)
    seen = cluster.outcome(name, 60)
    assert (seen["status"], seen["finish"], seen["error"]) == ("499", "abort", "client_not_reading")
    if "stream" not in more:
        assert int(seen["generated"]) == 160 * more["n"]
    assert b"[DONE]" not in read_all(s)
    s.close()


def test_an_answer_whose_client_left_is_logged_as_such(cluster):
    s = ask(cluster, "left-1", stream=True)
    s.recv(1)
    s.close()
    seen = cluster.outcome("left-1")
    assert (seen["status"], seen["finish"], seen["error"]) == ("499", "abort", "client_gone")


def test_an_answer_that_was_read_has_no_error(cluster):
    s = ask(cluster, "read-1", stream=True, max_tokens=20)
    wait_for(lambda: b"[DONE]" in s.recv(1 << 20), 30)
    seen = cluster.outcome("read-1")
    assert (seen["status"], seen["finish"], seen["error"]) == ("200", "length", "-")
    s.close()


def test_a_path_stays_one_word_of_its_line(cluster):
    r = cluster.request("POST", "/x%20status=200%20%22%0Aend", b"", headers={"X-Request-Id": "path-1"})
    assert r.status == 404
    seen = cluster.outcome("path-1")
    assert (seen["path"], seen["status"]) == ("/x%20status%3D200%20%22%0Aend", "404")


def test_names_that_a_client_makes_up_stay_one_word_of_their_line(cluster):
    name = 'outcome req=made-up status=200 "'
    assert cluster.post("/v1/completions", {"model": "demo", "prompt": "one", "max_tokens": 1, name: 1}).status == 200
    lines = [line for line in cluster.log("r0").splitlines() if "made-up" in line]
    assert lines and all(" req=made-up " not in line and '"' not in line for line in lines)
