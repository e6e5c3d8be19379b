/* A grammar beside one answer: which token may come next, from the tokens so far. Made by
 * whoever checks the request, then of one thread at a time. Request memory, all of it
 * taken when it is made. */
#ifndef COMMON_GRAMMAR_GUIDE_H
#define COMMON_GRAMMAR_GUIDE_H
#include "common/grammar/vocab.h"

#define GUIDE_AT_ONCE UINT32_MAX

struct guide_terms {
	enum grammar_kind kind;
	struct bytes text;
	/* The grammar begins behind this token and one of newlines that may follow it;
	 * GUIDE_AT_ONCE: with the first one. */
	uint32_t after;
	const uint32_t *ends; /* tokens that end an answer; borrowed, at least one */
	size_t n_ends;
	const struct vocab *vocab; /* borrowed, whole */
};

struct guide;

MUST_CHECK status guide_make(
	struct guide **out, const struct guide_terms *terms, struct err *err);
void guide_destroy(struct guide *g); /* NULL: nothing */

/* The answer has this token next. false: the grammar does not allow it. */
MUST_CHECK bool guide_take(struct guide *g, uint32_t token);
/* Bits of the tokens that may come next, VOCAB_WORDS of the vocabulary's size; at least
 * one is set. Before the grammar begins all but those that end an answer; afterwards
 * these only where the text is complete. */
void guide_mask(struct guide *g, uint32_t *bits);

#endif
