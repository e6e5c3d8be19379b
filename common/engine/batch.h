/* What one pass or step computes, as the ops want it: index arrays in memory that host
 * and device both read (pinned). A pass is built by the control thread, a step by
 * rank 0; the other ranks copy the batch before they run it. */
#ifndef COMMON_ENGINE_BATCH_H
#define COMMON_ENGINE_BATCH_H
#include "common/engine/carve.h"
#include "common/engine/engine.h"
#include "kernels/ops.h"

struct batch_bounds {
	uint32_t rows_max;
	uint32_t seqs_max;
	uint32_t out_max;      /* rows of logits */
	uint32_t pages_stride; /* pages of one sequence */
	uint32_t zero_max;     /* pages to be zeroed */
};

struct batch {
	struct batch_bounds bounds;
	uint32_t n_rows, n_seqs, n_out, n_sample;
	uint32_t max_seq_rows, max_len;
	/* Of a step: rises when something other than ids and pos changed, so that the
	 * copy of another rank knows what it may keep. */
	uint64_t version;
	uint32_t *ids, *pos, *seq, *first, *pages, *slot;
	uint32_t *out_row; /* [n_out] rows whose logits are wanted */
	/* Which of the out rows are sampled, how, and what came of it. */
	uint32_t *sample_out; /* [n_sample] index into out_row */
	struct sample_row *how;
	uint32_t *token;
	float *logprob;
	uint32_t *flags;
	uint64_t *tag; /* [n_sample], for results */
	/* Before anything is computed these are set to zero. */
	uint32_t *zero_pages, *zero_slots;
	uint32_t n_zero_pages, n_zero_slots;
};

/* Arrays from c; with a measuring carve only the bytes are counted. feedback: the
 * sampled tokens are the ids of the next step (token and ids are one array). */
void batch_place(struct batch *b, struct carve *c, const struct batch_bounds *bounds,
	bool feedback);
/* Ready for chunks. */
void batch_reset(struct batch *b);
/* Append a chunk; the caller has checked it against the bounds. all_logits: every row is
 * an out row, otherwise the last one of a sampled chunk. */
void batch_add_chunk(struct batch *b, const struct eng_chunk *chunk, bool all_logits);
/* dst gets what another rank needs of src to compute the same (not how to sample).
 * same_rows: only ids, pos and what is to be zeroed can differ. */
void batch_copy(struct batch *dst, const struct batch *src, bool same_rows);
struct op_rows batch_rows(const struct batch *b);

#endif
