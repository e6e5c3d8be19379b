/* The fit of pw_cost.h. */
#include "prefill-worker/pw_cost.h"

#include "common/base/attr.h"

#include <math.h>

/* A pass of this many tokens halves the weight of what was measured before. */
#define MEMORY_TOKENS  4096.0
/* Passes whose context is the same multiple of their tokens say nothing about the two
 * apart: the least determinant, as a part of the greatest that these sums could have. */
#define WELL_SEPARATED 1e-3

double pw_cost_context(uint32_t pos, uint32_t n)
{
	return (double)n * (pos + n / 2.0) / PW_COST_CONTEXT;
}

void pw_cost_note(struct pw_cost *c, uint32_t tokens, double context, uint64_t took_ns)
{
	double keep = exp2(-(double)tokens / MEMORY_TOKENS);
	double n = tokens, t = (double)took_ns;

	c->nn = c->nn * keep + n * n;
	c->nc = c->nc * keep + n * context;
	c->cc = c->cc * keep + context * context;
	c->nt = c->nt * keep + n * t;
	c->ct = c->ct * keep + context * t;
	c->largest = MAX(c->largest, tokens);
}

/* Nanoseconds of a token, and of a unit of context. */
static void fit(const struct pw_cost *c, double *a, double *b)
{
	double det = c->nn * c->cc - c->nc * c->nc;

	*a = c->nn > 0 ? c->nt / c->nn : 0;
	*b = 0;
	if (det <= WELL_SEPARATED * c->nn * c->cc)
		return;
	if (c->cc * c->nt < c->nc * c->ct) {
		*a = 0;
		*b = c->ct / c->cc;
	} else if (c->nn * c->ct > c->nc * c->nt) {
		*a = (c->cc * c->nt - c->nc * c->ct) / det;
		*b = (c->nn * c->ct - c->nc * c->nt) / det;
	}
}

uint32_t pw_cost_rows(
	const struct pw_cost *c, uint32_t pos, uint64_t limit_ns, uint32_t rows_max)
{
	double rows = MAX(2.0 * c->largest, PW_COST_FIRST);
	double a, b, line, square, limit = (double)limit_ns;

	fit(c, &a, &b);
	/* n tokens take line * n + square * n^2. */
	line = a + b * pos / PW_COST_CONTEXT;
	square = b / (2 * PW_COST_CONTEXT);
	if (line + square > 0)
		rows = MIN(rows,
			2 * limit / (line + sqrt(line * line + 4 * square * limit)));
	rows = MAX(rows, (double)PW_COST_LEAST);
	return (uint32_t)MIN(rows, (double)rows_max);
}
