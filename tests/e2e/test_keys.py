"""Who may ask: keys, pages of other origins, and what the log says of those who may not."""
import http.client
import json
import os
import signal
import socket

import pytest

from cluster import Cluster, chat_body, CONVERSATIONS, wait_for
from lone_router import Router

MODEL = "deploy/demo-model"
OPEN = ["/", "/live", "/ready", "/health", "/metrics", "/version", "/ping"]
SHUT = [("GET", "/v1/models"), ("GET", "/v1/models/demo"), ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"), ("GET", "/status"), ("POST", "/tokenize"), ("POST", "/v1/detokenize"), ("GET", "/nowhere"),
        ("DELETE", "/v1/models"), ("OPTIONS", "/v1/models")]


def ask(router, method, path, body=None, **headers):
    conn = http.client.HTTPConnection("127.0.0.1", router.port, timeout=60)
    conn.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
    r = conn.getresponse()
    r.body = r.read()
    conn.close()
    return r


def start(build, runtime, *flags):
    return Router(build, runtime, MODEL, *flags)


@pytest.fixture
def keyed(build, runtime):
    runtime.mkdir(mode=0o700, exist_ok=True)
    file = runtime / "keys"
    file.write_text("# those of us\nsk-first\nsk-second\n")
    file.chmod(0o600)
    r = start(build, runtime, f"--api-key-file={file}")
    r.file = file
    yield r
    r.close()


@pytest.mark.asan
def test_without_a_key_only_probes_and_metrics_answer(keyed):
    for path in OPEN:
        assert ask(keyed, "GET", path).status in (200, 503), path
    for method, path in SHUT:
        for headers in ({}, {"Authorization": "Bearer sk-other"}, {"x_api_key": "sk-firs"}, {"Authorization": "sk-first"}):
            r = ask(keyed, method, path, b"{" if method == "POST" else None, **headers)
            assert r.status == 401 and r.getheader("WWW-Authenticate") == "Bearer", path
            assert json.loads(r.body)["error"]["code"] == "invalid_api_key" and r.getheader("X-Request-Id")
    for headers in ({"Authorization": "Bearer sk-first"}, {"authorization": "bearer sk-second"}, {"x_api_key": "sk-second"}):
        assert ask(keyed, "GET", "/v1/models", **headers).status == 200
        assert ask(keyed, "POST", "/tokenize", b'{"prompt": "x"}', **headers).status == 200
    log = keyed.log.read_text()
    assert "sk-" not in log
    assert log.count("refused req=") == len(SHUT) * 4 and "path=/nowhere status=401 error=invalid_api_key" in log


def test_a_body_without_a_key_is_not_waited_for(keyed):
    with socket.create_connection(("127.0.0.1", keyed.port), timeout=10) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\nContent-Length: 30000000\r\n\r\n{")
        answer = b""
        while chunk := s.recv(65536):
            answer += chunk
    assert answer.startswith(b"HTTP/1.1 401 ") and b"WWW-Authenticate: Bearer\r\n" in answer
    assert b"X-Request-Id: mine\r\n" in answer and answer.endswith(b"}}")


@pytest.mark.asan
def test_the_file_is_read_again_on_sighup(keyed):
    def allows(key):
        return ask(keyed, "GET", "/v1/models", x_api_key=key).status == 200

    def again(text, word):
        keyed.file.write_text(text)
        n = keyed.log.read_text().count(word)
        os.kill(keyed.process.pid, signal.SIGHUP)
        wait_for(lambda: keyed.log.read_text().count(word) > n, 10)

    again("sk-third\n", "read again")
    assert allows("sk-third") and not allows("sk-first")
    again("not a key\n", "the 1 keys from before stand")
    assert allows("sk-third") and "not a key" not in keyed.log.read_text()
    again("sk-first\nsk-third\n", "read again")
    assert allows("sk-first") and allows("sk-third")


def test_a_file_without_keys_is_refused_at_start(build, runtime):
    runtime.mkdir(mode=0o700, exist_ok=True)
    (runtime / "keys").write_text("\n")
    with pytest.raises(AssertionError, match="api_key_file .*no key in it"):
        start(build, runtime, f"--api-key-file={runtime / 'keys'}")


def test_pages_of_named_origins_may_ask(build, runtime):
    runtime.mkdir(mode=0o700, exist_ok=True)
    (runtime / "keys").write_text("sk-first\n")
    r = start(build, runtime, f"--api-key-file={runtime / 'keys'}", "--cors-origin=http://a.example:3000",
              "--cors-origin=https://b.example")
    try:
        ours, other = "http://a.example:3000", "http://c.example"
        asks = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization,x-stainless-os"}
        pre = ask(r, "OPTIONS", "/v1/chat/completions", Origin=ours, **asks)
        assert pre.status == 204 and pre.body == b"" and pre.getheader("Access-Control-Allow-Origin") == ours
        assert "POST" in pre.getheader("Access-Control-Allow-Methods")
        assert pre.getheader("Access-Control-Allow-Headers") == "authorization,x-stainless-os"
        assert ask(r, "OPTIONS", "/v1/chat/completions", Origin=other, **asks).status == 403
        for origin, says in ((ours, ours), ("https://b.example", "https://b.example"), (other, None), (None, None)):
            given = {"Origin": origin} if origin else {}
            good = ask(r, "GET", "/v1/models", x_api_key="sk-first", **given)
            bad = ask(r, "GET", "/v1/models", **given)
            large = ask(r, "POST", "/tokenize", b"x" * 8, x_api_key="sk-first", **given)
            for answer, status in ((good, 200), (bad, 401), (large, 400)):
                assert answer.status == status and answer.getheader("Access-Control-Allow-Origin") == says
                assert answer.getheader("Vary") == "Origin"
            assert good.getheader("Access-Control-Expose-Headers") == ("X-Request-Id, Retry-After" if says else None)
    finally:
        r.close()


def test_every_origin_or_none(build, runtime):
    runtime.mkdir(mode=0o700, exist_ok=True)
    r = start(build, runtime, "--cors-origin=*")
    try:
        assert ask(r, "GET", "/ping", Origin="null").getheader("Access-Control-Allow-Origin") == "*"
    finally:
        r.close()
    with pytest.raises(AssertionError, match="cors_origin 'http://a/b'"):
        start(build, runtime, "--cors-origin=http://a/b")
    r = start(build, runtime)
    try:
        answer = ask(r, "GET", "/ping", Origin="http://a")
        assert answer.getheader("Access-Control-Allow-Origin") is None and answer.getheader("Vary") is None
        assert ask(r, "OPTIONS", "/ping", Origin="http://a", Access_Control_Request_Method="GET").status == 405
    finally:
        r.close()


def test_a_clients_trace_is_in_the_logs_of_all_who_worked_for_it(build, tmp_path):
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    with Cluster(tmp_path, build) as c:
        def ask(parent):
            r = c.post("/v1/chat/completions", chat_body(CONVERSATIONS[0]), headers={"traceparent": parent})
            assert r.status == 200
            return c.outcome(r.headers["X-Request-Id"])["trace"]

        assert ask(f"00-{trace}-{span}-01") == trace
        for name in ("p0", "d0"):
            wait_for(lambda: f" trace={trace}" in c.log(name), 10)  # noqa: B023
        assert ask(f"cc-{trace[::-1]}-{span}-01-what-comes-later") == trace[::-1]
        for bad in ("", "00", f"00-{trace}-{span}-01-x", f"ff-{trace}-{span}-01", f"00-{trace.upper()}-{span}-01",
                    f"00-{'0' * 32}-{span}-01", f"00-{trace}-{'0' * 16}-01", f"00-{trace}-{span}x01", "x" * 5000):
            assert ask(bad) == "-", bad


def test_a_cluster_with_keys_streams_to_those_who_show_one(build, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-one\n")
    with Cluster(tmp_path, build, router_keys=f"api_key_file = {keys}", router_flags="--cors-origin http://a") as c:
        body = chat_body(CONVERSATIONS[0], stream=True)
        assert c.post("/v1/chat/completions", body).status == 401
        r = c.post("/v1/chat/completions", body, headers={"Authorization": "Bearer sk-one", "Origin": "http://a"})
        assert r.status == 200 and r.body.endswith(b"data: [DONE]\n\n")
        assert r.headers["Access-Control-Allow-Origin"] == "http://a"
        assert "sk-one" not in c.log("r0")
