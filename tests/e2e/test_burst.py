"""Many requests at once on a cluster that has nothing else to do are no reason to turn one away."""
from cluster import Cluster, in_parallel

N = 300


def test_300_chats_at_once_are_all_answered(build, tmp_path):
    body = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "temperature": 0}
    with Cluster(tmp_path, build) as c:
        got = in_parallel(lambda _: c.post("/v1/chat/completions", body, timeout=120), range(N), N)
        assert [r.status for r in got] == [200] * N
