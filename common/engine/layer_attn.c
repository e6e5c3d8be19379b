/* Gated attention: project, norm and rotate into the KV pages, attend, project back. */
#include "common/engine/forward.h"

static struct op_kv kv_of(const struct layer_args *a)
{
	const struct engine *e = a->r->e;
	uint64_t ordinal = e->config.layer_ordinal[a->layer];

	return (struct op_kv){
		.base = (uint8_t *)a->r->arena + ordinal * e->layout.kv_layer_bytes,
		.page_bytes = e->layout.page_bytes,
		.dtype = (enum dtype)e->layout.kv_dtype,
		.page_tokens = e->layout.page_tokens,
		.n_kv = e->layout.local_kv,
		.head_dim = e->layout.head_dim,
	};
}

static status prepare(const struct layer_args *a, const struct op_kv *kv, struct err *err)
{
	const struct kernel_shapes *s = &a->r->e->shapes;
	const struct weight *w = a->r->layer[a->layer];
	struct workspace *ws = &a->r->ws;
	struct op_attn_prep op = {
		.q = ws->attn.q,
		.qg = ws->attn.qg,
		.k = ws->attn.k,
		.v = ws->attn.v,
		.q_gain = w[WR_Q_NORM].data,
		.k_gain = w[WR_K_NORM].data,
		.inv_freq = ws->inv_freq,
		.rows = batch_rows(a->b),
		.kv = *kv,
		.n_q = s->n_q,
		.rotary = s->rotary,
		.qg_stride = s->n_q * 2 * s->head_dim,
		.k_stride = s->n_kv * s->head_dim,
		.v_stride = s->n_kv * s->head_dim,
		.eps = s->eps,
	};

	return kernel_attn_prep(a->r->k, WF_F32, a->r->s, &op, err);
}

static status attend(const struct layer_args *a, const struct op_kv *kv, struct err *err)
{
	const struct kernel_shapes *s = &a->r->e->shapes;
	struct workspace *ws = &a->r->ws;
	struct op_attn_prefill op = {
		.o = ws->attn.o,
		.q = ws->attn.q,
		.qg = ws->attn.qg,
		.rows = batch_rows(a->b),
		.kv = *kv,
		.n_q = s->n_q,
		.qg_stride = s->n_q * 2 * s->head_dim,
		.work = ws->work,
		.work_bytes = ws->work_bytes,
	};

	if (a->phase == PHASE_DECODE)
		return kernel_attn_decode(a->r->k, WF_F32, a->r->s, &op, err);
	return kernel_attn_prefill(a->r->k, WF_F32, a->r->s, &op, err);
}

status layer_attn(const struct layer_args *a, struct err *err)
{
	struct workspace *ws = &a->r->ws;
	struct op_kv kv = kv_of(a);
	status st;

	st = forward_linear(a, ws->attn.qg, ws->h, WR_Q, err);
	if (st == ST_OK)
		st = forward_linear(a, ws->attn.k, ws->h, WR_K, err);
	if (st == ST_OK)
		st = forward_linear(a, ws->attn.v, ws->h, WR_V, err);
	if (st == ST_OK)
		st = prepare(a, &kv, err);
	if (st == ST_OK)
		st = attend(a, &kv, err);
	if (st == ST_OK)
		st = forward_linear(a, ws->y, ws->attn.o, WR_O, err);
	return st;
}
