/* Merging states: a state of the result is the set of those that the same text leads to.
 * Bytes that no edge tells apart are one class. */
#include "common/grammar/dfa.h"

#include "common/base/hash.h"
#include "common/base/mem.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS (2u * GRAMMAR_STATES_MAX)

struct set {
	uint32_t first, n; /* of the pool */
};

struct merge {
	const struct nfa *nfa;
	struct grammar *g;
	uint32_t end;
	uint32_t *pool, n_pool, cap_pool;
	struct set *sets; /* [GRAMMAR_STATES_MAX] by number of the merged state */
	uint16_t *slots;  /* [SLOTS] by hash; 0: none */
	uint32_t *seen;   /* [nfa->n_states] number of the last closure that had it */
	uint32_t *stack, *made, *targets, *before; /* [nfa->n_states] */
	uint32_t n_made, closure, work;
	uint32_t cap_table;
	bool full, no_memory;
};

static status why_not(const struct merge *m, struct err *err)
{
	if (m->no_memory)
		return err_set(err, ST_NOMEM, "no request memory for a grammar");
	return err_set(err, ST_LIMIT,
		"it is too complex: more than %u states, or %u steps to make them",
		GRAMMAR_STATES_MAX, GRAMMAR_WORK_MAX);
}

static void find_classes(struct grammar *g, const struct nfa *n)
{
	bool begins[257] = {[0] = true};

	for (uint32_t i = 0; i < n->n_edges; i++)
		if (!n->edges[i].empty)
			begins[n->edges[i].lo] = begins[n->edges[i].hi + 1] = true;
	g->n_classes = 0;
	for (uint32_t b = 0; b < 256; b++) {
		g->n_classes += begins[b];
		g->class[b] = (uint8_t)(g->n_classes - 1);
	}
}

static void push(struct merge *m, uint32_t *n, uint32_t state)
{
	if (m->seen[state] == m->closure)
		return;
	m->seen[state] = m->closure;
	m->stack[(*n)++] = state;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Into `made`: what empty edges lead to. States that have none but such edges do not
 * matter for what comes next. */
static void close_set(struct merge *m, const uint32_t *from, uint32_t n_from)
{
	uint32_t n = 0;

	m->closure++;
	m->n_made = 0;
	for (uint32_t i = 0; i < n_from; i++)
		push(m, &n, from[i]);
	while (n > 0) {
		uint32_t state = m->stack[--n];
		bool matters = state == m->end;

		for (uint32_t e = m->nfa->first[state]; e != NFA_NONE;
			e = m->nfa->edges[e].next) {
			m->work++;
			if (m->nfa->edges[e].empty)
				push(m, &n, m->nfa->edges[e].to);
			else
				matters = true;
		}
		if (matters)
			m->made[m->n_made++] = state;
	}
	qsort(m->made, m->n_made, sizeof(*m->made), by_number);
}

static bool add_state(struct merge *m, uint32_t *slot)
{
	struct grammar *g = m->g;
	uint32_t state = g->n_states, cells = (state + 1) * g->n_classes;

	if (state == GRAMMAR_STATES_MAX || cells > GRAMMAR_TABLE_MAX ||
		m->n_made > GRAMMAR_SETS_MAX - m->n_pool) {
		m->full = true;
		return false;
	}
	if (!grammar_grow((void **)&m->pool, &m->cap_pool, m->n_pool + m->n_made,
		    2 * GRAMMAR_SETS_MAX, sizeof(*m->pool)) ||
		!grammar_grow((void **)&g->next, &m->cap_table, cells,
			2 * GRAMMAR_TABLE_MAX, sizeof(*g->next))) {
		m->full = m->no_memory = true;
		return false;
	}
	if (m->n_made > 0)
		memcpy(m->pool + m->n_pool, m->made, m->n_made * sizeof(*m->pool));
	m->sets[state] = (struct set){m->n_pool, m->n_made};
	m->n_pool += m->n_made;
	for (uint32_t i = 0; i < m->n_made; i++)
		g->complete[state] |= m->made[i] == m->end;
	memset(g->next + cells - g->n_classes, 0, g->n_classes * sizeof(*g->next));
	m->slots[*slot] = (uint16_t)state;
	g->n_states++;
	return true;
}

/* The merged state of `made`; GRAMMAR_DEAD when there was no room. */
static uint32_t state_of(struct merge *m)
{
	uint32_t slot =
		(uint32_t)(hash64(m->made, m->n_made * sizeof(*m->made), 0) % SLOTS);

	for (; m->slots[slot] != 0; slot = (slot + 1) % SLOTS) {
		const struct set *s = &m->sets[m->slots[slot]];

		if (s->n == m->n_made &&
			memcmp(m->pool + s->first, m->made, s->n * sizeof(*m->made)) == 0)
			return m->slots[slot];
	}
	return add_state(m, &slot) ? m->slots[slot] : GRAMMAR_DEAD;
}

/* Where one byte leads from the members of a state: into `targets`. */
static uint32_t list_targets(struct merge *m, struct set from, uint8_t byte)
{
	uint32_t n = 0;

	m->closure++;
	for (uint32_t i = 0; i < from.n; i++) {
		uint32_t e = m->nfa->first[m->pool[from.first + i]];

		for (; e != NFA_NONE; e = m->nfa->edges[e].next) {
			const struct nfa_edge *edge = &m->nfa->edges[e];

			m->work++;
			if (edge->empty || byte < edge->lo || byte > edge->hi ||
				m->seen[edge->to] == m->closure)
				continue;
			m->seen[edge->to] = m->closure;
			m->targets[n++] = edge->to;
		}
	}
	return n;
}

static void follow(struct merge *m, uint32_t state)
{
	uint32_t n_before = 0, to = GRAMMAR_DEAD;

	for (uint32_t b = 0; b < 256 && !m->full; b++) {
		uint32_t c = m->g->class[b], n;

		if (b > 0 && c == m->g->class[b - 1])
			continue;
		n = list_targets(m, m->sets[state], (uint8_t)b);
		if (n == 0)
			continue;
		if (n != n_before ||
			memcmp(m->targets, m->before, n * sizeof(*m->before)) != 0) {
			close_set(m, m->targets, n);
			to = state_of(m);
			memcpy(m->before, m->targets, n * sizeof(*m->before));
			n_before = n;
		}
		m->g->next[state * m->g->n_classes + c] = (uint16_t)to;
		m->full |= m->work > GRAMMAR_WORK_MAX;
	}
}

static bool take(struct merge *m)
{
	uint32_t n = m->nfa->n_states;

	m->sets = mem_take(GRAMMAR_STATES_MAX, sizeof(*m->sets));
	m->slots = mem_take(SLOTS, sizeof(*m->slots));
	m->g->complete = mem_take(GRAMMAR_STATES_MAX, sizeof(*m->g->complete));
	m->seen = mem_take(n, sizeof(*m->seen));
	m->stack = mem_take(n, sizeof(*m->stack));
	m->made = mem_take(n, sizeof(*m->made));
	m->targets = mem_take(n, sizeof(*m->targets));
	m->before = mem_take(n, sizeof(*m->before));
	m->no_memory = m->sets == NULL || m->slots == NULL || m->g->complete == NULL ||
		       m->seen == NULL || m->stack == NULL || m->made == NULL ||
		       m->targets == NULL || m->before == NULL;
	return !m->no_memory;
}

static void give(struct merge *m)
{
	mem_give(m->pool);
	mem_give(m->sets);
	mem_give(m->slots);
	mem_give(m->seen);
	mem_give(m->stack);
	mem_give(m->made);
	mem_give(m->targets);
	mem_give(m->before);
}

status dfa_make(struct grammar *g, const struct nfa *n, uint32_t start, uint32_t end,
	struct err *err)
{
	struct merge m = {.nfa = n, .g = g, .end = end};
	uint32_t none = 0;

	find_classes(g, n);
	m.full = !take(&m);
	if (!m.full && add_state(&m, &none)) { /* GRAMMAR_DEAD */
		m.slots[none] = 0;
		close_set(&m, &start, 1);
		g->start = state_of(&m);
	}
	for (uint32_t i = 1; !m.full && i < g->n_states; i++)
		follow(&m, i);
	give(&m);
	return m.full ? why_not(&m, err) : ST_OK;
}
