/* What a pass takes on this device, from the passes so far: how many tokens the next one
 * may have. Pure but for the sums it keeps.
 *
 * A token costs a + b * context, context being the tokens before it. Both come from the
 * measured passes by least squares, older passes counting less; neither is below 0. A
 * device that nobody has measured gets a small pass first, and then at most twice the
 * tokens of the largest one so far, whatever the sums say. */
#ifndef PREFILL_WORKER_PW_COST_H
#define PREFILL_WORKER_PW_COST_H
#include <stdint.h>

/* Tokens of the first pass, and of any that rows_max allows: what a pass costs whatever
 * is in it would else be taken for the cost of ever fewer tokens. */
#define PW_COST_FIRST 128u
#define PW_COST_LEAST 64u

struct pw_cost {
	/* Decayed sums of products: n tokens, c context of all of them, t nanoseconds. */
	double nn, nc, cc, nt, ct;
	uint32_t largest; /* tokens of the largest pass */
};

/* Context of n tokens from position pos on, in units of PW_COST_CONTEXT. */
#define PW_COST_CONTEXT 1024.0
double pw_cost_context(uint32_t pos, uint32_t n);
/* A pass of so many tokens, with the contexts of its chunks together, took so long. */
void pw_cost_note(struct pw_cost *c, uint32_t tokens, double context, uint64_t took_ns);
/* Tokens, at most rows_max, of a pass that is to take at most limit_ns when all of them
 * stand behind position pos. */
uint32_t pw_cost_rows(
	const struct pw_cost *c, uint32_t pos, uint64_t limit_ns, uint32_t rows_max);

#endif
