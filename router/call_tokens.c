/* What generations say: tokens become text, the end becomes facts and metrics. */
#include "common/base/clock.h"
#include "router/call.h"

#include <stdio.h>
#include <string.h>

/* Text that may wait in a choice: what an answer of this length can hold, within
 * bounds; a stream takes it at once. */
#define TEXT_BYTES_PER_TOKEN 64u
#define TEXT_BYTES_MIN       (1u << 20)
#define TEXT_BYTES_MAX       (32u << 20)

/* The first token of a prompt has nothing before it that could foretell it. */
static bool begin_prompt(struct logprob_list *l, const struct request *r)
{
	return logprobs_add(
		l, (struct wire_logprob){r->ids[0], 0}, true, (struct bytes){NULL, 0});
}

/* The prompt is the beginning of the text, and its tokens of the logprobs. */
static void begin_echo(struct call *call, struct choice *c, const struct request *r)
{
	const struct gen_prompt *p = &call->gen.prompts[call_prompt_of(c)];
	struct detok detok;

	if (p->echo != NULL) {
		sink_put(&c->out.content, p->echo, p->len);
	} else {
		detok_init(&detok, call->rt->tokenizer, false);
		for (uint32_t i = 0; i < r->n_prompt; i++)
			detok_feed(&detok, r->ids[i], &c->out.content);
		detok_flush(&detok, &c->out.content);
	}
	c->logprobs.as_ids = call->gen.tokens_as_ids;
	if (call->gen.logprobs &&
		!logprobs_append(&c->logprobs, &call->prompts[call_prompt_of(c)],
			(uint32_t)call->gen.draw.top_logprobs))
		c->out.content.full = true;
}

static void begin_output(struct call *call, struct choice *c, const struct request *r)
{
	size_t tokens = r->max_tokens + (call->gen.echo ? (size_t)r->n_prompt : 0);
	size_t bytes = tokens * TEXT_BYTES_PER_TOKEN;

	bytes = MIN(MAX(bytes, TEXT_BYTES_MIN), TEXT_BYTES_MAX);
	output_init(&c->out, call->rt->tokenizer, r->mode, r->stop, bytes);
	parts_init(&c->parts, bytes);
	c->out.n_unread = (uint32_t)r->draw.min_tokens;
	c->out.keep_stop = call->gen.keep_stop;
	if (call->gen.show_special)
		output_show_special(&c->out);
	c->has_out = true;
	if (call->prompts != NULL && call->prompts[call_prompt_of(c)].n == 0 &&
		!begin_prompt(&call->prompts[call_prompt_of(c)], r))
		c->out.content.full = true;
	if (!call_ids_begin(c, r) || !call_tools_begin(c, bytes))
		c->out.content.full = true;
	if (call->gen.echo)
		begin_echo(call, c, r);
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

static void keep_logprobs(struct choice *c, const struct request_token *t)
{
	const struct gen_request *gen = &c->call->gen;

	if (!gen->logprobs || (gen->hide_reasoning && c->out.token_thinking))
		return;
	c->logprobs.as_ids = gen->tokens_as_ids;
	if (!logprobs_add(&c->logprobs, (struct wire_logprob){t->token, t->logprob},
		    false, t->tops))
		c->out.content.full = true;
}

static void note_stop(struct choice *c, uint32_t token)
{
	const struct gen_request *gen = &c->call->gen;

	for (size_t i = 0; i < gen->n_stop_token_ids; i++)
		if (gen->stop_token_ids[i] == token)
			c->stop_token = token;
}

bool call_deliver(void *router, struct request *r, const struct request_token *token)
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
	keep_logprobs(c, token);
	if (!call_ids_add(c, token->token))
		c->out.content.full = true;
	if (token->ends)
		note_stop(c, token->token);
	if ((!token->ends || call->gen.keep_stop) && c->hit < 0)
		c->hit = output_feed(&c->out, token->token);
	call_take_parts(c);
	if (call_is_full(call))
		call_fail_size(call);
	else if (call->stream)
		call_write_parts(call, c);
	return c->hit >= 0;
}

void call_score(void *router, struct request *r, const struct msg_prompt_logprobs *m)
{
	size_t rows = wire_count(m->entries, struct wire_logprob) / m->width;
	struct choice *c = r->user;
	struct logprob_list *l;
	bool kept = true;

	(void)router;
	if (c == NULL || c->call->gone || c->call->answered)
		return;
	l = &c->call->prompts[call_prompt_of(c)];
	if (m->from == 1) {
		logprobs_clear(l);
		kept = begin_prompt(l, r);
	}
	for (size_t i = 0; kept && i < rows; i++) {
		size_t size = sizeof(struct wire_logprob);
		struct wire_logprob own;

		wire_get(m->entries, i * m->width, &own, size);
		kept = logprobs_add(l, own, false,
			(struct bytes){m->entries.at + (i * m->width + 1) * size,
				(m->width - 1) * size});
	}
	if (!kept)
		call_fail_size(c->call);
}

/* A choice may be queued after the prefill that it shares was dispatched. */
static uint64_t between(uint64_t from, uint64_t to)
{
	return from != 0 && to > from ? to - from : 0;
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
	call->queue_ns = MAX(call->queue_ns, between(r->queued_ns, r->dispatched_ns));
	call->prefill_ns =
		MAX(call->prefill_ns, between(r->dispatched_ns, r->prefilled_ns));
	call->handover_ns = MAX(call->handover_ns, between(r->adopt_ns, r->adopted_ns));
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
	return (double)between(from, to) / NS_PER_S;
}

static void observe_end(struct metrics *m, const struct request *r)
{
	uint32_t n = r->n_ids > 0 ? request_generated(r) : 0;

	m->finish[r->finish]++;
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

void call_request_ended(void *router, struct request *r)
{
	struct router *rt = router;
	struct choice *c = r->user;
	struct call *call;

	observe_end(&rt->metrics, r);
	if (c == NULL)
		return;
	call = c->call;
	if (call->gen.echo && !c->has_out && r->finish == REQUEST_LENGTH)
		begin_output(call, c, r);
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
		call_write_end(call, c);
}
