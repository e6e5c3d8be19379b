/* Index arrays of a pass or a step. */
#include "common/engine/batch.h"

#include "common/grammar/guide.h"
#include "common/state/layout.h"

#include <assert.h>
#include <string.h>

void batch_place(struct batch *b, struct carve *c, const struct batch_bounds *bounds,
	bool feedback)
{
	uint64_t rows = bounds->rows_max, seqs = bounds->seqs_max;
	uint64_t out = bounds->out_max, began = c->used;

	*b = (struct batch){.bounds = *bounds};
	b->base = c->base == NULL ? NULL : c->base + c->used;
	b->ids = carve_take(c, rows * sizeof(*b->ids));
	b->pos = carve_take(c, rows * sizeof(*b->pos));
	b->how = carve_take(c, out * sizeof(*b->how));
	b->moving_bytes = c->used - began;
	b->seq = carve_take(c, rows * sizeof(*b->seq));
	b->first = carve_take(c, (seqs + 1) * sizeof(*b->first));
	b->slot = carve_take(c, seqs * sizeof(*b->slot));
	b->out_row = carve_take(c, out * sizeof(*b->out_row));
	b->pages = carve_take(c, seqs * bounds->pages_stride * sizeof(*b->pages));
	b->edits = carve_take(c, seqs * SAMPLE_EDITS_MAX * sizeof(*b->edits));
	b->in_bytes = c->used - began;
	b->sample_out = carve_take(c, out * sizeof(*b->sample_out));
	b->token = feedback ? b->ids : carve_take(c, out * sizeof(*b->token));
	b->logprob = carve_take(c, out * sizeof(*b->logprob));
	b->flags = carve_take(c, out * sizeof(*b->flags));
	b->top_id = carve_take(c, out * SAMPLE_TOP_MAX * sizeof(*b->top_id));
	b->top_logprob = carve_take(c, out * SAMPLE_TOP_MAX * sizeof(*b->top_logprob));
	b->tag = carve_take(c, out * sizeof(*b->tag));
	b->lines = carve_take(c, seqs * sizeof(*b->lines));
	b->masks = carve_take(c, seqs * bounds->mask_words * sizeof(*b->masks));
	b->zero_pages = carve_take(c, bounds->zero_max * sizeof(*b->zero_pages));
	b->zero_slots = carve_take(c, seqs * sizeof(*b->zero_slots));
}

void batch_reset(struct batch *b)
{
	b->n_rows = b->n_seqs = b->n_out = b->n_sample = 0;
	b->max_seq_rows = b->max_len = 0;
	b->n_zero_pages = b->n_zero_slots = b->n_lines = 0;
	b->first[0] = 0;
	b->edited = false;
	b->version++;
	b->rows_version++;
}

void batch_put_edits(
	struct batch *b, uint32_t s, const struct row_past *past, struct sample_row *how)
{
	how->edits = s * SAMPLE_EDITS_MAX;
	if (past == NULL || past->n_edits == 0)
		return;
	memcpy(b->edits + how->edits, past->edits, past->n_edits * sizeof(*past->edits));
	b->edited = true;
}

void batch_put_mask(
	struct batch *b, uint32_t s, struct guide *guide, struct sample_row *how)
{
	how->mask = guide == NULL ? 0 : s + 1;
	if (guide == NULL)
		return;
	assert(b->bounds.mask_words > 0);
	guide_mask(guide, b->masks + (uint64_t)s * b->bounds.mask_words);
}

static void add_sample(struct batch *b, const struct sample_row *how, uint64_t tag)
{
	uint32_t i = b->n_sample++;

	b->sample_out[i] = b->n_out - 1;
	b->how[i] = *how;
	b->tag[i] = tag;
}

static void add_scores(struct batch *b, const struct eng_chunk *chunk, uint32_t row)
{
	struct sample_row how = {
		.top_p = 1, .ask = SAMPLE_GIVEN, .n_top = chunk->score_top};

	for (uint32_t i = 0; i < chunk->n_score; i++) {
		how.given = chunk->score[i];
		how.position = chunk->pos + i + 1;
		b->out_row[b->n_out++] = row + i;
		add_sample(b, &how, chunk->tag);
	}
}

static void add_choices(struct batch *b, const struct eng_chunk *chunk, uint32_t s,
	const struct row_past *past, uint32_t line, bool all_logits)
{
	struct sample_row how = chunk->how;

	how.position = chunk->pos + chunk->n_tokens;
	batch_put_edits(b, s, past, &how);
	batch_put_mask(b, s, chunk->guide, &how);
	if (past != NULL && past->counts != NULL) {
		how.line = line;
		b->lines[b->n_lines++] = (struct count_line){line, past->counts};
	}
	for (uint32_t i = 0; i < MAX(chunk->n_choices, 1u); i++) {
		if (!all_logits)
			b->out_row[b->n_out++] = b->n_rows - 1;
		add_sample(b, &how, chunk->tag);
		how.choice++;
	}
}

void batch_add_chunk(struct batch *b, const struct eng_chunk *chunk,
	const struct row_past *past, uint32_t first_line, bool all_logits)
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
	add_scores(b, chunk, row);
	if (chunk->sample)
		add_choices(b, chunk, s, past, first_line + s, all_logits);
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

static struct copy_piece piece_of(
	const struct batch *b, uint8_t *mirror, uint64_t from, uint64_t to)
{
	from = from / CARVE_ALIGN * CARVE_ALIGN;
	to = MIN(CEIL_DIV(to, CARVE_ALIGN) * CARVE_ALIGN, b->in_bytes);
	return (struct copy_piece){b->base + from, mirror + from, to - from};
}

static uint64_t offset_of(const struct batch *b, const void *array)
{
	return (uint64_t)((const uint8_t *)array - b->base);
}

uint32_t batch_pieces(const struct batch *b, uint8_t *mirror, bool rows,
	struct copy_piece pieces[BATCH_PIECES_MAX])
{
	uint64_t pages = (uint64_t)b->n_seqs * b->bounds.pages_stride;
	uint64_t edits = (uint64_t)b->n_seqs * SAMPLE_EDITS_MAX;
	uint32_t n = 0;

	pieces[n++] = piece_of(b, mirror, 0, offset_of(b, b->how + b->n_sample));
	if (!rows)
		return n;
	pieces[n++] =
		piece_of(b, mirror, b->moving_bytes, offset_of(b, b->pages + pages));
	if (b->edited)
		pieces[n++] = piece_of(b, mirror, offset_of(b, b->edits),
			offset_of(b, b->edits + edits));
	return n;
}

struct batch batch_mirrored(const struct batch *b, uint8_t *mirror)
{
	struct batch m = *b;

#define TO_MIRROR(array) m.array = (void *)(mirror + offset_of(b, b->array))
	TO_MIRROR(ids);
	TO_MIRROR(pos);
	TO_MIRROR(how);
	TO_MIRROR(seq);
	TO_MIRROR(first);
	TO_MIRROR(slot);
	TO_MIRROR(out_row);
	TO_MIRROR(pages);
	TO_MIRROR(edits);
#undef TO_MIRROR
	return m;
}

struct eng_token batch_token(
	const struct batch *b, uint32_t i, struct eng_logprob (*top)[SAMPLE_TOP_MAX])
{
	const struct sample_row *how = &b->how[i];
	uint64_t at = (uint64_t)i * SAMPLE_TOP_MAX;

	for (uint32_t k = 0; k < how->n_top; k++)
		top[i][k] =
			(struct eng_logprob){b->top_id[at + k], b->top_logprob[at + k]};
	return (struct eng_token){.tag = b->tag[i],
		.token = b->token[i],
		.position = how->position,
		.logprob = b->logprob[i],
		.flags = b->flags[i],
		.choice = how->choice,
		.scored = (how->ask & SAMPLE_GIVEN) != 0,
		.n_top = how->n_top,
		.top = top[i]};
}
