/* States of an automaton with empty edges are merged until each has one successor for
 * every byte. Private to this folder. */
#ifndef COMMON_GRAMMAR_DFA_H
#define COMMON_GRAMMAR_DFA_H
#include "common/grammar/nfa.h"

/* Into *g, which is zeroed; its arrays are the caller's to give back, also of a failure.
 * Every state of n must lead to end, which has no edges. */
MUST_CHECK status dfa_make(struct grammar *g, const struct nfa *n, uint32_t start,
	uint32_t end, struct err *err);

#endif
