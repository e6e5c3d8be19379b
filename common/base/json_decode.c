/* Strings of a JSON text, decoded where they stand: no escape is shorter than what it
 * says. */
#include "common/base/json_impl.h"
#include "common/base/utf8.h"

#include <string.h>

#define ALL(byte) (UINT64_C(0x0101010101010101) * (byte))

/* Eight bytes that all stand for themselves: none is a control character, a quote, a
 * backslash, or outside ASCII. A subtraction sets the top bit of a byte that it takes
 * below zero; a borrow can only make a later byte look special. */
static bool eight_plain(const uint8_t *p)
{
	uint64_t x;

	memcpy(&x, p, sizeof(x));
	return ((x | (x - ALL(0x20)) | ((x ^ ALL('"')) - ALL(1)) |
			((x ^ ALL('\\')) - ALL(1))) &
		       ALL(0x80)) == 0;
}

/* To the first byte that is no character that stands for itself. */
static uint8_t *skip_plain(uint8_t *p, const uint8_t *end)
{
	for (;;) {
		struct utf8_step step;

		while (end - p >= 8 && eight_plain(p))
			p += 8;
		while (*p >= 0x20 && *p < 0x80 && *p != '"' && *p != '\\')
			p++;
		if (*p < 0x80)
			return p;
		do {
			step = utf8_step((struct bytes){p, (size_t)(end - p)});
			if (step.kind != UTF8_WHOLE)
				return p;
			p += step.len;
		} while (*p >= 0x80);
	}
}

/* Four hexadecimal digits; UINT32_MAX when they are not there. The zero behind the text
 * is none. */
static uint32_t hex4(const uint8_t *p)
{
	uint32_t v = 0;

	for (unsigned i = 0; i < 4; i++) {
		uint8_t c = p[i], lower = c | 0x20;

		if (c >= '0' && c <= '9')
			v = v << 4 | (uint32_t)(c - '0');
		else if (lower >= 'a' && lower <= 'f')
			v = v << 4 | (uint32_t)(lower - 'a' + 10);
		else
			return UINT32_MAX;
	}
	return v;
}

static uint8_t *refuse(struct json_fault *fault, const uint8_t *at, const char *why)
{
	fault->at = at;
	snprintf(fault->why, sizeof(fault->why), "%s", why);
	return NULL;
}

/* \uXXXX, or two of them, at p; moves *w behind the character. */
static uint8_t *decode_unicode(uint8_t *p, uint8_t **w, struct json_fault *fault)
{
	uint32_t low, cp = hex4(p + 2);
	uint8_t *next = p + 6;

	if (cp == UINT32_MAX)
		return refuse(fault, p, "\\u needs four hexadecimal digits");
	if (cp >= 0xd800 && cp < 0xe000) {
		low = cp < 0xdc00 && next[0] == '\\' && next[1] == 'u' ? hex4(next + 2)
								       : 0;
		if (low < 0xdc00 || low >= 0xe000) {
			fault->at = p;
			snprintf(fault->why, sizeof(fault->why),
				"\\u%04x is half of a character (a lone surrogate)", cp);
			return NULL;
		}
		cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
		next += 6;
	}
	*w += utf8_write(cp, *w);
	return next;
}

static uint8_t *decode_escape(uint8_t *p, uint8_t **w, struct json_fault *fault)
{
	static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
	const char *found;

	if (p[1] == 'u')
		return decode_unicode(p, w, fault);
	found = p[1] != 0 ? strchr(names, p[1]) : NULL;
	if (found == NULL)
		return refuse(fault, p, "no such escape");
	*(*w)++ = (uint8_t)values[found - names];
	return p + 2;
}

static uint8_t *refuse_byte(
	struct json_fault *fault, const uint8_t *p, const uint8_t *end)
{
	if (p == end)
		return refuse(fault, p, "the text ends inside a string");
	fault->at = p;
	if (*p < 0x20)
		snprintf(fault->why, sizeof(fault->why),
			"the control character U+%04X in a string is not escaped", *p);
	else
		snprintf(fault->why, sizeof(fault->why),
			"the byte 0x%02x in a string is not UTF-8", *p);
	return NULL;
}

uint8_t *json_decode(
	uint8_t *p, const uint8_t *end, struct bytes *text, struct json_fault *fault)
{
	uint8_t *from = p + 1, *w = from;

	p = from;
	for (;;) {
		uint8_t *run = p;

		p = skip_plain(p, end);
		if (w != run)
			memmove(w, run, (size_t)(p - run));
		w += p - run;
		if (*p == '"')
			break;
		if (*p != '\\')
			return refuse_byte(fault, p, end);
		p = decode_escape(p, &w, fault);
		if (p == NULL)
			return NULL;
	}
	*w = 0;
	*text = (struct bytes){from, (size_t)(w - from)};
	return p + 1;
}
