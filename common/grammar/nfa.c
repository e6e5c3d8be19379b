/* Building automata, one edge at a time. */
#include "common/grammar/nfa.h"

#include "common/base/mem.h"

#define FIRST_CAP 64u

bool grammar_grow(void **at, uint32_t *cap, uint32_t need, uint32_t max, size_t size)
{
	uint32_t wanted = MAX(*cap, FIRST_CAP);
	void *grown;

	if (need <= *cap)
		return true;
	if (need > max)
		return false;
	while (wanted < need)
		wanted *= 2;
	grown = mem_regrow(*at, wanted * size);
	if (grown == NULL)
		return false;
	*at = grown;
	*cap = wanted;
	return true;
}

static bool room(
	struct nfa *n, void **at, uint32_t *cap, uint32_t need, uint32_t max, size_t size)
{
	if (n->full)
		return false;
	if (grammar_grow(at, cap, need, max, size))
		return true;
	n->full = true;
	n->why = need > max ? ST_LIMIT : ST_NOMEM;
	return false;
}

void nfa_release(struct nfa *n)
{
	mem_give(n->first);
	mem_give(n->edges);
	*n = (struct nfa){0};
}

uint32_t nfa_state(struct nfa *n)
{
	if (!room(n, (void **)&n->first, &n->cap_states, n->n_states + 1, GRAMMAR_NFA_MAX,
		    sizeof(*n->first)))
		return 0;
	n->first[n->n_states] = NFA_NONE;
	return n->n_states++;
}

static void add(struct nfa *n, uint32_t from, struct nfa_edge edge)
{
	if (!room(n, (void **)&n->edges, &n->cap_edges, n->n_edges + 1, GRAMMAR_EDGES_MAX,
		    sizeof(*n->edges)))
		return;
	edge.next = n->first[from];
	n->edges[n->n_edges] = edge;
	n->first[from] = n->n_edges++;
}

void nfa_empty(struct nfa *n, uint32_t from, uint32_t to)
{
	add(n, from, (struct nfa_edge){.to = to, .empty = true});
}

void nfa_bytes(struct nfa *n, uint32_t from, uint32_t to, uint8_t lo, uint8_t hi)
{
	add(n, from, (struct nfa_edge){.to = to, .lo = lo, .hi = hi});
}

uint32_t nfa_text(struct nfa *n, uint32_t from, struct bytes text)
{
	for (size_t i = 0; i < text.len && !n->full; i++) {
		uint32_t to = nfa_state(n);

		nfa_bytes(n, from, to, text.at[i], text.at[i]);
		from = to;
	}
	return from;
}

bool nfa_visit(struct nfa *n)
{
	if (!n->full && ++n->visits > GRAMMAR_WORK_MAX) {
		n->full = true;
		n->why = ST_LIMIT;
	}
	return !n->full;
}

status nfa_check(const struct nfa *n, struct err *err)
{
	if (!n->full)
		return ST_OK;
	if (n->why == ST_NOMEM)
		return err_set(err, ST_NOMEM, "no request memory for a grammar");
	return err_set(err, ST_LIMIT,
		"it is too complex: more than %u states or %u edges before they are "
		"merged",
		GRAMMAR_NFA_MAX, GRAMMAR_EDGES_MAX);
}
