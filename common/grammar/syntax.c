/* Trees of expressions. */
#include "common/grammar/syntax.h"

#include "common/base/mem.h"
#include "common/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>

void syntax_release(struct syntax *s)
{
	mem_give(s->nodes);
	mem_give(s->ranges);
	*s = (struct syntax){0};
}

static bool room(struct syntax *s, void **at, uint32_t *cap, uint32_t need, size_t size)
{
	if (s->full || s->no_memory)
		return false;
	if (grammar_grow(at, cap, need, SYNTAX_NODES_MAX, size))
		return true;
	s->full = need > SYNTAX_NODES_MAX;
	s->no_memory = !s->full;
	return false;
}

uint32_t syntax_node(struct syntax *s, enum syntax_kind kind)
{
	if (!room(s, (void **)&s->nodes, &s->cap_nodes, s->n_nodes + 1,
		    sizeof(*s->nodes)))
		return 0;
	s->nodes[s->n_nodes] = (struct syntax_node){.part = NFA_NONE,
		.last = NFA_NONE,
		.next = NFA_NONE,
		.kind = (uint8_t)kind};
	return s->n_nodes++;
}

uint32_t syntax_set(struct syntax *s, const struct charset *set)
{
	uint32_t node = syntax_node(s, SYNTAX_SET);

	if (set->full)
		s->full = true;
	if (!room(s, (void **)&s->ranges, &s->cap_ranges, s->n_ranges + set->n,
		    sizeof(*s->ranges)))
		return 0;
	s->nodes[node].set = s->n_ranges;
	s->nodes[node].n_set = set->n;
	s->nodes[node].json = s->json;
	for (uint32_t i = 0; i < set->n; i++)
		s->ranges[s->n_ranges++] = set->r[i];
	return node;
}

uint32_t syntax_char(struct syntax *s, uint32_t c)
{
	struct charset set = {.n = 0};

	charset_add(&set, c, c);
	charset_normalize(&set);
	return syntax_set(s, &set);
}

uint32_t syntax_same(struct syntax *s, uint32_t same)
{
	uint32_t node = syntax_node(s, SYNTAX_SAME);

	if (!s->full && !s->no_memory)
		s->nodes[node].same = same;
	return node;
}

uint32_t syntax_literal(struct syntax *s, struct bytes text)
{
	uint32_t node = syntax_node(s, SYNTAX_ALL);
	const uint8_t *p = text.at;

	while (p < text.at + text.len && !s->full && !s->no_memory)
		syntax_add(s, node, syntax_char(s, utf8_next(&p)));
	return node;
}

uint32_t syntax_repeat(struct syntax *s, uint32_t part, uint32_t min, uint32_t max)
{
	uint32_t node = syntax_node(s, SYNTAX_REPEAT);

	if (s->full || s->no_memory)
		return 0;
	s->nodes[node].min = min;
	s->nodes[node].max = max;
	syntax_add(s, node, part);
	return node;
}

void syntax_add(struct syntax *s, uint32_t to, uint32_t part)
{
	struct syntax_node *n;

	if (s->full || s->no_memory)
		return;
	n = &s->nodes[to];
	if (n->last == NFA_NONE)
		n->part = part;
	else
		s->nodes[n->last].next = part;
	n->last = part;
}

status syntax_check(const struct syntax *s, struct err *err)
{
	if (s->no_memory)
		return err_set(err, ST_NOMEM, "no request memory for a grammar");
	if (s->full)
		return err_set(err, ST_LIMIT,
			"it is too complex: more than %u parts, or a class of more than "
			"%u ranges",
			SYNTAX_NODES_MAX, CHARSET_RANGES_MAX);
	return ST_OK;
}

/* ---- to automata ---- */

static uint32_t put_set(
	const struct syntax *s, const struct syntax_node *x, struct nfa *n, uint32_t from)
{
	struct charset set = {.n = 0};
	uint32_t to = nfa_state(n);

	for (uint32_t i = 0; i < x->n_set; i++)
		set.r[set.n++] = s->ranges[x->set + i];
	charset_put(n, from, to, &set, x->json ? CHAR_JSON : CHAR_PLAIN);
	return to;
}

static uint32_t put_any(
	const struct syntax *s, const struct syntax_node *x, struct nfa *n, uint32_t from)
{
	uint32_t to = nfa_state(n);

	for (uint32_t p = x->part; p != NFA_NONE; p = s->nodes[p].next)
		nfa_empty(n, syntax_put(s, p, n, from), to);
	return to;
}

static uint32_t put_repeat(
	const struct syntax *s, const struct syntax_node *x, struct nfa *n, uint32_t from)
{
	uint32_t to;

	for (uint32_t i = 0; i < x->min && !n->full; i++)
		from = syntax_put(s, x->part, n, from);
	to = nfa_state(n);
	nfa_empty(n, from, to);
	if (x->max == NFA_NO_MAX) {
		/* From a state of its own, which nothing else leads back to. */
		from = nfa_state(n);
		nfa_empty(n, to, from);
		nfa_empty(n, syntax_put(s, x->part, n, from), to);
		return to;
	}
	for (uint32_t i = x->min; i < x->max && !n->full; i++) {
		from = syntax_put(s, x->part, n, from);
		nfa_empty(n, from, to);
	}
	return to;
}

/* A comma, and the space that may follow it. */
static void put_comma(struct nfa *n, uint32_t from, uint32_t to)
{
	uint32_t comma = nfa_text(n, from, BYTES_STR(","));

	nfa_empty(n, comma, to);
	nfa_bytes(n, comma, to, ' ', ' ');
}

static uint32_t put_many(
	const struct syntax *s, const struct syntax_node *x, struct nfa *n, uint32_t from)
{
	uint32_t enter = nfa_state(n), behind = nfa_state(n);

	nfa_empty(n, from, enter);
	nfa_empty(n, syntax_put(s, x->part, n, enter), behind);
	put_comma(n, behind, enter);
	return behind;
}

/* Two ways through the parts, before and behind the first that is there, share each of
 * them. */
static uint32_t put_list(
	const struct syntax *s, const struct syntax_node *x, struct nfa *n, uint32_t from)
{
	uint32_t first = from, later = NFA_NONE, to = nfa_state(n);

	for (uint32_t p = x->part; p != NFA_NONE && !n->full; p = s->nodes[p].next) {
		uint32_t enter = nfa_state(n), behind = nfa_state(n);
		bool optional = s->nodes[p].optional;

		if (first != NFA_NONE)
			nfa_empty(n, first, enter);
		if (later != NFA_NONE) {
			put_comma(n, later, enter);
			if (optional)
				nfa_empty(n, later, behind);
		}
		nfa_empty(n, syntax_put(s, p, n, enter), behind);
		if (!optional)
			first = NFA_NONE;
		later = behind;
	}
	if (first != NFA_NONE)
		nfa_empty(n, first, to);
	if (later != NFA_NONE)
		nfa_empty(n, later, to);
	return to;
}

uint32_t syntax_put(const struct syntax *s, uint32_t node, struct nfa *n, uint32_t from)
{
	const struct syntax_node *x = &s->nodes[node];

	if (!nfa_visit(n))
		return 0;
	switch ((enum syntax_kind)x->kind) {
	case SYNTAX_ALL:
		for (uint32_t p = x->part; p != NFA_NONE; p = s->nodes[p].next)
			from = syntax_put(s, p, n, from);
		return from;
	case SYNTAX_ANY:
		return put_any(s, x, n, from);
	case SYNTAX_SET:
		return put_set(s, x, n, from);
	case SYNTAX_SAME:
		return syntax_put(s, x->same, n, from);
	case SYNTAX_REPEAT:
		return put_repeat(s, x, n, from);
	case SYNTAX_MANY:
		return put_many(s, x, n, from);
	case SYNTAX_LIST:
		return put_list(s, x, n, from);
	}
	return from;
}

/* ---- text ---- */

uint32_t syntax_peek(const struct syntax_text *t)
{
	const uint8_t *p = t->text.at + t->at;

	return t->at < t->text.len ? utf8_next(&p) : 0;
}

uint32_t syntax_take(struct syntax_text *t)
{
	const uint8_t *p = t->text.at + t->at;
	uint32_t c;

	if (t->at >= t->text.len)
		return 0;
	c = utf8_next(&p);
	t->at = (size_t)(p - t->text.at);
	return c;
}

bool syntax_eat(struct syntax_text *t, char c)
{
	if (t->at >= t->text.len || t->text.at[t->at] != (uint8_t)c)
		return false;
	t->at++;
	return true;
}

status syntax_refuse(struct syntax_text *t, const char *fmt, ...)
{
	char what[200];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	return err_set(t->err, ST_INVALID, "at byte %zu: %s", t->at, what);
}

static status read_count(struct syntax_text *t, uint32_t *out)
{
	uint32_t v = 0;
	size_t began = t->at;

	while (t->at < t->text.len && t->text.at[t->at] >= '0' &&
		t->text.at[t->at] <= '9') {
		v = v * 10 + (uint32_t)(t->text.at[t->at++] - '0');
		if (v > SYNTAX_REPEAT_MAX)
			return syntax_refuse(
				t, "a count above %u", (uint32_t)SYNTAX_REPEAT_MAX);
	}
	if (t->at == began)
		return syntax_refuse(t, "a count was expected");
	*out = v;
	return ST_OK;
}

status syntax_bounds(struct syntax_text *t, uint32_t *min, uint32_t *max)
{
	status st = ST_OK;

	*min = 0;
	if (syntax_peek(t) != ',')
		st = read_count(t, min);
	*max = *min;
	if (st == ST_OK && syntax_eat(t, ',')) {
		*max = NFA_NO_MAX;
		if (syntax_peek(t) != '}')
			st = read_count(t, max);
	}
	if (st != ST_OK)
		return st;
	if (!syntax_eat(t, '}'))
		return syntax_refuse(t, "'}' was expected");
	return *max < *min ? syntax_refuse(t, "{%u,%u} is empty", *min, *max) : ST_OK;
}

status syntax_hex(struct syntax_text *t, uint32_t digits, uint32_t *c)
{
	uint32_t v = 0;

	for (uint32_t i = 0; i < digits; i++) {
		uint32_t d = syntax_take(t);

		if (d >= '0' && d <= '9')
			d -= '0';
		else if ((d | 0x20) >= 'a' && (d | 0x20) <= 'f')
			d = (d | 0x20) - 'a' + 10;
		else
			return syntax_refuse(
				t, "%u hexadecimal digits were expected", digits);
		v = v * 16 + d;
	}
	if (v > CHARSET_LAST || (v >= 0xD800 && v <= 0xDFFF))
		return syntax_refuse(t, "U+%04X is no character", v);
	*c = v;
	return ST_OK;
}
