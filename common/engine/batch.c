/* Index arrays of a pass or a step. */
#include "common/engine/batch.h"

#include "common/state/layout.h"

#include <assert.h>
#include <string.h>

void batch_place(struct batch *b, struct carve *c, const struct batch_bounds *bounds,
	bool feedback)
{
	uint64_t rows = bounds->rows_max, seqs = bounds->seqs_max;

	*b = (struct batch){.bounds = *bounds};
	b->ids = carve_take(c, rows * sizeof(*b->ids));
	b->pos = carve_take(c, rows * sizeof(*b->pos));
	b->seq = carve_take(c, rows * sizeof(*b->seq));
	b->first = carve_take(c, (seqs + 1) * sizeof(*b->first));
	b->pages = carve_take(c, seqs * bounds->pages_stride * sizeof(*b->pages));
	b->slot = carve_take(c, seqs * sizeof(*b->slot));
	b->out_row = carve_take(c, bounds->out_max * sizeof(*b->out_row));
	b->sample_out = carve_take(c, seqs * sizeof(*b->sample_out));
	b->how = carve_take(c, seqs * sizeof(*b->how));
	b->token = feedback ? b->ids : carve_take(c, seqs * sizeof(*b->token));
	b->logprob = carve_take(c, seqs * sizeof(*b->logprob));
	b->flags = carve_take(c, seqs * sizeof(*b->flags));
	b->tag = carve_take(c, seqs * sizeof(*b->tag));
	b->zero_pages = carve_take(c, bounds->zero_max * sizeof(*b->zero_pages));
	b->zero_slots = carve_take(c, seqs * sizeof(*b->zero_slots));
}

void batch_reset(struct batch *b)
{
	b->n_rows = b->n_seqs = b->n_out = b->n_sample = 0;
	b->max_seq_rows = b->max_len = 0;
	b->n_zero_pages = b->n_zero_slots = 0;
	b->first[0] = 0;
	b->version++;
}

static void add_sample(struct batch *b, const struct eng_chunk *chunk)
{
	uint32_t i = b->n_sample++;

	b->sample_out[i] = b->n_out - 1;
	b->how[i] = chunk->how;
	b->how[i].position = chunk->pos + chunk->n_tokens;
	b->tag[i] = chunk->tag;
}

void batch_add_chunk(struct batch *b, const struct eng_chunk *chunk, bool all_logits)
{
	uint32_t s = b->n_seqs++, row = b->n_rows, end = chunk->pos + chunk->n_tokens;

	assert(s < b->bounds.seqs_max && chunk->n_pages <= b->bounds.pages_stride);
	assert(chunk->n_tokens <= b->bounds.rows_max - row);
	memcpy(b->ids + row, chunk->ids, chunk->n_tokens * sizeof(*b->ids));
	memcpy(b->pages + (uint64_t)s * b->bounds.pages_stride, chunk->pages,
		chunk->n_pages * sizeof(*b->pages));
	for (uint32_t i = 0; i < chunk->n_tokens; i++) {
		b->pos[row + i] = chunk->pos + i;
		b->seq[row + i] = s;
		if (all_logits)
			b->out_row[b->n_out++] = row + i;
	}
	b->n_rows += chunk->n_tokens;
	b->first[s + 1] = b->n_rows;
	b->slot[s] = chunk->slot;
	if (chunk->sample && !all_logits)
		b->out_row[b->n_out++] = b->n_rows - 1;
	if (chunk->sample)
		add_sample(b, chunk);
	for (uint32_t i = chunk->zero_from; i < chunk->n_pages; i++)
		b->zero_pages[b->n_zero_pages++] = chunk->pages[i];
	if (chunk->pos == 0)
		b->zero_slots[b->n_zero_slots++] = chunk->slot;
	b->max_seq_rows = MAX(b->max_seq_rows, chunk->n_tokens);
	b->max_len = MAX(b->max_len, end);
}

/* Page tables are wide and mostly unused, so only what a row can reach is copied. */
static void copy_rows(struct batch *dst, const struct batch *src)
{
	uint64_t used = CEIL_DIV(src->max_len, PAGE_TOKENS) * sizeof(*src->pages);
	uint64_t stride = src->bounds.pages_stride;

	memcpy(dst->seq, src->seq, src->n_rows * sizeof(*src->seq));
	memcpy(dst->first, src->first, (src->n_seqs + 1) * sizeof(*src->first));
	memcpy(dst->slot, src->slot, src->n_seqs * sizeof(*src->slot));
	memcpy(dst->out_row, src->out_row, src->n_out * sizeof(*src->out_row));
	memcpy(dst->zero_slots, src->zero_slots,
		src->n_zero_slots * sizeof(*src->zero_slots));
	for (uint32_t s = 0; s < src->n_seqs; s++)
		memcpy(dst->pages + s * stride, src->pages + s * stride, used);
}

void batch_copy(struct batch *dst, const struct batch *src, bool same_rows)
{
	dst->n_rows = src->n_rows;
	dst->n_seqs = src->n_seqs;
	dst->n_out = src->n_out;
	dst->n_sample = src->n_sample;
	dst->max_seq_rows = src->max_seq_rows;
	dst->max_len = src->max_len;
	dst->n_zero_pages = src->n_zero_pages;
	dst->n_zero_slots = src->n_zero_slots;
	dst->version = src->version;
	memcpy(dst->ids, src->ids, src->n_rows * sizeof(*src->ids));
	memcpy(dst->pos, src->pos, src->n_rows * sizeof(*src->pos));
	memcpy(dst->zero_pages, src->zero_pages,
		src->n_zero_pages * sizeof(*src->zero_pages));
	if (!same_rows)
		copy_rows(dst, src);
}

struct op_rows batch_rows(const struct batch *b)
{
	return (struct op_rows){.n_rows = b->n_rows,
		.n_seqs = b->n_seqs,
		.pos = b->pos,
		.seq = b->seq,
		.first = b->first,
		.pages = b->pages,
		.pages_stride = b->bounds.pages_stride,
		.slot = b->slot,
		.max_seq_rows = b->max_seq_rows,
		.max_len = b->max_len};
}
