/* Regular expressions and schemas as trees, and trees as automata. Private to
 * this folder. */
#ifndef COMMON_GRAMMAR_SYNTAX_H
#define COMMON_GRAMMAR_SYNTAX_H
#include "common/grammar/charset.h"

#define SYNTAX_REPEAT_MAX 65535u
#define SYNTAX_NODES_MAX  (1u << 16)

enum syntax_kind {
	SYNTAX_ALL,    /* its parts one after the other; none: the empty text */
	SYNTAX_ANY,    /* one of its parts */
	SYNTAX_SET,    /* a character */
	SYNTAX_SAME,   /* another node once more */
	SYNTAX_REPEAT, /* its part, min to max times */
	SYNTAX_MANY,   /* its part once or more, with commas between */
	SYNTAX_LIST,   /* its parts with commas between; those that may be left out are
			  `optional` */
};

struct syntax_node {
	uint32_t part;       /* the first; NFA_NONE: none */
	uint32_t last;       /* of the parts */
	uint32_t next;       /* of the same parent */
	uint32_t min, max;   /* REPEAT; max NFA_NO_MAX: without end */
	uint32_t set, n_set; /* SET: ranges */
	uint32_t same;       /* SAME */
	uint8_t kind;
	bool json;     /* SET: inside of a JSON string */
	bool optional; /* of the list that it is a part of */
};

struct syntax {
	struct syntax_node *nodes;
	struct char_range *ranges;
	uint32_t n_nodes, n_ranges, cap_nodes, cap_ranges;
	bool no_memory, full;
	bool json; /* of the sets that are added */
};

void syntax_release(struct syntax *s);
/* Each returns a node; once something did not fit, node 0. */
uint32_t syntax_node(struct syntax *s, enum syntax_kind kind);
uint32_t syntax_set(struct syntax *s, const struct charset *set);
uint32_t syntax_char(struct syntax *s, uint32_t c);
uint32_t syntax_same(struct syntax *s, uint32_t node);
/* Characters one after the other. */
uint32_t syntax_literal(struct syntax *s, struct bytes text);
uint32_t syntax_repeat(struct syntax *s, uint32_t part, uint32_t min, uint32_t max);
void syntax_add(struct syntax *s, uint32_t to, uint32_t part);
MUST_CHECK status syntax_check(const struct syntax *s, struct err *err);
/* Builds the tree from a state; returns where it ends. Trees nest no deeper than
 * a few times GRAMMAR_NEST_MAX. */
uint32_t syntax_put(const struct syntax *s, uint32_t node, struct nfa *n, uint32_t from);

/* Text that is being read. */
struct syntax_text {
	struct bytes text;
	size_t at;
	struct syntax *s;
	uint32_t depth;
	struct err *err;
};
/* The character at the place; 0 at the end. */
uint32_t syntax_peek(const struct syntax_text *t);
uint32_t syntax_take(struct syntax_text *t);
bool syntax_eat(struct syntax_text *t, char c);
/* "{3,5}" and its like behind the brace: the bounds. */
MUST_CHECK status syntax_bounds(struct syntax_text *t, uint32_t *min, uint32_t *max);
/* So many hexadecimal digits, a character. */
MUST_CHECK status syntax_hex(struct syntax_text *t, uint32_t digits, uint32_t *c);
/* "at byte 17: ..." */
status syntax_refuse(struct syntax_text *t, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* regex.c: the language of texts that the expression matches; search: of texts in which
 * it is found. */
MUST_CHECK status regex_read(struct syntax *s, struct bytes text, bool search,
	uint32_t *node, struct err *err);
/* schema.c: JSON texts that the schema allows. */
struct json;
MUST_CHECK status schema_read(
	struct syntax *s, const struct json *schema, uint32_t *node, struct err *err);

#endif
