/* Token ids to text, as a stream: what is appended is complete UTF-8 at every moment,
 * and the whole is the same as decoding all ids at once. */
#ifndef COMMON_MODEL_DETOK_H
#define COMMON_MODEL_DETOK_H
#include "common/base/bytes.h"
#include "common/model/tokenizer.h"
#include <stdbool.h>
#include <stdint.h>

/* Plain value, may be copied; owns nothing. */
struct detok {
	const struct tokenizer *t;
	bool skip_special; /* special tokens give no text */
	uint8_t n_held;    /* bytes of a character that is not complete yet */
	uint8_t held[4];
};

void detok_init(struct detok *d, const struct tokenizer *t, bool skip_special);
/* Appends the text that the token completes. Bytes that are not UTF-8 become one
 * U+FFFD for each maximal subpart (Unicode 16, section 3.9, table 3-8). */
void detok_feed(struct detok *d, uint32_t id, struct sink *out);
/* The end: a held beginning of a character becomes one U+FFFD. Ready again after. */
void detok_flush(struct detok *d, struct sink *out);

#endif
