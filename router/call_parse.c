/* The body of a call, read, checked and built apart from the call: what is large goes to
 * the pool, so that no turn of the loop depends on the size of a body. */
#include "common/base/mem.h"
#include "router/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Read in tens of microseconds, less than a job of the pool costs in waiting. */
#define INLINE_BYTES 8192u

struct call_job {
	struct call *call; /* NULL: it ended meanwhile */
	/* Of the router only what never changes is looked at. */
	const struct router *rt;
	const struct answer_format *format;
	struct sink body;
	struct gen_request gen;
	bool ok;
	struct api_error error;
};

static bool no_memory(struct api_error *e)
{
	api_error_set(
		e, 503, "overloaded", NULL, "The router has no memory for this request.");
	return false;
}

static bool is_known(
	const struct call_job *job, const char *param, uint32_t id, struct api_error *e)
{
	uint32_t n = tokenizer_n_tokens(job->rt->tokenizer);

	if (id < n)
		return true;
	api_error_set(e, 400, "invalid_value", param,
		"%s: token id %" PRIu32 "; the vocabulary has %" PRIu32 ".", param, id,
		n);
	return false;
}

static bool prompt_is_known(const struct call_job *job, size_t i, struct api_error *e)
{
	const struct gen_prompt *p = &job->gen.prompts[i];
	uint32_t n = tokenizer_n_tokens(job->rt->tokenizer);
	char param[64];

	for (size_t k = 0; k < p->n_ids; k++) {
		if (p->ids[k] < n)
			continue;
		if (job->gen.n_prompts > 1)
			snprintf(param, sizeof(param), "prompt[%zu][%zu]", i, k);
		else
			snprintf(param, sizeof(param), "prompt[%zu]", k);
		api_error_set(e, 400, "invalid_value", param,
			"%s: token id %" PRIu32 " at position %zu; the vocabulary has "
			"%" PRIu32 ".",
			param, p->ids[k], k, n);
		return false;
	}
	return true;
}

/* Every id of the request is one of the vocabulary. */
static bool ids_are_known(const struct call_job *job, struct api_error *e)
{
	const struct gen_request *gen = &job->gen;

	char param[40];

	for (size_t i = 0; i < gen->n_bias; i++) {
		snprintf(param, sizeof(param), "logit_bias.%" PRIu32, gen->bias[i].token);
		if (!is_known(job, param, gen->bias[i].token, e))
			return false;
	}
	for (size_t i = 0; i < gen->n_stop_token_ids; i++) {
		snprintf(param, sizeof(param), "stop_token_ids[%zu]", i);
		if (!is_known(job, param, gen->stop_token_ids[i], e))
			return false;
	}
	for (size_t i = 0; i < gen->n_prompts; i++)
		if (!prompt_is_known(job, i, e))
			return false;
	return true;
}

/* Leading spaces say nothing of a word, unless it is made of them. */
static struct bytes bare_word(struct bytes word)
{
	size_t n = 0;

	while (n < word.len && word.at[n] == ' ')
		n++;
	return n == word.len ? word : (struct bytes){word.at + n, word.len - n};
}

/* *id of a text that is one token; -1: it is more. */
static bool single_id(const struct call_job *job, const char *space, struct bytes word,
	int64_t *id, struct api_error *e)
{
	status st = ST_NOMEM;
	struct tok_ids ids;
	struct sink text;
	struct err err;

	tok_ids_init(&ids, 1);
	sink_init(&text, SIZE_MAX / 2);
	sink_str(&text, space);
	sink_put(&text, word.at, word.len);
	if (!text.full)
		st = tokenizer_encode(
			job->rt->tokenizer, sink_bytes(&text), 0, &ids, &err);
	*id = st == ST_OK && ids.n == 1 ? (int64_t)ids.v[0] : -1;
	tok_ids_release(&ids);
	sink_release(&text);
	return st != ST_NOMEM || no_memory(e);
}

static void ban(struct gen_request *gen, int64_t id)
{
	size_t i = 0;

	if (id < 0)
		return;
	while (i < gen->n_bias && gen->bias[i].token != (uint32_t)id)
		i++;
	gen->bias[i] = (struct wire_bias){(uint32_t)id, API_BIAS_BAN};
	gen->n_bias = MAX(gen->n_bias, i + 1);
}

static bool ban_word(
	struct call_job *job, uint32_t i, struct bytes word, struct api_error *e)
{
	int64_t plain, spaced;
	char param[32];

	word = bare_word(word);
	if (!single_id(job, "", word, &plain, e) ||
		!single_id(job, " ", word, &spaced, e))
		return false;
	if (plain < 0) {
		snprintf(param, sizeof(param), "bad_words[%" PRIu32 "]", i);
		api_error_set(e, 400, "unsupported_parameter", param,
			"%s is more than one token: that is not supported.", param);
		return false;
	}
	ban(&job->gen, plain);
	ban(&job->gen, spaced);
	return true;
}

/* A word that is one token is not drawn, with and without a space in front; of one that
 * is several, which of them is not to come depends on the others. */
static bool ban_words(struct call_job *job, struct api_error *e)
{
	struct gen_request *gen = &job->gen;
	size_t most = gen->n_bias + 2u * gen->n_bad_words, at = 0;
	struct wire_bias *grown;

	if (gen->n_bad_words == 0)
		return true;
	grown = mem_regrow(gen->bias, most * sizeof(*grown));
	if (grown == NULL)
		return no_memory(e);
	gen->bias = grown;
	for (uint32_t i = 0; i < gen->n_bad_words; i++) {
		struct bytes word = {gen->bad_words + at + sizeof(size_t), 0};

		memcpy(&word.len, gen->bad_words + at, sizeof(size_t));
		at += sizeof(size_t) + word.len;
		if (!ban_word(job, i, word, e))
			return false;
	}
	if (gen->n_bias <= API_BIAS_MAX)
		return true;
	api_error_set(e, 400, "invalid_value", "bad_words",
		"bad_words and logit_bias name %zu tokens; at most %u are allowed.",
		gen->n_bias, API_BIAS_MAX);
	return false;
}

static void work(void *ctx)
{
	struct call_job *job = ctx;
	struct api_options options = {.strict_template = job->rt->conf->strict_template};

	job->ok = job->format->parse(&job->gen, &job->body, &options, &job->error);
	sink_release(&job->body);
	if (job->ok &&
		(!ids_are_known(job, &job->error) || !ban_words(job, &job->error))) {
		gen_request_release(&job->gen);
		job->ok = false;
	}
}

/* The time that a grammar takes does not depend on the size of the body. */
static void understand(void *ctx)
{
	struct call_job *job = ctx;

	job->ok = job->ok && api_grammar_understood(&job->gen, &job->error);
}

static void work_all(void *ctx)
{
	work(ctx);
	understand(ctx);
}

static void done(void *ctx)
{
	struct call_job *job = ctx;
	struct call *call = job->call;

	if (call != NULL) {
		call->job = NULL;
		call->gen = job->gen;
		job->gen = (struct gen_request){0};
		call_parsed(call, job->ok ? NULL : &job->error);
	}
	gen_request_release(&job->gen);
	sink_release(&job->body);
	mem_give(job);
}

static void start(struct call_job *job, void (*fn)(void *ctx))
{
	if (loop_work(job->call->rt->loop, fn, done, job) == ST_OK)
		return;
	job->ok = false;
	call_no_memory(job->call, &job->error);
	done(job);
}

bool call_parse(struct call *call, struct api_error *e)
{
	struct call_job *job = mem_take(1, sizeof(*job));

	if (job == NULL) {
		call_no_memory(call, e);
		return false;
	}
	*job = (struct call_job){.call = call,
		.rt = call->rt,
		.format = call->format,
		.body = http_body_take(call->req)};
	call->job = job;
	if (job->body.len <= INLINE_BYTES) {
		work(job);
		if (!job->ok || job->gen.grammar == NULL)
			done(job);
		else
			start(job, understand);
	} else {
		start(job, work_all);
	}
	return true;
}

void call_parse_forget(struct call *call)
{
	if (call->job != NULL)
		call->job->call = NULL;
	call->job = NULL;
}
