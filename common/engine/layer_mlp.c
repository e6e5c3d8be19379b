/* The MLP of a layer: dense, or a mixture of experts with an optional shared one. */
#include "common/engine/forward.h"

static status dense(const struct layer_args *a, struct err *err)
{
	struct workspace *ws = &a->r->ws;
	uint32_t width = a->r->e->shapes.dense_width;
	struct op_swiglu op = {
		.y = ws->dense.act,
		.gate = ws->dense.gate,
		.up = ws->dense.up,
		.n_rows = a->b->n_rows,
		.width = width,
		.gate_stride = width,
		.up_stride = width,
	};
	status st;

	st = forward_linear(a, ws->dense.gate, ws->h, WR_MLP_GATE, err);
	if (st == ST_OK)
		st = forward_linear(a, ws->dense.up, ws->h, WR_MLP_UP, err);
	if (st == ST_OK)
		st = kernel_swiglu(a->r->k, WF_F32, a->r->s, &op, err);
	if (st == ST_OK)
		st = forward_linear(a, ws->y, ws->dense.act, WR_MLP_DOWN, err);
	return st;
}

/* Rows of this pass in the tools' arrays of expert ids, for MoE layer number m. */
static uint64_t route_at(const struct layer_args *a, uint32_t m)
{
	const struct route *route = &a->r->e->route;

	return ((uint64_t)m * route->n_rows + route->at) * a->r->e->shapes.top_k;
}

static uint32_t moe_number(const struct layer_args *a)
{
	uint32_t m = 0;

	for (uint32_t i = 0; i < a->layer; i++)
		m += a->r->e->config.layer_moe[i];
	return m;
}

static status route_rows(const struct layer_args *a, struct err *err)
{
	const struct kernel_shapes *s = &a->r->e->shapes;
	const struct route *tool = &a->r->e->route;
	const struct weight *w = a->r->layer[a->layer];
	struct workspace *ws = &a->r->ws;
	uint64_t bytes = (uint64_t)a->b->n_rows * s->top_k * sizeof(uint32_t);
	bool force = a->phase == PHASE_PREFILL && tool->forced != NULL;
	bool dump = a->phase == PHASE_PREFILL && tool->dump != NULL && a->r->index == 0;
	bool shared = w[WR_SH_ROUTER].data != NULL;
	uint32_t m = moe_number(a);
	struct op_moe_route op = {
		.ids = ws->moe.ids,
		.weights = ws->moe.weights,
		.shared = shared ? ws->moe.shared : NULL,
		.x = ws->h,
		.forced = force ? ws->moe.forced : NULL,
		.router = &w[WR_ROUTER],
		.shared_router = shared ? &w[WR_SH_ROUTER] : NULL,
		.n_rows = a->b->n_rows,
		.n_experts = s->n_experts,
		.top_k = s->top_k,
	};
	status st = ST_OK;

	if (force)
		st = a->r->b->ops->upload(a->r->s, ws->moe.forced,
			tool->forced + route_at(a, m), bytes, err);
	if (st == ST_OK)
		st = kernel_moe_route(a->r->k, w[WR_ROUTER].format, a->r->s, &op, err);
	if (st == ST_OK && dump)
		st = a->r->b->ops->download(
			a->r->s, tool->dump + route_at(a, m), ws->moe.ids, bytes, err);
	return st;
}

static status experts(const struct layer_args *a, struct err *err)
{
	const struct weight *w = a->r->layer[a->layer];
	struct workspace *ws = &a->r->ws;
	bool shared = w[WR_SH_DOWN].data != NULL;
	struct op_moe op = {
		.y = ws->y,
		.x = ws->h,
		.ids = ws->moe.ids,
		.weights = ws->moe.weights,
		.shared = shared ? ws->moe.shared : NULL,
		.gate = &w[WR_EXP_GATE],
		.up = &w[WR_EXP_UP],
		.down = &w[WR_EXP_DOWN],
		.sh_gate = shared ? &w[WR_SH_GATE] : NULL,
		.sh_up = shared ? &w[WR_SH_UP] : NULL,
		.sh_down = shared ? &w[WR_SH_DOWN] : NULL,
		.n_rows = a->b->n_rows,
		.top_k = a->r->e->shapes.top_k,
		.first = a->r->index * a->r->e->shapes.expert_part,
		.n_experts = a->r->e->shapes.n_experts,
		.work = ws->work,
		.work_bytes = ws->work_bytes,
	};
	status st = route_rows(a, err);

	if (st != ST_OK)
		return st;
	return kernel_moe(a->r->k, w[WR_EXP_DOWN].format, a->r->s, &op, err);
}

status layer_mlp(const struct layer_args *a, struct err *err)
{
	return a->r->e->config.layer_moe[a->layer] ? experts(a, err) : dense(a, err);
}
