/* Chat templates: jinja2 in supervised child processes, because that is the engine the
 * templates are written for. A child that is slow, dies or runs out of memory costs
 * the request it was rendering and nothing else.
 *
 * Who does what to the messages:
 *   api_chat.c   checks them and adapts OpenAI's forms (developer -> system, several
 *                system messages -> one in front, reasoning -> reasoning_content,
 *                arguments parsed to objects, null content -> "", parts joined)
 *   the child    masks added tokens in every string of messages, tools and kwargs
 *                (tokenizer.h), then renders as Hugging Face does. In content and
 *                reasoning of an assistant only special ones: templates look for
 *                </think> there. Anywhere else a tag that is spelled is text to the
 *                template too.
 * The result is masked text: encode it with TOK_ADDED | TOK_MASKED. */
#ifndef ROUTER_TEMPLATE_H
#define ROUTER_TEMPLATE_H
#include "common/base/bytes.h"
#include "common/base/err.h"
#include "common/loop/loop.h"
#include "common/model/tokenizer.h"
#include <stdint.h>

struct template_options {
	struct loop *loop;
	const char *python;            /* NULL or "": /usr/bin/python3 */
	const char *model_dir;         /* chat_template.jinja, tokenizer_config.json */
	const char *template_path;     /* instead of the model's own; NULL or "": none */
	const struct tok_added *added; /* tokenizer_added; read in create only */
	size_t n_added;
	uint64_t memory_bytes; /* RLIMIT_AS of a child; 0: 1 GiB */
	uint32_t children;     /* 0: 2 */
	/* What a render may compute, and a second for each MiB of messages; then the
	 * child is killed. Time in which it waits, in the queue or for a core, is none.
	 * 0: 2000 */
	uint32_t render_ms;
	uint32_t queue_max; /* renders waiting; 0: 256 */
};

struct template;

/* Reads and compiles the template in a first child, waiting for it (at most 10 s).
 * ST_OK with *out = NULL: the model has no template, which is logged.
 * ST_INVALID: the template does not compile; ST_IO: python or jinja2 cannot be started.
 * The text is the child's own. */
MUST_CHECK status template_create(
	struct template **out, const struct template_options *options, struct err *err);
/* Kills the children. Pending renders are dropped, their callbacks not called. */
void template_destroy(struct template *t);

/* text: rendered and masked, somewhere in frame, whose storage (mem_take) the callback
 * may take by zeroing the struct; with an error frame is NULL and text has no bytes.
 *   ST_INVALID    the template refused the messages: 400 with err->text
 *   ST_CANCELLED  over render_ms: the child was killed; 400, it would be so again
 *   ST_LIMIT      the child ran out of memory; 400
 *   ST_PEER       the child died; 500
 * err is NULL when the code is ST_OK. Never called from inside template_render. */
typedef void template_fn(void *ctx, struct sink *frame, struct bytes text, status code,
	const struct err *err);

/* request: JSON object {"messages": [...], "kwargs": {...},
 * "add_generation_prompt": bool, "tools": [...] or absent}, len bytes from mem_take,
 * taken in any case. ST_LIMIT: the queue is full. *ticket (never 0) can withdraw it. */
MUST_CHECK status template_render(struct template *t, char *request, size_t len,
	template_fn *fn, void *ctx, uint64_t *ticket, struct err *err);
/* fn is not called after this. A ticket that is done is ignored. */
void template_cancel(struct template *t, uint64_t ticket);

uint32_t template_alive(const struct template *t);    /* children ready or busy */
uint64_t template_restarts(const struct template *t); /* for metrics */
uint32_t template_queued(const struct template *t);

#endif
