/* What an answer says, in the order in which it says it: reasoning, content, calls of
 * tools. Whoever reads the model's text appends; writers of dialects are shown each part
 * once (struct out_part). The parts are the same however the text was cut, but for how
 * many stand where one could: neighbours of one kind are joined until they are told. */
#ifndef ROUTER_PARTS_H
#define ROUTER_PARTS_H
#include "common/base/bytes.h"

enum part_kind {
	PART_REASONING, /* text */
	PART_CONTENT,   /* text */
	PART_CALL,      /* a call begins: id and name are known; no text */
	PART_ARGUMENTS, /* the next piece of the arguments' JSON */
	PART_CALL_END,  /* its arguments are whole, a JSON object; no text */
};

#define OUT_CALL_ID_BYTES 32u

/* One call. Its arguments are a JSON object only when it is complete: an answer that was
 * cut leaves them where they were. */
struct out_call {
	char id[OUT_CALL_ID_BYTES]; /* "call_" and 24 hexadecimal digits */
	struct bytes name;          /* of the request's tool_set */
	struct sink arguments;      /* all of them so far */
	bool complete;
};

/* As a writer sees it. Calls are numbered from 0 in their order; the parts of one are
 * never mixed with those of another, and text never stands inside of one. */
struct out_part {
	enum part_kind kind;
	struct bytes text;           /* not empty where there is one */
	uint32_t index;              /* of the call */
	const struct out_call *call; /* NULL: no part of a call */
};

/* All that stands together in an answer: a text of one kind, or a call. */
struct out_block {
	enum part_kind kind; /* PART_REASONING, PART_CONTENT or PART_CALL */
	struct bytes text;
	const struct out_call *call; /* of PART_CALL */
};

struct part {
	enum part_kind kind;
	uint32_t call;
	size_t at, len; /* in the text of its kind */
};

/* Request memory. */
struct parts {
	struct sink reasoning, content;
	struct part *v; /* not yet told */
	uint32_t n, cap;
	struct out_call *calls; /* all of the answer */
	uint32_t n_calls, cap_calls, n_complete;
	size_t text_max;
	bool full; /* something did not fit; parts_full says of all */
};

/* text_max bounds reasoning, content and the arguments of each call. */
void parts_init(struct parts *p, size_t text_max);
void parts_release(struct parts *p);
bool parts_full(const struct parts *p);

/* reasoning or content */
void parts_text(struct parts *p, enum part_kind kind, struct bytes text);
/* A call begins, its arguments go on, it is complete. name must outlive p. */
void parts_call(struct parts *p, struct bytes name);
void parts_arguments(struct parts *p, struct bytes json);
void parts_call_end(struct parts *p);

/* Part i of those that were not told yet; valid until the next change. */
struct out_part parts_get(const struct parts *p, uint32_t i);
/* All of them were told: texts are forgotten, calls stay. */
void parts_told(struct parts *p);
/* The block that begins with part *i of those that were not told yet, and *i behind it;
 * false: there is none. */
bool parts_block(const struct parts *p, uint32_t *i, struct out_block *block);

#endif
