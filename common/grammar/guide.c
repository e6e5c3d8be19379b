/* The state of a grammar, and masks that were made of its states. */
#include "common/grammar/guide.h"

#include "common/base/mem.h"

#include <string.h>

/* Most tokens of an answer lead to a few states: inside of a string, behind a comma. */
#define MASKS 16u

struct guide {
	struct guide_terms terms;
	struct grammar *grammar;
	uint32_t state;
	bool waits; /* for terms.after */
	bool fresh; /* that was the last token: newlines behind it are of neither part */
	bool ended;
	uint32_t mask_of[MASKS]; /* state; GRAMMAR_DEAD: none */
	uint32_t *masks;         /* [MASKS][VOCAB_WORDS] */
};

status guide_make(struct guide **out, const struct guide_terms *terms, struct err *err)
{
	size_t words = VOCAB_WORDS(vocab_size(terms->vocab));
	struct guide *g = mem_take(1, sizeof(*g));
	status st = ST_OK;

	if (g != NULL)
		g->masks = mem_take(MASKS * words, sizeof(*g->masks));
	if (g == NULL || g->masks == NULL)
		st = err_set(err, ST_NOMEM, "no request memory for a grammar");
	else
		st = grammar_compile(&g->grammar, terms->kind, terms->text, err);
	if (st != ST_OK) {
		guide_destroy(g);
		return st;
	}
	g->terms = *terms;
	g->terms.text = (struct bytes){NULL, 0};
	g->state = g->grammar->start;
	g->waits = terms->after != GUIDE_AT_ONCE;
	*out = g;
	return ST_OK;
}

void guide_destroy(struct guide *g)
{
	if (g == NULL)
		return;
	grammar_destroy(g->grammar);
	mem_give(g->masks);
	mem_give(g);
}

static bool is_end(const struct guide *g, uint32_t token)
{
	for (size_t i = 0; i < g->terms.n_ends; i++)
		if (g->terms.ends[i] == token)
			return true;
	return false;
}

static bool is_newlines(struct bytes text)
{
	size_t n = 0;

	while (n < text.len && text.at[n] == '\n')
		n++;
	return n > 0 && n == text.len;
}

bool guide_take(struct guide *g, uint32_t token)
{
	struct bytes text = vocab_bytes(g->terms.vocab, token);
	uint32_t to;

	if (g->ended)
		return false;
	if (is_end(g, token)) {
		g->ended = !g->waits && g->grammar->complete[g->state];
		return g->ended;
	}
	if (g->waits) {
		g->waits = token != g->terms.after;
		g->fresh = !g->waits;
		return true;
	}
	if (g->fresh && is_newlines(text)) {
		g->fresh = false;
		return true;
	}
	to = text.len == 0 ? GRAMMAR_DEAD : grammar_walk(g->grammar, g->state, text);
	if (to == GRAMMAR_DEAD)
		return false;
	g->state = to;
	g->fresh = false;
	return true;
}

static void set_ends(const struct guide *g, uint32_t *bits, bool on)
{
	uint32_t n = vocab_size(g->terms.vocab);

	for (size_t i = 0; i < g->terms.n_ends; i++) {
		uint32_t id = g->terms.ends[i], bit = 1u << id % 32;

		if (id < n)
			bits[id / 32] = on ? bits[id / 32] | bit : bits[id / 32] & ~bit;
	}
}

static void all_but_ends(const struct guide *g, uint32_t *bits)
{
	uint32_t n = vocab_size(g->terms.vocab);

	memset(bits, 0xFF, VOCAB_WORDS(n) * sizeof(*bits));
	set_ends(g, bits, false);
}

static void add_newlines(const struct guide *g, uint32_t *bits)
{
	for (uint32_t id = 0; id < vocab_size(g->terms.vocab); id++)
		if (is_newlines(vocab_bytes(g->terms.vocab, id)))
			bits[id / 32] |= 1u << id % 32;
}

void guide_mask(struct guide *g, uint32_t *bits)
{
	size_t words = VOCAB_WORDS(vocab_size(g->terms.vocab));
	uint32_t slot = g->state % MASKS;
	uint32_t *kept = g->masks + slot * words;

	if (g->waits) {
		all_but_ends(g, bits);
		return;
	}
	if (g->mask_of[slot] != g->state) {
		vocab_mask(g->terms.vocab, g->grammar, g->state, kept);
		set_ends(g, kept, g->grammar->complete[g->state]);
		g->mask_of[slot] = g->state;
	}
	memcpy(bits, kept, words * sizeof(*bits));
	if (g->fresh)
		add_newlines(g, bits);
}
