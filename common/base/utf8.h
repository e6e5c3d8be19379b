/* UTF-8, one character at a time. */
#ifndef COMMON_BASE_UTF8_H
#define COMMON_BASE_UTF8_H
#include "common/base/bytes.h"
#include <stdint.h>

#define UTF8_REPLACEMENT "\xEF\xBF\xBD"

enum utf8_kind {
	UTF8_WHOLE,   /* a character */
	UTF8_PARTIAL, /* the text ends inside what may become a character */
	UTF8_BROKEN,  /* no character begins so */
};

struct utf8_step {
	enum utf8_kind kind;
	uint8_t len; /* bytes: of the character, or of the maximal subpart (at least 1) */
	uint32_t cp; /* WHOLE only */
};

/* What stands at the beginning of text, which is not empty. */
struct utf8_step utf8_step(struct bytes text);
/* The character at p, which is valid; moves p behind it. */
uint32_t utf8_next(const uint8_t **p);
/* Bytes written to buf, 1 to 4; cp is a Unicode scalar value. */
size_t utf8_write(uint32_t cp, uint8_t buf[4]);
/* Length of the longest beginning that is whole, valid characters. */
size_t utf8_valid_len(struct bytes text);

#endif
