/* What an answer may look like: a JSON schema, a regular expression or a list of texts
 * becomes one finite automaton over bytes. A compiled grammar is immutable: any number
 * of threads may step through it. What is not understood is refused by name, and no text
 * costs more than the bounds below.
 *
 * Whatever the automaton lets through is an answer of the language; it need not let
 * through all of them (README.md says where it is narrower). Every text that it has let
 * through so far can be completed. */
#ifndef COMMON_GRAMMAR_GRAMMAR_H
#define COMMON_GRAMMAR_GRAMMAR_H
#include "common/base/bytes.h"
#include "common/base/err.h"
#include <stdbool.h>
#include <stdint.h>

/* Bounds of one grammar: about 100 ms and 16 MiB while it is made, 2 MiB afterwards. */
#define GRAMMAR_TEXT_MAX   (64u << 10) /* bytes of its text */
#define GRAMMAR_NEST_MAX   32u         /* groups in groups, lists in objects */
#define GRAMMAR_FREE_MAX   4u          /* levels of JSON that no schema describes */
#define GRAMMAR_STATES_MAX (1u << 14)
#define GRAMMAR_TABLE_MAX  (1u << 20) /* states times classes of bytes */
#define GRAMMAR_NFA_MAX    (1u << 17) /* states before they are merged */
#define GRAMMAR_EDGES_MAX  (1u << 18)
#define GRAMMAR_SETS_MAX   (1u << 20) /* members of merged states, in all */
#define GRAMMAR_WORK_MAX   (1u << 21) /* edges looked at */

enum grammar_kind {
	GRAMMAR_NONE,
	GRAMMAR_SCHEMA, /* a JSON schema */
	GRAMMAR_REGEX,  /* all of the answer matches it */
	GRAMMAR_CHOICE, /* a JSON list of strings */
	GRAMMAR__KINDS,
};

/* The state of no text of the language. */
#define GRAMMAR_DEAD 0u

struct grammar {
	uint16_t *next;     /* [n_states][n_classes] */
	uint8_t *complete;  /* [n_states] the text may end here */
	uint8_t class[256]; /* of a byte */
	uint32_t n_states, n_classes, start;
};

/* ST_INVALID: the text, with what is wrong; ST_LIMIT: it is beyond a bound; ST_NOMEM: no
 * request memory. On any thread. */
MUST_CHECK status grammar_compile(
	struct grammar **out, enum grammar_kind kind, struct bytes text, struct err *err);
void grammar_destroy(struct grammar *g); /* NULL: nothing */

static inline uint32_t grammar_step(const struct grammar *g, uint32_t state, uint8_t byte)
{
	return g->next[state * g->n_classes + g->class[byte]];
}
/* Of a text from the start; GRAMMAR_DEAD: nothing of the language begins so. */
uint32_t grammar_walk(const struct grammar *g, uint32_t state, struct bytes text);

#endif
