/* Decode rows: the sequences that advance by one token per step. Rank 0's thread only.
 * A row waits while its pages are full, and stops by itself after its last step or
 * when its logits were not finite; it stays until it is left. */
#ifndef COMMON_ENGINE_ROWS_H
#define COMMON_ENGINE_ROWS_H
#include "common/engine/batch.h"

struct row_terms {
	uint64_t tag;
	uint32_t table; /* which of the page tables */
	uint32_t n_pages;
	uint32_t slot;
	uint32_t pos;   /* of the next input: tokens that the state covers */
	uint32_t input; /* the next input */
	uint32_t steps; /* left */
	struct sample_row how;
	const struct row_past *past; /* NULL: nothing; lives until the row is left */
	bool fresh;                  /* its counts are not on the device yet */
	struct guide *guide;         /* NULL: any token may come */
	const uint32_t *forced;      /* inputs after the first; borrowed */
	uint32_t n_forced;
};

struct rows {
	struct row_terms *list; /* in the order of joining */
	uint32_t n, capacity;
	uint32_t *active; /* indices into list that the step batch holds, in order */
	uint32_t n_active;
	const uint32_t *tables;
	uint32_t pages_stride, len_max;
	bool changed; /* the step batch no longer says which rows can advance */
};

void rows_init(struct rows *r, uint32_t capacity, const uint32_t *tables,
	uint32_t pages_stride, uint32_t len_max);
void rows_release(struct rows *r);
void rows_join(struct rows *r, const struct row_terms *terms);
void rows_grow(struct rows *r, uint32_t table, uint32_t n_pages);
/* *last: the token that would have been fed next, at its position. */
void rows_leave(struct rows *r, uint32_t table, struct eng_token *last);
/* The batch of the next step; false when no row can advance. */
bool rows_build(struct rows *r, struct batch *b);
/* After the step: tokens[n_active] as sampled, their likeliest ones in
 * top[n_active][SAMPLE_TOP_MAX], and the rows move on. */
void rows_advance(struct rows *r, struct batch *b, struct eng_token *tokens,
	struct eng_logprob (*top)[SAMPLE_TOP_MAX]);

#endif
