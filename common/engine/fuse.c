/* Projections of the same rows whose matrices stand one behind the other in memory, in
 * one format without scales, are one matrix: one product in place of up to four. */
#include "common/engine/engine_impl.h"

#include <string.h>

static uint64_t matrix_bytes(const struct weight *w)
{
	return (uint64_t)w->n * w->k * format_bits(w->format) / 8;
}

static bool is_bare(const struct weight *w)
{
	return (w->format == WF_F32 || w->format == WF_BF16) && w->layout == 0 &&
	       w->count == 1;
}

/* Roles first .. first + n - 1 of a layer as one matrix; without data where they are
 * none. */
static struct weight join(const struct weight *first, uint32_t n)
{
	struct weight all = *first;

	for (uint32_t i = 0; i < n; i++) {
		const struct weight *w = first + i;

		if (!is_bare(w) || w->format != all.format || w->k != all.k ||
			(i > 0 &&
				(const uint8_t *)w->data != (const uint8_t *)first->data +
								    matrix_bytes(&all)))
			return (struct weight){.data = NULL};
		if (i > 0)
			all.n += w->n;
	}
	return all;
}

static status prepare(struct rank *r, struct weight *w, struct err *err)
{
	const struct variant *v = r->k->chosen[OP_linear][w->format];

	return w->data == NULL ? ST_OK : v->repack(r->b, r->s, w, err);
}

status engine_fuse(struct rank *r, struct err *err)
{
	const struct model_config *c = &r->e->config;
	status st = ST_OK;

	for (uint32_t i = 0; st == ST_OK && i < c->n_layers; i++) {
		const struct weight *w = r->layer[i];
		struct fused *f = &r->fused[i];

		if (c->layer_kind[i] == LAYER_ATTN) {
			f->all = join(&w[WR_Q], 3);
		} else {
			f->all = join(&w[WR_GDN_QKV], 4);
			f->gates = join(&w[WR_GDN_B], 2);
		}
		st = prepare(r, &f->all, err);
		if (st == ST_OK)
			st = prepare(r, &f->gates, err);
	}
	return st;
}
