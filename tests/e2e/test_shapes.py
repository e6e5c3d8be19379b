"""The same answers whatever the shape of the cluster: several workers of a role, and
tensor parallelism that differs between prefill and decode."""
import pytest

from cluster import CONVERSATIONS, Cluster, generate_body, in_parallel

TP1, TP2 = "cpu:0", "cpu:0,cpu:1"
SHAPES = {
    "2P2D": dict(prefill=2, decode=2),
    "P_TP1_D_TP2": dict(gpus=TP1, decode_gpus=TP2),
    "P_TP2_D_TP1": dict(gpus=TP2, decode_gpus=TP1),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_sixteen_at_once_give_the_golden_texts(build, tmp_path, shape):
    with Cluster(tmp_path, build, **SHAPES[shape]) as c:
        def ask(row):
            r = c.post("/v1/completions", generate_body(row, prompt=row["prompt_ids"]))
            assert r.status == 200, r.body
            assert r.json()["choices"][0]["text"] == row["greedy_text"]
            return c.outcome(r.headers["X-Request-Id"])
        seen = in_parallel(ask, CONVERSATIONS)
        for role, n in (("prefill", SHAPES[shape].get("prefill", 1)), ("decode", SHAPES[shape].get("decode", 1))):
            assert len({s[role] for s in seen}) == n, f"not every {role} worker was used"
