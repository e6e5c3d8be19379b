/* The bytes of all tokens, in an order in which those with a common beginning stand
 * together: which of them may come next is one walk over them. Made once at start; any
 * number of threads may read it. */
#ifndef COMMON_GRAMMAR_VOCAB_H
#define COMMON_GRAMMAR_VOCAB_H
#include "common/grammar/grammar.h"

struct vocab;

/* tokens[id], borrowed for good; no bytes: a token that is no text (special ones).
 * Start-up memory. */
struct vocab *vocab_make(const struct bytes *tokens, uint32_t n);
void vocab_destroy(struct vocab *v); /* NULL: nothing */
uint32_t vocab_size(const struct vocab *v);
struct bytes vocab_bytes(const struct vocab *v, uint32_t id);
/* Every byte of UTF-8 is a token of its own: whatever can be completed in bytes can be
 * completed in tokens. */
bool vocab_is_whole(const struct vocab *v);

#define VOCAB_WORDS(n) (((n) + 31) / 32)
/* Bit id % 32 of bits[id / 32] for each token whose bytes may come next; the other bits
 * of the VOCAB_WORDS are cleared. */
void vocab_mask(
	const struct vocab *v, const struct grammar *g, uint32_t state, uint32_t *bits);

#endif
