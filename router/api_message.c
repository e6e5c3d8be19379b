/* One chat message, from the forms that OpenAI clients send to the one that chat
 * templates expect. */
#include "router/api_json.h"

#include <stdio.h>
#include <string.h>

/* Role as the client spells it, and as the template knows it. */
static const struct {
	const char *from, *to;
} roles[] = {
	{"system", "system"},
	{"developer", "system"},
	{"user", "user"},
	{"assistant", "assistant"},
	{"tool", "tool"},
	{"function", "tool"},
};

static bool adapt_role(json_t *m, const char *param, const struct api_options *options,
	struct api_error *e)
{
	const char *role = json_string_value(json_object_get(m, "role"));
	char at[128];

	for (size_t i = 0; role != NULL && i < COUNT(roles); i++) {
		if (strcmp(role, roles[i].from) != 0)
			continue;
		if (options->strict_template)
			return true;
		return json_object_set_new(m, "role", json_string(roles[i].to)) == 0 ||
		       api_json_no_memory(e);
	}
	snprintf(at, sizeof(at), "%s.role", param);
	return api_json_refuse(e, at, json_object_get(m, "role"),
		"one of system, developer, user, assistant, tool");
}

static bool is_text_part(const char *type)
{
	return strcmp(type, "text") == 0 || strcmp(type, "input_text") == 0 ||
	       strcmp(type, "output_text") == 0;
}

static bool join_parts(
	const json_t *parts, const char *param, struct sink *text, struct api_error *e)
{
	const json_t *part;
	char at[128];
	size_t i;

	json_array_foreach(parts, i, part)
	{
		const json_t *type = json_object_get(part, "type");
		const json_t *t = json_object_get(part, "text");

		if (!json_is_string(type)) {
			snprintf(at, sizeof(at), "%s.content[%zu].type", param, i);
			return api_json_refuse(e, at, type, "a string");
		}
		if (!is_text_part(json_string_value(type))) {
			snprintf(at, sizeof(at), "%s.content[%zu]", param, i);
			api_error_set(e, 400, "invalid_value", at,
				"Content parts of type \"%.40s\" are not supported: "
				"this is a text-only server.",
				json_string_value(type));
			return false;
		}
		if (!json_is_string(t)) {
			snprintf(at, sizeof(at), "%s.content[%zu].text", param, i);
			return api_json_refuse(e, at, t, "a string");
		}
		sink_put(text, json_string_value(t), json_string_length(t));
	}
	return !text->full || api_json_no_memory(e);
}

static bool adapt_content(json_t *m, const char *param, struct api_error *e)
{
	const json_t *content = api_json_get(m, "content");
	struct sink text;
	char at[128];
	bool ok;

	if (json_is_string(content))
		return true;
	if (content != NULL && !json_is_array(content)) {
		snprintf(at, sizeof(at), "%s.content", param);
		return api_json_refuse(
			e, at, content, "a string, null or a list of text parts");
	}
	sink_init(&text, SIZE_MAX / 2);
	ok = join_parts(content, param, &text, e);
	if (ok && json_object_set_new(
			  m, "content", json_stringn(sink_cstr(&text), text.len)) != 0)
		ok = api_json_no_memory(e);
	sink_release(&text);
	return ok;
}

/* Both spellings are accepted; templates read reasoning_content. */
static bool adapt_reasoning(json_t *m, const char *param, struct api_error *e)
{
	static const char *const names[] = {"reasoning_content", "reasoning"};
	json_t *found = NULL;
	char at[128];

	for (size_t i = 0; i < COUNT(names); i++) {
		json_t *v = api_json_get(m, names[i]);

		if (v == NULL)
			continue;
		if (!json_is_string(v)) {
			snprintf(at, sizeof(at), "%s.%s", param, names[i]);
			return api_json_refuse(e, at, v, "a string");
		}
		if (found == NULL)
			found = v;
	}
	json_incref(found);
	json_object_del(m, "reasoning");
	json_object_del(m, "reasoning_content");
	if (found == NULL)
		return true;
	return json_object_set_new(m, "reasoning_content", found) == 0 ||
	       api_json_no_memory(e);
}

/* The wire form of arguments is a JSON text; a template needs the object. */
static bool adapt_arguments(json_t *function, const char *param, struct api_error *e)
{
	const json_t *arguments = api_json_get(function, "arguments");
	json_t *parsed;
	char at[128];

	snprintf(at, sizeof(at), "%s.function.arguments", param);
	if (json_is_object(arguments))
		return true;
	if (arguments == NULL ||
		(json_is_string(arguments) && json_string_length(arguments) == 0)) {
		parsed = json_object();
	} else if (json_is_string(arguments)) {
		parsed = api_json_object(
			(struct bytes){(const uint8_t *)json_string_value(arguments),
				json_string_length(arguments)},
			at, at, e);
		if (parsed == NULL)
			return false;
	} else {
		return api_json_refuse(e, at, arguments, "the text of a JSON object");
	}
	return json_object_set_new(function, "arguments", parsed) == 0 ||
	       api_json_no_memory(e);
}

static bool adapt_calls(json_t *m, const char *param, struct api_error *e)
{
	json_t *calls = api_json_get(m, "tool_calls"), *call;
	char at[80], name_at[112];
	size_t i;

	if (calls == NULL || (json_is_array(calls) && json_array_size(calls) == 0)) {
		json_object_del(m, "tool_calls");
		return true;
	}
	if (!json_is_array(calls)) {
		snprintf(at, sizeof(at), "%s.tool_calls", param);
		return api_json_refuse(e, at, calls, "a list");
	}
	json_array_foreach(calls, i, call)
	{
		json_t *function = json_object_get(call, "function");

		snprintf(at, sizeof(at), "%s.tool_calls[%zu]", param, i);
		if (!json_is_object(function)) {
			snprintf(name_at, sizeof(name_at), "%s.function", at);
			return api_json_refuse(e, name_at, function, "an object");
		}
		if (!json_is_string(json_object_get(function, "name"))) {
			snprintf(name_at, sizeof(name_at), "%s.function.name", at);
			return api_json_refuse(e, name_at,
				json_object_get(function, "name"), "a string");
		}
		if (!adapt_arguments(function, at, e))
			return false;
	}
	return true;
}

/* null means "not given", also for members that only some template reads. */
static void drop_nulls(json_t *m)
{
	const char *name;
	json_t *value;
	void *next;

	json_object_foreach_safe(m, next, name, value)
	{
		if (json_is_null(value))
			json_object_del(m, name);
	}
}

bool api_message_adapt(
	json_t *message, size_t i, const struct api_options *options, struct api_error *e)
{
	char param[32];

	snprintf(param, sizeof(param), "messages[%zu]", i);
	if (!json_is_object(message))
		return api_json_refuse(e, param, message, "an object");
	drop_nulls(message);
	return adapt_role(message, param, options, e) &&
	       adapt_content(message, param, e) && adapt_reasoning(message, param, e) &&
	       adapt_calls(message, param, e);
}
