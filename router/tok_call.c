/* Texts to ids and ids to text, both on the pool: either may be a million tokens long. */
#include "router/tok_call.h"

#include "common/base/mem.h"
#include "common/model/detok.h"
#include "router/api_out.h"
#include "router/encode.h"
#include "router/reply.h"

#include <inttypes.h>

#define ANSWER_BYTES_MAX (64u << 20)

/* Read by a job on the pool, then encoded, then written by a job on the pool. */
struct tok_call {
	struct served served; /* first: what http_user points to */
	struct router *rt;
	struct http_req *req; /* NULL: the client left, or has its answer */
	struct sink body, out;
	bool (*parse)(struct tok_request *req, struct sink *body,
		const struct api_options *options, struct api_error *e);
	struct tok_request tok;
	struct encode *encode; /* NULL: not under way */
	struct tok_ids ids;
	uint64_t len_max;
	bool failed; /* error says why */
	struct api_error error;
};

/* ---- both ---- */

static bool model_is_served(
	const struct router *rt, const char *model, struct api_error *e)
{
	if (router_model_name(rt, model) != NULL)
		return true;
	api_error_set(e, 404, "model_not_found", "model",
		"The model `%.200s` does not exist.", model);
	return false;
}

/* false: it was answered why not. */
static bool may_begin(struct router *rt, struct http_req *req)
{
	struct api_error e;

	if (!rt->draining)
		return true;
	api_error_set(&e, 503, "draining", NULL, "This router is shutting down.");
	reply_error(rt, req, &e, false);
	return false;
}

static void reply_no_memory(struct router *rt, struct http_req *req)
{
	struct api_error e;

	encode_no_memory(rt, &e);
	reply_error(rt, req, &e, false);
}

/* ---- to ids ---- */

static void destroy(struct tok_call *t)
{
	if (t->req != NULL)
		http_set_user(t->req, NULL);
	tok_request_release(&t->tok);
	tok_ids_release(&t->ids);
	sink_release(&t->body);
	sink_release(&t->out);
	mem_give(t);
}

static void fail(struct tok_call *t, const struct api_error *e)
{
	if (t->req != NULL)
		reply_error(t->rt, t->req, e, false);
	destroy(t);
}

static void fail_memory(struct tok_call *t)
{
	struct api_error e;

	encode_no_memory(t->rt, &e);
	fail(t, &e);
}

/* A job goes on, and what comes of it is dropped. */
static void gone(struct served *s)
{
	struct tok_call *t = (struct tok_call *)s;
	bool encodes = t->encode != NULL;

	http_set_user(t->req, NULL);
	t->req = NULL;
	if (encodes) {
		encode_stop(t->encode);
		destroy(t);
	}
}

static void cut(struct served *s, const struct api_error *e)
{
	struct tok_call *t = (struct tok_call *)s;

	reply_error(t->rt, t->req, e, false);
	gone(s);
}

static void write_work(void *ctx)
{
	struct tok_call *t = ctx;
	const struct tokenizer *tokenizer = t->rt->tokenizer;
	struct bytes *pieces = NULL;

	if (t->tok.with_pieces)
		pieces = mem_take(t->ids.n + 1, sizeof(*pieces));
	for (size_t i = 0; pieces != NULL && i < t->ids.n; i++)
		pieces[i] = tokenizer_token_bytes(tokenizer, t->ids.v[i]);
	if (!t->tok.with_pieces || pieces != NULL)
		out_tokens(&t->out, t->tok.shape, t->ids.v, t->ids.n, pieces, t->len_max);
	mem_give(pieces);
}

static void write_done(void *ctx)
{
	struct tok_call *t = ctx;

	if (t->out.full || t->out.len == 0) {
		fail_memory(t);
		return;
	}
	if (t->req != NULL)
		reply_json(t->req, 200, &t->out);
	destroy(t);
}

static void on_encoded(void *ctx, struct encode_result *result)
{
	struct tok_call *t = ctx;
	struct api_error e;

	t->encode = NULL;
	if (result->too_long) {
		api_error_set(&e, 400, "invalid_value", NULL,
			"The text has more than %u tokens.", ENCODE_IDS_MAX);
		fail(t, &e);
	} else if (result->failed) {
		fail(t, &result->error);
	} else {
		t->ids = result->ids;
		result->ids = (struct tok_ids){0};
		t->len_max = router_len_max(t->rt);
		if (loop_work(t->rt->loop, write_work, write_done, t) != ST_OK)
			fail_memory(t);
	}
}

static void read_work(void *ctx)
{
	struct tok_call *t = ctx;
	struct api_options options = {.strict_template = t->rt->conf->strict_template};

	t->failed = !t->parse(&t->tok, &t->body, &options, &t->error) ||
		    !model_is_served(t->rt, t->tok.model, &t->error);
	sink_release(&t->body);
}

static void read_done(void *ctx)
{
	struct tok_call *t = ctx;
	struct encode_source source = {
		.render = t->tok.render,
		.text = t->tok.text,
		.len = t->tok.render != NULL ? t->tok.render_len : t->tok.len,
		.flags = t->tok.parse_special ? TOK_ADDED : 0,
		.param = t->tok.render != NULL             ? "messages"
			 : t->tok.shape == TOK_SHAPE_LLAMA ? "content"
							   : "prompt",
	};

	if (t->failed || t->req == NULL) {
		fail(t, &t->error);
		return;
	}
	t->tok.render = t->tok.text = NULL;
	t->encode = encode_start(t->rt, &source, on_encoded, t, &t->error);
	if (t->encode == NULL)
		fail(t, &t->error);
}

static void begin(struct router *rt, struct http_req *req,
	bool (*parse)(struct tok_request *req, struct sink *body,
		const struct api_options *options, struct api_error *e))
{
	struct tok_call *t;

	if (!may_begin(rt, req))
		return;
	t = mem_take(1, sizeof(*t));
	if (t == NULL) {
		reply_no_memory(rt, req);
		return;
	}
	*t = (struct tok_call){.served = {gone, gone, cut, NULL},
		.rt = rt,
		.req = req,
		.parse = parse,
		.body = http_body_take(req)};
	sink_init(&t->out, ANSWER_BYTES_MAX);
	http_set_user(req, t);
	if (loop_work(rt->loop, read_work, read_done, t) != ST_OK)
		fail_memory(t);
}

void tok_call_tokenize(struct router *rt, struct http_req *req)
{
	begin(rt, req, api_parse_tokenize);
}

void tok_call_count(struct router *rt, struct http_req *req)
{
	begin(rt, req, api_parse_count);
}

/* ---- to text ---- */

/* The job on the pool reads the body, and of the router what never changes. */
struct detok_call {
	struct served served; /* first: what http_user points to */
	struct router *rt;
	struct http_req *req; /* NULL: the client left */
	struct sink body, out;
	bool failed, no_memory;
	struct api_error error;
};

/* The job goes on; what comes of it is dropped. */
static void detok_gone(struct served *s)
{
	struct detok_call *t = (struct detok_call *)s;

	http_set_user(t->req, NULL);
	t->req = NULL;
}

static void detok_cut(struct served *s, const struct api_error *e)
{
	struct detok_call *t = (struct detok_call *)s;

	reply_error(t->rt, t->req, e, false);
	detok_gone(s);
}

/* Special tokens show: whoever asks wants to see what the ids say. */
static bool put_text(const struct tokenizer *tokenizer, const struct detok_request *d,
	struct sink *text, struct api_error *e)
{
	uint32_t n_tokens = tokenizer_n_tokens(tokenizer);
	struct detok detok;

	detok_init(&detok, tokenizer, false);
	for (size_t i = 0; i < d->n_ids; i++) {
		if (d->ids[i] >= n_tokens) {
			api_error_set(e, 400, "invalid_value", "tokens",
				"tokens[%zu] is %" PRIu32 "; the vocabulary has %" PRIu32
				".",
				i, d->ids[i], n_tokens);
			return false;
		}
		detok_feed(&detok, d->ids[i], text);
	}
	detok_flush(&detok, text);
	return true;
}

static void detok_work(void *ctx)
{
	struct detok_call *t = ctx;
	struct detok_request d;
	struct sink text;

	sink_init(&text, ANSWER_BYTES_MAX);
	t->failed = !api_parse_detokenize(&d, &t->body, &t->error);
	sink_release(&t->body);
	t->failed = t->failed || !model_is_served(t->rt, d.model, &t->error) ||
		    !put_text(t->rt->tokenizer, &d, &text, &t->error);
	if (!t->failed)
		out_text(&t->out, sink_bytes(&text));
	t->no_memory = !t->failed && (text.full || t->out.full);
	sink_release(&text);
	detok_request_release(&d);
}

static void detok_done(void *ctx)
{
	struct detok_call *t = ctx;

	if (t->no_memory)
		encode_no_memory(t->rt, &t->error);
	if (t->req != NULL) {
		if (t->failed || t->no_memory)
			reply_error(t->rt, t->req, &t->error, false);
		else
			reply_json(t->req, 200, &t->out);
		http_set_user(t->req, NULL);
	}
	sink_release(&t->body);
	sink_release(&t->out);
	mem_give(t);
}

void tok_call_detokenize(struct router *rt, struct http_req *req)
{
	struct detok_call *t;

	if (!may_begin(rt, req))
		return;
	t = mem_take(1, sizeof(*t));
	if (t == NULL) {
		reply_no_memory(rt, req);
		return;
	}
	*t = (struct detok_call){.served = {detok_gone, detok_gone, detok_cut, NULL},
		.rt = rt,
		.req = req,
		.body = http_body_take(req)};
	sink_init(&t->out, ANSWER_BYTES_MAX);
	http_set_user(req, t);
	if (loop_work(rt->loop, detok_work, detok_done, t) != ST_OK) {
		t->no_memory = true;
		detok_done(t);
	}
}
