/* Stop strings, found in a text that grows. The answer depends on the text alone, not
 * on how it was cut: the stop string that ends first wins, of several that end at the
 * same byte the longest, of equal ones the first that was added. */
#ifndef COMMON_MODEL_STOP_H
#define COMMON_MODEL_STOP_H
#include "common/base/bytes.h"
#include "common/base/err.h"
#include <stdint.h>

#define STOP_STRINGS_MAX 16u
#define STOP_BYTES_MAX   256u

/* Plain values, may be copied; own nothing. */
struct stop_set {
	uint32_t n;
	uint16_t len[STOP_STRINGS_MAX];
	uint8_t text[STOP_STRINGS_MAX][STOP_BYTES_MAX];
	/* back[s][i]: the longest proper beginning of string s that also ends its first
	 * i + 1 bytes (the failure table of Knuth, Morris and Pratt). */
	uint8_t back[STOP_STRINGS_MAX][STOP_BYTES_MAX];
};

struct stop {
	const struct stop_set *set;
	int matched; /* index of the string found, or -1 */
	uint16_t n_held;
	uint16_t
		done[STOP_STRINGS_MAX]; /* bytes of each string that the text ends with */
	uint8_t held[STOP_BYTES_MAX];   /* the end of the text that may begin a match */
};

void stop_set_init(struct stop_set *set);
/* ST_INVALID: empty; ST_LIMIT: too long or one too many. */
MUST_CHECK status stop_set_add(struct stop_set *set, struct bytes text, struct err *err);

/* set must outlive s. */
void stop_init(struct stop *s, const struct stop_set *set);
/* Appends to out what is now sure to stand before any match. Returns the index of the
 * string that was found, or -1; once found, further text is dropped and the index
 * stays. Text fed as whole characters is given out as whole characters. */
int stop_feed(struct stop *s, struct bytes text, struct sink *out);
/* The end of the text without a match: what was held back is text after all. */
void stop_flush(struct stop *s, struct sink *out);

#endif
