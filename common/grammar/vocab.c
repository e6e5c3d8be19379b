/* Tokens in the order of their bytes. */
#include "common/grammar/vocab.h"

#include "common/base/mem.h"

#include <stdlib.h>
#include <string.h>

#define BYTES_MAX 1024u /* of a token that can be drawn under a grammar */

struct entry {
	const uint8_t *at;
	uint32_t len, id;
	uint32_t common; /* bytes at its beginning that the entry before it has too */
};

struct vocab {
	const struct bytes *tokens; /* [n], a copy of the list */
	struct entry *entries;      /* those with bytes */
	uint32_t n, n_entries;
	bool whole;
};

static int by_bytes(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int order = memcmp(x->at, y->at, MIN(x->len, y->len));

	if (order == 0)
		order = x->len < y->len ? -1 : x->len > y->len;
	return order != 0 ? order : x->id < y->id ? -1 : x->id > y->id;
}

static uint32_t common_of(const struct entry *a, const struct entry *b)
{
	uint32_t n = 0, most = MIN(a->len, b->len);

	while (n < most && a->at[n] == b->at[n])
		n++;
	return n;
}

static bool find_whole(const struct vocab *v)
{
	bool alone[256] = {false};
	bool whole = true;

	for (uint32_t i = 0; i < v->n_entries; i++)
		if (v->entries[i].len == 1)
			alone[v->entries[i].at[0]] = true;
	/* C0, C1 and all from F5 on begin no character. */
	for (uint32_t b = 0; b < 0xF5; b++)
		whole &= alone[b] || b == 0xC0 || b == 0xC1;
	return whole;
}

struct vocab *vocab_make(const struct bytes *tokens, uint32_t n)
{
	struct vocab *v = mem_alloc(1, sizeof(*v));
	struct bytes *list = mem_alloc(MAX(n, 1u), sizeof(*list));

	v->entries = mem_alloc(MAX(n, 1u), sizeof(*v->entries));
	v->n = n;
	for (uint32_t i = 0; i < n; i++) {
		if (tokens[i].len == 0 || tokens[i].len > BYTES_MAX)
			continue;
		list[i] = tokens[i];
		v->entries[v->n_entries++] = (struct entry){
			.at = tokens[i].at, .len = (uint32_t)tokens[i].len, .id = i};
	}
	v->tokens = list;
	qsort(v->entries, v->n_entries, sizeof(*v->entries), by_bytes);
	for (uint32_t i = 1; i < v->n_entries; i++)
		v->entries[i].common = common_of(&v->entries[i - 1], &v->entries[i]);
	v->whole = find_whole(v);
	return v;
}

void vocab_destroy(struct vocab *v)
{
	if (v == NULL)
		return;
	mem_free((void *)(uintptr_t)v->tokens);
	mem_free(v->entries);
	mem_free(v);
}

uint32_t vocab_size(const struct vocab *v)
{
	return v->n;
}

struct bytes vocab_bytes(const struct vocab *v, uint32_t id)
{
	return id < v->n ? v->tokens[id] : (struct bytes){NULL, 0};
}

bool vocab_is_whole(const struct vocab *v)
{
	return v->whole;
}

/* states[k]: where the first k bytes of the entry lead. An entry whose beginning leads
 * nowhere takes all those along that have the same beginning. */
void vocab_mask(
	const struct vocab *v, const struct grammar *g, uint32_t state, uint32_t *bits)
{
	uint16_t states[BYTES_MAX + 1];
	uint32_t good = 0; /* bytes of the entry before this one that lead somewhere */

	memset(bits, 0, VOCAB_WORDS(v->n) * sizeof(*bits));
	states[0] = (uint16_t)state;
	if (state == GRAMMAR_DEAD)
		return;
	for (uint32_t i = 0; i < v->n_entries; i++) {
		const struct entry *e = &v->entries[i];

		if (e->common > good)
			continue;
		good = e->common;
		while (good < e->len) {
			uint32_t to = grammar_step(g, states[good], e->at[good]);

			if (to == GRAMMAR_DEAD)
				break;
			states[++good] = (uint16_t)to;
		}
		if (good == e->len)
			bits[e->id / 32] |= 1u << e->id % 32;
	}
}
