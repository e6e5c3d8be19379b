/* Decode rows and the batch of each step. */
#include "common/engine/rows.h"

#include "common/base/mem.h"
#include "common/grammar/guide.h"
#include "common/state/layout.h"

#include <assert.h>
#include <string.h>

void rows_init(struct rows *r, uint32_t capacity, const uint32_t *tables,
	uint32_t pages_stride, uint32_t len_max)
{
	*r = (struct rows){.capacity = capacity,
		.tables = tables,
		.pages_stride = pages_stride,
		.len_max = len_max};
	r->list = mem_alloc(capacity, sizeof(*r->list));
	r->active = mem_alloc(capacity, sizeof(*r->active));
}

void rows_release(struct rows *r)
{
	mem_free(r->list);
	mem_free(r->active);
	*r = (struct rows){.n = 0};
}

static uint32_t find(const struct rows *r, uint32_t table)
{
	uint32_t i = 0;

	while (i < r->n && r->list[i].table != table)
		i++;
	assert(i < r->n);
	return i;
}

void rows_join(struct rows *r, const struct row_terms *terms)
{
	assert(r->n < r->capacity);
	r->list[r->n++] = *terms;
	r->changed = true;
}

void rows_grow(struct rows *r, uint32_t table, uint32_t n_pages)
{
	r->list[find(r, table)].n_pages = n_pages;
	r->changed = true;
}

void rows_leave(struct rows *r, uint32_t table, struct eng_token *last)
{
	uint32_t i = find(r, table);
	struct row_terms *row = &r->list[i];

	*last = (struct eng_token){
		.tag = row->tag, .token = row->input, .position = row->pos};
	memmove(row, row + 1, (r->n - i - 1) * sizeof(*row));
	r->n--;
	r->changed = true;
}

static bool can_advance(const struct rows *r, const struct row_terms *row)
{
	return row->steps > 0 && row->pos < r->len_max &&
	       row->pos / PAGE_TOKENS < row->n_pages;
}

/* What the row brings along. A line of counts is filled before its first step; from then
 * on the sampler keeps it. */
static void put_past(struct batch *b, uint32_t s, struct row_terms *row)
{
	bool counted = row->past != NULL && row->past->counts != NULL;

	b->how[s] = row->how;
	batch_put_edits(b, s, row->past, &b->how[s]);
	if (!counted)
		return;
	b->how[s].line = row->table + 1;
	b->how[s].ask |= SAMPLE_COUNT;
	if (row->fresh)
		b->lines[b->n_lines++] =
			(struct count_line){row->table + 1, row->past->counts};
	row->fresh = false;
}

static void choose_rows(struct rows *r, struct batch *b)
{
	batch_reset(b);
	r->n_active = 0;
	for (uint32_t i = 0; i < r->n; i++) {
		struct row_terms *row = &r->list[i];
		uint32_t s = r->n_active;

		if (!can_advance(r, row))
			continue;
		r->active[r->n_active++] = i;
		b->ids[s] = row->input;
		b->seq[s] = b->first[s] = b->out_row[s] = b->sample_out[s] = s;
		b->slot[s] = row->slot;
		put_past(b, s, row);
		b->tag[s] = row->tag;
		memcpy(b->pages + (uint64_t)s * b->bounds.pages_stride,
			r->tables + (uint64_t)row->table * r->pages_stride,
			row->n_pages * sizeof(*b->pages));
	}
	b->n_rows = b->n_seqs = b->n_out = b->n_sample = r->n_active;
	b->first[r->n_active] = r->n_active;
	b->max_seq_rows = 1;
	r->changed = false;
}

/* A row enters its next page with the first token of it: until then nobody has written
 * there on its behalf, so this is the moment to clear what the page held before. */
static void place_rows(struct rows *r, struct batch *b)
{
	b->max_len = 0;
	b->n_zero_pages = 0;
	for (uint32_t s = 0; s < r->n_active; s++) {
		const struct row_terms *row = &r->list[r->active[s]];

		b->pos[s] = row->pos;
		b->how[s].position = row->pos + 1;
		batch_put_mask(b, s, row->guide, &b->how[s]);
		b->max_len = MAX(b->max_len, row->pos + 1);
		if (row->pos % PAGE_TOKENS == 0)
			b->zero_pages[b->n_zero_pages++] =
				b->pages[(uint64_t)s * b->bounds.pages_stride +
					 row->pos / PAGE_TOKENS];
	}
	if (b->n_zero_pages > 0)
		b->version++; /* one entry more of a page table is in use */
}

bool rows_build(struct rows *r, struct batch *b)
{
	b->n_lines = 0;
	if (r->changed)
		choose_rows(r, b);
	if (r->n_active == 0)
		return false;
	place_rows(r, b);
	return true;
}

/* Tokens beyond the forced ones are the sampled ones, which stand in the batch's ids
 * already. */
static void next_input(struct row_terms *row, uint32_t *id)
{
	if (row->n_forced > 0) {
		*id = *row->forced++;
		row->n_forced--;
	}
	row->input = *id;
}

void rows_advance(struct rows *r, struct batch *b, struct eng_token *tokens,
	struct eng_logprob (*top)[SAMPLE_TOP_MAX])
{
	for (uint32_t s = 0; s < r->n_active; s++) {
		struct row_terms *row = &r->list[r->active[s]];

		row->pos++;
		row->steps--;
		tokens[s] = batch_token(b, s, top);
		if ((b->flags[s] & SAMPLE_NAN) != 0)
			row->steps = 0;
		else if (row->guide != NULL && !guide_take(row->guide, tokens[s].token))
			row->steps = 0; /* an end, behind which nothing comes */
		next_input(row, &b->ids[s]);
		if (!can_advance(r, row))
			r->changed = true;
	}
}
