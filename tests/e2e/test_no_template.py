"""A model folder without a chat template: everything but messages is served."""
import shutil

import pytest

from cluster import CONVERSATIONS, ROOT, Cluster, generate_body
from lone_router import Router

DEMO = ROOT / "deploy/demo-model"
MESSAGES = {"messages": [{"role": "user", "content": "hi"}]}
WARNING = "has neither chat_template.jinja nor a chat_template"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain") / "plain"
    folder.mkdir()
    for file in DEMO.iterdir():
        if file.name != "chat_template.jinja":
            (folder / file.name).symlink_to(file)
    return folder


@pytest.fixture(scope="module")
def cluster(build, model, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("no_template"), build, model=model) as c:
        yield c


def check_refused(answer):
    error = answer.json()["error"]
    assert answer.status == 400
    assert error["type"] == "invalid_request_error" and error["code"] == "no_chat_template"
    assert error["param"] == "messages"
    assert "The model `demo` has no chat template" in error["message"]


def test_completions_and_the_tokenizer_are_served(cluster):
    row = CONVERSATIONS[0]
    answer = cluster.post("/v1/completions", generate_body(row, prompt=row["prompt"]))
    assert answer.status == 200, answer.body
    assert answer.json()["choices"][0]["text"] == row["greedy_text"]
    ids = cluster.post("/tokenize", {"prompt": row["prompt"]})
    assert ids.json()["tokens"] == row["prompt_ids"]
    assert cluster.post("/detokenize", {"tokens": row["prompt_ids"]}).json()["prompt"] == row["prompt"]
    assert cluster.metric("baton_template_children") == 0


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
@pytest.mark.parametrize("stream", [False, True])
def test_messages_are_refused_with_the_reason(cluster, path, stream):
    check_refused(cluster.post(path, {"model": "demo", **MESSAGES, "stream": stream}))


def test_the_log_says_it_once(cluster):
    lines = [line for line in cluster.log("r0").splitlines() if WARNING in line]
    assert len(lines) == 1 and " warn " in lines[0], lines


def test_chat_is_refused_for_good_also_while_no_worker_is_there(build, runtime, model):
    """Not with a 503, which asks the client to come back."""
    router = Router(build, runtime, model)
    try:
        status, body = router.ask("POST", "/v1/chat/completions", '{"messages": []}')
        assert status == 400 and b"no_chat_template" in body
        assert router.ask("POST", "/v1/completions", '{"prompt": "a"}')[0] == 503
    finally:
        router.close()


def test_a_named_template_is_used(build, runtime, model, tmp_path):
    """The key chat_template stands for the file that is missing."""
    named = tmp_path / "named.jinja"
    shutil.copyfile(DEMO / "chat_template.jinja", named)
    router = Router(build, runtime, model, f"--chat-template={named}")
    try:
        status, body = router.ask("POST", "/tokenize", '{"messages": [{"role": "user", "content": "hi"}]}')
        assert status == 200, body
        assert WARNING not in router.log.read_text()
    finally:
        router.close()
