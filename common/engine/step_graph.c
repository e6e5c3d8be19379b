/* Capture and launch of decode steps. */
#include "common/engine/step_graph.h"
#include "common/engine/forward.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <assert.h>

/* A length bounds how attention is split over the device, so a graph made for a long
 * sequence wastes time on a short one. */
#define LEN_FIRST 512u
#define LEN_STEP  4u

static void choose_buckets(struct step_graphs *g, uint32_t seqs_max, uint32_t len_max)
{
	*g = (struct step_graphs){.n_rows = 0};
	for (uint32_t n = 1; n < seqs_max; n *= 2)
		g->rows[g->n_rows++] = n;
	g->rows[g->n_rows++] = seqs_max;
	for (uint64_t n = LEN_FIRST; n < len_max; n *= LEN_STEP)
		g->lens[g->n_lens++] = (uint32_t)n;
	g->lens[g->n_lens++] = len_max;
	assert(g->n_rows <= STEP_ROWS_MAX && g->n_lens <= STEP_LENS_MAX);
}

/* Rows from..to of the arrays are padding. Which row is which sequence never changes in
 * a step's arrays, so a larger bucket finds it right. */
static void pad(const struct batch *b, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++) {
		b->ids[i] = 0;
		b->pos[i] = 0;
		b->slot[i] = 0;
		b->pages[(uint64_t)i * b->bounds.pages_stride] = 0;
		b->how[i] = (struct sample_row){.position = 1};
		b->seq[i] = b->first[i] = b->out_row[i] = b->sample_out[i] = i;
	}
	b->first[to] = to;
}

static struct batch of_bucket(const struct batch *b, uint32_t rows, uint32_t len)
{
	struct batch whole = *b;

	whole.n_rows = whole.n_seqs = whole.n_out = whole.n_sample = rows;
	whole.max_seq_rows = 1;
	whole.max_len = len;
	whole.n_zero_pages = whole.n_zero_slots = 0;
	return whole;
}

static status capture(
	struct rank *r, const struct batch *b, struct graph **out, struct err *err)
{
	const struct backend_ops *ops = r->b->ops;
	struct graph *made = NULL;
	struct err late;
	status st = forward_compute(r, b, PHASE_DECODE, true, err), end;

	if (st == ST_OK)
		st = ops->stream_sync(r->s, err);
	if (st == ST_OK)
		st = ops->capture_begin(r->s, err);
	if (st != ST_OK)
		return st;
	st = forward_compute(r, b, PHASE_DECODE, false, err);
	/* Also after a failure: the stream must leave the capture. */
	end = ops->capture_end(r->s, &made, st == ST_OK ? err : &late);
	if (st != ST_OK && end == ST_OK)
		ops->graph_destroy(made);
	*out = st == ST_OK && end == ST_OK ? made : NULL;
	return st != ST_OK ? st : end;
}

status step_graph_capture(struct rank *r, struct err *err)
{
	struct step_graphs *g = &r->graphs;
	uint64_t began = clock_ns();
	status st = ST_OK;

	/* Ranks that wait for each other inside a step would have to capture together. */
	if (r->b->ops->capture_begin == NULL || r->e->n_ranks > 1)
		return ST_OK;
	choose_buckets(g, r->e->o.seqs_max, r->e->plan.len_max);
	pad(&r->step, 0, r->e->o.seqs_max);
	for (uint32_t i = 0; i < g->n_rows; i++)
		for (uint32_t k = 0; k < g->n_lens && st == ST_OK; k++) {
			struct batch b = of_bucket(&r->step, g->rows[i], g->lens[k]);

			st = capture(r, &b, &g->graph[i][k], err);
		}
	if (st != ST_OK)
		return err_wrap(err, "capture of decode steps");
	log_info("graphs rank=%u steps=%u rows=1..%u tokens=%u..%u ms=%llu", r->index,
		g->n_rows * g->n_lens, g->rows[g->n_rows - 1], g->lens[0],
		g->lens[g->n_lens - 1],
		(unsigned long long)((clock_ns() - began) / NS_PER_MS));
	return ST_OK;
}

bool step_graph_ready(const struct rank *r)
{
	return r->graphs.n_rows > 0;
}

/* The graph itself brings what changes with each step. */
static status bring_rows(
	struct rank *r, const struct batch *b, uint32_t rows, struct err *err)
{
	struct batch whole = of_bucket(b, rows, b->max_len);
	status st;

	if (r->step_mirror == NULL || r->rows_mirrored == b->rows_version)
		return ST_OK;
	st = forward_mirror(r, &whole, r->step_mirror, true, err);
	if (st == ST_OK)
		r->rows_mirrored = b->rows_version;
	return st;
}

status step_graph_run(struct rank *r, const struct batch *b, struct err *err)
{
	const struct step_graphs *g = &r->graphs;
	uint32_t i = 0, k = 0;
	status st;

	while (g->rows[i] < b->n_rows)
		i++;
	while (g->lens[k] < b->max_len)
		k++;
	assert(i < g->n_rows && k < g->n_lens);
	pad(b, b->n_rows, g->rows[i]);
	st = bring_rows(r, b, g->rows[i], err);
	return st == ST_OK ? r->b->ops->graph_launch(g->graph[i][k], r->s, err) : st;
}

void step_graph_release(struct rank *r)
{
	struct step_graphs *g = &r->graphs;

	for (uint32_t i = 0; i < g->n_rows; i++)
		for (uint32_t k = 0; k < g->n_lens; k++)
			if (g->graph[i][k] != NULL)
				r->b->ops->graph_destroy(g->graph[i][k]);
	g->n_rows = g->n_lens = 0;
}
