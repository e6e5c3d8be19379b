/* Gated delta rule: project, convolve, advance the recurrent state, project back. */
#include "common/engine/forward.h"

static struct op_slot slot_of(const struct layer_args *a)
{
	const struct engine *e = a->r->e;
	const struct layout *l = &e->layout;
	uint64_t ordinal = e->config.layer_ordinal[a->layer];
	uint8_t *first =
		(uint8_t *)a->r->arena + layout_slot_offset(l, e->plan.n_pages, 0);

	return (struct op_slot){
		.rec = first + ordinal * l->rec_layer_bytes,
		.conv = first + l->conv_offset + ordinal * l->conv_layer_bytes,
		.slot_bytes = l->slot_bytes,
		.conv_dtype = (enum dtype)l->conv_dtype,
	};
}

static status prepare(
	const struct layer_args *a, const struct op_slot *slot, struct err *err)
{
	const struct kernel_shapes *s = &a->r->e->shapes;
	const struct weight *w = a->r->layer[a->layer];
	struct workspace *ws = &a->r->ws;
	struct op_gdn_prep op = {
		.q = ws->gdn.q,
		.k = ws->gdn.k,
		.v = ws->gdn.v,
		.g = ws->gdn.g,
		.beta = ws->gdn.beta,
		.qkv = ws->gdn.qkv,
		.a = ws->gdn.a,
		.b = ws->gdn.b,
		.conv_w = w[WR_GDN_CONV].data,
		.a_log = w[WR_GDN_A_LOG].data,
		.dt_bias = w[WR_GDN_DT_BIAS].data,
		.rows = batch_rows(a->b),
		.state = *slot,
		.n_k = s->n_k,
		.n_v = s->n_v,
		.dk = s->dk,
		.dv = s->dv,
		.taps = s->taps,
		.qkv_stride = 2 * s->n_k * s->dk + s->n_v * s->dv,
		.ab_stride = s->n_v,
	};

	return kernel_gdn_prep(a->r->k, WF_F32, a->r->s, &op, err);
}

static status recur(
	const struct layer_args *a, const struct op_slot *slot, struct err *err)
{
	const struct kernel_shapes *s = &a->r->e->shapes;
	struct workspace *ws = &a->r->ws;
	struct op_gdn_prefill op = {
		.y = ws->gdn.y,
		.q = ws->gdn.q,
		.k = ws->gdn.k,
		.v = ws->gdn.v,
		.g = ws->gdn.g,
		.beta = ws->gdn.beta,
		.z = ws->gdn.z,
		.gain = a->r->layer[a->layer][WR_GDN_NORM].data,
		.rows = batch_rows(a->b),
		.state = *slot,
		.n_k = s->n_k,
		.n_v = s->n_v,
		.dk = s->dk,
		.dv = s->dv,
		.z_stride = s->n_v * s->dv,
		.sigmoid_gate = s->sigmoid_gate,
		.eps = s->eps,
		.work = ws->work,
		.work_bytes = ws->work_bytes,
	};

	if (a->phase == PHASE_DECODE)
		return kernel_gdn_decode(a->r->k, WF_F32, a->r->s, &op, err);
	return kernel_gdn_prefill(a->r->k, WF_F32, a->r->s, &op, err);
}

status layer_gdn(const struct layer_args *a, struct err *err)
{
	struct workspace *ws = &a->r->ws;
	struct op_slot slot = slot_of(a);
	status st;

	st = forward_linear(a, ws->gdn.qkv, ws->h, WR_GDN_QKV, err);
	if (st == ST_OK)
		st = forward_linear(a, ws->gdn.z, ws->h, WR_GDN_Z, err);
	if (st == ST_OK)
		st = forward_linear(a, ws->gdn.a, ws->h, WR_GDN_A, err);
	if (st == ST_OK)
		st = forward_linear(a, ws->gdn.b, ws->h, WR_GDN_B, err);
	if (st == ST_OK)
		st = prepare(a, &slot, err);
	if (st == ST_OK)
		st = recur(a, &slot, err);
	if (st == ST_OK)
		st = forward_linear(a, ws->y, ws->gdn.y, WR_GDN_OUT, err);
	return st;
}
