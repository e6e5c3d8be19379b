/* The ops of the model: one argument struct each, whose comment is its contract.
 * The forward pass (common/engine/forward.c) is written once over these; a backend
 * implements every one of them. Formulas: the model family's reference
 * implementation, restated at each op.
 *
 * Dimensions: T rows (tokens of this pass), S sequences, H hidden, NQ query heads,
 * NKV key/value heads, D head_dim, NK/NV GDN key/value heads, DK/DV their dims,
 * CD = 2*NK*DK + NV*DV conv channels, E experts, K experts per token, I width, V vocab,
 * P page tokens. All are rank-local.
 *
 * `act` memory holds backend->act elements (F32 on the CPU, BF16 on GPUs); arithmetic
 * accumulates in F32 and rounds once at the store. Rows are dense unless a stride
 * (in elements) is given. Every result of a row depends on that row's own sequence
 * only, and on the CPU its bits do not depend on which other rows are in the pass:
 * each output element is summed in one fixed order whatever T is. Pointers are device
 * memory. T = 0 is legal and does nothing. An op writes exactly what its comment
 * names; it never allocates, synchronises, or keeps state. */
#ifndef KERNELS_OPS_H
#define KERNELS_OPS_H
#include "common/base/dtype.h"
#include "common/base/err.h"
#include "kernels/table.h"
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

struct stream; /* kernels/backend.h */

/* y = x W^T with W [n][k] row-major, or a stack of `count` such matrices. Formats and
 * scales as in common/model/weights.h (weights_info). layout 0 is the plain layout;
 * other numbers belong to the variant that repacked it (kernels/registry.h). */
struct weight {
	enum weight_format format;
	uint32_t layout;
	uint32_t count, n, k;
	uint32_t block_n, block_k; /* FP8: rows and columns that share a scale */
	const void *data;
	const void *scale;
	const float *scale2;
};

/* How the rows of a pass belong to sequences. Rows of a sequence are consecutive and
 * in token order. Device arrays; the maxima are host numbers that bound the launch. */
struct op_rows {
	uint32_t n_rows;       /* T */
	uint32_t n_seqs;       /* S */
	const uint32_t *pos;   /* [T] absolute position of each row's token, from 0 */
	const uint32_t *seq;   /* [T] its sequence, 0..S-1 */
	const uint32_t *first; /* [S + 1] first row of each sequence */
	const uint32_t *pages; /* [S][pages_stride] page of tokens P*i..P*i+P-1 */
	uint32_t pages_stride;
	const uint32_t *slot;  /* [S] state slot */
	uint32_t max_seq_rows; /* most rows of one sequence in this pass */
	uint32_t max_len;      /* most tokens of one sequence after this pass */
};

/* KV pages as one attention layer sees them: K of head h, token t of page p stands at
 * base + p * page_bytes + ((h * P) + t) * D elements; V at the same place NKV * P * D
 * elements later. */
struct op_kv {
	void *base; /* this layer's part of page 0 */
	uint64_t page_bytes;
	enum dtype dtype;
	uint32_t page_tokens; /* P */
	uint32_t n_kv, head_dim;
};

/* GDN state as one layer sees it. Recurrent: F32 [NV][DV][DK] at rec + slot * slot_bytes.
 * Conv: [CD][taps - 1] raw inputs, oldest first, at conv + slot * slot_bytes. */
struct op_slot {
	void *rec;
	void *conv;
	uint64_t slot_bytes;
	enum dtype conv_dtype;
};

enum op_id {
#define X(op, ...) OP_##op,
	OP_MAP(X)
#undef X
		OP__COUNT
};

/* x[t] = table[ids[t] - first], and zeros for ids that the table, rows first .. of a
 * vocabulary, does not have. x: act [T][H]; table: [n][H], F32 or BF16. ids < vocab. */
struct op_embed {
	void *x;
	const uint32_t *ids; /* [T] */
	const struct weight *table;
	uint32_t n_rows, first, vocab;
};

/* x += add (when add is not NULL), then y = x * rsqrt(mean(x^2) + eps) * (1 + gain):
 * the zero-centred RMSNorm; gain as stored, 1 added in F32. x, add, y: act [T][width];
 * y may be NULL (only the addition) and may not alias x. */
struct op_add_norm {
	void *x;
	const void *add;
	void *y;
	const float *gain; /* [width] */
	uint32_t n_rows, width;
	float eps;
};

/* y[t][n] = sum_k x[t][k] * w[n][k]. x: act, row stride x_stride >= k; y: act, row
 * stride y_stride >= n. x and y do not overlap. w->count is 1. */
struct op_linear {
	void *y;
	const void *x;
	const struct weight *w;
	uint32_t n_rows, x_stride, y_stride;
};

/* For each row: q = RoPE(norm(query part of qg)), k = RoPE(norm(k)), K and V written to
 * the row's page. norm: zero-centred RMSNorm over D with gains q_gain / k_gain [D].
 * RoPE on the first `rotary` dims, rotate-half pairing: inv_freq_i = theta^(-2i/rotary)
 * rounded to F32 (precomputed by the caller), angle = (float)pos * inv_freq_i in F32,
 * cos and sin with full range reduction:
 *   out[i] = a[i] cos - a[i + rotary/2] sin; out[i + rotary/2] = a[i + rotary/2] cos +
 * a[i] sin */
struct op_attn_prep {
	void *q;        /* act [T][NQ][D], written */
	const void *qg; /* act [T][NQ][query D | gate D] */
	const void *k;  /* act [T][NKV][D] */
	const void *v;  /* act [T][NKV][D] */
	const float *q_gain, *k_gain;
	const float *inv_freq; /* [rotary / 2] */
	struct op_rows rows;
	struct op_kv kv;
	uint32_t n_q, rotary;
	uint32_t qg_stride, k_stride, v_stride; /* elements between rows */
	float eps;
};

/* Causal attention of each row over positions 0..pos of its sequence, read from pages
 * (the rows' own K and V are there already). Query head h reads KV head h / (NQ / NKV);
 * scale = D^-0.5; softmax in F32; o = attention * sigmoid(gate part of qg).
 * attn_prefill serves any rows; attn_decode exactly one row per sequence. */
struct op_attn_prefill {
	void *o; /* act [T][NQ][D] */
	const void *q;
	const void *qg; /* as in attn_prep */
	struct op_rows rows;
	struct op_kv kv;
	uint32_t n_q, qg_stride;
	void *work; /* work_bytes of scratch, see op_work_bytes */
	uint64_t work_bytes;
};
#define op_attn_decode op_attn_prefill

/* For each row of each sequence, in order:
 *   u[c] = SiLU(sum_{j=0..3} cw[c][j] * in[c][t - 3 + j]), inputs before this pass come
 *   from the slot's conv state, which is then advanced (a pass of n < 3 rows shifts it by
 * n); q = l2norm(u_q) * DK^-0.5, k = l2norm(u_k) per head: y = x * rsqrt(sum(x^2) +
 * 1e-6); v = u_v; g = -exp(a_log) * softplus(a + dt_bias); beta = sigmoid(b), all in F32.
 * softplus(x) = log1p(exp(x)), x above 20. */
struct op_gdn_prep {
	void *q, *k, *v;     /* act [T][NK][DK], [T][NK][DK], [T][NV][DV], written */
	float *g, *beta;     /* [T][NV], written */
	const void *qkv;     /* act [T][CD] raw projection, row stride qkv_stride */
	const void *a, *b;   /* act [T][NV], row strides ab_stride */
	const float *conv_w; /* [CD][taps] */
	const float *a_log, *dt_bias; /* [NV] */
	struct op_rows rows;
	struct op_slot state;
	uint32_t n_k, n_v, dk, dv, taps;
	uint32_t qkv_stride, ab_stride;
};

/* The gated delta rule per value head j (key head j / (NV / NK)), S = slot's state, for
 * each row in order: S *= exp(g); m = S k; d = beta (v - m); S += d k^T; o = S q;
 * then y = o * rsqrt(mean(o^2) + eps) * gain * act(z), gain plain (not zero-centred),
 * act = SiLU or sigmoid. gdn_prefill serves any rows; gdn_decode one row per sequence. */
struct op_gdn_prefill {
	void *y; /* act [T][NV][DV], written */
	const void *q, *k, *v;
	const float *g, *beta;
	const void *z;     /* act [T][NV][DV], row stride z_stride */
	const float *gain; /* [DV] */
	struct op_rows rows;
	struct op_slot state;
	uint32_t n_k, n_v, dk, dv, z_stride;
	bool sigmoid_gate;
	float eps;
	void *work;
	uint64_t work_bytes;
};
#define op_gdn_decode op_gdn_prefill

/* y = SiLU(gate) * up. act [T][width]; gate and up with row strides. */
struct op_swiglu {
	void *y;
	const void *gate, *up;
	uint32_t n_rows, width, gate_stride, up_stride;
};

/* p = softmax(x router^T) over all E in F32; the K largest, ties to the lowest index;
 * weight = p / sum of the chosen p. shared = sigmoid(x . shared_router). When forced is
 * not NULL it gives the ids instead and only the weights are computed. */
struct op_moe_route {
	uint32_t *ids;  /* [T][K], written (largest first) */
	float *weights; /* [T][K], written */
	float *shared;  /* [T], written; NULL when the layer has no shared expert */
	const void *x;  /* act [T][H] */
	const uint32_t *forced;                      /* [T][K] or NULL */
	const struct weight *router, *shared_router; /* [E][H], [1][H], F32 or BF16 */
	uint32_t n_rows, n_experts, top_k;
};

/* y[t] = sum_j weights[t][j] * down_e(SiLU(gate_e x) * up_e x), e = ids[t][j] - first, of
 * those that the stacks, experts first .. of n_experts, have, plus
 * shared[t] * the same of the shared expert (sh_* NULL: none). The K routed terms are
 * added in ascending order of j, the shared one last. */
struct op_moe {
	void *y;       /* act [T][H] */
	const void *x; /* act [T][H] */
	const uint32_t *ids;
	const float *weights, *shared;
	const struct weight *gate, *up, *down; /* stacks of E, or of some of them */
	const struct weight *sh_gate, *sh_up,
		*sh_down; /* may differ in format from the stacks */
	uint32_t n_rows, top_k;
	uint32_t first, n_experts;
	void *work;
	uint64_t work_bytes;
};

/* logits[i][v] = x[out_row[i]] . w[v], F32. x: act [T][H]. */
struct op_head {
	float *logits; /* [n_out][V] */
	const void *x;
	const uint32_t *out_row; /* [n_out] */
	const struct weight *w;
	uint32_t n_out;
};

/* How one row is sampled; an array of these is device memory. Zero is "off" for every
 * member but top_p. temperature 0 = greedy. position is the absolute position of the
 * token that is drawn. */
struct sample_row {
	float temperature, top_p, min_p;
	uint32_t top_k; /* 0: off */
	uint64_t seed;
	uint32_t choice;
	uint32_t position;
	float presence, frequency;
	float repetition; /* 0 or 1: off */
	uint32_t line;    /* of op_sample.counts, from 1; 0: nothing is counted */
	uint32_t edits;   /* first of its edits: n_bias biases, then n_bans bans */
	uint16_t n_bias, n_bans;
	uint32_t ban_until; /* bans hold for positions below this */
	uint32_t n_top;     /* likeliest tokens wanted, at most SAMPLE_TOP_MAX */
	uint32_t given;     /* SAMPLE_GIVEN: the token to score */
	uint32_t ask;       /* SAMPLE_GIVEN, SAMPLE_COUNT */
	uint32_t mask;      /* of op_sample.masks, from 1; 0: any token may come */
};

enum { SAMPLE_NAN = 1u }; /* flags */

enum {
	SAMPLE_GIVEN = 1u, /* nothing is drawn: the token is `given` */
	SAMPLE_COUNT = 2u, /* the drawn token is counted in the row's line */
};

/* A bias is added to the logit of id; of a ban only the id counts. */
struct sample_edit {
	uint32_t id;
	float add;
};

#define SAMPLE_TOP_MAX   20u
#define SAMPLE_BIAS_MAX  512u
#define SAMPLE_BANS_MAX  64u
#define SAMPLE_EDITS_MAX (SAMPLE_BIAS_MAX + SAMPLE_BANS_MAX)

/* What a line of counts knows of a token: whether the prompt has it, and how often it
 * was generated (no further than the mask). */
#define SAMPLE_IN_PROMPT 0x8000u
#define SAMPLE_TIMES     0x7FFFu

/* For each row: logits at or above n_valid are masked; a NaN or infinite logit among the
 * valid ones sets SAMPLE_NAN (token = 0 then means nothing).
 *
 * logprob = log softmax(logits)[token] at temperature 1 over the valid ids, and top_id /
 * top_logprob the same of the n_top largest (ties: ascending id): of the logits as they
 * came, before everything that follows.
 *
 * Then, for the draw alone and in F32, in the order in which vLLM and OpenAI have it:
 * 1. biases are added; while position < ban_until, banned logits become -infinity;
 * 2. repetition, for tokens of the prompt and generated ones: x > 0 ? x / r : x * r;
 * 3. frequency times how often the token was generated is subtracted;
 * 4. presence is subtracted when it was generated at all.
 *
 * Greedy: the largest, ties to the lowest id. Otherwise softmax(x / temperature),
 * restricted to the top_k largest (ties to the lowest id), then to the smallest set of
 * largest probability whose sum reaches top_p, then to p >= min_p * p_max; one draw with
 * u = rng_token_uniform(seed, choice, position): the first token in descending order of
 * probability (ties: ascending id) whose cumulative sum is >= u * total; never one of
 * probability 0.
 *
 * SAMPLE_COUNT: the token is counted in counts, one line of which belongs to one row. So
 * the counts follow the drawn tokens on the device, step after step; whoever begins a
 * sequence fills the line. */
struct op_sample {
	uint32_t *token;                 /* [n] */
	float *logprob;                  /* [n] */
	uint32_t *flags;                 /* [n] */
	uint32_t *top_id;                /* [n][SAMPLE_TOP_MAX]; NULL: no row wants any */
	float *top_logprob;              /* [n][SAMPLE_TOP_MAX] */
	const float *logits;             /* [n][V] */
	const struct sample_row *rows;   /* [n] */
	const struct sample_edit *edits; /* may be NULL when no row has any */
	uint16_t *counts;                /* [lines][V]; the same */
	/* Lines of mask_words, bit id % 32 of word id / 32: of a row with a mask a token
	 * without its bit is not drawn. NULL: no row has one. Host memory; only the CPU
	 * kernels take any (engine_takes_guides). */
	const uint32_t *masks;
	uint32_t mask_words;
	uint32_t n, vocab, n_valid;
	void *work;
	uint64_t work_bytes;
};

/* What an engine will ask of a device: the largest pass and the model's rank-local
 * shapes. Scratch sizes and self-check shapes follow from it. */
struct kernel_shapes {
	uint32_t rows_max; /* T of the largest pass */
	uint32_t seqs_max;
	uint32_t out_max; /* rows of logits */
	uint32_t len_max; /* tokens of one sequence */
	uint32_t hidden;
	uint32_t vocab, n_valid; /* of the whole model: what is sampled from */
	uint32_t vocab_part;     /* rows of embedding and head on this rank; 0: all */
	uint32_t n_q, n_kv, head_dim, rotary, page_tokens;
	uint32_t n_k, n_v, dk, dv, taps;
	uint32_t n_experts, top_k, width, shared_width, dense_width;
	uint32_t expert_part; /* experts on this rank; 0: all */
	enum dtype kv_dtype, conv_dtype;
	float eps;
	bool sigmoid_gate;
	uint32_t
		linear_formats; /* bit 1 << WF_x: formats that linear / moe / head meet */
	uint32_t moe_formats;
	uint32_t head_formats;
};

static inline uint32_t shapes_vocab_part(const struct kernel_shapes *s)
{
	return s->vocab_part != 0 ? s->vocab_part : s->vocab;
}

#ifdef __cplusplus
}
#endif
#endif
