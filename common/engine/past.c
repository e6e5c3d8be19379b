/* The edits and counts of a row, in one block. */
#include "common/engine/past.h"

#include "common/base/mem.h"

#include <assert.h>
#include <string.h>

/* A penalty that changes something. */
static bool has_penalty(const struct sample_row *how)
{
	return how->presence != 0.0f || how->frequency != 0.0f ||
	       (how->repetition != 0.0f && how->repetition != 1.0f);
}

static void count_ids(uint16_t *counts, const struct eng_past *from)
{
	for (uint32_t i = 0; i < from->n_ids; i++) {
		uint16_t *c = &counts[from->ids[i]];

		if (i < from->n_prompt)
			*c |= SAMPLE_IN_PROMPT;
		else if ((*c & SAMPLE_TIMES) < SAMPLE_TIMES)
			(*c)++;
	}
}

status past_make(struct row_past **out, const struct sample_row *how,
	const struct eng_past *from, uint32_t vocab)
{
	uint32_t n_edits = (uint32_t)how->n_bias + how->n_bans;
	uint32_t n_counts = has_penalty(how) ? vocab : 0;
	struct row_past *p;

	assert(how->n_bias <= SAMPLE_BIAS_MAX && how->n_bans <= SAMPLE_BANS_MAX);
	if (n_edits == 0 && n_counts == 0)
		return ST_OK;
	p = mem_take(1,
		sizeof(*p) + n_edits * sizeof(*p->edits) + n_counts * sizeof(*p->counts));
	if (p == NULL)
		return ST_LIMIT;
	p->n_edits = n_edits;
	p->edits = (struct sample_edit *)(p + 1);
	if (n_edits > 0)
		memcpy(p->edits, from->edits, n_edits * sizeof(*p->edits));
	if (n_counts > 0) {
		p->counts = (uint16_t *)(p->edits + n_edits);
		count_ids(p->counts, from);
	}
	*out = p;
	return ST_OK;
}

void past_release(struct row_past *past)
{
	mem_give(past);
}
