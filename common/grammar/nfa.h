/* An automaton over bytes with empty edges, under construction. Private to this folder.
 * What does not fit into the bounds sets `full`, and everything after it is dropped:
 * callers look once, at the end. */
#ifndef COMMON_GRAMMAR_NFA_H
#define COMMON_GRAMMAR_NFA_H
#include "common/base/bytes.h"
#include "common/base/err.h"
#include "common/grammar/grammar.h"
#include <stdbool.h>
#include <stdint.h>

#define NFA_NONE   UINT32_MAX
#define NFA_NO_MAX UINT32_MAX

struct nfa_edge {
	uint32_t next; /* of the same state; NFA_NONE: the last */
	uint32_t to;
	uint8_t lo, hi; /* of the byte */
	bool empty;     /* takes none */
};

struct nfa {
	uint32_t *first; /* [n_states] an edge of each */
	struct nfa_edge *edges;
	uint32_t n_states, n_edges;
	uint32_t cap_states, cap_edges;
	uint32_t visits; /* of parts of trees; one may make no state */
	bool full;
	status why; /* of full: ST_LIMIT or ST_NOMEM */
};

void nfa_release(struct nfa *n);
uint32_t nfa_state(struct nfa *n);
void nfa_empty(struct nfa *n, uint32_t from, uint32_t to);
void nfa_bytes(struct nfa *n, uint32_t from, uint32_t to, uint8_t lo, uint8_t hi);
/* These bytes; returns where they end. */
uint32_t nfa_text(struct nfa *n, uint32_t from, struct bytes text);
/* A part is put once more: false once that were too many. */
bool nfa_visit(struct nfa *n);
/* ST_OK, or why it is full. */
MUST_CHECK status nfa_check(const struct nfa *n, struct err *err);

/* An array that doubles, from request memory; false: no memory, or it has max. */
MUST_CHECK bool grammar_grow(
	void **at, uint32_t *cap, uint32_t need, uint32_t max, size_t size);

#endif
