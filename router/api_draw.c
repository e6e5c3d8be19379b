/* Members of generation requests that change how tokens are drawn (penalties, bias, stop
 * ids, number of choices) and what is told of them (logprobs, the prompt). */
#include "common/base/mem.h"
#include "router/api_json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const struct api_range penalty_range = {-2, 2, false, "a number from -2 to 2"};
static const struct api_range repetition_range = {
	0, 1000000, true, "a number above 0, as a 32-bit float too, and at most 1000000"};
static const struct api_int_range choices_range = {
	1, API_CHOICES_MAX, "an integer from 1 to 128"};
static const struct api_int_range logprobs_range = {
	0, API_LOGPROBS_MAX, "an integer from 0 to 20"};
static const struct api_int_range min_tokens_range = {
	0, UINT32_MAX, "an integer from 0 to 4294967295"};

static bool refuse(struct api_error *e, const char *param, const char *text)
{
	api_error_set(e, 400, "invalid_value", param, "%s", text);
	return false;
}

static bool parse_penalties(
	const struct json *object, struct gen_request *req, struct api_error *e)
{
	return api_json_f64(object, "presence_penalty", &penalty_range,
		       &req->draw.presence, &req->has_presence, e) &&
	       api_json_f64(object, "frequency_penalty", &penalty_range,
		       &req->draw.frequency, &req->has_frequency, e) &&
	       api_json_f64(object, "repetition_penalty", &repetition_range,
		       &req->draw.repetition, &req->has_repetition, e);
}

/* "17", nothing else. */
static bool key_id(const char *key, uint32_t *id)
{
	char *end;
	unsigned long long v;

	if (key == NULL || key[0] < '0' || key[0] > '9')
		return false;
	errno = 0;
	v = strtoull(key, &end, 10);
	*id = (uint32_t)v;
	return errno == 0 && *end == 0 && v <= API_ID_MAX;
}

static bool parse_bias(
	const struct json *object, struct gen_request *req, struct api_error *e)
{
	static const char want[] = "an object of token ids and numbers from -100 to 100";
	const struct json *bias = json_given(object, "logit_bias");

	if (bias == NULL)
		return true;
	if (!json_is(bias, JSON_OBJECT))
		return api_json_refuse(e, "logit_bias", bias, want);
	if (json_count(bias) > API_BIAS_MAX)
		return refuse(e, "logit_bias", "logit_bias has more than 512 members.");
	if (json_count(bias) == 0)
		return true;
	req->bias = mem_take(json_count(bias), sizeof(*req->bias));
	if (req->bias == NULL)
		return api_json_no_memory(e);
	json_each_member(key, bias)
	{
		struct wire_bias *b = &req->bias[req->n_bias];
		double add;

		if (!key_id(json_text(key), &b->token) || !json_f64(key + 1, &add) ||
			!(add >= -100 && add <= 100))
			return api_json_refuse(e, "logit_bias", bias, want);
		b->add = (float)add;
		req->n_bias++;
	}
	return true;
}

static bool parse_stop_ids(
	const struct json *object, struct gen_request *req, struct api_error *e)
{
	const struct json *list = json_given(object, "stop_token_ids");

	if (list == NULL || (json_is(list, JSON_ARRAY) && json_count(list) == 0))
		return true;
	if (json_count(list) > API_STOP_IDS_MAX)
		return refuse(
			e, "stop_token_ids", "stop_token_ids holds more than 48 ids.");
	return api_json_ids(
		list, "stop_token_ids", &req->stop_token_ids, &req->n_stop_token_ids, e);
}

static bool parse_min_tokens(
	const struct json *object, struct gen_request *req, struct api_error *e)
{
	int64_t n = 0;

	if (!api_json_int(
		    object, "min_tokens", &min_tokens_range, &n, &req->has_min_tokens, e))
		return false;
	req->draw.min_tokens = (uint64_t)n;
	if (req->has_max_tokens && req->draw.min_tokens > req->max_tokens)
		return refuse(e, "min_tokens", "min_tokens is larger than max_tokens.");
	return true;
}

static bool parse_choices(const struct json *object, enum api_where where,
	struct gen_request *req, struct api_error *e)
{
	int64_t n = 1, best = 0;
	bool has_best = false;

	if (!api_json_int(object, "n", &choices_range, &n, NULL, e))
		return false;
	req->n = (uint32_t)n;
	if (where != API_IN_COMPLETION)
		return true;
	if (!api_json_int(object, "best_of", &choices_range, &best, &has_best, e))
		return false;
	if (has_best && best != 1 && best != n)
		return refuse(e, "best_of",
			"best_of is not supported beyond n: all answers are returned.");
	return true;
}

/* Chat: a switch and a number beside it; completions: one number. */
static bool parse_logprobs(const struct json *object, enum api_where where,
	struct gen_request *req, struct api_error *e)
{
	bool has_top = false;
	int64_t n = 0;

	if (where == API_IN_COMPLETION) {
		if (!api_json_int(
			    object, "logprobs", &logprobs_range, &n, &req->logprobs, e))
			return false;
		req->draw.top_logprobs = (uint64_t)n;
		return true;
	}
	if (!api_json_bool(object, "logprobs", &req->logprobs, NULL, e) ||
		!api_json_int(object, "top_logprobs", &logprobs_range, &n, &has_top, e))
		return false;
	if (n > 0 && !req->logprobs)
		return refuse(e, "top_logprobs",
			"top_logprobs is only allowed when logprobs is true.");
	req->draw.top_logprobs = (uint64_t)n;
	return true;
}

static bool parse_prompt_logprobs(
	const struct json *object, struct gen_request *req, struct api_error *e)
{
	int64_t n = 0;

	if (!api_json_int(object, "prompt_logprobs", &logprobs_range, &n,
		    &req->prompt_logprobs, e))
		return false;
	if (req->prompt_logprobs && req->stream)
		return refuse(e, "prompt_logprobs",
			"prompt_logprobs is not supported with stream.");
	req->n_prompt_logprobs = (uint32_t)n;
	return true;
}

bool api_draw_parse(const struct json *object, enum api_where where,
	struct gen_request *req, struct api_error *e)
{
	return parse_penalties(object, req, e) && parse_bias(object, req, e) &&
	       parse_stop_ids(object, req, e) && parse_min_tokens(object, req, e) &&
	       parse_choices(object, where, req, e) &&
	       parse_logprobs(object, where, req, e) &&
	       parse_prompt_logprobs(object, req, e) &&
	       (where == API_IN_CHAT ||
		       api_json_bool(object, "echo", &req->echo, NULL, e));
}
