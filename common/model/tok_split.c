/* Cuts text into the pieces that are merged on their own: the two split expressions
 * of the Qwen family, written out. With L, M, N the Unicode categories and \s
 * White_Space, the alternatives are, in this order:
 *   1. (?i:'s|'t|'re|'ve|'m|'ll|'d)
 *   2. [^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+          Qwen2: \p{L}+
 *   3. \p{N}
 *   4.  ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*           Qwen2: without \p{M}
 *   5. \s*[\r\n]+
 *   6. \s+(?!\S)
 *   7. \s+
 * Every character begins one of them, so the pieces cover the text. */
#include "common/base/utf8.h"
#include "common/model/tok_impl.h"

enum tok_class tok_class_of(uint32_t cp)
{
	uint32_t low = 0, high = TOK_CLASS_RUNS;

	if (cp < 0x80) {
		if ((cp | 0x20) - 'a' < 26)
			return TOK_L;
		if (cp - '0' < 10)
			return TOK_N;
		return cp == ' ' || cp - '\t' < 5 ? TOK_S : TOK_OTHER;
	}
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (tok_class_runs[middle] >> 3 <= cp)
			low = middle;
		else
			high = middle;
	}
	return (enum tok_class)(tok_class_runs[low] & 7u);
}

/* What a class is to an expression; M belongs to words or to the rest. */
static bool is_word(enum tok_split split, enum tok_class class)
{
	return class == TOK_L || (class == TOK_M && split == TOK_SPLIT_QWEN35);
}

static bool is_rest(enum tok_split split, enum tok_class class)
{
	return class == TOK_OTHER || (class == TOK_M && split == TOK_SPLIT_QWEN2);
}

static enum tok_class class_at(const uint8_t *p)
{
	return tok_class_of(utf8_next(&p));
}

static uint8_t lower(uint8_t c)
{
	return (unsigned)(c - 'A') < 26u ? (uint8_t)(c | 0x20) : c;
}

/* Alternative 1 behind its apostrophe; 0: does not match. The long s U+017F folds to
 * s; no other character outside ASCII folds to one of these letters. */
static size_t contraction(const uint8_t *p, const uint8_t *end)
{
	uint8_t a, b;

	if (p == end)
		return 0;
	a = lower(p[0]);
	if (a == 's' || a == 't' || a == 'm' || a == 'd')
		return 1;
	if (end - p < 2)
		return 0;
	b = lower(p[1]);
	if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
		return 2;
	return p[0] == 0xc5 && p[1] == 0xbf ? 2 : 0;
}

static const uint8_t *skip(enum tok_split split, const uint8_t *p, const uint8_t *end,
	bool (*member)(enum tok_split, enum tok_class))
{
	while (p < end) {
		const uint8_t *q = p;

		if (!member(split, tok_class_of(utf8_next(&q))))
			break;
		p = q;
	}
	return p;
}

/* Alternatives 5 to 7; p begins with white space. */
static const uint8_t *skip_space(const uint8_t *p, const uint8_t *end)
{
	const uint8_t *run = p, *last = p, *newline = NULL;

	while (run < end) {
		const uint8_t *q = run;

		if (tok_class_of(utf8_next(&q)) != TOK_S)
			break;
		if (*run == '\r' || *run == '\n')
			newline = q;
		last = run;
		run = q;
	}
	if (newline != NULL)
		return newline;
	return run == end || last == p ? run : last;
}

size_t tok_split_next(enum tok_split split, struct bytes text)
{
	const uint8_t *p = text.at, *end = text.at + text.len, *second = p;
	uint32_t cp = utf8_next(&second);
	enum tok_class class = tok_class_of(cp);
	bool newline = cp == '\r' || cp == '\n';
	size_t n;

	if (cp == '\'') {
		n = contraction(second, end);
		if (n > 0)
			return 1 + n;
	}
	if (class != TOK_L && class != TOK_N && !newline && second < end &&
		is_word(split, class_at(second)))
		return (size_t)(skip(split, second, end, is_word) - p);
	if (is_word(split, class))
		return (size_t)(skip(split, second, end, is_word) - p);
	if (class == TOK_N)
		return (size_t)(second - p);
	if (is_rest(split, class) ||
		(cp == ' ' && second < end && is_rest(split, class_at(second)))) {
		p = skip(split, second, end, is_rest);
		while (p < end && (*p == '\r' || *p == '\n'))
			p++;
		return (size_t)(p - text.at);
	}
	return (size_t)(skip_space(p, end) - p);
}
