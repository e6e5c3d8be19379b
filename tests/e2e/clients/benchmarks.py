"""Load as two well-known benchmarks put it on a server: their bodies, and what they read of the
answers. Ours, from their wire; a member that they take without asking is taken so here."""
import concurrent.futures
import json
import sys
import time
import urllib.request

given = json.load(sys.stdin)
BASE = f"http://127.0.0.1:{given['port']}"
TOKENS = given["tokens"]


def fetch(path, body=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    return urllib.request.urlopen(urllib.request.Request(BASE + path, data, {"Content-Type": "application/json", **headers}), timeout=120)


def events(path, body, **headers):
    """(seconds, event) of each chunk; the last one must be [DONE]."""
    begun, last = time.perf_counter(), None
    with fetch(path, body, **headers) as answer:
        for line in answer:
            line = line.strip().decode()
            if not line or line.startswith(":"):
                continue
            last = line.removeprefix("data: ")
            if last != "[DONE]":
                yield time.perf_counter() - begun, json.loads(last)
    assert last == "[DONE]", last


def measured(chunks, text):
    """What both reckon with: the text, how many tokens, when the first came."""
    out = {"text": "", "tokens": None, "first": 0.0, "gaps": 0}
    for at, event in chunks:
        if choices := event.get("choices"):
            if piece := text(choices[0]):
                out["first"] = out["first"] or at
                out["gaps"] += 1
                out["text"] += piece
        out["tokens"] = (event.get("usage") or {}).get("completion_tokens", out["tokens"])
    return out


def vllm_completions(prompt):
    body = {"model": "demo", "prompt": prompt, "repetition_penalty": 1.0, "max_tokens": TOKENS, "logprobs": None, "stream": True,
            "stream_options": {"include_usage": True}, "ignore_eos": True, "temperature": 0.0}
    return measured(events("/v1/completions", body, Authorization="Bearer none", **{"x-request-id": "benchmark-0"}),
                    lambda c: c["text"])


def vllm_chat(prompt):
    body = {"model": "demo", "messages": [{"role": "user", "content": [{"type": "text", "text": prompt}]}], "temperature": 0.0,
            "max_completion_tokens": TOKENS, "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True,
            "chat_template_kwargs": {"enable_thinking": False}}
    return measured(events("/v1/chat/completions", body), lambda c: c["delta"].get("content"))


def sglang_completions(prompt):
    body = {"model": "demo", "prompt": prompt, "temperature": 0.0, "best_of": 1, "max_tokens": TOKENS, "stream": True,
            "ignore_eos": True, "stream_options": {"include_usage": True}, "return_cached_tokens_details": False, "lora_path": None}
    return measured(events("/v1/completions", body), lambda c: c["text"])


def sglang_chat(prompt):
    body = {"model": "demo", "messages": [{"role": "user", "content": prompt}], "temperature": 0.0, "max_completion_tokens": TOKENS,
            "stream": True, "ignore_eos": True, "stream_options": {"include_usage": True},
            "chat_template_kwargs": {"enable_thinking": False}}
    return measured(events("/v1/chat/completions", body), lambda c: c["delta"].get("content"))


def around():
    """What they ask besides."""
    model = json.load(fetch("/v1/models"))["data"][0]["id"]
    with fetch("/metrics") as answer:
        speculation = [line for line in answer.read().decode().splitlines() if line.startswith("vllm:spec_decode")]
    accepted = json.load(fetch("/get_server_info"))["decode"][0]["internal_states"][0].get("avg_spec_accept_length")
    return [model, speculation, accepted]


seen = {"around": around()}
with concurrent.futures.ThreadPoolExecutor(given["beside"]) as pool:
    for ask in (vllm_completions, vllm_chat, sglang_completions, sglang_chat):
        seen[ask.__name__] = list(pool.map(ask, given["prompts"]))
print(json.dumps(seen))
