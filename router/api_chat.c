/* The messages of a chat request and what goes with them, as one JSON object for the
 * template child, written directly from the values that were read: numbers with every
 * digit. */
#include "common/base/mem.h"
#include "router/api_json.h"
#include "router/tools.h"

#include <stdio.h>
#include <string.h>

/* Names that the renderer sets itself. */
static const char *const reserved_kwargs[] = {"messages", "tools", "documents",
	"add_generation_prompt", "continue_final_message"};

static const char *const efforts[] = {
	"none", "minimal", "low", "medium", "high", "xhigh", "max"};

static bool is_system(const struct json *m)
{
	const char *role = api_message_role(m);

	return role != NULL && strcmp(role, "system") == 0;
}

static bool needs_merge(const struct json *messages)
{
	bool first = true;

	json_each(m, messages)
	{
		if (!first && is_system(m))
			return true;
		first = false;
	}
	return false;
}

/* Whether the message is one, without writing it anywhere. */
static bool check(const struct api_message *m, struct api_error *e)
{
	struct json_out w;
	struct sink nowhere;
	bool ok;

	sink_init(&nowhere, 0);
	json_out_init(&w, &nowhere);
	json_open(&w, '[');
	ok = api_message_put(&w, m, e);
	sink_release(&nowhere);
	return ok;
}

/* Templates take one system message, in front; clients send several, anywhere. Their
 * texts are joined in order with a blank line between; what else the first one holds
 * stays. */
static bool put_merged_system(struct json_out *w, const struct json *list,
	const struct api_options *options, struct api_error *e)
{
	struct api_message first = {.m = NULL}, m = {.options = options};
	struct sink text;
	bool ok = true;

	sink_init(&text, SIZE_MAX / 2);
	json_each(item, list)
	{
		m.m = item;
		if (ok && is_system(item)) {
			if (first.m != NULL)
				sink_str(&text, "\n\n");
			else
				first = m;
			ok = check(&m, e) && api_message_text(&m, &text, e);
		}
		m.i++;
	}
	first.content = &text;
	ok = ok && api_message_put(w, &first, e);
	sink_release(&text);
	return ok;
}

bool api_message_count(const struct json *list, const char *name, struct api_error *e)
{
	if (!json_is(list, JSON_ARRAY) || json_count(list) == 0)
		return api_json_refuse(e, name, list, "a non-empty list of messages");
	if (json_count(list) <= API_MESSAGES_MAX)
		return true;
	api_error_set(e, 400, "invalid_value", name,
		"%s holds %u entries; at most %u are allowed.", name, json_count(list),
		API_MESSAGES_MAX);
	return false;
}

static bool put_messages(struct json_out *w, const struct json *object,
	const struct api_options *options, struct api_error *e)
{
	const struct json *list = json_given(object, "messages");
	struct api_message m = {.options = options};
	bool merge;

	if (!api_message_count(list, "messages", e))
		return false;
	merge = !options->strict_template && needs_merge(list);
	if (merge && !put_merged_system(w, list, options, e))
		return false;
	json_each(item, list)
	{
		m.m = item;
		if (!(merge && is_system(item)) && !api_message_put(w, &m, e))
			return false;
		m.i++;
	}
	json_close(w);
	return true;
}

bool api_effort_check(const struct json *effort, const char *param, struct api_error *e)
{
	for (size_t i = 0; i < COUNT(efforts); i++)
		if (json_equals(effort, efforts[i]))
			return true;
	return effort == NULL ||
	       api_json_refuse(e, param, effort,
		       "one of none, minimal, low, medium, high, xhigh, max");
}

static bool check_reserved(const struct json *given, struct api_error *e)
{
	char at[96];

	for (size_t i = 0; i < COUNT(reserved_kwargs); i++) {
		if (json_member(given, reserved_kwargs[i]) == NULL)
			continue;
		snprintf(at, sizeof(at), "chat_template_kwargs.%s", reserved_kwargs[i]);
		api_error_set(e, 400, "invalid_value", at,
			"%s cannot be given as an argument of the template.",
			reserved_kwargs[i]);
		return false;
	}
	return true;
}

/* reasoning_effort is a kwarg of the template, and unless enable_thinking says
 * otherwise it also turns thinking on or off. */
static bool put_kwargs(struct json_out *w, const struct json *object, struct api_error *e)
{
	const struct json *given = json_given(object, "chat_template_kwargs");
	const struct json *effort = json_given(object, "reasoning_effort");
	const struct json *thinking = json_given(given, "enable_thinking");
	bool on;

	if (given != NULL && !json_is(given, JSON_OBJECT))
		return api_json_refuse(e, "chat_template_kwargs", given, "an object");
	if (!check_reserved(given, e) || !api_effort_check(effort, "reasoning_effort", e))
		return false;
	if (thinking != NULL && !json_is_bool(thinking))
		return api_json_refuse(e, "chat_template_kwargs.enable_thinking",
			thinking, "true or false");
	on = thinking != NULL ? json_is(thinking, JSON_TRUE)
			      : !json_equals(effort, "none");
	json_name(w, "kwargs");
	json_open(w, '{');
	json_each_member(name, given)
	{
		if (json_equals(name, "enable_thinking") ||
			(effort != NULL && json_equals(name, "reasoning_effort")))
			continue;
		json_name_bytes(w, json_bytes(name));
		json_put(w, name + 1);
	}
	if (thinking != NULL || effort != NULL)
		json_add_bool(w, "enable_thinking", on);
	if (effort != NULL)
		json_add_bytes(w, "reasoning_effort", json_bytes(effort));
	json_close(w);
	return true;
}

static bool refuse_end(struct api_error *e, const char *text)
{
	api_error_set(e, 400, "invalid_value", "continue_final_message", "%s", text);
	return false;
}

/* Only a text has a place at which it goes on. */
static bool check_last(const struct json *messages, struct api_error *e)
{
	uint32_t n = json_count(messages);
	const struct json *last = n > 0 ? json_item(messages, n - 1) : NULL;
	const struct json *content = json_given(last, "content");
	const char *role = last != NULL ? api_message_role(last) : NULL;

	if (role == NULL || strcmp(role, "assistant") != 0)
		return refuse_end(e, "continue_final_message: the last message is not "
				     "the assistant's.");
	if (content == NULL || json_bytes(content).len + json_count(content) == 0)
		return refuse_end(
			e, "continue_final_message: the last message has no text.");
	if (json_count(json_given(last, "tool_calls")) > 0)
		return refuse_end(e, "continue_final_message: the last message ends with "
				     "tool calls.");
	return true;
}

bool api_chat_end(
	const struct json *object, enum api_prompt_end *end, struct api_error *e)
{
	bool asks = true, has_asks = false, goes_on = false;

	if (!api_json_bool(object, "add_generation_prompt", &asks, &has_asks, e) ||
		!api_json_bool(object, "continue_final_message", &goes_on, NULL, e))
		return false;
	if (goes_on && has_asks && asks)
		return refuse_end(e, "continue_final_message and add_generation_prompt "
				     "cannot both be true.");
	*end = goes_on ? API_PROMPT_GOES_ON : asks ? API_PROMPT_ASKS : API_PROMPT_CLOSED;
	return !goes_on || check_last(json_given(object, "messages"), e);
}

void api_render_begin(struct json_out *w, struct sink *text)
{
	/* Escapes can make six bytes of one; the body itself was bounded. */
	sink_init(text, SIZE_MAX / 2);
	json_out_init(w, text);
	json_open(w, '{');
	json_name(w, "messages");
	json_open(w, '[');
}

bool api_render_end(struct json_out *w, enum api_prompt_end end, struct api_render *out,
	struct api_error *e)
{
	struct sink *text = w->sink;

	json_add_bool(w, "add_generation_prompt", end == API_PROMPT_ASKS);
	json_add_bool(w, "continue_final_message", end == API_PROMPT_GOES_ON);
	json_close(w);
	(void)sink_cstr(text);
	if (text->full) {
		sink_release(text);
		return api_json_no_memory(e);
	}
	*out = (struct api_render){(char *)text->at, text->len};
	*text = (struct sink){0};
	return true;
}

bool api_chat_render(const struct json *object, const struct api_options *options,
	enum api_prompt_end end, struct api_render *out, struct api_error *e)
{
	struct json_out w;
	struct sink text;
	bool ok;

	api_render_begin(&w, &text);
	ok = put_messages(&w, object, options, e) && put_kwargs(&w, object, e);
	if (!ok) {
		sink_release(&text);
		return false;
	}
	if (tools_are_offered(object)) {
		json_name(&w, "tools");
		json_put(&w, json_given(object, "tools"));
	}
	return api_render_end(&w, end, out, e);
}
