/* What a sampled row brings along beside its numbers: edits of the logits, and what it
 * has counted of the prompt and of earlier tokens. One block of request memory, made by
 * the control thread from struct eng_past, read by rank 0, given back by the control
 * thread when the row or pass is over. */
#ifndef COMMON_ENGINE_PAST_H
#define COMMON_ENGINE_PAST_H
#include "common/engine/engine.h"

struct row_past {
	uint32_t n_edits;
	struct sample_edit *edits; /* [n_edits] */
	uint16_t *counts;          /* [vocab]; NULL: no penalty needs them */
};

/* *out stays NULL when the row needs nothing. ST_LIMIT: no request memory. */
MUST_CHECK status past_make(struct row_past **out, const struct sample_row *how,
	const struct eng_past *from, uint32_t vocab);
void past_release(struct row_past *past);

#endif
