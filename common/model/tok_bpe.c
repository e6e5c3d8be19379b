/* Byte-pair merging of one piece. Symbols form a list over byte positions; a heap
 * orders the merges that are possible now by rank, then by position. An entry is out
 * of date when the rank noted at its position is another one by then, so entries are
 * never removed from the middle. n log n: every merge adds at most two entries. */
#include "common/base/mem.h"
#include "common/model/tok_impl.h"

void tok_ids_init(struct tok_ids *ids, size_t max)
{
	*ids = (struct tok_ids){.max = max};
}

void tok_ids_release(struct tok_ids *ids)
{
	mem_give(ids->v);
	*ids = (struct tok_ids){.max = ids->max};
}

status tok_ids_push(struct tok_ids *ids, uint32_t id, struct err *err)
{
	if (ids->n >= ids->max)
		return err_set(err, ST_LIMIT, "more than %zu tokens", ids->max);
	if (ids->n == ids->cap) {
		size_t cap = MAX(ids->cap * 2, (size_t)64);
		uint32_t *v = mem_regrow(ids->v, cap * sizeof(*v));

		if (v == NULL)
			return err_set(err, ST_NOMEM, "no memory for %zu tokens", cap);
		ids->v = v;
		ids->cap = cap;
	}
	ids->v[ids->n++] = id;
	return ST_OK;
}

void tok_work_release(struct tok_work *w)
{
	mem_give(w->sym);
	mem_give(w->heap);
	*w = (struct tok_work){0};
}

/* The four arrays are parts of one block; their content need not survive. The heap
 * holds at most one entry for each first pair and two for each merge, less the one
 * that was taken: under 2 n. */
static status reserve(struct tok_work *w, size_t n, struct err *err)
{
	size_t cap = MAX(n, (size_t)256);

	if (n <= w->cap)
		return ST_OK;
	tok_work_release(w);
	w->sym = mem_take(cap, 4 * sizeof(uint32_t));
	w->heap = mem_take(cap, 2 * sizeof(uint64_t));
	if (w->sym == NULL || w->heap == NULL) {
		tok_work_release(w);
		return err_set(
			err, ST_NOMEM, "no memory to merge a piece of %zu bytes", n);
	}
	w->next = w->sym + cap;
	w->prev = w->next + cap;
	w->rank = w->prev + cap;
	w->cap = cap;
	return ST_OK;
}

static void heap_push(struct tok_work *w, uint64_t key)
{
	size_t i = w->n_heap++;

	w->n_pushed++;
	while (i > 0 && w->heap[(i - 1) / 2] > key) {
		w->heap[i] = w->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	w->heap[i] = key;
}

static uint64_t heap_pop(struct tok_work *w)
{
	uint64_t top = w->heap[0], key = w->heap[--w->n_heap];
	size_t i = 0;

	for (;;) {
		size_t child = 2 * i + 1;

		if (child >= w->n_heap)
			break;
		if (child + 1 < w->n_heap && w->heap[child + 1] < w->heap[child])
			child++;
		if (w->heap[child] >= key)
			break;
		w->heap[i] = w->heap[child];
		i = child;
	}
	w->heap[i] = key;
	return top;
}

/* Notes the merge of the symbol at pos with its follower, if there is one. */
static void note(
	const struct tokenizer *t, struct tok_work *w, uint32_t pos, uint32_t end)
{
	uint32_t next = w->next[pos];

	w->rank[pos] =
		next == end ? TOK_NO_RANK : tok_merges_rank(t, w->sym[pos], w->sym[next]);
	if (w->rank[pos] != TOK_NO_RANK)
		heap_push(w, (uint64_t)w->rank[pos] << 32 | pos);
}

static void merge(
	const struct tokenizer *t, struct tok_work *w, uint32_t pos, uint32_t end)
{
	uint32_t gone = w->next[pos];

	w->sym[pos] = t->merged[w->rank[pos]];
	w->next[pos] = w->next[gone];
	if (w->next[gone] != end)
		w->prev[w->next[gone]] = pos;
	w->rank[gone] = TOK_NO_RANK;
	note(t, w, pos, end);
	if (pos > 0)
		note(t, w, w->prev[pos], end);
}

status tok_bpe_encode(const struct tokenizer *t, struct tok_work *w, struct bytes piece,
	struct tok_ids *out, struct err *err)
{
	uint32_t n = (uint32_t)piece.len;
	status st = ST_OK;

	if (n == 1)
		return tok_ids_push(out, t->byte_id[piece.at[0]], err);
	if (t->ignore_merges) {
		uint32_t id = tok_vocab_find(t, piece);

		if (id != TOK_NO_ID)
			return tok_ids_push(out, id, err);
	}
	/* Fewer tokens than this it cannot become: refused before the work. */
	if (CEIL_DIV(n, t->longest) > out->max - out->n)
		return err_set(err, ST_LIMIT, "more than %zu tokens", out->max);
	st = reserve(w, n, err);
	if (st != ST_OK)
		return st;
	w->n_heap = 0;
	w->n_pushed = 0;
	for (uint32_t i = 0; i < n; i++) {
		w->sym[i] = t->byte_id[piece.at[i]];
		w->next[i] = i + 1;
		w->prev[i] = i - 1; /* never read at 0 */
	}
	for (uint32_t i = 0; i < n; i++)
		note(t, w, i, n);
	while (w->n_heap > 0) {
		uint64_t key = heap_pop(w);
		uint32_t pos = (uint32_t)key;

		if (w->rank[pos] == (uint32_t)(key >> 32))
			merge(t, w, pos, n);
	}
	for (uint32_t i = 0; i < n && st == ST_OK; i = w->next[i])
		st = tok_ids_push(out, w->sym[i], err);
	return st;
}
