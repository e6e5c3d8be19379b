/* Decode steps as captured graphs: one per bucket of rows and bucket of lengths, made at
 * start, so that a step is one launch. The rows between the live ones and the end of a
 * bucket are padding: they compute token 0 at position 0 of dead page 0 and dead slot 0,
 * and nobody reads what comes of it. Nothing here exists on a backend without graphs. */
#ifndef COMMON_ENGINE_STEP_GRAPH_H
#define COMMON_ENGINE_STEP_GRAPH_H
#include "common/base/err.h"
#include "kernels/backend.h"
#include <stdbool.h>

struct rank;
struct batch;

/* Powers of two up to seqs_max, and seqs_max; lengths of 512 * 4^i up to len_max. */
#define STEP_ROWS_MAX 14u
#define STEP_LENS_MAX 14u

struct step_graphs {
	uint32_t rows[STEP_ROWS_MAX], lens[STEP_LENS_MAX];
	uint32_t n_rows, n_lens;
	struct graph *graph[STEP_ROWS_MAX][STEP_LENS_MAX];
};

/* After weights and pinned arrays are there. Each bucket is run once without a graph,
 * which loads its kernels, and then captured. */
MUST_CHECK status step_graph_capture(struct rank *r, struct err *err);
/* Enqueues the step by a graph. */
MUST_CHECK status step_graph_run(struct rank *r, const struct batch *b, struct err *err);
bool step_graph_ready(const struct rank *r);
void step_graph_release(struct rank *r);

#endif
