/* The cut of a rank's workspace. */
#include "common/engine/workspace.h"

static void place_attn(
	struct workspace *w, struct carve *c, const struct kernel_shapes *s, uint64_t row)
{
	/* One product may write the rows of qg, k and v side by side. */
	w->attn.qg = carve_take(c, row * s->n_q * 2 * s->head_dim);
	w->attn.k = carve_take(c, row * s->n_kv * s->head_dim);
	w->attn.v = carve_take(c, row * s->n_kv * s->head_dim);
	w->attn.q = carve_take(c, row * s->n_q * s->head_dim);
	w->attn.o = carve_take(c, row * s->n_q * s->head_dim);
}

static void place_gdn(
	struct workspace *w, struct carve *c, const struct kernel_shapes *s, uint64_t row)
{
	uint64_t key_row = row * s->n_k * s->dk, value_row = row * s->n_v * s->dv;
	uint64_t gates = (uint64_t)s->rows_max * s->n_v * sizeof(float);

	/* So with these four, or the last two. */
	w->gdn.qkv = carve_take(c, 2 * key_row + value_row);
	w->gdn.z = carve_take(c, value_row);
	w->gdn.b = carve_take(c, row * s->n_v);
	w->gdn.a = carve_take(c, row * s->n_v);
	w->gdn.q = carve_take(c, key_row);
	w->gdn.k = carve_take(c, key_row);
	w->gdn.v = carve_take(c, value_row);
	w->gdn.y = carve_take(c, value_row);
	w->gdn.g = carve_take(c, gates);
	w->gdn.beta = carve_take(c, gates);
}

static void place_mlp(
	struct workspace *w, struct carve *c, const struct kernel_shapes *s, uint64_t row)
{
	uint64_t rows = s->rows_max, ids = rows * s->top_k * sizeof(uint32_t);

	w->dense.gate = carve_take(c, row * s->dense_width);
	w->dense.up = carve_take(c, row * s->dense_width);
	w->dense.act = carve_take(c, row * s->dense_width);
	w->moe.ids = carve_take(c, ids);
	w->moe.forced = carve_take(c, ids);
	w->moe.weights = carve_take(c, rows * s->top_k * sizeof(float));
	w->moe.shared = carve_take(c, rows * sizeof(float));
}

void workspace_place(struct workspace *w, struct carve *c, const struct kernel_shapes *s,
	enum dtype act, uint64_t work_bytes)
{
	void (*const stages[])(struct workspace *, struct carve *,
		const struct kernel_shapes *,
		uint64_t) = {place_attn, place_gdn, place_mlp};
	uint64_t row = (uint64_t)s->rows_max * dtype_bytes(act), start, end;

	w->x = carve_take(c, row * s->hidden);
	w->h = carve_take(c, row * s->hidden);
	w->y = carve_take(c, row * s->hidden);
	w->logits = carve_take(c, (uint64_t)s->out_max * s->vocab * sizeof(float));
	w->part = s->vocab_part == 0
			  ? NULL
			  : carve_take(c,
				    (uint64_t)s->out_max * s->vocab_part * sizeof(float));
	w->counts =
		carve_take(c, (uint64_t)2 * s->seqs_max * s->vocab * sizeof(*w->counts));
	w->inv_freq = carve_take(c, s->rotary / 2 * sizeof(float));
	w->work = carve_take(c, work_bytes);
	w->work_bytes = work_bytes;
	start = end = c->used;
	for (size_t i = 0; i < COUNT(stages); i++) {
		c->used = start;
		stages[i](w, c, s, row);
		end = MAX(end, c->used);
	}
	c->used = end;
}
