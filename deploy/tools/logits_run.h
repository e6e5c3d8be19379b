/* Given ids through an engine, for tools: one sequence at a time, waiting for each
 * result. */
#ifndef DEPLOY_TOOLS_LOGITS_RUN_H
#define DEPLOY_TOOLS_LOGITS_RUN_H
#include "common/base/err.h"
#include "common/engine/engine.h"

/* Where a sequence's state lives. */
struct place {
	const uint32_t *pages;
	uint32_t n_pages;
	uint32_t slot;
};

/* Prefills ids[0..n) in passes of at most `chunk` rows into place; logits [n][V]. */
MUST_CHECK status run_prefill(struct engine *e, const uint32_t *ids, uint32_t n,
	uint32_t chunk, const struct place *place, float *logits, struct err *err);

/* Decodes n given inputs, ids[at..at + n), onto a state of `at` tokens; logits [n][V]. */
MUST_CHECK status run_decode(struct engine *e, const uint32_t *ids, uint32_t at,
	uint32_t n, const struct place *place, float *logits, struct err *err);

/* The recurrent state of a slot for GDN layer number `ordinal`, key-major as
 * [nV][dk][dv], and its convolution inputs [CD][taps - 1]; both of the whole model. */
MUST_CHECK status run_read_state(struct engine *e, uint32_t slot, uint32_t ordinal,
	float *state, float *conv, struct err *err);

#endif
