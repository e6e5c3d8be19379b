"""What is not text is refused by the place where it stands, on every path that takes
messages, and nothing of it reaches a worker."""
import pytest

from cluster import Cluster, wait_for

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
PARTS = [
    (IMAGE, "image_url"),
    ({"type": "image", "image": "https://example.com/a.png"}, "image"),
    ({"type": "input_image", "image_url": "https://example.com/a.png"}, "input_image"),
    ({"type": "video", "video": "https://example.com/a.mp4"}, "video"),
    ({"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}}, "video_url"),
    ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, "input_audio"),
    ({"type": "file", "file": {"file_id": "f"}}, "file"),
]


@pytest.fixture(scope="module")
def cluster(build, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("vision"), build) as c:
        yield c


def messages(part):
    return [{"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]}]


@pytest.mark.parametrize("path, more", [
    ("/v1/chat/completions", {}), ("/v1/chat/completions", {"stream": True}), ("/tokenize", {})],
    ids=["chat", "stream", "tokenize"])
@pytest.mark.parametrize("part, kind", PARTS, ids=[kind for _, kind in PARTS])
def test_other_content_is_refused_by_place_and_kind(part, kind, path, more, cluster):
    r = cluster.post(path, {"model": "demo", "messages": messages(part), **more})
    error = r.json()["error"]
    assert r.status == 400, r.body
    assert error["param"] == "messages[1].content[1].type"
    assert f'"{kind}"' in error["message"] and "text-only" in error["message"]


def test_text_parts_around_it_are_answered(cluster):
    """The same request without its image, and nothing but this one went to a worker."""
    r = cluster.post("/v1/chat/completions",
                     {"model": "demo", "messages": messages({"type": "text", "text": "1"}), "max_tokens": 4})
    assert r.status == 200, r.body
    steps = "baton_worker_prefill_steps_total"  # as the beats tell it
    wait_for(lambda: cluster.metric(steps, worker="p0") > 0, 5)
    assert cluster.metric(steps, worker="p0") == 1
