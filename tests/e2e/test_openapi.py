"""What the router says of itself: /openapi.json made from its tables, /load, /server_info, /tokenizer_info."""
import json
import os
import subprocess

import pytest

from cluster import CONVERSATIONS, ROOT, Cluster, Stream, generate_body, wait_for
from test_bad_fields import table

LEN = 512  # tokens of a sequence: no answer is long


@pytest.fixture(scope="module")
def cluster(build, tmp_path_factory):
    flags = f"--max-model-len {LEN}"
    with Cluster(tmp_path_factory.mktemp("openapi"), build, prefill_flags=flags, decode_flags=flags) as c:
        yield c


@pytest.fixture(scope="module")
def document(cluster):
    r = cluster.get("/openapi.json")
    assert r.status == 200
    return r.json()


def test_every_path_of_the_document_is_served_by_its_method(cluster, document):
    assert {"/v1/chat/completions", "/v1/completions", "/v1/models/{model}", "/tokenize", "/metrics", "/ready"} \
        <= set(document["paths"])
    for path, operations in document["paths"].items():
        (method,) = operations
        asked = path.replace("{model}", "demo")
        r = cluster.request(method.upper(), asked, b"{}" if method == "post" else None)
        assert r.status == (400 if method == "post" else 200), (path, r.body)
        other = cluster.request("GET" if method == "post" else "POST", asked, b"{}")
        assert other.status == 405 and method.upper() in other.headers["Allow"]


def test_every_member_of_the_parsers_table_is_in_the_document(document):
    schemas = document["components"]["schemas"]
    lines = (ROOT / "router/FIELDS.md").read_text().splitlines()
    ignored = set(table([line for line in lines if line.endswith("| ignored |")]))
    for path, name in (("/v1/chat/completions", "ChatRequest"), ("/v1/completions", "CompletionRequest"),
                       ("/v1/messages", "MessagesRequest"), ("/v1/responses", "ResponsesRequest")):
        body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert body == {"$ref": f"#/components/schemas/{name}"}
        want = {field for where, field in set(table(lines)) - ignored if where == path}
        assert set(schemas[name]["properties"]) == want
    temperature = schemas["ChatRequest"]["properties"]["temperature"]["anyOf"][0]
    assert (temperature["minimum"], temperature["maximum"]) == (0, 2)


def test_the_load_is_what_runs_and_waits(cluster):
    def load():
        return cluster.get("/load").json()

    idle = wait_for(lambda: (x := load())["server_load"] == 0 and x, 20)
    assert idle["running"] == idle["waiting"] == 0 and idle["kv_cache_usage"] == 0
    s = Stream(cluster, "/v1/completions", generate_body(CONVERSATIONS[0], prompt=CONVERSATIONS[0]["prompt_ids"],
                                                         max_tokens=400, ignore_eos=True))
    next(s.events())
    busy = load()
    assert busy["server_load"] == busy["running"] == 1
    wait_for(lambda: load()["kv_cache_usage"] > 0 or load()["server_load"] == 0, 20)
    s.cut()
    wait_for(lambda: load()["server_load"] == 0, 20)


def test_what_serves_is_told(cluster):
    for path in ("/server_info", "/get_server_info"):
        info = cluster.get(path).json()
        assert info["served_model_name"] == "demo" and info["max_model_len"] == LEN and info["ready"] is True
        assert info["prefill"][0]["workers"] == info["decode"][0]["workers"] == 1 and info["decode"][0]["pages"] > 0


def test_the_tokenizer_is_told(cluster):
    info = cluster.get("/tokenizer_info").json()
    config = json.loads((ROOT / "deploy/demo-model/tokenizer_config.json").read_text())
    assert {k: info[k] for k in ("eos_token", "pad_token", "bos_token", "tokenizer_class")} \
        == {k: config[k] for k in ("eos_token", "pad_token", "bos_token", "tokenizer_class")}
    assert info["chat_template"] == (ROOT / "deploy/demo-model/chat_template.jinja").read_text()
    for row in info["added_tokens"]:
        assert cluster.post("/tokenize", {"prompt": row["content"]}).json()["tokens"] == [row["id"]]
    assert [row["id"] for row in info["added_tokens"] if row["content"] == info["eos_token"]][0] in info["eos_token_ids"]


def test_schemathesis_finds_no_server_error_and_no_answer_against_the_document(cluster, client_python, tmp_path):
    """Bodies made from the document, right and wrong ones."""
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    command = [client_python.parent / "schemathesis", "run", f"http://127.0.0.1:{cluster.port}/openapi.json",
               "--checks", checks, "--max-examples", os.environ.get("BATON_EXAMPLES", "25"), "--seed", "1",
               "--phases", "examples,coverage,fuzzing", "--mode", "all", "--generation-database", "none",
               "--request-timeout", "60", "--max-time", os.environ.get("BATON_FUZZ_S", "30")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900,
                          env={**os.environ, "NO_PROXY": "127.0.0.1"})
    print(done.stdout[-3000:])
    assert done.returncode == 0, done.stdout[-12000:] + done.stderr[-2000:]
    assert cluster.get("/ready").status == 200
