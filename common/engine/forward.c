/* The layer loop, and what stands before and after it. */
#include "common/engine/forward.h"

#include "common/base/clock.h"

#include <string.h>

status forward_linear(const struct layer_args *a, void *y, const void *x,
	enum weight_role role, struct err *err)
{
	return forward_product(a, y, x, &a->r->layer[a->layer][role], err);
}

status forward_product(const struct layer_args *a, void *y, const void *x,
	const struct weight *w, struct err *err)
{
	struct op_linear op = {
		.y = y,
		.x = x,
		.w = w,
		.n_rows = a->b->n_rows,
		.x_stride = w->k,
		.y_stride = w->n,
	};

	return kernel_linear(a->r->k, w->format, a->r->s, &op, err);
}

static status clear_state(struct rank *r, const struct batch *b, struct err *err)
{
	const struct engine *e = r->e;
	const struct layout *l = &e->layout;
	uint8_t *arena = r->arena;
	status st = ST_OK;

	for (uint32_t i = 0; st == ST_OK && i < b->n_zero_pages; i++)
		st = r->b->ops->zero(r->s,
			arena + layout_page_offset(l, b->zero_pages[i]), l->page_bytes,
			err);
	for (uint32_t i = 0; st == ST_OK && i < b->n_zero_slots; i++)
		st = r->b->ops->zero(r->s,
			arena + layout_slot_offset(l, e->plan.n_pages, b->zero_slots[i]),
			l->slot_bytes, err);
	return st;
}

/* Counts of rows that begin, for the rank that samples. */
static status fill_counts(struct rank *r, const struct batch *b, struct err *err)
{
	uint64_t vocab = r->e->shapes.vocab;
	status st = ST_OK;

	for (uint32_t i = 0; st == ST_OK && r->index == 0 && i < b->n_lines; i++)
		st = r->b->ops->upload(r->s,
			r->ws.counts + (b->lines[i].line - 1) * vocab, b->lines[i].counts,
			vocab * sizeof(*r->ws.counts), err);
	return st;
}

/* Rows of H activations. */
static status sum_over_ranks(
	struct rank *r, const struct batch *b, void *rows, struct err *err)
{
	struct engine *e = r->e;

	if (e->n_ranks == 1)
		return ST_OK;
	if (r->index == 0)
		atomic_fetch_add_explicit(&e->n_allreduces, 1, memory_order_relaxed);
	return e->collective->ops->all_reduce(e->collective, r->index, r->s, rows,
		(uint64_t)b->n_rows * e->config.hidden, r->b->act, err);
}

static status embed(struct rank *r, const struct batch *b, struct err *err)
{
	struct op_embed op = {
		.x = r->ws.x,
		.ids = b->ids,
		.table = &r->global[WR_EMBED],
		.n_rows = b->n_rows,
		.first = r->index * r->e->shapes.vocab_part,
		.vocab = r->e->shapes.vocab,
	};
	status st = kernel_embed(r->k, op.table->format, r->s, &op, err);

	return st == ST_OK ? sum_over_ranks(r, b, r->ws.x, err) : st;
}

/* x += add, then h = norm(x); either may be left out. */
static status add_norm(struct rank *r, const struct batch *b, const void *add,
	const struct weight *gain, struct err *err)
{
	struct op_add_norm op = {
		.x = r->ws.x,
		.add = add,
		.y = gain == NULL ? NULL : r->ws.h,
		.gain = gain == NULL ? NULL : gain->data,
		.n_rows = b->n_rows,
		.width = r->e->config.hidden,
		.eps = r->e->shapes.eps,
	};

	return kernel_add_norm(r->k, WF_F32, r->s, &op, err);
}

/* The rows of ws.x or ws.h, as F32 on the host. */
static status show(struct rank *r, const struct batch *b, uint32_t layer,
	const void *rows, struct err *err)
{
	const struct tap *tap = &r->e->tap;
	uint32_t width = r->e->config.hidden;
	uint64_t n = (uint64_t)b->n_rows * width;
	status st;

	st = r->b->ops->download(r->s, tap->raw, rows, n * dtype_bytes(r->b->act), err);
	if (st != ST_OK)
		return st;
	for (uint64_t i = 0; i < n; i++)
		tap->hidden[i] = load_as(r->b->act, tap->raw, i);
	tap->fn(tap->ctx, layer, tap->hidden, b->n_rows, width);
	return ST_OK;
}

/* *add: what the previous layer still has to add to the residual, or NULL. */
static status run_layer(const struct layer_args *a, const void **add, struct err *err)
{
	struct rank *r = a->r;
	const struct weight *w = r->layer[a->layer];
	bool attn = r->e->config.layer_kind[a->layer] == LAYER_ATTN;
	status st;

	st = add_norm(r, a->b, *add, &w[WR_NORM1], err);
	if (st == ST_OK)
		st = attn ? layer_attn(a, err) : layer_gdn(a, err);
	if (st == ST_OK)
		st = sum_over_ranks(r, a->b, r->ws.y, err);
	if (st == ST_OK)
		st = add_norm(r, a->b, r->ws.y, &w[WR_NORM2], err);
	if (st == ST_OK)
		st = layer_mlp(a, err);
	if (st == ST_OK)
		st = sum_over_ranks(r, a->b, r->ws.y, err);
	if (st != ST_OK)
		err_wrap(err, "layer %u", a->layer);
	*add = r->ws.y;
	return st;
}

static status run_layers(
	struct rank *r, const struct batch *b, enum phase phase, struct err *err)
{
	bool tapped = r->e->tap.fn != NULL && r->index == 0 && phase == PHASE_PREFILL;
	const void *add = NULL;
	status st = ST_OK;

	for (uint32_t i = 0; st == ST_OK && i < r->e->config.n_layers; i++) {
		struct layer_args a = {.r = r, .b = b, .phase = phase, .layer = i};

		if (r->index == 0)
			atomic_store_explicit(
				&r->e->busy_since, clock_ran_ns(), memory_order_relaxed);
		st = run_layer(&a, &add, err);
		if (st != ST_OK || !tapped)
			continue;
		st = add_norm(r, b, add, NULL, err);
		add = NULL;
		if (st == ST_OK)
			st = show(r, b, i, r->ws.x, err);
	}
	if (st == ST_OK)
		st = add_norm(r, b, add, &r->global[WR_FINAL_NORM], err);
	if (st == ST_OK && tapped)
		st = show(r, b, r->e->config.n_layers, r->ws.h, err);
	return st;
}

/* Logits of out rows i..i + n - 1, to the beginning of rank 0's ws.logits: each rank has
 * those of its part of the vocabulary. */
static status head(
	struct rank *r, const struct batch *b, uint32_t i, uint32_t n, struct err *err)
{
	bool tied = r->global[WR_LM_HEAD].data == NULL;
	struct op_head op = {
		.logits = r->ws.part != NULL ? r->ws.part : r->ws.logits,
		.x = r->ws.h,
		.out_row = b->out_row + i,
		.w = &r->global[tied ? WR_EMBED : WR_LM_HEAD],
		.n_out = n,
	};
	struct collective *c = r->e->collective;
	status st = kernel_head(r->k, op.w->format, r->s, &op, err);

	if (st != ST_OK || r->ws.part == NULL)
		return st;
	return c->ops->gather(c, r->index, r->s, r->index == 0 ? r->ws.logits : NULL,
		r->ws.part, n, r->e->shapes.vocab_part * sizeof(float), err);
}

/* On rank 0. Sampled rows i..i + n - 1, whose logits stand one behind the other. */
static status sample(struct rank *r, const struct batch *b, uint32_t i, uint32_t n,
	const float *logits, struct err *err)
{
	const struct kernel_shapes *s = &r->e->shapes;
	struct op_sample op = {
		.token = b->token + i,
		.logprob = b->logprob + i,
		.flags = b->flags + i,
		.top_id = b->top_id + (uint64_t)i * SAMPLE_TOP_MAX,
		.top_logprob = b->top_logprob + (uint64_t)i * SAMPLE_TOP_MAX,
		.logits = logits,
		.rows = b->how + i,
		.edits = b->edits,
		.counts = r->ws.counts,
		.masks = b->masks,
		.mask_words = b->bounds.mask_words,
		.n = n,
		.vocab = s->vocab,
		.n_valid = s->n_valid,
		.work = r->ws.work,
		.work_bytes = r->ws.work_bytes,
	};

	return r->index == 0 ? kernel_sample(r->k, WF_F32, r->s, &op, err) : ST_OK;
}

/* Logits of all rows are kept; some are sampled. */
static status sample_some(struct rank *r, const struct batch *b, struct err *err)
{
	status st = head(r, b, 0, b->n_out, err);

	for (uint32_t i = 0; st == ST_OK && i < b->n_sample; i++)
		st = sample(r, b, i, 1,
			r->ws.logits + (uint64_t)b->sample_out[i] * r->e->shapes.vocab,
			err);
	return st;
}

/* Scored rows can be many more than there is room for logits. */
static status sample_all(struct rank *r, const struct batch *b, struct err *err)
{
	uint32_t most = r->e->shapes.out_max;
	status st = ST_OK;

	if (b->n_out != b->n_sample)
		return sample_some(r, b, err);
	for (uint32_t i = 0; st == ST_OK && i < b->n_out; i += most) {
		uint32_t n = MIN(most, b->n_out - i);

		st = head(r, b, i, n, err);
		if (st == ST_OK)
			st = sample(r, b, i, n, r->ws.logits, err);
	}
	return st;
}

/* A block of the gather kernel has 32 KiB of reads in flight: enough of them for the link
 * and the largest arrays. */
status forward_mirror(
	struct rank *r, const struct batch *b, uint8_t *mirror, bool all, struct err *err)
{
	static const struct copy_method how = {COPY_GATHER, 8};
	struct copy_piece pieces[BATCH_PIECES_MAX];
	uint32_t n = batch_pieces(b, mirror, all, pieces);

	return r->b->ops->copy_list_by(r->s, &how, pieces, n, err);
}

status forward_compute(struct rank *r, const struct batch *b, enum phase phase, bool all,
	struct err *err)
{
	uint8_t *mirror = phase == PHASE_DECODE ? r->step_mirror : r->pass_mirror;
	struct batch near = *b;
	status st = ST_OK;

	if (mirror != NULL) {
		st = forward_mirror(r, b, mirror, all, err);
		near = batch_mirrored(b, mirror);
	}
	if (st == ST_OK)
		st = embed(r, &near, err);
	if (st == ST_OK)
		st = run_layers(r, &near, phase, err);
	if (st == ST_OK)
		st = sample_all(r, &near, err);
	return st;
}

status forward_run(
	struct rank *r, const struct batch *b, enum phase phase, struct err *err)
{
	status st = clear_state(r, b, err);

	if (st == ST_OK)
		st = fill_counts(r, b, err);
	if (st == ST_OK && phase == PHASE_DECODE && step_graph_ready(r))
		st = step_graph_run(r, b, err);
	else if (st == ST_OK)
		st = forward_compute(r, b, phase, true, err);
	if (st == ST_OK)
		st = r->b->ops->stream_sync(r->s, err);
	return st;
}
