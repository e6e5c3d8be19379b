/* From a text to its automaton. */
#include "common/grammar/grammar.h"

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/grammar/dfa.h"
#include "common/grammar/syntax.h"

static const struct json_limits limits = {.depth_max = 128, .values_max = 1u << 16};

static status choice_tree(
	struct syntax *s, const struct json *list, uint32_t *node, struct err *err)
{
	if (!json_is(list, JSON_ARRAY) || json_count(list) == 0)
		return err_set(err, ST_INVALID, "it is no list of texts");
	*node = syntax_node(s, SYNTAX_ANY);
	json_each(item, list)
	{
		if (!json_is(item, JSON_STRING))
			return err_set(err, ST_INVALID, "it is no list of texts");
		syntax_add(s, *node, syntax_literal(s, json_bytes(item)));
	}
	return ST_OK;
}

static status read_json(struct syntax *s, enum grammar_kind kind, struct bytes text,
	uint32_t *node, struct err *err)
{
	struct json_doc doc = {.values = NULL};
	uint8_t *copy = (uint8_t *)mem_dup(text.at, text.len);
	status st;

	if (copy == NULL)
		return err_set(err, ST_NOMEM, "no request memory for a grammar");
	st = json_read(&doc, copy, text.len, &limits, err);
	if (st == ST_OK && kind == GRAMMAR_CHOICE)
		st = choice_tree(s, doc.values, node, err);
	else if (st == ST_OK)
		st = schema_read(s, doc.values, node, err);
	json_release(&doc);
	mem_give(copy);
	return st;
}

static status read_tree(struct syntax *s, enum grammar_kind kind, struct bytes text,
	uint32_t *node, struct err *err)
{
	status st;

	if (text.len > GRAMMAR_TEXT_MAX)
		return err_set(err, ST_LIMIT, "it has %zu bytes, at most %u are taken",
			text.len, GRAMMAR_TEXT_MAX);
	if (kind == GRAMMAR_REGEX)
		st = regex_read(s, text, false, node, err);
	else
		st = read_json(s, kind, text, node, err);
	return st == ST_OK ? syntax_check(s, err) : st;
}

static status make(
	struct grammar *g, const struct syntax *s, uint32_t node, struct err *err)
{
	struct nfa n = {.n_states = 0};
	uint32_t start = nfa_state(&n), end = nfa_state(&n);
	status st;

	nfa_empty(&n, syntax_put(s, node, &n, start), end);
	st = nfa_check(&n, err);
	if (st == ST_OK)
		st = dfa_make(g, &n, start, end, err);
	nfa_release(&n);
	return st;
}

status grammar_compile(
	struct grammar **out, enum grammar_kind kind, struct bytes text, struct err *err)
{
	struct syntax s = {.nodes = NULL};
	struct grammar *g = NULL;
	uint32_t node = 0;
	status st = read_tree(&s, kind, text, &node, err);

	if (st == ST_OK) {
		g = mem_take(1, sizeof(*g));
		st = g == NULL ? err_set(err, ST_NOMEM, "no request memory for a grammar")
			       : make(g, &s, node, err);
	}
	syntax_release(&s);
	if (st == ST_OK)
		*out = g;
	else
		grammar_destroy(g);
	return st;
}

void grammar_destroy(struct grammar *g)
{
	if (g == NULL)
		return;
	mem_give(g->next);
	mem_give(g->complete);
	mem_give(g);
}

uint32_t grammar_walk(const struct grammar *g, uint32_t state, struct bytes text)
{
	for (size_t i = 0; i < text.len && state != GRAMMAR_DEAD; i++)
		state = grammar_step(g, state, text.at[i]);
	return state;
}
