/* The life of a generation call: admission, generations, leaving, outcome. */
#include "router/call.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "router/dispatch.h"
#include "router/encode.h"
#include "router/entry.h"
#include "router/prepare.h"
#include "router/reply.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Of one event or whole answer. */
#define ANSWER_BYTES_MAX (64u << 20)

/* ---- admission ---- */

static bool turn_away(
	struct router *rt, struct api_error *e, enum metric_limit limit, const char *text)
{
	static const char *const codes[] = {
		[LIMIT_queue] = "overloaded",
		[LIMIT_no_workers] = "no_workers",
		[LIMIT_draining] = "draining",
		[LIMIT_context] = "context_length_exceeded",
		[LIMIT_memory] = "overloaded",
		[LIMIT_wait] = "overloaded",
	};

	rt->metrics.limit[limit]++;
	api_error_set(e, 503, codes[limit], NULL, "%s", text);
	return false;
}

/* Before the body is even parsed: a full router spends nothing on what it refuses. */
static bool may_come_in(struct router *rt, struct api_error *e)
{
	const char *missing, *crowded;

	if (router_refuses(rt))
		return turn_away(rt, e, LIMIT_draining, "This router is shutting down.");
	missing = dispatch_missing(rt);
	if (missing != NULL)
		return turn_away(rt, e, LIMIT_no_workers, missing);
	crowded = dispatch_crowded(rt, 1);
	return crowded == NULL || turn_away(rt, e, LIMIT_queue, crowded);
}

/* One line per set of names, not per request: clients send the same ones again and
 * again. A client that makes up new ones is heard this often. */
static bool is_news(struct router *rt, const char *names)
{
	uint64_t key = hash64(names, strlen(names), 0);

	for (uint32_t i = 0; i < rt->n_ignored_sets; i++)
		if (rt->ignored_set[i] == key)
			return false;
	if (rt->n_ignored_sets == COUNT(rt->ignored_set))
		return false;
	rt->ignored_set[rt->n_ignored_sets++] = key;
	return true;
}

/* What the parser took is of this router's model. */
static bool is_for_us(struct call *call, struct api_error *e)
{
	call->model = router_model_name(call->rt, call->gen.model);
	if (call->model == NULL) {
		api_error_set(e, 404, "model_not_found", "model",
			"The model `%.200s` does not exist.", call->gen.model);
		return false;
	}
	if (call->gen.ignored[0] != 0 && is_news(call->rt, call->gen.ignored)) {
		char names[LOG_WORD_BYTES];

		log_info("req=%s has members without effect here: %s", http_id(call->req),
			log_word(names, call->gen.ignored));
	}
	return true;
}

static uint32_t n_choices(const struct call *call)
{
	return call->gen.n * MAX((uint32_t)call->gen.n_prompts, 1u);
}

static void fill_request(struct call *call, struct choice *c, struct request *r)
{
	snprintf(r->id, sizeof(r->id), "%s", http_id(call->req));
	memcpy(r->trace, call->trace, sizeof(r->trace));
	r->begun_ns = http_begun_ns(call->req);
	call_draw_fill(call, c, r);
	r->mode = OUTPUT_RAW;
	r->user = c;
	c->r = r;
}

/* What the prompt is made of goes over to its preparation. */
static void prepare(struct call *call, struct choice *c)
{
	struct gen_request *gen = &call->gen;
	struct prepare_source s = {
		.explicit_max = gen->has_max_tokens,
		.max_tokens = gen->has_max_tokens || gen->max_tokens > 0
				      ? gen->max_tokens
				      : call->format->max_tokens,
		.truncate = gen->truncate,
	};

	if (gen->render != NULL) {
		s.render = gen->render;
		s.len = gen->render_len;
		gen->render = NULL;
		snprintf(s.param, sizeof(s.param), "messages");
	} else {
		struct gen_prompt *p = &gen->prompts[call_prompt_of(c)];

		s.text = p->text;
		s.len = p->len;
		s.ids = p->ids;
		s.n_ids = p->n_ids;
		p->text = NULL;
		p->ids = NULL;
		if (gen->n_prompts > 1)
			snprintf(s.param, sizeof(s.param), "prompt[%u]",
				call_prompt_of(c));
		else
			snprintf(s.param, sizeof(s.param), "prompt");
	}
	prepare_start(call->rt, c->r, &s);
}

/* All choices get a request or none: a call is admitted whole. */
static bool admit(struct call *call, struct api_error *e)
{
	struct router *rt = call->rt;
	uint32_t n = n_choices(call);
	const char *crowded = dispatch_crowded(rt, n);

	if (crowded != NULL)
		return turn_away(rt, e, LIMIT_queue, crowded);
	call->choices = mem_take(n, sizeof(*call->choices));
	if (call->choices == NULL)
		return turn_away(rt, e, LIMIT_memory, "The router has no memory left.");
	call->n = n;
	for (uint32_t i = 0; i < n; i++) {
		struct choice *c = &call->choices[i];
		struct request *r = requests_add(&rt->requests);

		*c = (struct choice){
			.call = call, .index = i, .hit = -1, .stop_token = -1};
		if (r == NULL)
			return turn_away(rt, e, LIMIT_memory,
				"The router has no place for this request.");
		fill_request(call, c, r);
	}
	return true;
}

/* ---- leaving ---- */

static void gone(struct served *s)
{
	struct call *call = (struct call *)s;

	call->gone = true;
	call->rt->metrics.counter[COUNTER_gone]++;
	router_wake(call->rt);
	for (uint32_t i = 0; i < call->n; i++)
		if (call->choices[i].r != NULL)
			request_cancel(call->choices[i].r);
}

static double ms(uint64_t ns)
{
	return (double)ns / NS_PER_MS;
}

/* The one line about a request; demo_client.py and the tests read it. */
static void log_outcome(struct call *call)
{
	uint64_t begun = http_begun_ns(call->req);
	enum http_loss loss = http_lost(call->req);
	bool left = loss == HTTP_CLIENT_GONE || loss == HTTP_NOT_READING;
	unsigned code = left ? 499 : http_status(call->req);
	uint64_t prompt = 0, generated = 0;

	for (uint32_t i = 0; i < call->n; i++) {
		prompt += i % call->gen.n == 0 ? call->choices[i].n_prompt : 0;
		generated += call->choices[i].n_generated;
	}
	metrics_status(&call->rt->metrics, code);
	log_info("outcome req=%s path=%s status=%u finish=%s stream=%d prompt=%" PRIu64
		 " generated=%" PRIu64 " ttft_ms=%.1f total_ms=%.1f queue_ms=%.1f "
		 "prefill_ms=%.1f handover_ms=%.1f handover_bytes=%" PRIu64
		 " transport=%s prefill=%s decode=%s error=%s trace=%s",
		http_id(call->req), http_path(call->req), code,
		left                    ? "abort"
		: loss != HTTP_NOT_LOST ? "error"
		: call->finish[0] != 0  ? call->finish
					: "error",
		call->stream, prompt, generated,
		call->first_ns > begun ? ms(call->first_ns - begun) : 0,
		ms(clock_ns() - begun), ms(call->queue_ns), ms(call->prefill_ns),
		ms(call->handover_ns), call->handover_bytes,
		call->transport[0] != 0 ? call->transport : "-",
		call->p_name[0] != 0 ? call->p_name : "-",
		call->d_name[0] != 0 ? call->d_name : "-",
		call->error != NULL ? call->error : http_loss_name(loss),
		call->trace[0] != 0 ? call->trace : "-");
}

/* What was asked, of a call that was answered. */
static void observe_shape(const struct call *call)
{
	struct metrics *m = &call->rt->metrics;
	uint32_t longest = 0;

	for (uint32_t i = 0; i < call->n; i++) {
		longest = MAX(longest, call->choices[i].n_generated);
		if (i % call->gen.n == 0)
			metrics_observe(m, HIST_computed, call->choices[i].n_prompt);
	}
	metrics_observe(m, HIST_n, call->gen.n);
	metrics_observe(m, HIST_max_generated, longest);
}

static void end(struct served *s)
{
	struct call *call = (struct call *)s;

	for (uint32_t i = 0; i < call->n; i++) {
		struct choice *c = &call->choices[i];

		/* Takes leave of the choice, as every end does. */
		if (c->r != NULL)
			request_cancel(c->r);
		if (c->has_out)
			output_release(&c->out);
		call_tools_release(c);
		parts_release(&c->parts);
		logprobs_release(&c->logprobs);
		mem_give(c->ids.v);
	}
	if (http_status(call->req) == 200)
		observe_shape(call);
	log_outcome(call);
	call_parse_forget(call);
	call_draw_release(call);
	list_remove(&call->node);
	gen_request_release(&call->gen);
	sink_release(&call->piece);
	sink_release(&call->told.text);
	sink_release(&call->told.items);
	mem_give(call->choices);
	mem_give(call);
}

static void cut(struct served *s, const struct api_error *e)
{
	call_fail((struct call *)s, e, false);
}

static void half_closed(struct served *s)
{
	struct call *call = (struct call *)s;

	if (call->begun && !call->answered)
		call_write_keepalive(call);
}

/* ---- begin ---- */

void call_begin(
	struct router *rt, struct http_req *req, const struct answer_format *format)
{
	struct call *call = mem_take(1, sizeof(*call));
	struct api_error e;

	if (call == NULL) {
		turn_away(rt, &e, LIMIT_memory, "The router has no memory left.");
		reply_error(rt, req, &e, false);
		return;
	}
	*call = (struct call){.served = {gone, end, cut, half_closed},
		.rt = rt,
		.req = req,
		.format = format,
		.created = clock_unix_s(),
		.written_ns = clock_ns()};
	sink_init(&call->piece, ANSWER_BYTES_MAX);
	sink_init(&call->told.text, ANSWER_BYTES_MAX);
	sink_init(&call->told.items, ANSWER_BYTES_MAX);
	out_id_make(call->id, format->id_prefix);
	entry_trace(req, call->trace);
	list_add(&rt->calls, &call->node);
	http_set_user(req, call);
	/* Chat for a model without a template never works: said before what passes. */
	if ((format->takes_messages && !encode_takes_messages(rt, &e)) ||
		!may_come_in(rt, &e) || !call_parse(call, &e))
		call_fail(call, &e, false);
}

void call_no_memory(struct call *call, struct api_error *e)
{
	turn_away(call->rt, e, LIMIT_memory, "The router has no memory left.");
}

void call_parsed(struct call *call, const struct api_error *bad)
{
	struct router *rt = call->rt;
	struct api_error e;

	if (call->answered || call->gone)
		return;
	if (bad != NULL) {
		call_fail(call, bad, false);
		return;
	}
	call->stream = call->gen.stream;
	if (!api_defaults_apply(&rt->defaults, &call->gen, &e)) {
		call_fail(call, &e, false);
		return;
	}
	/* A replay elsewhere must draw the same numbers. */
	if (!call->gen.has_seed)
		call->gen.draw.seed = rng_entropy64();
	if (!is_for_us(call, &e) || !call_draw_prepare(call, &e) || !admit(call, &e)) {
		call_fail(call, &e, false);
		return;
	}
	/* A prompt that fails at once ends the call, and with it the other choices. */
	for (uint32_t i = 0; i < call->n && !call->answered; i += call->gen.n)
		prepare(call, &call->choices[i]);
}

/* ---- all calls ---- */

/* Admitted: nothing that is left to happen has a status of its own. */
static bool all_dispatched(const struct call *call)
{
	for (uint32_t i = 0; i < call->n; i++) {
		const struct request *r = call->choices[i].r;

		if (r != NULL && (r->state == RQ_PREPARE || r->state == RQ_QUEUED))
			return false;
	}
	return call->n > 0;
}

void call_keepalive(struct router *rt, uint64_t now_ns)
{
	double silence = rt->conf->keepalive_s * (double)NS_PER_S;

	list_each (call, &rt->calls, struct call, node)
		if (call->stream && !call->answered && !call->gone &&
			(double)(now_ns - MIN(now_ns, call->written_ns)) >= silence &&
			(call->begun || all_dispatched(call)))
			call_write_keepalive(call);
}
