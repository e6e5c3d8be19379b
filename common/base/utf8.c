/* UTF-8 as Unicode 16 defines it (table 3-7): no surrogates, no overlong forms. */
#include "common/base/utf8.h"

#include <string.h>

/* Bytes of a character by its first byte, and the range of the second byte, where
 * overlong forms, surrogates and values over U+10FFFF are excluded. */
static uint8_t expect(uint8_t first, uint8_t *low, uint8_t *high)
{
	*low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
	*high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
	if (first < 0x80)
		return 1;
	if (first < 0xc2 || first > 0xf4)
		return 0;
	return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

struct utf8_step utf8_step(struct bytes text)
{
	uint8_t low, high, first = text.at[0], want = expect(first, &low, &high);
	uint32_t cp;

	if (want == 1)
		return (struct utf8_step){UTF8_WHOLE, 1, first};
	if (want == 0)
		return (struct utf8_step){UTF8_BROKEN, 1, 0};
	cp = first & (0x7fu >> want);
	for (uint8_t i = 1; i < want; i++) {
		if (i == text.len)
			return (struct utf8_step){UTF8_PARTIAL, i, 0};
		if (text.at[i] < low || text.at[i] > high)
			return (struct utf8_step){UTF8_BROKEN, i, 0};
		cp = cp << 6 | (text.at[i] & 0x3fu);
		low = 0x80;
		high = 0xbf;
	}
	return (struct utf8_step){UTF8_WHOLE, want, cp};
}

uint32_t utf8_next(const uint8_t **p)
{
	const uint8_t *at = *p;

	if (at[0] < 0x80) {
		*p += 1;
		return at[0];
	}
	if (at[0] < 0xe0) {
		*p += 2;
		return (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu);
	}
	if (at[0] < 0xf0) {
		*p += 3;
		return (at[0] & 0xfu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
	}
	*p += 4;
	return (at[0] & 7u) << 18 | (at[1] & 0x3fu) << 12 | (at[2] & 0x3fu) << 6 |
	       (at[3] & 0x3fu);
}

size_t utf8_write(uint32_t cp, uint8_t buf[4])
{
	if (cp < 0x80) {
		buf[0] = (uint8_t)cp;
		return 1;
	}
	if (cp < 0x800) {
		buf[0] = (uint8_t)(0xc0 | cp >> 6);
		buf[1] = (uint8_t)(0x80 | (cp & 0x3f));
		return 2;
	}
	if (cp < 0x10000) {
		buf[0] = (uint8_t)(0xe0 | cp >> 12);
		buf[1] = (uint8_t)(0x80 | (cp >> 6 & 0x3f));
		buf[2] = (uint8_t)(0x80 | (cp & 0x3f));
		return 3;
	}
	buf[0] = (uint8_t)(0xf0 | cp >> 18);
	buf[1] = (uint8_t)(0x80 | (cp >> 12 & 0x3f));
	buf[2] = (uint8_t)(0x80 | (cp >> 6 & 0x3f));
	buf[3] = (uint8_t)(0x80 | (cp & 0x3f));
	return 4;
}

size_t utf8_valid_len(struct bytes text)
{
	size_t at = 0;

	while (at < text.len) {
		struct utf8_step step;

		if (text.at[at] < 0x80) {
			at++;
			continue;
		}
		step = utf8_step((struct bytes){text.at + at, text.len - at});
		if (step.kind != UTF8_WHOLE)
			break;
		at += step.len;
	}
	return at;
}
