/* How generations become an answer: events of a stream, or one object at the end. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "router/call.h"
#include "router/reply.h"

#include <stdio.h>
#include <string.h>

/* JSON of the logprobs of one event, or of all answers. */
#define LOGPROBS_BYTES_MAX (64u << 20)

static const char stream_type[] = "text/event-stream; charset=utf-8";

static struct out_usage usage_of(const struct call *call)
{
	struct out_usage u = {0};

	for (uint32_t i = 0; i < call->n; i++) {
		const struct choice *c = &call->choices[i];

		if (i % call->gen.n == 0)
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

/* What was not told yet, into `text`, which holds the bytes; nothing when they are not
 * wanted. */
static struct bytes logprobs_of(
	const struct call *call, struct choice *c, struct sink *text)
{
	if (!call->gen.logprobs || c->logprobs.n == c->logprobs.written)
		return (struct bytes){NULL, 0};
	call->format->logprobs(text, call->rt->tokenizer, &c->logprobs);
	return sink_bytes(text);
}

static struct out_head head_of(struct call *call, const struct out_usage *usage)
{
	return (struct out_head){.id = call->id,
		.model = call->model,
		.created = call->created,
		.usage = usage,
		.mirror = {(const uint8_t *)call->gen.mirror, call->gen.mirror_len},
		.stream = call->stream ? &call->told : NULL};
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

/* Sends what stands in call->piece. Without memory for it the call fails, and is answered
 * at return. */
static void flush_piece(struct call *call)
{
	begin_stream(call);
	if (call->piece.full && !call->answered) {
		call_fail_size(call);
	} else if (call->piece.full) {
		log_error("req=%s the end of the answer did not fit into memory",
			http_id(call->req));
		http_stream_abort(call->req);
	} else if (call->piece.len > 0) {
		/* false: it is being cut, on_gone follows. */
		(void)!http_stream_write(call->req, sink_bytes(&call->piece));
	}
	sink_reset(&call->piece);
	call->written_ns = clock_ns();
}

/* What comes before all else of a choice. */
static void write_first(struct call *call, const struct choice *c, struct out_head *head)
{
	struct out_head empty = *head;

	if (c->began || call->format->first == NULL)
		return;
	empty.logprobs = (struct bytes){NULL, 0};
	empty.ids.n_token = 0;
	call->format->first(&call->piece, &empty, c->index);
	head->ids.prompt = NULL;
}

static void write_delta(struct call *call, struct choice *c, const struct out_part *part)
{
	struct out_usage usage;
	struct out_head head = head_of(call, usage_each(call, &usage));
	struct sink logprobs;

	if (part->kind == PART_REASONING && call->gen.hide_reasoning)
		return;
	sink_init(&logprobs, LOGPROBS_BYTES_MAX);
	/* Of the end of a call a dialect may say nothing: nothing goes out with it. */
	if (part->kind != PART_CALL_END) {
		head.logprobs = logprobs_of(call, c, &logprobs);
		call_ids_next(c, &head.ids);
	}
	write_first(call, c, &head);
	call->format->delta(&call->piece, &head, c->index, part);
	c->began = true;
	call->piece.full |= logprobs.full;
	flush_piece(call);
	sink_release(&logprobs);
}

static enum out_finish finish_of(const struct choice *c)
{
	if (c->finish == REQUEST_LENGTH)
		return ANSWER_LENGTH;
	return c->hit < 0 && c->parts.n_complete > 0 ? ANSWER_CALLS : ANSWER_STOP;
}

static struct out_stop stop_of(const struct call *call, const struct choice *c)
{
	struct out_stop stop = OUT_STOP_NONE;

	stop.token = c->stop_token;
	if (c->hit >= 0)
		stop.text = (struct bytes){
			call->gen.stop.text[c->hit], call->gen.stop.len[c->hit]};
	return stop;
}

static void write_finish(struct call *call, struct choice *c)
{
	struct out_usage usage;
	struct out_head head = head_of(call, usage_each(call, &usage));
	struct sink logprobs;

	sink_init(&logprobs, LOGPROBS_BYTES_MAX);
	head.logprobs = logprobs_of(call, c, &logprobs);
	call_ids_next(c, &head.ids);
	write_first(call, c, &head);
	call->format->finish(
		&call->piece, &head, c->index, finish_of(c), stop_of(call, c));
	c->began = true;
	call->piece.full |= logprobs.full;
	flush_piece(call);
	sink_release(&logprobs);
}

static void end_stream(struct call *call)
{
	struct out_usage usage = usage_of(call);
	struct out_head head = head_of(call, NULL);

	if (call->gen.include_usage) {
		call->format->usage(&call->piece, &head, &usage);
		flush_piece(call);
	}
	if (call->answered)
		return;
	call->answered = true;
	if (call->format->done != NULL)
		call->format->done(&call->piece, &head);
	flush_piece(call);
	http_stream_end(call->req);
}

void call_write_keepalive(struct call *call)
{
	call->format->keepalive(&call->piece);
	flush_piece(call);
}

/* ---- one object ---- */

bool call_is_full(const struct call *call)
{
	for (uint32_t i = 0; i < call->n; i++)
		if (call->choices[i].has_out &&
			(call->choices[i].out.reasoning.full ||
				call->choices[i].out.content.full ||
				parts_full(&call->choices[i].parts)))
			return true;
	return call->piece.full;
}

void call_fail_size(struct call *call)
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

/* Cut off before </think>: everything is reasoning and there is no content; nor is there
 * beside calls without a word. */
static struct out_choice choice_of(const struct call *call, const struct choice *c)
{
	bool thought = c->has_out && c->out.mode == OUTPUT_REASONING;
	struct out_choice o = {.index = c->index,
		.finish = finish_of(c),
		.stop = stop_of(call, c),
		.content = BYTES_STR("")};

	if (!c->has_out)
		return o;
	o.parts = &c->parts;
	o.calls = c->parts.calls;
	o.n_calls = c->parts.n_calls;
	o.content = text_of(&c->parts.content);
	if (thought && !call->gen.hide_reasoning)
		o.reasoning = text_of(&c->parts.reasoning);
	if ((thought && c->out.thinking) || (o.n_calls > 0 && c->parts.content.len == 0))
		o.content = (struct bytes){NULL, 0};
	return o;
}

/* JSON of one choice after the other in `text`; what stands where is known only when it
 * does not move any more. */
static void put_logprobs(struct call *call, struct out_choice *choices, struct sink *text)
{
	size_t own[API_ANSWERS_MAX + 1], prompt[API_ANSWERS_MAX];

	for (uint32_t i = 0; i < call->n; i++) {
		struct choice *c = &call->choices[i];

		own[i] = text->len;
		(void)logprobs_of(call, c, text);
		prompt[i] = text->len;
		if (call->gen.prompt_logprobs)
			out_logprobs_prompt(text, call->rt->tokenizer,
				&call->prompts[call_prompt_of(c)],
				call->gen.n_prompt_logprobs);
		own[i + 1] = text->len;
	}
	for (uint32_t i = 0; i < call->n; i++) {
		if (prompt[i] > own[i])
			choices[i].logprobs =
				(struct bytes){text->at + own[i], prompt[i] - own[i]};
		if (own[i + 1] > prompt[i])
			choices[i].prompt_logprobs = (struct bytes){
				text->at + prompt[i], own[i + 1] - prompt[i]};
	}
}

static void write_whole(struct call *call)
{
	struct out_usage usage = usage_of(call);
	struct out_head head = head_of(call, NULL);
	struct out_choice choices[API_ANSWERS_MAX];
	struct sink logprobs;

	sink_init(&logprobs, LOGPROBS_BYTES_MAX);
	for (uint32_t i = 0; i < call->n; i++) {
		choices[i] = choice_of(call, &call->choices[i]);
		call_ids_next(&call->choices[i], &choices[i].ids);
	}
	put_logprobs(call, choices, &logprobs);
	call->piece.full |= logprobs.full;
	call->format->whole(&call->piece, &head, choices, call->n, &usage);
	sink_release(&logprobs);
	if (call_is_full(call)) {
		call_fail_size(call);
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
	struct out_usage usage;
	struct out_head head;

	if (call->answered || call->gone)
		return;
	call->answered = true;
	call->error = e->code;
	snprintf(call->finish, sizeof(call->finish), "error");
	if (e->http >= 500)
		log_warn("req=%s fails status=%u code=%s: %s", http_id(call->req),
			e->http, e->code != NULL ? e->code : "-", e->message);
	sink_reset(&call->piece);
	if (call->begun) {
		head = head_of(call, usage_each(call, &usage));
		call->format->error_event(&call->piece, &head, e);
		flush_piece(call);
		http_stream_end(call->req);
	} else {
		reply_error(call->rt, call->req, e, no_retry);
	}
	withdraw_all(call);
}

/* ---- one choice ---- */

static void take_text(struct parts *p, enum part_kind kind, struct sink *text)
{
	p->full |= text->full;
	if (!text->full)
		parts_text(p, kind, sink_bytes(text));
	sink_reset(text);
}

void call_take_parts(struct choice *c)
{
	if (c->tools != NULL) {
		call_tools_take(c);
		return;
	}
	take_text(&c->parts, PART_REASONING, &c->out.reasoning);
	take_text(&c->parts, PART_CONTENT, &c->out.content);
}

void call_write_parts(struct call *call, struct choice *c)
{
	for (uint32_t i = 0; i < c->parts.n && !call->answered; i++) {
		struct out_part part = parts_get(&c->parts, i);

		write_delta(call, c, &part);
	}
	parts_told(&c->parts);
}

void call_write_end(struct call *call, struct choice *c)
{
	if (c->has_out && c->hit < 0)
		output_finish(&c->out);
	if (c->has_out && c->tools != NULL)
		call_tools_finish(c);
	else if (c->has_out)
		call_take_parts(c);
	if (call_is_full(call)) {
		call_fail_size(call);
		return;
	}
	if (call->stream && c->has_out)
		call_write_parts(call, c);
	if (call->stream && !call->answered)
		write_finish(call, c);
	if (call->answered || ++call->n_ended < call->n)
		return;
	if (call->stream)
		end_stream(call);
	else
		write_whole(call);
}
