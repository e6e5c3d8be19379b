/* Sets of characters, and the bytes that write them. */
#include "common/grammar/charset.h"

#include "common/base/utf8.h"

#include <stdlib.h>

#define SURROGATE_FIRST 0xD800u
#define SURROGATE_LAST  0xDFFFu

void charset_add(struct charset *s, uint32_t lo, uint32_t hi)
{
	if (lo > hi)
		return;
	if (s->n == CHARSET_RANGES_MAX)
		charset_normalize(s);
	if (s->n == CHARSET_RANGES_MAX)
		s->full = true;
	else
		s->r[s->n++] = (struct char_range){lo, MIN(hi, CHARSET_LAST)};
}

static int by_lo(const void *a, const void *b)
{
	const struct char_range *x = a, *y = b;

	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* A range that surrounds the surrogates becomes two, for which there is room or the set
 * is full. */
static void drop_surrogates(struct charset *s)
{
	uint32_t n = s->n;

	for (uint32_t i = 0; i < n; i++) {
		struct char_range r = s->r[i];

		if (r.hi < SURROGATE_FIRST || r.lo > SURROGATE_LAST)
			continue;
		/* An empty range is dropped with those that touch. */
		s->r[i].hi = SURROGATE_FIRST - 1;
		if (r.lo >= SURROGATE_FIRST)
			s->r[i] = (struct char_range){1, 0};
		if (r.hi <= SURROGATE_LAST)
			continue;
		r.lo = SURROGATE_LAST + 1;
		if (s->r[i].lo > s->r[i].hi)
			s->r[i] = r;
		else if (s->n < CHARSET_RANGES_MAX)
			s->r[s->n++] = r;
		else
			s->full = true;
	}
}

void charset_normalize(struct charset *s)
{
	uint32_t n = 0;

	drop_surrogates(s);
	qsort(s->r, s->n, sizeof(*s->r), by_lo);
	for (uint32_t i = 0; i < s->n; i++) {
		struct char_range r = s->r[i];

		if (r.lo > r.hi)
			continue;
		if (n > 0 && r.lo <= s->r[n - 1].hi + 1)
			s->r[n - 1].hi = MAX(s->r[n - 1].hi, r.hi);
		else
			s->r[n++] = r;
	}
	s->n = n;
}

void charset_invert(struct charset *s)
{
	struct charset all = {.full = s->full};
	uint32_t from = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		if (s->r[i].lo > from)
			charset_add(&all, from, s->r[i].lo - 1);
		from = s->r[i].hi + 1;
	}
	if (from <= CHARSET_LAST)
		charset_add(&all, from, CHARSET_LAST);
	*s = all;
	charset_normalize(s);
}

/* ---- classes ---- */

struct named_ranges {
	char letter;
	bool wide;
	uint32_t n;
	struct char_range r[24];
};

/* Of digits and words the wide form has all from the first one of theirs beyond ASCII,
 * but for punctuation. */
static const struct named_ranges classes[] = {
	{'d', false, 1, {{'0', '9'}}},
	{'d', true, 2, {{'0', '9'}, {0x660, CHARSET_LAST}}},
	{'w', false, 4, {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
	{'w', true, 7,
		{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}, {0x80, 0x200F},
			{0x205F, 0x3000}, {0x3004, CHARSET_LAST}}},
	{'s', false, 3, {{'\t', '\r'}, {' ', ' '}, {0xA0, 0xA0}}},
	{'s', true, 11,
		{{'\t', '\r'}, {0x1C, 0x20}, {0x85, 0x85}, {0xA0, 0xA0}, {0x1680, 0x1680},
			{0x180E, 0x180E}, {0x2000, 0x200F}, {0x2028, 0x202F},
			{0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}}},
};

void charset_class(struct charset *s, char letter, bool wide)
{
	bool opposite = letter >= 'A' && letter <= 'Z';
	char small = opposite ? (char)(letter - 'A' + 'a') : letter;
	struct charset own = {.n = 0};

	for (size_t i = 0; i < COUNT(classes); i++) {
		const struct named_ranges *c = &classes[i];

		if (c->letter != small || c->wide != (wide != opposite))
			continue;
		for (uint32_t k = 0; k < c->n; k++)
			charset_add(&own, c->r[k].lo, c->r[k].hi);
	}
	charset_normalize(&own);
	if (opposite)
		charset_invert(&own);
	for (uint32_t i = 0; i < own.n; i++)
		charset_add(s, own.r[i].lo, own.r[i].hi);
}

/* ---- bytes ---- */

struct put {
	struct nfa *n;
	uint32_t from, to;
};

/* Characters of one length whose bytes vary independently of each other. */
static void put_block(const struct put *p, uint32_t lo, uint32_t hi)
{
	uint8_t a[4], b[4];
	size_t len = utf8_write(lo, a);
	uint32_t from = p->from;

	(void)utf8_write(hi, b);
	for (size_t i = 0; i < len; i++) {
		uint32_t to = i + 1 == len ? p->to : nfa_state(p->n);

		nfa_bytes(p->n, from, to, a[i], b[i]);
		from = to;
	}
}

/* The end of the largest block that begins at lo, which has len bytes: the last k of them
 * take all their values, the one before them some, and the others none but their own. */
static uint32_t block_end(uint32_t lo, uint32_t hi, uint32_t len)
{
	uint32_t k = len - 1, unit = 1u << 6 * k, top;

	while (lo % unit != 0 || hi - lo < unit - 1) {
		k--;
		unit /= 64;
	}
	top = k + 1 == len ? hi : lo / (unit * 64) * (unit * 64) + unit * 64 - 1;
	return lo + (MIN(hi, top) - lo + 1) / unit * unit - 1;
}

static void put_plain(const struct put *p, uint32_t lo, uint32_t hi)
{
	static const uint32_t last_of[] = {0x7F, 0x7FF, 0xFFFF, CHARSET_LAST};
	uint32_t len = 1;

	while (lo <= hi && !p->n->full) {
		uint32_t end;

		while (lo > last_of[len - 1])
			len++;
		end = block_end(lo, MIN(hi, last_of[len - 1]), len);
		put_block(p, lo, end);
		lo = end + 1;
	}
}

static bool needs_escape(uint32_t c)
{
	return c < 0x20 || c == '"' || c == '\\';
}

static void put_byte(const struct put *p, uint32_t from, uint8_t byte)
{
	nfa_bytes(p->n, from, p->to, byte, byte);
}

static void put_hex(const struct put *p, uint32_t from, uint32_t c)
{
	static const char small[] = "0123456789abcdef", large[] = "0123456789ABCDEF";

	from = nfa_text(p->n, from, bytes_of_str(c < 0x10 ? "u000" : "u001"));
	put_byte(p, from, (uint8_t)small[c % 16]);
	put_byte(p, from, (uint8_t)large[c % 16]);
}

static void put_escape(const struct put *p, uint32_t c)
{
	static const char short_of[0x20] = {
		['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
	uint32_t mid = nfa_state(p->n);
	char letter = c < 0x20 ? short_of[c] : (char)c;

	nfa_bytes(p->n, p->from, mid, '\\', '\\');
	if (letter != 0)
		put_byte(p, mid, (uint8_t)letter);
	else
		put_hex(p, mid, c);
}

static void put_json(const struct put *p, uint32_t lo, uint32_t hi)
{
	for (; lo <= hi && lo <= '\\'; lo++) {
		uint32_t end = lo;

		if (needs_escape(lo)) {
			put_escape(p, lo);
			continue;
		}
		while (end < hi && end < '\\' && !needs_escape(end + 1))
			end++;
		put_block(p, lo, end);
		lo = end;
	}
	if (lo <= hi)
		put_plain(p, lo, hi);
}

void charset_put(struct nfa *n, uint32_t from, uint32_t to, const struct charset *s,
	enum char_form form)
{
	struct put p = {n, from, to};

	for (uint32_t i = 0; i < s->n && !n->full; i++) {
		if (form == CHAR_JSON)
			put_json(&p, s->r[i].lo, s->r[i].hi);
		else
			put_plain(&p, s->r[i].lo, s->r[i].hi);
	}
}
