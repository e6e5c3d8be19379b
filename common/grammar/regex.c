/* Regular expressions: what Python, JavaScript and RE2 have in common. Anchors stand only
 * at the ends of the outermost alternatives; what would need to look around, to remember,
 * or to know flags is refused by name. */
#include "common/grammar/syntax.h"

#include "common/base/utf8.h"

#include <string.h>

static status read_any(struct syntax_text *t, bool search, uint32_t *node);

/* . : neither a newline nor what any language takes for one. */
static uint32_t dot(struct syntax *s)
{
	struct charset set = {.n = 0};

	charset_add(&set, '\n', '\n');
	charset_add(&set, '\r', '\r');
	charset_add(&set, 0x2028, 0x2029);
	charset_normalize(&set);
	charset_invert(&set);
	return syntax_set(s, &set);
}

static uint32_t anything(struct syntax *s)
{
	struct charset set = {.n = 0};

	charset_add(&set, 0, CHARSET_LAST);
	charset_normalize(&set);
	return syntax_repeat(s, syntax_set(s, &set), 0, NFA_NO_MAX);
}

static bool is_class(uint32_t c)
{
	return c < 0x80 && c != 0 && strchr("dDwWsS", (int)c) != NULL;
}

/* What stands behind a backslash and is one character. */
static status read_escape(struct syntax_text *t, uint32_t *c)
{
	static const char letters[] = "ntrfv0", meant[] = "\n\t\r\f\v";
	uint32_t letter = syntax_take(t);
	const char *found =
		letter != 0 && letter < 0x80 ? strchr(letters, (int)letter) : NULL;

	if (letter == '0' && syntax_peek(t) >= '0' && syntax_peek(t) <= '9')
		return syntax_refuse(t, "octal escapes are not supported");
	if (found != NULL) {
		*c = (uint8_t)meant[found - letters];
		return ST_OK;
	}
	if (letter == 'x')
		return syntax_hex(t, 2, c);
	if (letter == 'u')
		return syntax_hex(t, 4, c);
	if (letter == 0)
		return syntax_refuse(t, "it ends behind a backslash");
	if ((letter >= '1' && letter <= '9') || letter == 'k')
		return syntax_refuse(t, "references to groups are not supported");
	if ((letter | 0x20) >= 'a' && (letter | 0x20) <= 'z')
		return syntax_refuse(t, "\\%c is not supported", (char)letter);
	*c = letter;
	return ST_OK;
}

/* One end of a range, or a class of characters, which is added to the set at once. */
static status read_item(
	struct syntax_text *t, struct charset *set, bool wide, uint32_t *c, bool *is_set)
{
	*is_set = false;
	*c = syntax_take(t);
	if (*c == '[' && syntax_peek(t) == ':')
		return syntax_refuse(t, "[:names:] are not supported");
	if (*c != '\\')
		return ST_OK;
	if (is_class(syntax_peek(t))) {
		*is_set = true;
		charset_class(set, (char)syntax_take(t), wide);
		return ST_OK;
	}
	if (syntax_eat(t, 'b')) {
		*c = '\b';
		return ST_OK;
	}
	return read_escape(t, c);
}

/* Behind '['. */
static status read_class(struct syntax_text *t, uint32_t *node)
{
	struct charset set = {.n = 0};
	bool not = syntax_eat(t, '^'), is_set, first = true;
	status st = ST_OK;

	for (; st == ST_OK && (first || syntax_peek(t) != ']'); first = false) {
		uint32_t lo, hi;

		if (t->at >= t->text.len)
			return syntax_refuse(t, "']' is missing");
		st = read_item(t, &set, not, &lo, &is_set);
		hi = lo;
		if (st != ST_OK || is_set)
			continue;
		if (syntax_peek(t) == '-' && t->at + 1 < t->text.len &&
			t->text.at[t->at + 1] != ']') {
			(void)syntax_take(t);
			st = read_item(t, &set, not, &hi, &is_set);
			if (st == ST_OK && (is_set || hi < lo))
				st = syntax_refuse(
					t, "a range that ends before it begins");
		}
		charset_add(&set, lo, hi);
	}
	if (st != ST_OK)
		return st;
	(void)syntax_take(t);
	charset_normalize(&set);
	if (not )
		charset_invert(&set);
	if (set.n == 0)
		return syntax_refuse(t, "an empty class");
	*node = syntax_set(t->s, &set);
	return ST_OK;
}

/* Behind "(?". */
static status read_group_kind(struct syntax_text *t)
{
	if (syntax_eat(t, ':'))
		return ST_OK;
	(void)syntax_eat(t, 'P');
	if (!syntax_eat(t, '<') || syntax_peek(t) == '=' || syntax_peek(t) == '!')
		return syntax_refuse(t, "groups that begin with (? are supported as (?: "
					"and (?<name> only");
	while (t->at < t->text.len && !syntax_eat(t, '>'))
		(void)syntax_take(t);
	return ST_OK;
}

/* Behind '('. */
static status read_group(struct syntax_text *t, uint32_t *node)
{
	status st = ST_OK;

	if (++t->depth > GRAMMAR_NEST_MAX)
		return syntax_refuse(
			t, "more than %u groups in each other", GRAMMAR_NEST_MAX);
	if (syntax_eat(t, '?'))
		st = read_group_kind(t);
	if (st == ST_OK)
		st = read_any(t, false, node);
	if (st == ST_OK && !syntax_eat(t, ')'))
		st = syntax_refuse(t, "')' is missing");
	t->depth--;
	return st;
}

static status read_atom(struct syntax_text *t, uint32_t *node)
{
	struct charset set = {.n = 0};
	uint32_t c = syntax_take(t);
	status st = ST_OK;

	switch (c) {
	case '(':
		return read_group(t, node);
	case '[':
		return read_class(t, node);
	case '.':
		*node = dot(t->s);
		return ST_OK;
	case '^':
	case '$':
		return syntax_refuse(t,
			"^ and $ are supported only at the ends of the whole, or of its "
			"outermost alternatives");
	case '*':
	case '+':
	case '?':
	case '{':
		return syntax_refuse(t, "nothing to repeat before '%c'", (char)c);
	case '\\':
		if (is_class(syntax_peek(t))) {
			charset_class(&set, (char)syntax_take(t), false);
			charset_normalize(&set);
			*node = syntax_set(t->s, &set);
			return ST_OK;
		}
		st = read_escape(t, &c);
		break;
	default:
		break;
	}
	if (st == ST_OK)
		*node = syntax_char(t->s, c);
	return st;
}

static bool begins_count(const struct syntax_text *t)
{
	size_t i = t->at + 1;

	if (t->at >= t->text.len || t->text.at[t->at] != '{' || i >= t->text.len)
		return false;
	return (t->text.at[i] >= '0' && t->text.at[i] <= '9') || t->text.at[i] == ',';
}

/* An atom, and how often. Lazy forms match the same texts. */
static status read_repeat(struct syntax_text *t, uint32_t *node)
{
	uint32_t min, max;
	status st = read_atom(t, node);

	if (st != ST_OK)
		return st;
	if (syntax_eat(t, '*')) {
		min = 0, max = NFA_NO_MAX;
	} else if (syntax_eat(t, '+')) {
		min = 1, max = NFA_NO_MAX;
	} else if (syntax_eat(t, '?')) {
		min = 0, max = 1;
	} else if (begins_count(t)) {
		t->at++;
		st = syntax_bounds(t, &min, &max);
		if (st != ST_OK)
			return st;
	} else {
		return ST_OK;
	}
	*node = syntax_repeat(t->s, *node, min, max);
	(void)syntax_eat(t, '?');
	if (syntax_peek(t) == '+' || syntax_peek(t) == '*' || begins_count(t))
		return syntax_refuse(t, "a repeat of a repeat");
	return ST_OK;
}

/* Atoms until '|', ')' or the end. outer: anchors may stand at its ends. */
static status read_all(struct syntax_text *t, bool search, uint32_t *node)
{
	bool outer = t->depth == 0, open = search, closed = false;
	status st = ST_OK;

	*node = syntax_node(t->s, SYNTAX_ALL);
	if (outer && syntax_eat(t, '^'))
		open = false;
	if (open)
		syntax_add(t->s, *node, anything(t->s));
	while (st == ST_OK && t->at < t->text.len && syntax_peek(t) != '|' &&
		syntax_peek(t) != ')') {
		uint32_t part = 0;

		if (outer && syntax_peek(t) == '$' &&
			(t->at + 1 == t->text.len || t->text.at[t->at + 1] == '|')) {
			t->at++;
			closed = true;
			break;
		}
		st = read_repeat(t, &part);
		if (st == ST_OK)
			syntax_add(t->s, *node, part);
	}
	if (st == ST_OK && search && !closed)
		syntax_add(t->s, *node, anything(t->s));
	return st == ST_OK ? syntax_check(t->s, t->err) : st;
}

static status read_any(struct syntax_text *t, bool search, uint32_t *node)
{
	uint32_t part = 0;
	status st;

	*node = syntax_node(t->s, SYNTAX_ANY);
	do {
		st = read_all(t, search, &part);
		if (st == ST_OK)
			syntax_add(t->s, *node, part);
	} while (st == ST_OK && syntax_eat(t, '|'));
	return st;
}

status regex_read(
	struct syntax *s, struct bytes text, bool search, uint32_t *node, struct err *err)
{
	struct syntax_text t = {.text = text, .s = s, .err = err};
	status st;

	if (utf8_valid_len(text) != text.len)
		return err_set(err, ST_INVALID, "it is not UTF-8");
	st = read_any(&t, search, node);
	if (st == ST_OK && t.at < text.len)
		st = syntax_refuse(&t, "')' without '('");
	return st == ST_OK ? syntax_check(s, err) : st;
}
