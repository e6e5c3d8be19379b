/* Bodies of Anthropic's messages, and of the count of their tokens. */
#include "common/base/mem.h"
#include "router/api_fields.h"
#include "router/tools.h"

static const struct tools_form form = {NULL, "input_schema", false};

/* Whether the prompt is to name the tools. */
static bool is_offered(const struct json *object)
{
	const struct json *choice = json_given(object, "tool_choice");

	return json_count(json_given(object, "tools")) > 0 &&
	       !json_equals(json_member(choice, "type"), "none");
}

/* A call that must come needs a grammar. */
static bool parse_choice(
	const struct json *object, struct tool_set *set, struct api_error *e)
{
	static const char want[] = "auto, any, tool or none";
	const struct json *choice = json_given(object, "tool_choice");
	const struct json *type = json_member(choice, "type");
	char shown[48];
	bool single = false;

	if (choice == NULL)
		return true;
	if (!json_is(choice, JSON_OBJECT))
		return api_json_refuse(e, "tool_choice", choice, "an object");
	if (json_equals(type, "any") || json_equals(type, "tool")) {
		api_error_set(e, 400, "unsupported_parameter", "tool_choice.type",
			"tool_choice of type %s is not supported; what is taken: auto, "
			"none.",
			json_show(type, shown, sizeof(shown)));
		return false;
	}
	if (!json_equals(type, "auto") && !json_equals(type, "none"))
		return api_json_refuse(e, "tool_choice.type", type, want);
	if (!api_json_bool(
		    object, "tool_choice.disable_parallel_tool_use", &single, NULL, e))
		return false;
	set->one_call = single;
	return true;
}

static bool parse_tools(
	const struct json *object, struct gen_request *req, struct api_error *e)
{
	req->tools = mem_take(1, sizeof(*req->tools));
	if (req->tools == NULL)
		return api_json_no_memory(e);
	return tools_declare(json_given(object, "tools"), &form, is_offered(object),
		       req->tools, e) &&
	       parse_choice(object, req->tools, e);
}

/* There is nothing that ends a thought early, so that only a budget is taken which the
 * length of the answer keeps. */
static bool check_budget(
	const struct json *thinking, const struct gen_request *req, struct api_error *e)
{
	static const char name[] = "thinking.budget_tokens";
	const struct json *budget = json_given(thinking, "budget_tokens");
	int64_t tokens;

	if (budget == NULL)
		return true;
	if (!json_i64(budget, &tokens) || tokens < 1)
		return api_json_refuse(e, name, budget, api_max_tokens_range.text);
	if (req->has_max_tokens && (uint64_t)tokens >= req->max_tokens)
		return true;
	api_error_set(e, 400, "unsupported_parameter", name,
		"%s below max_tokens is not supported: thoughts are not cut. What is "
		"taken: type adaptive, or enabled without it.",
		name);
	return false;
}

/* Without the member there is no thinking, as in Anthropic's API. */
static bool parse_thinking(
	const struct json *object, struct gen_request *req, bool *on, struct api_error *e)
{
	const struct json *thinking = json_given(object, "thinking");
	const struct json *type = json_given(thinking, "type");
	const struct json *display = json_given(thinking, "display");

	*on = json_equals(type, "enabled") || json_equals(type, "adaptive");
	if (thinking == NULL)
		return true;
	if (!json_is(thinking, JSON_OBJECT))
		return api_json_refuse(e, "thinking", thinking, "an object");
	if (!*on && !json_equals(type, "disabled"))
		return api_json_refuse(
			e, "thinking.type", type, "enabled, adaptive or disabled");
	req->hide_reasoning = json_equals(display, "omitted");
	if (display != NULL && !req->hide_reasoning &&
		!json_equals(display, "summarized"))
		return api_json_refuse(
			e, "thinking.display", display, "summarized or omitted");
	return check_budget(thinking, req, e);
}

static bool put_prompt(const struct json *object, bool thinks, struct gen_request *req,
	struct api_error *e)
{
	struct api_render render;
	enum api_prompt_end end;
	struct json_out w;
	struct sink text;

	api_render_begin(&w, &text);
	if (!api_blocks_put(&w, object, &end, e)) {
		sink_release(&text);
		return false;
	}
	json_name(&w, "kwargs");
	json_open(&w, '{');
	json_add_bool(&w, "enable_thinking", thinks);
	json_close(&w);
	if (is_offered(object)) {
		json_name(&w, "tools");
		tools_put(&w, json_given(object, "tools"), &form);
	}
	if (!api_render_end(&w, end, &render, e))
		return false;
	req->render = render.text;
	req->render_len = render.len;
	return true;
}

/* Everything but that there must be a length. */
static bool parse(const struct json *object, struct gen_request *req, struct api_error *e)
{
	bool thinks;

	return api_gen_common(object, API_IN_MESSAGES, req, e) &&
	       api_gen_length(object, "max_tokens", &api_max_tokens_range, req, e) &&
	       api_gen_stop(object, "stop_sequences", req, e) &&
	       parse_tools(object, req, e) && parse_thinking(object, req, &thinks, e) &&
	       put_prompt(object, thinks, req, e);
}

static bool needs_length(const struct gen_request *req, struct api_error *e)
{
	return req->has_max_tokens ||
	       api_json_refuse(e, "max_tokens", NULL, api_max_tokens_range.text);
}

bool api_parse_messages(struct gen_request *req, struct sink *body,
	const struct api_options *options, struct api_error *e)
{
	struct json_doc doc;
	const struct json *object = api_json_body(&doc, body, e);
	bool ok;

	(void)options;
	*req = (struct gen_request){0};
	ok = object != NULL && parse(object, req, e) && needs_length(req, e);
	/* The first event tells what the prompt has, the last one what the answer. */
	req->usage_each = true;
	if (!ok)
		gen_request_release(req);
	json_release(&doc);
	return ok;
}

bool api_parse_count(struct tok_request *req, struct sink *body,
	const struct api_options *options, struct api_error *e)
{
	struct json_doc doc;
	const struct json *object = api_json_body(&doc, body, e);
	struct gen_request gen = {0};
	bool ok;

	(void)options;
	*req = (struct tok_request){.shape = TOK_SHAPE_COUNT, .parse_special = true};
	ok = object != NULL && parse(object, &gen, e);
	if (ok) {
		req->model = gen.model;
		req->render = gen.render;
		req->render_len = gen.render_len;
		gen.model = gen.render = NULL;
	}
	gen_request_release(&gen);
	json_release(&doc);
	return ok;
}
