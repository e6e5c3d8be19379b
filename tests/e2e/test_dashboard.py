"""The Grafana board asks for nothing that /metrics does not have, and shows all of it that matters."""
import json
import re

import pytest

from cluster import CONVERSATIONS, ROOT, Cluster, chat_body

BOARD = json.loads((ROOT / "deploy/grafana/baton.json").read_text())
WORDS = {"rate", "increase", "sum", "by", "le", "histogram_quantile", "label_values"}
# Names that public dashboards for vLLM ask for, as far as this system has such a thing.
VLLM = """num_requests_running num_requests_waiting num_requests_waiting_by_reason kv_cache_usage_perc cache_config_info
prompt_tokens_total generation_tokens_total request_success_total num_preemptions_total prefix_cache_queries_total
prefix_cache_hits_total prompt_tokens_cached_total corrupted_requests_total time_to_first_token_seconds
inter_token_latency_seconds request_time_per_output_token_seconds e2e_request_latency_seconds request_queue_time_seconds
request_inference_time_seconds request_prefill_time_seconds request_decode_time_seconds request_prompt_tokens
request_generation_tokens request_max_num_generation_tokens request_params_max_tokens request_params_n
iteration_tokens_total request_prefill_kv_computed_tokens""".split()


@pytest.fixture(scope="module")
def scraped(build, tmp_path_factory):
    """Samples of a cluster that has answered, {name: set of label names}, and families."""
    with Cluster(tmp_path_factory.mktemp("board"), build) as c:
        body = chat_body(CONVERSATIONS[0], n=2)
        assert c.post("/v1/chat/completions", body).status == 200
        c.post("/v1/chat/completions", {"messages": []})
        samples = {}
        for (name, labels), _ in c.metrics().items():
            samples.setdefault(name, set()).update(k for k, _ in labels)
        text = c.get("/metrics").body.decode()
        yield samples, set(re.findall(r"^# TYPE (\S+) ", text, re.M)), c.metrics()


def expressions():
    for panel in BOARD["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]
    yield from (v["query"] for v in BOARD["templating"]["list"] if v["type"] == "query")


def names_of(text):
    """(metric, labels that its selector or its sum names)"""
    grouped = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", text))))
    plain = re.sub(r"by \([^)]*\)|\[[^\]]*\]", " ", text)
    for m in re.finditer(r"\b([a-z_]+:?[a-z_]\w*)\b(\{[^}]*\})?", plain):
        if m[1] not in WORDS and not re.match(r"model_name|e9$", m[1]):
            yield m[1], grouped | set(re.findall(r"(\w+)=", m[2] or ""))


def test_every_name_and_label_of_the_board_is_in_the_metrics(scraped):
    samples, _, _ = scraped
    asked = [pair for e in expressions() for pair in names_of(e)]
    assert len({name for name, _ in asked}) > 45
    for name, labels in asked:
        assert name in samples, name
        assert labels <= samples[name], (name, labels, samples[name])
    for panel in BOARD["panels"]:
        for target in panel.get("targets", []):
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert any(label in labels or label in samples[n] for n, labels in names_of(target["expr"]))


def test_the_board_is_one_that_grafana_takes(scraped):
    ids = [p["id"] for p in BOARD["panels"]]
    assert len(ids) == len(set(ids)) and BOARD["uid"] and BOARD["schemaVersion"] >= 36
    taken = set()
    for p in BOARD["panels"]:
        g = p["gridPos"]
        cells = {(x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])}
        assert not cells & taken and g["x"] + g["w"] <= 24
        taken |= cells


def test_dashboards_for_vllm_find_their_names(scraped):
    samples, families, values = scraped
    for name in VLLM:
        assert f"vllm:{name}" in families, name

    def value(name):
        return sum(v for (n, _), v in values.items() if n == f"vllm:{name}")

    n = CONVERSATIONS[0]
    assert value("request_params_n_sum") == 2 and value("request_params_n_count") == 1
    assert value("request_max_num_generation_tokens_sum") == len(n["greedy_ids"])
    assert value("request_prefill_kv_computed_tokens_sum") == len(n["prompt_ids"])
    assert {"block_size", "num_gpu_blocks"} <= samples["vllm:cache_config_info"]
