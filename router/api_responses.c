/* Bodies of OpenAI's responses. Nothing is kept here: each request brings all of its
 * conversation, and what would need an earlier answer is refused. */
#include "common/base/mem.h"
#include "router/api_fields.h"
#include "router/tools.h"

static const struct tools_form form = {NULL, "parameters", true};

static bool parse_tools(
	const struct json *object, struct gen_request *req, struct api_error *e)
{
	req->tools = mem_take(1, sizeof(*req->tools));
	return req->tools != NULL ? tools_parse(object, &form, req->tools, e)
				  : api_json_no_memory(e);
}

/* Thoughts are told as they are: whoever leaves it to us gets them, a summary nobody. */
static bool check_reasoning(const struct json *reasoning, struct api_error *e)
{
	static const char *const names[] = {"summary", "generate_summary"};
	static const char *const paths[] = {
		"reasoning.summary", "reasoning.generate_summary"};

	if (reasoning != NULL && !json_is(reasoning, JSON_OBJECT))
		return api_json_refuse(e, "reasoning", reasoning, "an object");
	for (size_t i = 0; i < COUNT(names); i++) {
		const struct json *v = json_given(reasoning, names[i]);

		if (v == NULL || json_equals(v, "auto"))
			continue;
		api_error_set(e, 400, "unsupported_parameter", paths[i],
			"%s is not supported with this value; what is taken: auto. "
			"Reasoning is told in full.",
			paths[i]);
		return false;
	}
	return api_effort_check(json_given(reasoning, "effort"), "reasoning.effort", e);
}

static bool put_prompt(const struct json *object, const struct api_options *options,
	struct gen_request *req, struct api_error *e)
{
	const struct json *effort = json_given(json_given(object, "reasoning"), "effort");
	struct api_render render;
	struct json_out w;
	struct sink text;

	api_render_begin(&w, &text);
	if (!api_items_put(&w, object, options, e)) {
		sink_release(&text);
		return false;
	}
	json_name(&w, "kwargs");
	json_open(&w, '{');
	if (effort != NULL) {
		json_add_bool(&w, "enable_thinking", !json_equals(effort, "none"));
		json_add_bytes(&w, "reasoning_effort", json_bytes(effort));
	}
	json_close(&w);
	if (tools_are_offered(object)) {
		json_name(&w, "tools");
		tools_put(&w, json_given(object, "tools"), &form);
	}
	if (!api_render_end(&w, API_PROMPT_ASKS, &render, e))
		return false;
	req->render = render.text;
	req->render_len = render.len;
	return true;
}

/* ---- what the answer says again of the request ---- */

static void mirror(struct json_out *w, const struct json *object, const char *name,
	const char *absent)
{
	const struct json *v = json_given(object, name);

	json_name(w, name);
	if (v != NULL)
		json_put(w, v);
	else
		json_put_raw(w, bytes_of_str(absent));
}

static bool put_mirror(
	const struct json *object, struct gen_request *req, struct api_error *e)
{
	static const struct {
		const char *name, *absent;
	} members[] = {
		{"instructions", "null"},
		{"max_output_tokens", "null"},
		{"metadata", "{}"},
		{"parallel_tool_calls", "true"},
		{"reasoning", "{\"effort\":null,\"summary\":null}"},
		{"temperature", "null"},
		{"text", "{\"format\":{\"type\":\"text\"}}"},
		{"tool_choice", "\"auto\""},
		{"tools", "[]"},
		{"top_p", "null"},
	};
	struct json_out w;
	struct sink text;

	sink_init(&text, SIZE_MAX / 2);
	json_out_init(&w, &text);
	json_open(&w, '{');
	for (size_t i = 0; i < COUNT(members); i++)
		mirror(&w, object, members[i].name, members[i].absent);
	json_close(&w);
	if (text.full) {
		sink_release(&text);
		return api_json_no_memory(e);
	}
	req->mirror = (char *)text.at;
	req->mirror_len = text.len;
	return true;
}

static bool parse(const struct json *object, const struct api_options *options,
	struct gen_request *req, struct api_error *e)
{
	return api_gen_common(object, API_IN_RESPONSES, req, e) &&
	       api_gen_length(
		       object, "max_output_tokens", &api_max_tokens_range, req, e) &&
	       parse_tools(object, req, e) &&
	       check_reasoning(json_given(object, "reasoning"), e) &&
	       put_prompt(object, options, req, e) && put_mirror(object, req, e);
}

bool api_parse_responses(struct gen_request *req, struct sink *body,
	const struct api_options *options, struct api_error *e)
{
	struct json_doc doc;
	const struct json *object = api_json_body(&doc, body, e);
	bool ok;

	*req = (struct gen_request){0};
	ok = object != NULL && parse(object, options, req, e);
	/* The last event tells it. */
	req->usage_each = true;
	if (!ok)
		gen_request_release(req);
	json_release(&doc);
	return ok;
}
