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

/* Where the projections of a pass are. */
struct gdn_in {
	void *qkv, *z, *b, *a;
	uint32_t qkv_stride, z_stride, ab_stride;
};

static status project_gates(
	const struct layer_args *a, const struct gdn_in *in, struct err *err)
{
	const struct weight *gates = &a->r->fused[a->layer].gates;
	struct workspace *ws = &a->r->ws;
	status st;

	if (gates->data != NULL)
		return forward_product(a, in->b, ws->h, gates, err);
	st = forward_linear(a, in->b, ws->h, WR_GDN_B, err);
	return st == ST_OK ? forward_linear(a, in->a, ws->h, WR_GDN_A, err) : st;
}

static status project(const struct layer_args *a, struct gdn_in *in, struct err *err)
{
	const struct weight *w = a->r->layer[a->layer];
	const struct fused *fused = &a->r->fused[a->layer];
	struct workspace *ws = &a->r->ws;
	status st;

	*in = (struct gdn_in){ws->gdn.qkv, ws->gdn.z, ws->gdn.b, ws->gdn.a,
		w[WR_GDN_QKV].n, w[WR_GDN_Z].n, w[WR_GDN_B].n};
	if (fused->gates.data != NULL) {
		in->ab_stride = fused->gates.n;
		in->a = forward_act(a, in->b, w[WR_GDN_B].n);
	}
	if (fused->all.data != NULL) {
		in->qkv_stride = in->z_stride = in->ab_stride = fused->all.n;
		in->z = forward_act(a, in->qkv, w[WR_GDN_QKV].n);
		in->b = forward_act(a, in->z, w[WR_GDN_Z].n);
		in->a = forward_act(a, in->b, w[WR_GDN_B].n);
		return forward_product(a, in->qkv, ws->h, &fused->all, err);
	}
	st = forward_linear(a, in->qkv, ws->h, WR_GDN_QKV, err);
	if (st == ST_OK)
		st = forward_linear(a, in->z, ws->h, WR_GDN_Z, err);
	return st == ST_OK ? project_gates(a, in, err) : st;
}

static status prepare(const struct layer_args *a, const struct gdn_in *in,
	const struct op_slot *slot, struct err *err)
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
		.qkv = in->qkv,
		.a = in->a,
		.b = in->b,
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
		.qkv_stride = in->qkv_stride,
		.ab_stride = in->ab_stride,
	};

	return kernel_gdn_prep(a->r->k, WF_F32, a->r->s, &op, err);
}

static status recur(const struct layer_args *a, const struct gdn_in *in,
	const struct op_slot *slot, struct err *err)
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
		.z = in->z,
		.gain = a->r->layer[a->layer][WR_GDN_NORM].data,
		.rows = batch_rows(a->b),
		.state = *slot,
		.n_k = s->n_k,
		.n_v = s->n_v,
		.dk = s->dk,
		.dv = s->dv,
		.z_stride = in->z_stride,
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
	struct gdn_in in;
	status st = project(a, &in, err);

	if (st == ST_OK)
		st = prepare(a, &in, &slot, err);
	if (st == ST_OK)
		st = recur(a, &in, &slot, err);
	if (st == ST_OK)
		st = forward_linear(a, ws->y, ws->gdn.y, WR_GDN_OUT, err);
	return st;
}
