/* Which bytes go where when a sequence moves between two workers: a pure function of
 * both layouts and both sides' pages and slot, for equal and unequal tensor
 * parallelism. Every transport executes such a list. */
#ifndef COMMON_XFER_PLAN_H
#define COMMON_XFER_PLAN_H
#include "common/state/layout.h"

/* A sequence's place on one side. page i of the source holds the tokens of page i of
 * the destination. slot 0: the plan carries no slot (pages only). */
struct plan_refs {
	const uint32_t *pages;
	uint32_t n_pages;
	uint32_t slot;
	uint64_t arena_pages; /* pages of that side's arenas: slots stand behind them */
};

struct plan_copy {
	uint32_t src_rank, dst_rank;
	uint64_t src_offset, dst_offset; /* in that rank's arena */
	uint64_t bytes;
};

/* Upper bound of copies for these layouts. */
uint64_t plan_copies_max(const struct layout *src, const struct layout *dst,
	uint32_t n_pages, bool with_slot);
/* Neighbouring copies are merged. *n is set to the number written to out[max]. Fails
 * when compat hashes differ (both named), page counts differ, or max is too small. */
MUST_CHECK status plan_build(const struct layout *src, const struct plan_refs *from,
	const struct layout *dst, const struct plan_refs *to, struct plan_copy *out,
	uint64_t max, uint64_t *n, struct err *err);
/* Bytes that a hand-over of n_pages and one slot moves into the destination, all ranks:
 * n_pages * ranks * page_bytes + ranks * slot state bytes, as the access log counts. */
uint64_t plan_bytes(const struct plan_copy *copies, uint64_t n);

#endif
