/* Members of generation requests that change how tokens are drawn (penalties, bias, stop
 * ids, number of choices) and what is told of them (logprobs, the prompt). */
#include "common/base/mem.h"
#include "router/api_fields.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool refuse(struct api_error *e, const char *param, const char *text)
{
	api_error_set(e, 400, "invalid_value", param, "%s", text);
	return false;
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
	char at[32];

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

		if (!key_id(json_text(key), &b->token))
			return api_json_refuse(e, "logit_bias", bias, want);
		if (!json_f64(key + 1, &add) || !(add >= -100 && add <= 100)) {
			snprintf(at, sizeof(at), "logit_bias.%u", b->token);
			return api_json_refuse(
				e, at, key + 1, "a number from -100 to 100");
		}
		b->add = (float)add;
		req->n_bias++;
	}
	return true;
}

/* Words, one after the other, each behind its length. */
static bool parse_bad_words(
	const struct json *object, struct gen_request *req, struct api_error *e)
{
	const struct json *list = json_given(object, "bad_words");
	char at[32];
	size_t i = 0, used = 0, bytes = 0;

	if (list == NULL)
		return true;
	if (!json_is(list, JSON_ARRAY) || json_count(list) > API_BIAS_MAX)
		return api_json_refuse(
			e, "bad_words", list, "a list of at most 512 words");
	json_each(word, list)
	{
		snprintf(at, sizeof(at), "bad_words[%zu]", i++);
		if (json_bytes(word).len == 0)
			return api_json_refuse(e, at, word, "a non-empty string");
		bytes += json_bytes(word).len + sizeof(size_t);
	}
	if (i == 0)
		return true;
	req->bad_words = mem_take(bytes, 1);
	if (req->bad_words == NULL)
		return api_json_no_memory(e);
	json_each(word, list)
	{
		struct bytes text = json_bytes(word);

		memcpy(req->bad_words + used, &text.len, sizeof(size_t));
		memcpy(req->bad_words + used + sizeof(size_t), text.at, text.len);
		used += sizeof(size_t) + text.len;
	}
	req->n_bad_words = (uint32_t)i;
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

	if (!api_json_int(object, "min_tokens", &api_min_tokens_range, &n,
		    &req->has_min_tokens, e))
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

	if (!api_json_int(object, "n", &api_choices_range, &n, NULL, e))
		return false;
	req->n = (uint32_t)n;
	if (where != API_IN_COMPLETION)
		return true;
	if (!api_json_int(object, "best_of", &api_choices_range, &best, &has_best, e))
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
		if (!api_json_int(object, "logprobs", &api_logprobs_range, &n,
			    &req->logprobs, e))
			return false;
		req->draw.top_logprobs = (uint64_t)n;
		return true;
	}
	if (!api_json_bool(object, "logprobs", &req->logprobs, NULL, e) ||
		!api_json_int(
			object, "top_logprobs", &api_logprobs_range, &n, &has_top, e))
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

	if (!api_json_int(object, "prompt_logprobs", &api_logprobs_range, &n,
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
	return parse_bias(object, req, e) && parse_bad_words(object, req, e) &&
	       parse_stop_ids(object, req, e) && parse_min_tokens(object, req, e) &&
	       parse_choices(object, where, req, e) &&
	       parse_logprobs(object, where, req, e) &&
	       parse_prompt_logprobs(object, req, e) &&
	       (where == API_IN_CHAT ||
		       api_json_bool(object, "echo", &req->echo, NULL, e));
}
