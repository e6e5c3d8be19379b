/* Template, then tokenizer. */
#include "router/encode.h"

#include "common/base/mem.h"

#include <stdio.h>
#include <string.h>

/* Lives from encode_start until its last callback. */
struct encode {
	struct router *rt;
	encode_fn *fn; /* NULL: nobody waits */
	void *ctx;
	uint64_t ticket;   /* template under way; 0: none */
	void *storage;     /* mem_take; of text */
	struct bytes text; /* what the tokenizer reads */
	unsigned flags;
	char param[32];
	struct encode_result result;
	/* the tokenizer's */
	status st;
	struct err err;
};

static void destroy(struct encode *p)
{
	mem_give(p->storage);
	tok_ids_release(&p->result.ids);
	mem_give(p);
}

/* The last callback, and the end of p. */
static void deliver(struct encode *p)
{
	if (p->fn != NULL)
		p->fn(p->ctx, &p->result);
	destroy(p);
}

void encode_no_memory(struct router *rt, struct api_error *e)
{
	rt->metrics.limit[LIMIT_memory]++;
	api_error_set(e, 503, "overloaded", NULL,
		"The router has no memory left for this request.");
}

bool encode_takes_messages(const struct router *rt, struct api_error *e)
{
	if (rt->template == NULL)
		api_error_set(e, 400, "no_chat_template", "messages",
			"The model `%.200s` has no chat template: it takes a prompt, not "
			"messages.",
			rt->name[0]);
	return rt->template != NULL;
}

static void deliver_no_memory(struct encode *p)
{
	p->result.failed = true;
	encode_no_memory(p->rt, &p->result.error);
	deliver(p);
}

/* ---- tokenizer ---- */

static void work(void *ctx)
{
	struct encode *p = ctx;

	p->st = tokenizer_encode(
		p->rt->tokenizer, p->text, p->flags, &p->result.ids, &p->err);
	mem_give(p->storage);
	p->storage = NULL;
}

static void done(void *ctx)
{
	struct encode *p = ctx;

	if (p->st == ST_LIMIT) {
		p->result.too_long = true;
	} else if (p->st == ST_NOMEM) {
		deliver_no_memory(p);
		return;
	} else if (p->st != ST_OK) {
		p->result.failed = true;
		api_error_set(&p->result.error, 400, "invalid_value", p->param, "%s: %s",
			p->param, p->err.text);
	}
	deliver(p);
}

/* false: no memory for a job. */
static bool tokenize(struct encode *p)
{
	return loop_work(p->rt->loop, work, done, p) == ST_OK;
}

/* ---- template ---- */

static void set_template_error(struct encode *p, status code, const struct err *err)
{
	struct api_error *e = &p->result.error;

	p->result.failed = true;
	if (code == ST_CANCELLED)
		api_error_set(e, 400, "template_timeout", "messages",
			"The chat template took too long: %s", err->text);
	else if (code == ST_PEER)
		api_error_set(
			e, 500, "template_failed", NULL, "The template process died.");
	else
		api_error_set(e, 400, "invalid_value", "messages", "%s", err->text);
}

static void on_rendered(void *ctx, struct sink *frame, struct bytes text, status code,
	const struct err *err)
{
	struct encode *p = ctx;

	p->ticket = 0;
	if (code != ST_OK) {
		set_template_error(p, code, err);
		deliver(p);
		return;
	}
	p->result.mode = output_mode_of(text);
	p->storage = frame->at;
	p->text = text;
	*frame = (struct sink){0};
	if (!tokenize(p))
		deliver_no_memory(p);
}

/* false: *e says why not. */
static bool render(struct encode *p, const struct encode_source *s, struct api_error *e)
{
	struct err err;

	if (!encode_takes_messages(p->rt, e)) {
		mem_give(s->render);
		return false;
	}
	p->flags = TOK_ADDED | TOK_MASKED;
	if (template_render(p->rt->template, s->render, s->len, on_rendered, p,
		    &p->ticket, &err) == ST_OK)
		return true;
	p->rt->metrics.limit[LIMIT_queue]++;
	api_error_set(e, 503, "overloaded", NULL, "%s", err.text);
	return false;
}

static bool begin(struct encode *p, const struct encode_source *s, struct api_error *e)
{
	if (s->render != NULL)
		return render(p, s, e);
	p->flags = s->flags;
	p->storage = s->text;
	p->text = (struct bytes){(const uint8_t *)s->text, s->len};
	if (tokenize(p))
		return true;
	encode_no_memory(p->rt, e);
	return false;
}

struct encode *encode_start(struct router *rt, const struct encode_source *s,
	encode_fn *fn, void *ctx, struct api_error *e)
{
	struct encode *p = mem_take(1, sizeof(*p));

	if (p == NULL) {
		mem_give(s->render);
		mem_give(s->text);
		encode_no_memory(rt, e);
		return NULL;
	}
	p->rt = rt;
	p->fn = fn;
	p->ctx = ctx;
	snprintf(p->param, sizeof(p->param), "%s", s->param);
	tok_ids_init(&p->result.ids, ENCODE_IDS_MAX);
	if (begin(p, s, e))
		return p;
	destroy(p);
	return NULL;
}

void encode_stop(struct encode *p)
{
	p->fn = NULL;
	if (p->ticket == 0)
		return; /* with the tokenizer: done() frees it */
	template_cancel(p->rt->template, p->ticket);
	destroy(p);
}
