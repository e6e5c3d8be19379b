/* NFC as the `tokenizers` package does it (Unicode 9.0; see tok_inert), and taking
 * masks out of text. Canonical ordering is done here because the library's is
 * quadratic in a run of marks, which a request can make as long as it likes. */
#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/model/tok_impl.h"

#include <string.h>
#include <utf8proc.h>

#define DECOMPOSE (UTF8PROC_STABLE | UTF8PROC_DECOMPOSE)
#define COMPOSE   (UTF8PROC_STABLE | UTF8PROC_COMPOSE)
/* The longest canonical decomposition of a character has four code points. */
#define PARTS_MAX 4u

/* Code points of one stretch, and as much room again for the sort. */
struct stretch {
	int32_t *cp;
	size_t n, cap;
};

/* Blocks in which no character is a mark, decomposes in NFC, or composes with what
 * stands before it: left as they are. Not complete, only frequent. */
static const struct tok_range plain[] = {
	{0x0000, 0x02ff},   /* Latin */
	{0x0400, 0x0482},   /* Cyrillic */
	{0x2010, 0x2027},   /* punctuation */
	{0x3001, 0x3029},   /* CJK punctuation */
	{0x3041, 0x3096},   /* Hiragana */
	{0x30a1, 0x30ff},   /* Katakana */
	{0x3400, 0x9fff},   /* CJK */
	{0xac00, 0xd7a3},   /* Hangul syllables */
	{0xff01, 0xff9d},   /* full and half width */
	{0x1f300, 0x1faff}, /* pictographs */
};

static bool is_plain(uint32_t cp)
{
	for (size_t i = 0; i < COUNT(plain) && cp >= plain[i].first; i++) {
		if (cp <= plain[i].last)
			return true;
	}
	return false;
}

static bool is_inert(uint32_t cp)
{
	size_t low = 0, high = TOK_INERT_RANGES;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (cp > tok_inert[middle].last)
			low = middle + 1;
		else
			high = middle;
	}
	return low < TOK_INERT_RANGES && cp >= tok_inert[low].first;
}

static bool all_plain(struct bytes text)
{
	const uint8_t *p = text.at, *end = text.at + text.len;

	while (p < end) {
		if (!is_plain(utf8_next(&p)))
			return false;
	}
	return true;
}

static status decompose(struct stretch *s, uint32_t cp, struct err *err)
{
	utf8proc_ssize_t n;

	if (s->cap - s->n < PARTS_MAX) {
		size_t cap = MAX(s->cap * 2, (size_t)256);
		int32_t *more = mem_regrow(s->cp, 2 * cap * sizeof(*more));

		if (more == NULL)
			return err_set(err, ST_NOMEM,
				"no memory to normalise %zu characters", cap);
		s->cp = more;
		s->cap = cap;
	}
	n = utf8proc_decompose_char(
		(utf8proc_int32_t)cp, s->cp + s->n, PARTS_MAX, DECOMPOSE, NULL);
	if (n < 1 || n > (utf8proc_ssize_t)PARTS_MAX)
		return err_set(err, ST_INVALID, "U+%04X decomposes to %td code points",
			cp, (ptrdiff_t)n);
	s->n += (size_t)n;
	return ST_OK;
}

static uint8_t mark_class(int32_t cp)
{
	return (uint8_t)utf8proc_get_property(cp)->combining_class;
}

/* Stable sort by combining class of n marks; spare has room for n. */
static void order_marks(int32_t *cp, size_t n, int32_t *spare)
{
	size_t first[257] = {0};

	for (size_t i = 0; i < n; i++)
		first[mark_class(cp[i]) + 1]++;
	for (size_t k = 1; k < COUNT(first); k++)
		first[k] += first[k - 1];
	for (size_t i = 0; i < n; i++)
		spare[first[mark_class(cp[i])]++] = cp[i];
	memcpy(cp, spare, n * sizeof(*cp));
}

static void order(struct stretch *s)
{
	size_t i = 0;

	while (i < s->n) {
		size_t from = i;
		uint8_t last = 0;
		bool sorted = true;

		for (; i < s->n && mark_class(s->cp[i]) > 0; i++) {
			sorted = sorted && mark_class(s->cp[i]) >= last;
			last = mark_class(s->cp[i]);
		}
		if (!sorted)
			order_marks(s->cp + from, i - from, s->cp + s->cap);
		i += i == from;
	}
}

static void put_char(struct sink *out, uint32_t cp)
{
	uint8_t buf[4];

	sink_put(out, buf, utf8_write(cp, buf));
}

/* Composes what was gathered and writes it. */
static status finish(struct stretch *s, struct sink *out, struct err *err)
{
	utf8proc_ssize_t n;

	if (s->n == 0)
		return ST_OK;
	order(s);
	n = utf8proc_normalize_utf32(s->cp, (utf8proc_ssize_t)s->n, COMPOSE);
	if (n < 0)
		return err_set(err, ST_INVALID, "NFC: %s", utf8proc_errmsg(n));
	for (utf8proc_ssize_t i = 0; i < n; i++)
		put_char(out, (uint32_t)s->cp[i]);
	s->n = 0;
	return ST_OK;
}

static status normalise(
	struct stretch *s, struct bytes text, struct sink *out, struct err *err)
{
	const uint8_t *p = text.at, *end = text.at + text.len;
	status st = ST_OK;

	while (p < end && st == ST_OK) {
		uint32_t cp = utf8_next(&p);

		if (!is_inert(cp)) {
			st = decompose(s, cp, err);
			continue;
		}
		st = finish(s, out, err);
		put_char(out, cp);
	}
	return st == ST_OK ? finish(s, out, err) : st;
}

/* Bytes of the beginning of text that are all ASCII (or all not). */
static size_t ascii_run(struct bytes text, bool ascii)
{
	size_t n = 0;

	while (n < text.len && (text.at[n] < 0x80) == ascii)
		n++;
	return n;
}

/* ASCII never composes with what stands before it, so the text may be cut before every
 * ASCII character: only those before others and the others are looked at. */
status tok_norm_nfc(struct bytes text, struct sink *out, struct err *err)
{
	struct stretch s = {0};
	status st = ST_OK;

	while (text.len > 0 && st == ST_OK) {
		size_t n = ascii_run(text, true);
		struct bytes rest;

		if (n < text.len && n > 0)
			n--;
		sink_put(out, text.at, n);
		text = (struct bytes){text.at + n, text.len - n};
		if (text.len == 0)
			break;
		n = text.at[0] < 0x80;
		rest = (struct bytes){text.at + n, text.len - n};
		n += ascii_run(rest, false);
		rest = (struct bytes){text.at, n};
		if (all_plain(rest))
			sink_put(out, rest.at, rest.len);
		else
			st = normalise(&s, rest, out, err);
		text = (struct bytes){text.at + n, text.len - n};
	}
	mem_give(s.cp);
	if (st == ST_OK && out->full)
		st = err_set(err, ST_NOMEM, "no memory for the normalised text");
	return st;
}

status tok_norm_unmask(struct bytes text, struct sink *out, struct err *err)
{
	static const char mark[] = TOK_MASK_UTF8;
	const size_t mark_bytes = sizeof(mark) - 1;

	while (text.len > 0) {
		const uint8_t *at = memmem(text.at, text.len, mark, mark_bytes);
		size_t n = at == NULL ? text.len : (size_t)(at - text.at), k = 0;

		sink_put(out, text.at, n);
		while (text.len - n >= mark_bytes &&
			memcmp(text.at + n, mark, mark_bytes) == 0) {
			n += mark_bytes;
			if (++k % 2 == 0)
				sink_put(out, mark, mark_bytes);
		}
		text = (struct bytes){text.at + n, text.len - n};
	}
	if (out->full)
		return err_set(err, ST_NOMEM, "no memory for the unmasked text");
	return ST_OK;
}
