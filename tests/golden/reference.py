"""The forward pass of the model in numpy and double precision, from weights given as
arrays: what baton-logits has to equal, by code that shares nothing with it. Covers the
tensors of Qwen3.5 (dense and experts) and Qwen3-Next, one sequence from its start."""
import json
import pathlib

import numpy as np


def config_of(folder):
    c = json.loads((pathlib.Path(folder) / "config.json").read_text())
    return c.get("text_config", c)


def silu(x):
    return x / (1 + np.exp(-x))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rms(x, w, eps):
    """Zero-centred: the stored weight is the deviation from 1."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * (1 + w)


def rope(x, theta, rotary):
    """x [T][heads][D]; the first `rotary` dimensions turn, halves paired."""
    half = rotary // 2
    angle = np.arange(len(x))[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:rotary]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., rotary:]], -1)


def attention(x, w, c):
    t, d, n_q, n_kv = len(x), c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
    turn = c.get("rope_parameters", c)
    rotary = round(d * turn["partial_rotary_factor"])
    theta, eps = turn["rope_theta"], c["rms_norm_eps"]
    qg = (x @ w("self_attn.q_proj.weight").T).reshape(t, n_q, 2, d)
    k = (x @ w("self_attn.k_proj.weight").T).reshape(t, n_kv, d)
    v = (x @ w("self_attn.v_proj.weight").T).reshape(t, n_kv, d)
    q = rope(rms(qg[:, :, 0], w("self_attn.q_norm.weight"), eps), theta, rotary)
    k = rope(rms(k, w("self_attn.k_norm.weight"), eps), theta, rotary)
    out = np.zeros((t, n_q, d))
    for h in range(n_q):
        kv = h // (n_q // n_kv)
        score = q[:, h] @ k[:, kv].T / np.sqrt(d)
        score[np.triu_indices(t, 1)] = -np.inf
        p = np.exp(score - score.max(-1, keepdims=True))
        out[:, h] = p / p.sum(-1, keepdims=True) @ v[:, kv]
    return (out * sigmoid(qg[:, :, 1])).reshape(t, -1) @ w("self_attn.o_proj.weight").T


def delta_net(x, w, c):
    t, n_k, n_v = len(x), c["linear_num_key_heads"], c["linear_num_value_heads"]
    dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
    raw = x @ w("linear_attn.in_proj_qkv.weight").T
    taps = w("linear_attn.conv1d.weight")[:, 0]
    padded = np.concatenate([np.zeros((taps.shape[1] - 1, raw.shape[1])), raw])
    u = silu(sum(padded[i:i + t] * taps[:, i] for i in range(taps.shape[1])))
    q, k, v = np.split(u, [n_k * dk, 2 * n_k * dk], -1)

    def unit(a):
        a = a.reshape(t, n_k, dk)
        a = a / np.sqrt((a * a).sum(-1, keepdims=True) + 1e-6)
        return np.repeat(a, n_v // n_k, 1)
    q, k, v = unit(q) / np.sqrt(dk), unit(k), v.reshape(t, n_v, dv)
    beta = sigmoid(x @ w("linear_attn.in_proj_b.weight").T)
    a = x @ w("linear_attn.in_proj_a.weight").T + w("linear_attn.dt_bias")
    decay = np.exp(-np.exp(w("linear_attn.A_log")) * np.logaddexp(0, a))
    state, out = np.zeros((n_v, dk, dv)), np.zeros((t, n_v, dv))
    for i in range(t):
        state *= decay[i][:, None, None]
        seen = np.einsum("hkv,hk->hv", state, k[i])
        state += k[i][:, :, None] * (beta[i][:, None] * (v[i] - seen))[:, None]
        out[i] = np.einsum("hkv,hk->hv", state, q[i])
    z = (x @ w("linear_attn.in_proj_z.weight").T).reshape(t, n_v, dv)
    out /= np.sqrt((out * out).mean(-1, keepdims=True) + c["rms_norm_eps"])
    out = out * w("linear_attn.norm.weight") * silu(z)
    return out.reshape(t, -1) @ w("linear_attn.out_proj.weight").T


def gated(x, w, prefix):
    up = silu(x @ w(prefix + "gate_proj.weight").T) * (x @ w(prefix + "up_proj.weight").T)
    return up @ w(prefix + "down_proj.weight").T


def mlp(x, w, c):
    if not c.get("num_experts"):
        return gated(x, w, "mlp.")
    score = x @ w("mlp.gate.weight").T
    p = np.exp(score - score.max(-1, keepdims=True))
    shared = sigmoid(x @ w("mlp.shared_expert_gate.weight").T)
    out = gated(x, w, "mlp.shared_expert.") * shared
    for i, row in enumerate(p):
        chosen = np.argsort(-row, kind="stable")[:c["num_experts_per_tok"]]
        for e in chosen:
            part = gated(x[i:i + 1], w, f"mlp.experts.{e}.")
            out[i] += row[e] / row[chosen].sum() * part[0]
    return out


def unpack(name, a, c):
    """The tensors of Qwen3.5 that one of Qwen3-Next holds, grouped there by key head."""
    n_k, n_v = c["linear_num_key_heads"], c["linear_num_value_heads"]
    dk, values = c["linear_key_head_dim"], n_v // n_k * c["linear_value_head_dim"]
    if name.endswith("in_proj_qkvz.weight"):
        groups = np.split(a.reshape(n_k, -1, a.shape[1]), [dk, 2 * dk, 2 * dk + values], 1)
        q, k, v, z = (part.reshape(-1, a.shape[1]) for part in groups)
        return {name.replace("qkvz", "qkv"): np.concatenate([q, k, v]), name.replace("qkvz", "z"): z}
    if name.endswith("in_proj_ba.weight"):
        b, a_ = np.split(a.reshape(n_k, -1, a.shape[1]), 2, 1)
        return {name.replace("_ba", "_b"): b.reshape(n_v, -1), name.replace("_ba", "_a"): a_.reshape(n_v, -1)}
    return {name: a}


def logits(weights, c, ids):
    """weights: {name: array} with every expert by itself; gives [T][vocab]."""
    root = "model." if "model.norm.weight" in weights else "model.language_model."
    eps, wide = c["rms_norm_eps"], {}
    for name, a in weights.items():
        wide.update(unpack(name, a.astype(np.float64), c))
    x = wide[root + "embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        def w(name, prefix=f"{root}layers.{i}."):
            return wide[prefix + name]
        mix = attention if c["layer_types"][i] == "full_attention" else delta_net
        x = x + mix(rms(x, w("input_layernorm.weight"), eps), w, c)
        x = x + mlp(rms(x, w("post_attention_layernorm.weight"), eps), w, c)
    head = wide.get("lm_head.weight", wide[root + "embed_tokens.weight"])
    return rms(x, wide[root + "norm.weight"], eps) @ head.T
