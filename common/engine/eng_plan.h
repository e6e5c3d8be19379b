/* How much memory an engine will use, before it takes any: weights, workspace, then KV
 * pages and slots from what is left. All numbers are per rank. */
#ifndef COMMON_ENGINE_ENG_PLAN_H
#define COMMON_ENGINE_ENG_PLAN_H
#include "common/base/bytes.h"
#include "common/base/err.h"
#include "common/engine/engine.h"
#include "common/state/layout.h"

struct eng_plan {
	uint64_t weights_bytes, workspace_bytes, pinned_bytes;
	uint64_t n_pages, n_slots; /* with the dead ones */
	uint64_t arena_bytes;
	uint64_t budget_bytes; /* what the three may use together */
	bool described;        /* of GPUs that are not here */
	uint32_t len_max;      /* tokens of one sequence that the pages can hold */
};

/* The budget of a rank that shares b's memory with `sharers` ranks, itself included. */
uint64_t eng_plan_budget(
	const struct engine_options *o, const struct backend *b, uint32_t sharers);
/* Fills n_pages, n_slots, arena_bytes and len_max; the rest is set. len_max: what the
 * model or the options allow. ST_LIMIT when the budget is too small, with numbers. */
MUST_CHECK status eng_plan_arena(struct eng_plan *p, const struct engine_options *o,
	const struct layout *l, uint32_t len_max, struct err *err);
void eng_plan_text(const struct eng_plan *p, const struct layout *l, struct sink *out);

#endif
