/* Bodies of generation requests: the members that chat and completion share, and the
 * prompts of completions. */
#include "common/base/mem.h"
#include "router/api_json.h"

#include <stdio.h>
#include <string.h>

static const struct api_range temperature_range = {0, 2, false, "a number from 0 to 2"};
static const struct api_range top_p_range = {
	0, 1, true, "a number above 0, as a 32-bit float too, and at most 1"};
static const struct api_int_range positive = {
	1, INT64_MAX, "an integer from 1 to 9223372036854775807"};
/* Nothing but the prompt comes back. */
static const struct api_int_range with_echo = {
	0, INT64_MAX, "an integer from 0 to 9223372036854775807"};
static const struct api_int_range top_k_range = {
	-1, INT32_MAX, "an integer from -1 to 2147483647"};
static const struct api_int_range any_range = {INT64_MIN, INT64_MAX, "a 64-bit integer"};
static const struct api_range min_p_range = {0, 1, false, "a number from 0 to 1"};

void gen_request_release(struct gen_request *req)
{
	mem_give(req->model);
	mem_give(req->render);
	for (size_t i = 0; i < req->n_prompts; i++) {
		mem_give(req->prompts[i].text);
		mem_give(req->prompts[i].echo);
		mem_give(req->prompts[i].ids);
	}
	mem_give(req->prompts);
	mem_give(req->stop_token_ids);
	mem_give(req->bias);
	*req = (struct gen_request){0};
}

static bool add_stop(struct gen_request *req, const struct json *v, const char *param,
	struct api_error *e)
{
	struct err err;

	if (json_bytes(v).len == 0)
		return api_json_refuse(e, param, v, "a non-empty string");
	if (stop_set_add(&req->stop, json_bytes(v), &err) != ST_OK) {
		api_error_set(e, 400, "invalid_value", param, "%s: %s.", param, err.text);
		return false;
	}
	return true;
}

static bool parse_stop(
	const struct json *object, struct gen_request *req, struct api_error *e)
{
	const struct json *v = json_given(object, "stop");
	char param[32];
	size_t i = 0;

	stop_set_init(&req->stop);
	if (v == NULL)
		return true;
	if (!json_is(v, JSON_ARRAY))
		return add_stop(req, v, "stop", e);
	if (json_count(v) > STOP_STRINGS_MAX) {
		api_error_set(e, 400, "invalid_value", "stop",
			"stop holds %u strings; at most %u are allowed.", json_count(v),
			STOP_STRINGS_MAX);
		return false;
	}
	json_each(item, v)
	{
		snprintf(param, sizeof(param), "stop[%zu]", i++);
		if (!add_stop(req, item, param, e))
			return false;
	}
	return true;
}

static bool parse_stream(
	const struct json *object, struct gen_request *req, struct api_error *e)
{
	const struct json *options = json_given(object, "stream_options");

	if (!api_json_bool(object, "stream", &req->stream, NULL, e))
		return false;
	if (options == NULL)
		return true;
	if (!json_is(options, JSON_OBJECT))
		return api_json_refuse(e, "stream_options", options, "an object");
	if (!req->stream) {
		api_error_set(e, 400, "invalid_value", "stream_options",
			"stream_options is only allowed when stream is true.");
		return false;
	}
	return api_json_bool(options, "include_usage", &req->include_usage, NULL, e) &&
	       api_json_bool(
		       options, "continuous_usage_stats", &req->usage_each, NULL, e);
}

static bool parse_limits(const struct json *object, enum api_where where,
	struct gen_request *req, struct api_error *e)
{
	const struct api_int_range *range = &positive;
	int64_t tokens = 0, top_k = 0, seed = 0;

	if (where == API_IN_COMPLETION && json_is(json_given(object, "echo"), JSON_TRUE))
		range = &with_echo;
	if (!api_json_int(
		    object, "max_tokens", range, &tokens, &req->has_max_tokens, e) ||
		!api_json_int(object, "max_completion_tokens", range, &tokens,
			&req->has_max_tokens, e) ||
		!api_json_int(
			object, "top_k", &top_k_range, &top_k, &req->has_top_k, e) ||
		!api_json_int(object, "seed", &any_range, &seed, &req->has_seed, e))
		return false;
	req->max_tokens = (uint64_t)tokens;
	req->draw.top_k = top_k > 0 ? (uint64_t)top_k : 0;
	req->draw.seed = (uint64_t)seed;
	return true;
}

/* Everything but messages and prompt. */
static bool parse_common(const struct json *object, enum api_where where,
	struct gen_request *req, struct api_error *e)
{
	return api_fields_check(object, where, req->ignored, sizeof(req->ignored), e) &&
	       api_json_name(object, "model", &req->model, e) &&
	       parse_limits(object, where, req, e) &&
	       api_json_f64(object, "temperature", &temperature_range,
		       &req->draw.temperature, &req->has_temperature, e) &&
	       api_json_f64(object, "top_p", &top_p_range, &req->draw.top_p,
		       &req->has_top_p, e) &&
	       api_json_f64(object, "min_p", &min_p_range, &req->draw.min_p,
		       &req->has_min_p, e) &&
	       api_json_bool(object, "ignore_eos", &req->ignore_eos, NULL, e) &&
	       parse_stream(object, req, e) && parse_stop(object, req, e) &&
	       api_draw_parse(object, where, req, e);
}

static bool parse_text_prompt(const struct json *v, const char *param,
	struct gen_prompt *out, bool echo, struct api_error *e)
{
	struct bytes text = json_bytes(v);

	if (text.len == 0)
		return api_json_refuse(e, param, v, "a non-empty string");
	out->len = text.len;
	out->text = mem_dup(text.at, text.len);
	if (echo)
		out->echo = mem_dup(text.at, text.len);
	return (out->text != NULL && (out->echo != NULL || !echo)) ||
	       api_json_no_memory(e);
}

static bool take_prompts(struct gen_request *req, size_t n, struct api_error *e)
{
	req->prompts = mem_take(n, sizeof(*req->prompts));
	if (req->prompts == NULL)
		return api_json_no_memory(e);
	req->n_prompts = n;
	return true;
}

static bool parse_prompt_list(
	const struct json *list, struct gen_request *req, struct api_error *e)
{
	bool strings = json_is(json_item(list, 0), JSON_STRING);
	char param[32];
	size_t i = 0;

	if (json_count(list) > API_PROMPTS_MAX) {
		api_error_set(e, 400, "invalid_value", "prompt",
			"prompt holds %u prompts; at most %u are allowed.",
			json_count(list), API_PROMPTS_MAX);
		return false;
	}
	if (!take_prompts(req, json_count(list), e))
		return false;
	json_each(item, list)
	{
		struct gen_prompt *p = &req->prompts[i];

		snprintf(param, sizeof(param), "prompt[%zu]", i++);
		if (strings ? !parse_text_prompt(item, param, p, req->echo, e)
			    : !api_json_ids(item, param, &p->ids, &p->n_ids, e))
			return false;
	}
	return true;
}

static bool parse_prompt(
	const struct json *object, struct gen_request *req, struct api_error *e)
{
	static const char want[] = "a non-empty string, a list of strings, "
				   "a list of token ids or a list of such lists";
	const struct json *v = json_given(object, "prompt");
	const struct json *first = json_item(v, 0);

	if (json_is(first, JSON_STRING) || json_is(first, JSON_ARRAY))
		return parse_prompt_list(v, req, e);
	if (json_bytes(v).len == 0 && !json_is(first, JSON_NUMBER))
		return api_json_refuse(e, "prompt", v, want);
	if (!take_prompts(req, 1, e))
		return false;
	return first == NULL ? parse_text_prompt(v, "prompt", req->prompts, req->echo, e)
			     : api_json_ids(v, "prompt", &req->prompts->ids,
				       &req->prompts->n_ids, e);
}

static bool check_answers(const struct gen_request *req, struct api_error *e)
{
	if (req->n_prompts * req->n <= API_ANSWERS_MAX)
		return true;
	api_error_set(e, 400, "invalid_value", "n",
		"%zu prompts with n = %u are %zu answers; at most %u are allowed.",
		req->n_prompts, req->n, req->n_prompts * req->n, API_ANSWERS_MAX);
	return false;
}

bool api_parse_completion(struct gen_request *req, struct sink *body,
	const struct api_options *options, struct api_error *e)
{
	struct json_doc doc;
	const struct json *object = api_json_body(&doc, body, e);
	bool ok;

	(void)options;
	*req = (struct gen_request){0};
	ok = object != NULL && parse_common(object, API_IN_COMPLETION, req, e) &&
	     parse_prompt(object, req, e) && check_answers(req, e);
	if (!ok)
		gen_request_release(req);
	json_release(&doc);
	return ok;
}

bool api_parse_chat(struct gen_request *req, struct sink *body,
	const struct api_options *options, struct api_error *e)
{
	struct json_doc doc;
	const struct json *object = api_json_body(&doc, body, e);
	struct api_render render = {0};
	bool ok;

	*req = (struct gen_request){0};
	ok = object != NULL && parse_common(object, API_IN_CHAT, req, e) &&
	     api_chat_render(object, options, true, &render, e);
	if (ok) {
		req->render = render.text;
		req->render_len = render.len;
		req->has_thinking = render.has_thinking;
		req->thinking = render.thinking;
	} else {
		gen_request_release(req);
	}
	json_release(&doc);
	return ok;
}
