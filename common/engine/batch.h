/* What one pass or step computes, as the ops want it: index arrays in memory that host
 * and device both read (pinned). A pass is built by the control thread, a step by
 * rank 0; the other ranks copy the batch before they run it.
 *
 * A GPU reads pinned memory at a microsecond each time and every layer reads the arrays,
 * so what goes in is copied into a mirror on the device first; what comes out is written
 * to pinned memory. The arrays that go in stand together: those that change with each
 * step (ids, pos, how) first, then those that change with the rows. */
#ifndef COMMON_ENGINE_BATCH_H
#define COMMON_ENGINE_BATCH_H
#include "common/engine/carve.h"
#include "common/engine/engine.h"
#include "common/engine/past.h"
#include "kernels/backend.h"
#include "kernels/ops.h"

struct batch_bounds {
	uint32_t rows_max;
	uint32_t seqs_max;
	uint32_t out_max;      /* rows of logits that are wanted; all may be sampled */
	uint32_t pages_stride; /* pages of one sequence */
	uint32_t zero_max;     /* pages to be zeroed */
	uint32_t mask_words;   /* of one mask; 0: the sampler takes none */
};

/* A line of op_sample.counts that is filled before anything is computed. */
struct count_line {
	uint32_t line;
	const uint16_t *counts; /* [V], of a row_past */
};

struct batch {
	struct batch_bounds bounds;
	uint32_t n_rows, n_seqs, n_out, n_sample;
	uint32_t max_seq_rows, max_len;
	/* Of a step: rises when something other than ids and pos changed, so that the
	 * copy of another rank knows what it may keep. */
	uint64_t version;
	uint64_t rows_version; /* rises with each batch_reset */
	uint8_t *base;         /* of the arrays that go in: so many bytes, ... */
	uint64_t in_bytes, moving_bytes; /* ... of which these change with each step */
	bool edited;                     /* some row has edits */
	uint32_t *ids, *pos, *seq, *first, *pages, *slot;
	uint32_t *out_row; /* [n_out] rows whose logits are wanted */
	/* Which of the out rows are sampled, how, and what came of it. */
	uint32_t *sample_out; /* [n_sample] index into out_row */
	struct sample_row *how;
	uint32_t *token;
	float *logprob;
	uint32_t *flags;
	uint32_t *top_id; /* [n_sample][SAMPLE_TOP_MAX] */
	float *top_logprob;
	struct sample_edit *edits; /* [n_seqs][SAMPLE_EDITS_MAX] */
	uint64_t *tag;             /* [n_sample], for results */
	/* Host only. */
	uint32_t *masks; /* [n_seqs][mask_words] */
	struct count_line *lines;
	uint32_t n_lines;
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
/* Append a chunk; the caller has checked it against the bounds. past: of a chunk whose
 * rows need one, else NULL; first_line: of the counts that chunks may use, one each.
 * all_logits: every row is an out row, otherwise those that are scored, then the last one
 * once for each choice that is sampled. */
void batch_add_chunk(struct batch *b, const struct eng_chunk *chunk,
	const struct row_past *past, uint32_t first_line, bool all_logits);
/* Copies the edits of row or chunk s and says so in how. */
void batch_put_edits(
	struct batch *b, uint32_t s, const struct row_past *past, struct sample_row *how);
/* Which tokens may come behind row or chunk s; NULL: any. */
void batch_put_mask(
	struct batch *b, uint32_t s, struct guide *guide, struct sample_row *how);
/* dst gets what another rank needs of src to compute the same (not how to sample).
 * same_rows: only ids, pos and what is to be zeroed can differ. */
void batch_copy(struct batch *dst, const struct batch *src, bool same_rows);
/* What came of sampled row i; its likeliest tokens are copied to top[i]. */
struct eng_token batch_token(
	const struct batch *b, uint32_t i, struct eng_logprob (*top)[SAMPLE_TOP_MAX]);
struct op_rows batch_rows(const struct batch *b);

#define BATCH_PIECES_MAX 3u
/* What of the batch must be copied to its mirror, in_bytes of device memory: pieces of
 * 16-byte units. rows: what changes with the rows too, not only with each step. */
uint32_t batch_pieces(const struct batch *b, uint8_t *mirror, bool rows,
	struct copy_piece pieces[BATCH_PIECES_MAX]);
/* The batch as a device reads it: what goes in from the mirror, what comes out to where
 * the host reads it. */
struct batch batch_mirrored(const struct batch *b, uint8_t *mirror);

#endif
