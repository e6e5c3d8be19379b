/* Texts to ids and ids to text, both on the pool: either may be a million tokens long. */
#include "router/tok_call.h"

#include "common/base/mem.h"
#include "common/model/detok.h"
#include "router/api_out.h"
#include "router/encode.h"
#include "router/reply.h"

#include <inttypes.h>

#define ANSWER_BYTES_MAX (64u << 20)

struct tok_call {
	struct served served; /* first: what http_user points to */
	struct router *rt;
	struct http_req *req;
	struct tok_request tok;
	struct encode *encode; /* NULL: not under way */
};

/* ---- to ids ---- */

static void destroy(struct tok_call *t)
{
	http_set_user(t->req, NULL);
	tok_request_release(&t->tok);
	mem_give(t);
}

static void fail(struct tok_call *t, const struct api_error *e)
{
	reply_error(t->rt, t->req, e, false);
	destroy(t);
}

static void gone(struct served *s)
{
	struct tok_call *t = (struct tok_call *)s;

	encode_stop(t->encode);
	destroy(t);
}

static void cut(struct served *s, const struct api_error *e)
{
	struct tok_call *t = (struct tok_call *)s;

	encode_stop(t->encode);
	fail(t, e);
}

static void reply_ids(struct tok_call *t, const struct tok_ids *ids)
{
	const struct tokenizer *tokenizer = t->rt->tokenizer;
	struct bytes *pieces = NULL;
	struct api_error e;
	struct sink out;

	sink_init(&out, ANSWER_BYTES_MAX);
	if (t->tok.with_pieces)
		pieces = mem_take(ids->n + 1, sizeof(*pieces));
	for (size_t i = 0; pieces != NULL && i < ids->n; i++)
		pieces[i] = tokenizer_token_bytes(tokenizer, ids->v[i]);
	if (!t->tok.with_pieces || pieces != NULL)
		out_tokens(&out, t->tok.shape, ids->v, ids->n, pieces,
			router_len_max(t->rt));
	if (out.full || out.len == 0) {
		encode_no_memory(t->rt, &e);
		reply_error(t->rt, t->req, &e, false);
	} else {
		reply_json(t->req, 200, &out);
	}
	mem_give(pieces);
	sink_release(&out);
}

static void on_encoded(void *ctx, struct encode_result *result)
{
	struct tok_call *t = ctx;
	struct api_error e;

	if (result->too_long) {
		api_error_set(&e, 400, "invalid_value", NULL,
			"The text has more than %u tokens.", ENCODE_IDS_MAX);
		fail(t, &e);
	} else if (result->failed) {
		fail(t, &result->error);
	} else {
		reply_ids(t, &result->ids);
		destroy(t);
	}
}

static bool model_is_served(
	const struct router *rt, const char *model, struct api_error *e)
{
	if (router_model_name(rt, model) != NULL)
		return true;
	api_error_set(e, 404, "model_not_found", "model",
		"The model `%.200s` does not exist.", model);
	return false;
}

static bool may_begin(const struct router *rt, struct api_error *e)
{
	if (rt->draining)
		api_error_set(e, 503, "draining", NULL, "This router is shutting down.");
	return !rt->draining;
}

static bool parse(struct tok_call *t, struct api_error *e)
{
	struct api_options options = {.strict_template = t->rt->conf->strict_template};
	bool ok = may_begin(t->rt, e) &&
		  api_parse_tokenize(&t->tok, http_body(t->req), &options, e);

	http_body_release(t->req);
	return ok && model_is_served(t->rt, t->tok.model, e);
}

void tok_call_tokenize(struct router *rt, struct http_req *req)
{
	struct tok_call *t = mem_take(1, sizeof(*t));
	struct api_error e;

	if (t == NULL) {
		encode_no_memory(rt, &e);
		reply_error(rt, req, &e, false);
		return;
	}
	*t = (struct tok_call){.served = {gone, gone, cut}, .rt = rt, .req = req};
	http_set_user(req, t);
	if (!parse(t, &e)) {
		fail(t, &e);
		return;
	}
	struct encode_source source = {
		.render = {(const uint8_t *)t->tok.render, t->tok.render_len},
		.text = {(const uint8_t *)t->tok.text, t->tok.len},
		.flags = t->tok.parse_special ? TOK_ADDED : 0,
		.param = t->tok.render != NULL             ? "messages"
			 : t->tok.shape == TOK_SHAPE_LLAMA ? "content"
							   : "prompt",
	};
	t->encode = encode_start(rt, &source, on_encoded, t, &e);
	if (t->encode == NULL)
		fail(t, &e);
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
	t->failed = !api_parse_detokenize(&d, sink_bytes(&t->body), &t->error);
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
	struct api_error e;

	if (!may_begin(rt, &e)) {
		reply_error(rt, req, &e, false);
		return;
	}
	t = mem_take(1, sizeof(*t));
	if (t == NULL) {
		encode_no_memory(rt, &e);
		reply_error(rt, req, &e, false);
		return;
	}
	*t = (struct detok_call){.served = {detok_gone, detok_gone, detok_cut},
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
