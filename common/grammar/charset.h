/* Sets of characters, and the bytes that write them. Private to this folder. */
#ifndef COMMON_GRAMMAR_CHARSET_H
#define COMMON_GRAMMAR_CHARSET_H
#include "common/grammar/nfa.h"

#define CHARSET_RANGES_MAX 256u
#define CHARSET_LAST       0x10FFFFu

struct char_range {
	uint32_t lo, hi;
};

struct charset {
	struct char_range r[CHARSET_RANGES_MAX];
	uint32_t n;
	bool full; /* it has more ranges than there is room for */
};

void charset_add(struct charset *s, uint32_t lo, uint32_t hi);
/* Ranges in order, none touching the next, without surrogates. */
void charset_normalize(struct charset *s);
/* All other characters; of a normalized set. */
void charset_invert(struct charset *s);

/* \d, \w, \s and their opposites (capital letters). Languages disagree about characters
 * beyond ASCII: the narrow form has only what all of them take, the wide one all that any
 * of them takes. */
void charset_class(struct charset *s, char letter, bool wide);

/* How characters are written. */
enum char_form {
	CHAR_PLAIN, /* UTF-8 */
	CHAR_JSON,  /* inside of a JSON string: escaped where that must be */
};
/* One character of the set, between two states. */
void charset_put(struct nfa *n, uint32_t from, uint32_t to, const struct charset *s,
	enum char_form form);

#endif
