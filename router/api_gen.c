/* Bodies of generation requests: the members that chat and completion share, and the
 * prompts of completions. */
#include "common/base/mem.h"
#include "router/api_fields.h"
#include "router/tools.h"

#include <stdio.h>
#include <string.h>

/* Nothing but the prompt comes back. */
static const struct api_int_range with_echo = {
	0, INT64_MAX, "an integer from 0 to 9223372036854775807"};

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
	mem_give(req->bad_words);
	mem_give(req->mirror);
	mem_give(req->grammar);
	tools_release(req->tools);
	mem_give(req->tools);
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

bool api_gen_stop(const struct json *object, const char *name, struct gen_request *req,
	struct api_error *e)
{
	const struct json *v = json_given(object, name);
	char param[32];
	size_t i = 0;

	stop_set_init(&req->stop);
	if (v == NULL)
		return true;
	if (!json_is(v, JSON_ARRAY))
		return add_stop(req, v, name, e);
	if (json_count(v) > STOP_STRINGS_MAX) {
		api_error_set(e, 400, "invalid_value", name,
			"%s holds %u strings; at most %u are allowed.", name,
			json_count(v), STOP_STRINGS_MAX);
		return false;
	}
	json_each(item, v)
	{
		snprintf(param, sizeof(param), "%s[%zu]", name, i++);
		if (!add_stop(req, item, param, e))
			return false;
	}
	return true;
}

static bool parse_stream_options(
	const struct json *object, struct gen_request *req, struct api_error *e)
{
	const struct json *options = json_given(object, "stream_options");

	if (options == NULL)
		return true;
	if (!json_is(options, JSON_OBJECT))
		return api_json_refuse(e, "stream_options", options, "an object");
	if (!req->stream) {
		api_error_set(e, 400, "invalid_value", "stream_options",
			"stream_options is only allowed when stream is true.");
		return false;
	}
	return api_json_bool(object, "stream_options.include_usage", &req->include_usage,
		       NULL, e) &&
	       api_json_bool(object, "stream_options.continuous_usage_stats",
		       &req->usage_each, NULL, e);
}

static bool parse_limits(const struct json *object, enum api_where where,
	struct gen_request *req, struct api_error *e)
{
	const struct api_int_range *range = &api_max_tokens_range;

	if (where == API_IN_COMPLETION && json_is(json_given(object, "echo"), JSON_TRUE))
		range = &with_echo;
	return api_gen_length(object, "max_tokens", range, req, e) &&
	       api_gen_length(object, "max_completion_tokens", range, req, e);
}

static bool parse_truncate(
	const struct json *object, struct gen_request *req, struct api_error *e)
{
	static const char name[] = "truncate_prompt_tokens";

	if (!api_json_int(object, name, &api_truncate_range, &req->truncate, NULL, e))
		return false;
	if (json_given(object, name) != NULL && req->truncate == 0)
		return api_json_refuse(
			e, name, json_given(object, name), api_truncate_range.text);
	return true;
}

/* How the text of an answer is cut and shown. */
static bool parse_text_form(
	const struct json *object, struct gen_request *req, struct api_error *e)
{
	bool special = true, reasoning = true, no_trim = false;

	if (!api_json_bool(
		    object, "include_stop_str_in_output", &req->keep_stop, NULL, e) ||
		!api_json_bool(object, "no_stop_trim", &no_trim, NULL, e) ||
		!api_json_bool(object, "skip_special_tokens", &special, NULL, e) ||
		!api_json_bool(object, "include_reasoning", &reasoning, NULL, e) ||
		!api_json_bool(object, "return_token_ids", &req->return_ids, NULL, e) ||
		!api_json_bool(object, "return_tokens_as_token_ids", &req->tokens_as_ids,
			NULL, e))
		return false;
	req->keep_stop |= no_trim;
	req->show_special = !special;
	req->hide_reasoning = !reasoning;
	/* Workers look for them in the text without special tokens. */
	if (req->show_special && req->stop.n > 0) {
		api_error_set(e, 400, "unsupported_parameter", "skip_special_tokens",
			"skip_special_tokens false is not supported with stop.");
		return false;
	}
	return true;
}

bool api_gen_length(const struct json *object, const char *name,
	const struct api_int_range *range, struct gen_request *req, struct api_error *e)
{
	int64_t tokens = (int64_t)req->max_tokens;

	if (!api_json_int(object, name, range, &tokens, &req->has_max_tokens, e))
		return false;
	req->max_tokens = (uint64_t)tokens;
	return true;
}

bool api_gen_common(const struct json *object, enum api_where where,
	struct gen_request *req, struct api_error *e)
{
	int64_t top_k = 0, seed = 0;

	req->n = 1;
	if (!api_fields_check(object, where, req->ignored, sizeof(req->ignored), e) ||
		!api_json_name(object, "model", &req->model, e) ||
		!api_json_int(
			object, "top_k", &api_top_k_range, &top_k, &req->has_top_k, e) ||
		!api_json_int(object, "seed", &api_any_range, &seed, &req->has_seed, e) ||
		!api_fields_numbers(object, where, req, e) ||
		!api_json_bool(object, "stream", &req->stream, NULL, e))
		return false;
	req->draw.top_k = top_k > 0 ? (uint64_t)top_k : 0;
	req->draw.seed = (uint64_t)seed;
	return true;
}

/* Everything but messages and prompt. */
static bool parse_common(const struct json *object, enum api_where where,
	struct gen_request *req, struct api_error *e)
{
	return api_gen_common(object, where, req, e) &&
	       parse_limits(object, where, req, e) &&
	       api_json_bool(object, "ignore_eos", &req->ignore_eos, NULL, e) &&
	       parse_stream_options(object, req, e) &&
	       api_gen_stop(object, "stop", req, e) && parse_truncate(object, req, e) &&
	       parse_text_form(object, req, e) && api_draw_parse(object, where, req, e) &&
	       api_grammar_parse(object, req, e);
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

/* Of a prompt that is cut only its tokens say what is left. */
static bool echoes_text(const struct gen_request *req)
{
	return req->echo && req->truncate == 0;
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
	bool echo = echoes_text(req);
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
		if (strings ? !parse_text_prompt(item, param, p, echo, e)
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
	return first == NULL
		       ? parse_text_prompt(v, "prompt", req->prompts, echoes_text(req), e)
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

static bool take_tools(
	const struct json *object, struct gen_request *req, struct api_error *e)
{
	req->tools = mem_take(1, sizeof(*req->tools));
	return req->tools != NULL ? tools_parse(object, &tools_chat_form, req->tools, e)
				  : api_json_no_memory(e);
}

bool api_parse_chat(struct gen_request *req, struct sink *body,
	const struct api_options *options, struct api_error *e)
{
	struct json_doc doc;
	const struct json *object = api_json_body(&doc, body, e);
	struct api_render render = {0};
	enum api_prompt_end end;
	bool ok;

	*req = (struct gen_request){0};
	ok = object != NULL && parse_common(object, API_IN_CHAT, req, e) &&
	     take_tools(object, req, e) && api_chat_end(object, &end, e) &&
	     api_chat_render(object, options, end, &render, e);
	if (ok) {
		req->render = render.text;
		req->render_len = render.len;
	} else {
		gen_request_release(req);
	}
	json_release(&doc);
	return ok;
}
