/* Prompts become requests that can be sent. */
#include "router/prepare.h"

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "router/encode.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

struct prepare {
	struct router *rt;
	struct request *r;
	struct encode *encode;
	uint64_t begun_ns;
	char param[32];
	uint64_t max_tokens;
	bool explicit_max;
	int64_t truncate;
};

static void fail(struct prepare *p, const struct api_error *e)
{
	struct request *r = p->r;

	r->prepare = NULL;
	router_wake(p->rt);
	mem_give(p);
	request_fail(r, e, false);
}

/* OpenAI's sentence: clients match on its words. */
static void fail_length(struct prepare *p, uint64_t n_prompt, uint64_t n_answer)
{
	const char *where = strcmp(p->param, "messages") == 0 ? "messages" : "prompt";
	struct api_error e;

	p->rt->metrics.limit[LIMIT_context]++;
	api_error_set(&e, 400, "context_length_exceeded", p->param,
		"This model's maximum context length is %" PRIu32
		" tokens. However, you requested %" PRIu64 " tokens (%" PRIu64
		" in the %s, %" PRIu64
		" in the completion). Please reduce the length of the %s or completion.",
		router_len_max(p->rt), n_prompt + n_answer, n_prompt, where, n_answer,
		where);
	fail(p, &e);
}

static void fail_scores(struct prepare *p, uint64_t n_prompt)
{
	struct api_error e;

	api_error_set(&e, 400, "invalid_value", p->param,
		"%s has %" PRIu64 " tokens; logprobs of a prompt are given up to %u.",
		p->param, n_prompt, API_SCORED_MAX);
	fail(p, &e);
}

/* The prompt is encoded once for all choices. false: no memory, and p failed. */
static bool copy_to_others(struct prepare *p)
{
	const struct request *r = p->r;
	struct api_error e;

	for (uint32_t k = 1; k < r->n_choices; k++) {
		struct request *other = requests_find(&p->rt->requests, r->seq + k);

		other->ids = mem_take(r->n_ids, sizeof(*r->ids));
		if (other->ids == NULL) {
			encode_no_memory(p->rt, &e);
			fail(p, &e);
			return false;
		}
		memcpy(other->ids, r->ids, r->n_ids * sizeof(*r->ids));
		other->n_ids = other->n_prompt = other->ids_cap = r->n_ids;
		other->max_tokens = r->max_tokens;
		other->mode = r->mode;
		other->draw.grammar_after = r->draw.grammar_after;
	}
	return true;
}

static void queue(struct request *r)
{
	struct err err;
	status st = request_move(r, EV_PREPARED, NULL, &err);

	assert(st == ST_OK);
	(void)st;
}

/* The end of a prompt is what an answer follows. */
static void cut_prompt(const struct prepare *p, struct tok_ids *ids, uint64_t n_answer)
{
	uint64_t len_max = router_len_max(p->rt);
	uint64_t keep = p->truncate > 0 ? (uint64_t)p->truncate
					: len_max - MIN(n_answer, len_max - 1);

	if (p->truncate == 0 || ids->n <= keep)
		return;
	memmove(ids->v, ids->v + (ids->n - keep), keep * sizeof(*ids->v));
	ids->n = keep;
}

/* What the model thinks has no form. */
static void begin_grammar(const struct prepare *p)
{
	int64_t close = tokenizer_find(p->rt->tokenizer, "</think>");
	struct request *r = p->r;

	if (r->draw.grammar_kind != 0 && r->mode == OUTPUT_REASONING && close >= 0)
		r->draw.grammar_after = (uint64_t)close + 1;
}

/* ids become the request's. */
static void enqueue(struct prepare *p, struct tok_ids *ids)
{
	uint64_t len_max = router_len_max(p->rt);
	uint64_t n_answer = p->explicit_max ? p->max_tokens : 1;
	struct requests *set = &p->rt->requests;
	struct request *r = p->r;

	cut_prompt(p, ids, n_answer);
	if (ids->n > len_max || n_answer > len_max - ids->n) {
		fail_length(p, ids->n, MIN(n_answer, INT64_MAX));
		return;
	}
	if (r->score && ids->n > API_SCORED_MAX) {
		fail_scores(p, ids->n);
		return;
	}
	r->ids = ids->v;
	r->n_ids = r->n_prompt = (uint32_t)ids->n;
	r->ids_cap = (uint32_t)ids->cap;
	ids->v = NULL;
	ids->n = ids->cap = 0;
	r->max_tokens = (uint32_t)MIN(p->max_tokens, len_max - r->n_ids);
	begin_grammar(p);
	if (!copy_to_others(p))
		return;
	metrics_observe(&p->rt->metrics, HIST_stage_prepare,
		(double)(clock_ns() - p->begun_ns) / NS_PER_S);
	r->prepare = NULL;
	router_wake(p->rt);
	mem_give(p);
	queue(r);
	for (uint32_t k = 1; k < r->n_choices; k++)
		queue(requests_find(set, r->seq + k));
}

static void on_encoded(void *ctx, struct encode_result *result)
{
	struct prepare *p = ctx;
	struct api_error e;

	if (result->too_long) {
		fail_length(p, ENCODE_IDS_MAX, 1);
	} else if (result->failed) {
		fail(p, &result->error);
	} else if (result->ids.n == 0) {
		api_error_set(&e, 400, "invalid_value", p->param,
			"%s has no tokens: there is nothing to answer.", p->param);
		fail(p, &e);
	} else {
		p->r->mode = result->mode;
		enqueue(p, &result->ids);
	}
}

/* ---- ids as they came ---- */

static void take_ids(struct prepare *p, const struct prepare_source *s)
{
	struct tok_ids ids = {s->ids, s->n_ids, s->n_ids, s->n_ids};

	if (s->n_ids > ENCODE_IDS_MAX)
		fail_length(p, s->n_ids, 1);
	else
		enqueue(p, &ids);
	tok_ids_release(&ids);
}

void prepare_start(struct router *rt, struct request *r, const struct prepare_source *s)
{
	struct prepare *p = mem_take(1, sizeof(*p));
	struct encode_source source = {
		.render = s->render,
		.text = s->text,
		.len = s->len,
		.flags = TOK_ADDED,
		.param = s->param,
	};
	struct api_error e;

	if (p == NULL) {
		mem_give(s->render);
		mem_give(s->text);
		mem_give(s->ids);
		encode_no_memory(rt, &e);
		request_fail(r, &e, false);
		return;
	}
	*p = (struct prepare){.rt = rt,
		.r = r,
		.begun_ns = clock_ns(),
		.max_tokens = s->max_tokens,
		.explicit_max = s->explicit_max,
		.truncate = s->truncate};
	memcpy(p->param, s->param, sizeof(p->param));
	r->prepare = p;
	if (s->ids != NULL) {
		take_ids(p, s);
		return;
	}
	p->encode = encode_start(rt, &source, on_encoded, p, &e);
	if (p->encode == NULL)
		fail(p, &e);
}

void prepare_stop(void *router, struct request *r)
{
	struct prepare *p = r->prepare;

	(void)router;
	r->prepare = NULL;
	encode_stop(p->encode);
	mem_give(p);
}
