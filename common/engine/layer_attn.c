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

/* Where the projections of a pass are. */
struct attn_in {
	void *qg, *k, *v;
	uint32_t qg_stride, k_stride, v_stride;
};

static status project(const struct layer_args *a, struct attn_in *in, struct err *err)
{
	const struct weight *w = a->r->layer[a->layer];
	const struct weight *all = &a->r->fused[a->layer].all;
	struct workspace *ws = &a->r->ws;
	status st;

	*in = (struct attn_in){
		ws->attn.qg, ws->attn.k, ws->attn.v, w[WR_Q].n, w[WR_K].n, w[WR_V].n};
	if (all->data != NULL) {
		in->qg_stride = in->k_stride = in->v_stride = all->n;
		in->k = forward_act(a, in->qg, w[WR_Q].n);
		in->v = forward_act(a, in->k, w[WR_K].n);
		return forward_product(a, in->qg, ws->h, all, err);
	}
	st = forward_linear(a, in->qg, ws->h, WR_Q, err);
	if (st == ST_OK)
		st = forward_linear(a, in->k, ws->h, WR_K, err);
	return st == ST_OK ? forward_linear(a, in->v, ws->h, WR_V, err) : st;
}

static status prepare(const struct layer_args *a, const struct attn_in *in,
	const struct op_kv *kv, struct err *err)
{
	const struct kernel_shapes *s = &a->r->e->shapes;
	const struct weight *w = a->r->layer[a->layer];
	struct workspace *ws = &a->r->ws;
	struct op_attn_prep op = {
		.q = ws->attn.q,
		.qg = in->qg,
		.k = in->k,
		.v = in->v,
		.q_gain = w[WR_Q_NORM].data,
		.k_gain = w[WR_K_NORM].data,
		.inv_freq = ws->inv_freq,
		.rows = batch_rows(a->b),
		.kv = *kv,
		.n_q = s->n_q,
		.rotary = s->rotary,
		.qg_stride = in->qg_stride,
		.k_stride = in->k_stride,
		.v_stride = in->v_stride,
		.eps = s->eps,
	};

	return kernel_attn_prep(a->r->k, WF_F32, a->r->s, &op, err);
}

static status attend(const struct layer_args *a, const struct attn_in *in,
	const struct op_kv *kv, struct err *err)
{
	const struct kernel_shapes *s = &a->r->e->shapes;
	struct workspace *ws = &a->r->ws;
	struct op_attn_prefill op = {
		.o = ws->attn.o,
		.q = ws->attn.q,
		.qg = in->qg,
		.rows = batch_rows(a->b),
		.kv = *kv,
		.n_q = s->n_q,
		.qg_stride = in->qg_stride,
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
	struct attn_in in;
	status st = project(a, &in, err);

	if (st == ST_OK)
		st = prepare(a, &in, &kv, err);
	if (st == ST_OK)
		st = attend(a, &in, &kv, err);
	if (st == ST_OK)
		st = forward_linear(a, ws->y, ws->attn.o, WR_O, err);
	return st;
}
