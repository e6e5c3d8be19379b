/* How generations become an answer: events of a stream, or one object at the end. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "router/call.h"
#include "router/reply.h"

#include <stdio.h>
#include <string.h>

/* Text that may wait in a choice: what an answer of this length can hold, within
 * bounds; a stream takes it at once. */
#define TEXT_BYTES_PER_TOKEN 64u
#define TEXT_BYTES_MIN       (1u << 20)
#define TEXT_BYTES_MAX       (32u << 20)

static const char stream_type[] = "text/event-stream; charset=utf-8";

static struct out_usage usage_of(const struct call *call)
{
	struct out_usage u = {0};

	for (uint32_t i = 0; i < call->n; i++) {
		const struct choice *c = &call->choices[i];

		u.prompt_tokens += c->r != NULL ? c->r->n_prompt : c->n_prompt;
		u.completion_tokens +=
			c->r != NULL ? request_generated(c->r) : c->n_generated;
		u.reasoning_tokens += c->has_out ? c->out.n_reasoning_tokens : 0;
	}
	return u;
}

/* The usage for a chunk, where chunks carry it. */
static const struct out_usage *usage_each(
	const struct call *call, struct out_usage *usage)
{
	if (!call->gen.usage_each)
		return NULL;
	*usage = usage_of(call);
	return usage;
}

static struct out_head head_of(const struct call *call, const struct out_usage *usage)
{
	return (struct out_head){.id = call->id,
		.model = call->model,
		.created = call->created,
		.usage = usage};
}

/* ---- a stream ---- */

static void begin_stream(struct call *call)
{
	if (call->begun)
		return;
	call->begun = true;
	http_header_add(call->req, "Cache-Control", "no-cache");
	http_header_add(call->req, "X-Accel-Buffering", "no");
	if (call->rt->draining)
		http_header_add(call->req, "Connection", "close");
	http_stream_begin(call->req, 200, stream_type);
}

/* Sends what stands in call->piece. */
static void flush_piece(struct call *call)
{
	begin_stream(call);
	if (call->piece.full) {
		log_error("req=%s an event did not fit into memory", http_id(call->req));
		http_stream_abort(call->req);
	} else if (call->piece.len > 0) {
		/* false: it is being cut, on_gone follows. */
		(void)!http_stream_write(call->req, sink_bytes(&call->piece));
	}
	sink_reset(&call->piece);
	call->written_ns = clock_ns();
}

static void write_delta(
	struct call *call, struct choice *c, bool reasoning, struct sink *text)
{
	struct out_usage usage;
	struct out_head head = head_of(call, usage_each(call, &usage));

	if (text->len == 0)
		return;
	if (call->kind == GEN_CHAT) {
		if (!c->began)
			out_chat_role(&call->piece, &head, c->index);
		out_chat_delta(
			&call->piece, &head, c->index, reasoning, sink_bytes(text));
	} else {
		out_completion_delta(&call->piece, &head, c->index, sink_bytes(text));
	}
	c->began = true;
	flush_piece(call);
	sink_reset(text);
}

static enum out_finish finish_of(const struct choice *c)
{
	return c->finish == REQUEST_LENGTH ? ANSWER_LENGTH : ANSWER_STOP;
}

static struct out_stop stop_of(const struct call *call, const struct choice *c)
{
	struct out_stop stop = OUT_STOP_NONE;

	if (c->hit >= 0)
		stop.text = (struct bytes){
			call->gen.stop.text[c->hit], call->gen.stop.len[c->hit]};
	return stop;
}

static void write_finish(struct call *call, struct choice *c)
{
	struct out_usage usage;
	struct out_head head = head_of(call, usage_each(call, &usage));

	if (call->kind == GEN_CHAT) {
		if (!c->began)
			out_chat_role(&call->piece, &head, c->index);
		out_chat_finish(
			&call->piece, &head, c->index, finish_of(c), stop_of(call, c));
	} else {
		out_completion_finish(
			&call->piece, &head, c->index, finish_of(c), stop_of(call, c));
	}
	c->began = true;
	flush_piece(call);
}

static void end_stream(struct call *call)
{
	struct out_usage usage = usage_of(call);
	struct out_head head = head_of(call, NULL);

	if (call->gen.include_usage && call->kind == GEN_CHAT)
		out_chat_usage(&call->piece, &head, &usage);
	else if (call->gen.include_usage)
		out_completion_usage(&call->piece, &head, &usage);
	if (call->gen.include_usage)
		flush_piece(call);
	out_sse_done(&call->piece);
	flush_piece(call);
	call->answered = true;
	http_stream_end(call->req);
}

void call_write_keepalive(struct call *call)
{
	out_sse_keepalive(&call->piece);
	flush_piece(call);
}

/* ---- one object ---- */

static bool any_full(const struct call *call)
{
	for (uint32_t i = 0; i < call->n; i++)
		if (call->choices[i].has_out &&
			(call->choices[i].out.reasoning.full ||
				call->choices[i].out.content.full))
			return true;
	return call->piece.full;
}

static void fail_size(struct call *call)
{
	struct api_error e;

	api_error_set(&e, 500, "answer_too_large", NULL,
		"The answer did not fit into the memory set aside for it.");
	call_fail(call, &e, false);
}

static struct bytes text_of(const struct sink *s)
{
	return s->len > 0 ? sink_bytes(s) : BYTES_STR("");
}

/* Cut off before </think>: everything is reasoning and there is no content. */
static struct out_choice choice_of(const struct call *call, const struct choice *c)
{
	bool chat = call->kind == GEN_CHAT;
	bool thought = c->has_out && c->out.mode == OUTPUT_REASONING;
	struct out_choice o = {.index = c->index,
		.finish = finish_of(c),
		.stop = stop_of(call, c),
		.content = BYTES_STR("")};

	if (!c->has_out)
		return o;
	o.content = text_of(&c->out.content);
	if (chat && thought)
		o.reasoning = text_of(&c->out.reasoning);
	if (chat && thought && c->out.thinking)
		o.content = (struct bytes){NULL, 0};
	return o;
}

static void write_whole(struct call *call)
{
	struct out_usage usage = usage_of(call);
	struct out_head head = head_of(call, NULL);
	struct out_choice choices[API_PROMPTS_MAX];

	for (uint32_t i = 0; i < call->n; i++)
		choices[i] = choice_of(call, &call->choices[i]);
	if (call->kind == GEN_CHAT)
		out_chat(&call->piece, &head, choices, call->n, &usage);
	else
		out_completion(&call->piece, &head, choices, call->n, &usage);
	if (any_full(call)) {
		fail_size(call);
		return;
	}
	call->answered = true;
	if (call->rt->draining)
		http_header_add(call->req, "Connection", "close");
	reply_json(call->req, 200, &call->piece);
	sink_release(&call->piece);
}

/* ---- failure ---- */

static void withdraw_all(struct call *call)
{
	for (uint32_t i = 0; i < call->n; i++)
		if (call->choices[i].r != NULL)
			request_cancel(call->choices[i].r);
	router_wake(call->rt);
}

void call_fail(struct call *call, const struct api_error *e, bool no_retry)
{
	if (call->answered || call->gone)
		return;
	call->answered = true;
	snprintf(call->finish, sizeof(call->finish), "error");
	if (e->http >= 500)
		log_warn("req=%s fails status=%u code=%s: %s", http_id(call->req),
			e->http, e->code != NULL ? e->code : "-", e->message);
	sink_reset(&call->piece);
	if (call->begun) {
		out_sse_error(&call->piece, e);
		flush_piece(call);
		out_sse_done(&call->piece);
		flush_piece(call);
		http_stream_end(call->req);
	} else {
		reply_error(call->rt, call->req, e, no_retry);
	}
	withdraw_all(call);
}

/* ---- what generations say ---- */

static void begin_output(struct call *call, struct choice *c, const struct request *r)
{
	size_t bytes = (size_t)r->max_tokens * TEXT_BYTES_PER_TOKEN;

	output_init(&c->out, call->rt->tokenizer, r->mode, r->stop,
		MIN(MAX(bytes, TEXT_BYTES_MIN), TEXT_BYTES_MAX));
	c->has_out = true;
}

static void note_token(struct call *call, struct choice *c)
{
	struct metrics *m = &call->rt->metrics;
	uint64_t now = clock_ns();

	m->counter[COUNTER_generation_tokens]++;
	if (c->first_ns == 0) {
		c->first_ns = now;
		metrics_observe(m, HIST_ttft,
			(double)(now - http_begun_ns(call->req)) / NS_PER_S);
	} else {
		metrics_observe(m, HIST_itl, (double)(now - c->last_ns) / NS_PER_S);
	}
	c->last_ns = now;
	if (call->first_ns == 0)
		call->first_ns = now;
}

static void write_text(struct call *call, struct choice *c)
{
	write_delta(call, c, true, &c->out.reasoning);
	write_delta(call, c, false, &c->out.content);
}

bool call_deliver(void *router, struct request *r, uint32_t token)
{
	struct choice *c = r->user;
	struct call *call;

	(void)router;
	if (c == NULL || c->call->gone || c->call->answered)
		return false;
	call = c->call;
	if (!c->has_out)
		begin_output(call, c, r);
	note_token(call, c);
	if (c->hit < 0)
		c->hit = output_feed(&c->out, token);
	if (any_full(call))
		fail_size(call);
	else if (call->stream)
		write_text(call, c);
	return c->hit >= 0;
}

static void keep_facts(struct call *call, struct choice *c, const struct request *r)
{
	c->n_prompt = r->n_prompt;
	c->n_generated = r->n_ids > 0 ? request_generated(r) : 0;
	c->finish = r->finish;
	call->handover_bytes += r->handover_bytes;
	snprintf(call->p_name, sizeof(call->p_name), "%s", r->p_name);
	if (r->d_name[0] != 0)
		snprintf(call->d_name, sizeof(call->d_name), "%s", r->d_name);
	if (r->transport[0] != 0)
		snprintf(call->transport, sizeof(call->transport), "%s", r->transport);
	if (r->dispatched_ns != 0)
		call->queue_ns = MAX(call->queue_ns, r->dispatched_ns - r->queued_ns);
	if (r->prefilled_ns != 0)
		call->prefill_ns =
			MAX(call->prefill_ns, r->prefilled_ns - r->dispatched_ns);
	if (r->adopted_ns != 0)
		call->handover_ns = MAX(call->handover_ns, r->adopted_ns - r->adopt_ns);
}

static void keep_finish(struct call *call, const struct request *r)
{
	static const char *const names[] = {
		[REQUEST_OPEN] = "error",
		[REQUEST_STOP] = "stop",
		[REQUEST_LENGTH] = "length",
		[REQUEST_FAILED] = "error",
		[REQUEST_CANCELLED] = "abort",
	};
	const char *name = names[r->finish];

	if (call->finish[0] != 0 && strcmp(call->finish, name) != 0)
		name = strcmp(call->finish, "error") == 0 ? "error" : "mixed";
	snprintf(call->finish, sizeof(call->finish), "%s", name);
}

static double seconds(uint64_t from, uint64_t to)
{
	return from != 0 && to > from ? (double)(to - from) / NS_PER_S : 0;
}

static void observe_end(struct metrics *m, const struct request *r)
{
	uint32_t n = r->n_ids > 0 ? request_generated(r) : 0;

	m->finish[r->finish]++;
	metrics_ended(m, r->done_ns);
	if (r->finish != REQUEST_STOP && r->finish != REQUEST_LENGTH)
		return;
	metrics_observe(m, HIST_e2e, seconds(r->begun_ns, r->done_ns));
	metrics_observe(m, HIST_queue, seconds(r->queued_ns, r->dispatched_ns));
	metrics_observe(m, HIST_stage_queue, seconds(r->queued_ns, r->dispatched_ns));
	metrics_observe(m, HIST_prefill, seconds(r->dispatched_ns, r->prefilled_ns));
	metrics_observe(
		m, HIST_stage_prefill, seconds(r->dispatched_ns, r->prefilled_ns));
	metrics_observe(m, HIST_inference, seconds(r->dispatched_ns, r->done_ns));
	metrics_observe(m, HIST_decode, seconds(r->prefilled_ns, r->done_ns));
	metrics_observe(m, HIST_prompt, r->n_prompt);
	metrics_observe(m, HIST_generated, n);
	metrics_observe(m, HIST_max_tokens, r->max_tokens);
	if (n > 1)
		metrics_observe(
			m, HIST_tpot, seconds(r->prefilled_ns, r->done_ns) / (n - 1));
	if (r->adopted_ns == 0)
		return;
	metrics_observe(m, HIST_stage_handover, seconds(r->adopt_ns, r->adopted_ns));
	metrics_observe(m, HIST_stage_decode, seconds(r->adopted_ns, r->done_ns));
}

static void finish_choice(struct call *call, struct choice *c)
{
	if (c->has_out && c->hit < 0)
		output_finish(&c->out);
	if (any_full(call)) {
		fail_size(call);
		return;
	}
	if (call->stream && c->has_out)
		write_text(call, c);
	if (call->stream)
		write_finish(call, c);
	if (++call->n_ended < call->n)
		return;
	if (call->stream)
		end_stream(call);
	else
		write_whole(call);
}

void call_request_ended(void *router, struct request *r)
{
	struct router *rt = router;
	struct choice *c = r->user;
	struct call *call;

	observe_end(&rt->metrics, r);
	if (c == NULL)
		return;
	call = c->call;
	r->user = NULL;
	c->r = NULL;
	c->ended = true;
	keep_facts(call, c, r);
	keep_finish(call, r);
	if (call->answered || call->gone)
		return;
	if (r->finish == REQUEST_FAILED)
		call_fail(call, &r->error, r->no_retry);
	else if (r->finish != REQUEST_CANCELLED)
		finish_choice(call, c);
}
