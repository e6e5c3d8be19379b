"""What stands between a request and its first token, with workers that have nothing else to do."""
import statistics

import pytest

from cluster import Cluster

TEXT = {"model": "demo", "prompt": "one two three", "max_tokens": 1, "temperature": 0}


@pytest.fixture(scope="module")
def cluster(build, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("first"), build) as c:
        yield c


def waits(cluster, name, body, n):
    """queue_ms of n requests, one after another."""
    for i in range(n):
        assert cluster.post("/v1/completions", body, headers={"X-Request-Id": f"{name}-{i}"}).status == 200
    return [float(cluster.outcome(f"{name}-{i}")["queue_ms"]) for i in range(n)]


def test_a_prompt_of_ids_waits_for_an_idle_worker_no_longer_than_text_does(cluster):
    ids = cluster.post("/tokenize", {"model": "demo", "prompt": TEXT["prompt"]}).json()["tokens"]
    waits(cluster, "warm", TEXT, 3)
    by_ids = waits(cluster, "ids", dict(TEXT, prompt=ids), 30)
    by_text = waits(cluster, "text", TEXT, 30)
    # The router's tick is 20 ms: who waits for it waits 10 ms in the mean.
    assert statistics.median(by_ids) < 2, (by_ids, by_text)
