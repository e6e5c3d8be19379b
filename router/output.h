/* From tokens to what the client reads: token ids become text, stop strings cut it, and
 * the thinking part is told from the answer. The result is the same however the tokens
 * arrive in time.
 *
 * The split goes by token id, never by text: what stands before the first </think>
 * token is reasoning, what follows is content. One newline right before </think> and
 * all newlines right after it belong to neither. A <think> that the model itself writes
 * first is absorbed, and so is every further </think>. Stop strings are looked for in
 * the whole text, reasoning and tags included, as the decode worker does. */
#ifndef ROUTER_OUTPUT_H
#define ROUTER_OUTPUT_H
#include "common/base/bytes.h"
#include "common/model/detok.h"
#include "common/model/stop.h"
#include "common/model/tokenizer.h"
#include <stdbool.h>

enum output_mode {
	OUTPUT_RAW,       /* completions: everything is content, tags included */
	OUTPUT_CONTENT,   /* chat whose prompt closed the think block */
	OUTPUT_REASONING, /* chat whose prompt opened it */
};

/* A stretch of the raw text that is a tag, not text. */
struct output_tag {
	uint64_t begin, end;
	bool closes; /* </think>; else <think> */
};

/* Tags are at least 7 bytes, and less than STOP_BYTES_MAX + 4 bytes of text are held. */
#define OUTPUT_TAGS_MAX 64u

struct output {
	const struct tokenizer *t;
	enum output_mode mode;
	struct detok detok;
	struct stop stop;
	struct sink raw;                /* between detok and stop */
	struct sink safe;               /* between stop and split */
	struct sink reasoning, content; /* not yet taken by the caller */
	uint64_t fed;                   /* bytes of raw text so far */
	uint64_t split;                 /* bytes of it that passed the split */
	struct output_tag tag[OUTPUT_TAGS_MAX];
	uint32_t n_tags;
	bool thinking;             /* of the text at `split` */
	bool token_thinking;       /* of the next token */
	bool trim_lead;            /* newlines are dropped until something else comes */
	bool held_newline;         /* of reasoning */
	bool any;                  /* some text passed the split */
	int64_t id_open, id_close; /* -1: the tokenizer has no such token */
	uint32_t n_reasoning_tokens;
	bool keep_stop;    /* the stop string is part of the text */
	uint32_t n_unread; /* tokens to come whose text no stop string is looked for in */
};

/* The mode that a rendered chat prompt asks for. */
enum output_mode output_mode_of(struct bytes prompt);
/* stop must outlive o. text_max bounds what may wait untaken. */
void output_init(struct output *o, const struct tokenizer *t, enum output_mode mode,
	const struct stop_set *stop, size_t text_max);
/* Before the first token: special tokens are text. */
void output_show_special(struct output *o);
void output_release(struct output *o);
/* Text that is sure is appended to reasoning and content; the caller takes it and
 * resets those sinks. Returns the index of the stop string that ended the text, or -1. */
int output_feed(struct output *o, uint32_t id);
/* The end without a stop string: held text is text. */
void output_finish(struct output *o);

#endif
