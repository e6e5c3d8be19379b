/* The chunk rule of pw_sched.h. */
#include "prefill-worker/pw_sched.h"

#include "common/base/attr.h"
#include "common/state/layout.h"

#include <stdbool.h>

struct pass {
	const uint32_t *left;
	uint32_t budget;
	uint32_t grain; /* unfinished prompts are cut at multiples of this */
	uint32_t n, seqs_max;
	struct pw_take *takes;
};

/* Tokens that other prompts need to be finished in this pass, half of it at most. */
static uint32_t reserve_for_short(const uint32_t *left, uint32_t n, uint32_t half)
{
	uint32_t sum = 0;

	for (uint32_t i = 1; i < n && sum < half; i++)
		if (left[i] <= half - sum)
			sum += left[i];
	return sum;
}

static uint32_t cut(const struct pass *p, uint32_t want, uint32_t room)
{
	return want <= room ? want : room / p->grain * p->grain;
}

static void give(struct pass *p, uint32_t item, uint32_t n_tokens)
{
	if (n_tokens == 0 || p->n == p->seqs_max)
		return;
	p->takes[p->n++] = (struct pw_take){.item = item, .n_tokens = n_tokens};
	p->budget -= n_tokens;
}

static bool taken(const struct pass *p, uint32_t item)
{
	for (uint32_t i = 0; i < p->n; i++)
		if (p->takes[i].item == item)
			return true;
	return false;
}

uint32_t pw_sched_pass(const uint32_t *left, uint32_t n, uint32_t rows_max,
	uint32_t seqs_max, struct pw_take *takes)
{
	struct pass p = {.left = left,
		.budget = rows_max,
		.grain = rows_max >= 2 * PAGE_TOKENS ? PAGE_TOKENS : 1,
		.seqs_max = seqs_max,
		.takes = takes};
	uint32_t more;

	if (n == 0)
		return 0;
	give(&p, 0,
		cut(&p, left[0], rows_max - reserve_for_short(left, n, rows_max / 2)));
	for (uint32_t i = 1; i < n && p.n < seqs_max && p.budget > 0; i++)
		if (left[i] <= p.budget)
			give(&p, i, left[i]);
	/* The oldest one grows in place: one chunk a prompt. */
	more = cut(&p, left[0] - takes[0].n_tokens, p.budget);
	takes[0].n_tokens += more;
	p.budget -= more;
	for (uint32_t i = 1; i < n && p.n < seqs_max && p.budget > 0; i++)
		if (!taken(&p, i))
			give(&p, i, cut(&p, left[i], p.budget));
	return p.n;
}
