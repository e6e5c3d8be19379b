/* Reads calls of tools out of the text of an answer, as it comes:
 *
 *     <tool_call>
 *     <function=NAME>
 *     <parameter=KEY>
 *     VALUE
 *     </parameter>
 *     </function>
 *     </tool_call>
 *
 * However the text is cut into pieces, the texts and arguments told are the same when
 * joined. A call begins only where a declared tool is named and a tag follows, outside of
 * fenced blocks and of code in a line; all other markup is text. The older form, a JSON
 * object in the wrapper, is read too (tool_text_json.c). Of a value one newline at each
 * end is dropped; it ends at the last </parameter> before the next tag of the call. A
 * closing tag that is missing is made up for where the next tag, or the end of the
 * answer, shows what was meant. */
#ifndef ROUTER_TOOL_TEXT_H
#define ROUTER_TOOL_TEXT_H
#include "router/tools.h"

struct tool_events {
	void (*text)(void *ctx, struct bytes text);
	/* A call: begin, arguments (pieces of one JSON object), end. One that the length
	 * cut has no end, and its object none either. */
	void (*begin)(void *ctx, const struct tool *tool);
	void (*arguments)(void *ctx, struct bytes json);
	void (*end)(void *ctx);
};

/* Where the text stands in Markdown. */
struct tool_code {
	uint32_t fence; /* marks of the block's first line; 0: in none */
	uint32_t span;  /* backticks that began the code in this line; 0: in none */
	uint32_t run;   /* marks just read */
	uint8_t fence_byte, run_byte;
	bool leads;   /* the run is the first of its line */
	bool started; /* the line has more than a margin */
	bool opening; /* in the block's first line */
	bool closing; /* in what may be its last line */
};

struct tool_text {
	const struct tool_set *set;
	const struct tool_events *on;
	void *ctx;
	struct sink pending; /* not told yet */
	struct sink made;    /* arguments of this turn */
	struct sink given;   /* names of this call, a zero behind each */
	size_t scanned;      /* of pending: no need to look there again */
	enum {
		TOOL_IN_TEXT,
		TOOL_IN_JSON,
		TOOL_IN_CALL,
		TOOL_IN_VALUE,
		TOOL_AFTER_CALL
	} state;
	struct tool_code code;
	size_t call_at, json_at; /* in pending: where the older form began, its object */
	uint32_t depth;          /* in the object */
	const struct tool *tool; /* of the call */
	const struct tool_param *param;
	unsigned types;   /* of the value */
	uint32_t n_given; /* parameters of this call */
	uint32_t n_calls; /* that began */
	bool streams;     /* the value is told as it comes */
	bool lead;        /* its first byte is to come */
	bool told;        /* a part of it was */
	bool drops;       /* the value is told to nobody: its name was there before */
	bool mute;        /* so is the call: one is enough */
	bool any_text;    /* something else than spaces was text */
	bool since_call;  /* so was something since the last call, if there is one */
	bool in_string, escaped; /* in the object */
	bool final, cut;
};

/* set and on outlive t. */
void tool_text_init(struct tool_text *t, const struct tool_set *set,
	const struct tool_events *on, void *ctx, size_t text_max);
void tool_text_release(struct tool_text *t);
/* Whole characters. */
void tool_text_feed(struct tool_text *t, struct bytes text);
/* cut: the answer was ended by its length, not by the model. */
void tool_text_finish(struct tool_text *t, bool cut);
bool tool_text_is_full(const struct tool_text *t);

#endif
