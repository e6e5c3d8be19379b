/* One chat message, from the forms that OpenAI clients send to the one that chat
 * templates expect. */
#include "common/base/mem.h"
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

/* Members that are written in a form of ours; all others go through as they are. */
static const char *const adapted[] = {
	"role", "content", "reasoning_content", "reasoning", "tool_calls"};

const char *api_message_role(const struct json *m)
{
	const struct json *role = json_member(m, "role");

	for (size_t i = 0; i < COUNT(roles); i++)
		if (json_equals(role, roles[i].from))
			return roles[i].to;
	return NULL;
}

static bool put_role(struct json_out *w, const struct api_message *message,
	const char *param, struct api_error *e)
{
	const struct json *given = json_given(message->m, "role");
	const char *role = api_message_role(message->m);
	char at[128];

	if (role == NULL) {
		snprintf(at, sizeof(at), "%s.role", param);
		return api_json_refuse(
			e, at, given, "one of system, developer, user, assistant, tool");
	}
	json_name(w, "role");
	if (message->options->strict_template)
		json_put(w, given);
	else
		json_put_text(w, role);
	return true;
}

static bool is_text_part(const struct json *type)
{
	return json_equals(type, "text") || json_equals(type, "input_text") ||
	       json_equals(type, "output_text");
}

bool api_parts_join(const struct json *parts, const char *param, struct sink *text,
	struct api_error *e)
{
	char at[128], shown[48];
	size_t i = 0;

	json_each(part, parts)
	{
		const struct json *type = json_member(part, "type");
		const struct json *t = json_member(part, "text");

		if (!json_is(type, JSON_STRING)) {
			snprintf(at, sizeof(at), "%s[%zu].type", param, i);
			return api_json_refuse(e, at, type, "a string");
		}
		if (!is_text_part(type)) {
			snprintf(at, sizeof(at), "%s[%zu].type", param, i);
			api_error_set(e, 400, "invalid_value", at,
				"Content parts of type %s are not supported: "
				"this is a text-only server.",
				json_show(type, shown, sizeof(shown)));
			return false;
		}
		if (!json_is(t, JSON_STRING)) {
			snprintf(at, sizeof(at), "%s[%zu].text", param, i);
			return api_json_refuse(e, at, t, "a string");
		}
		sink_put(text, json_bytes(t).at, json_bytes(t).len);
		i++;
	}
	return true;
}

static void name_message(const struct api_message *message, char param[32])
{
	snprintf(param, 32, "messages[%zu]", message->i);
}

bool api_message_text(
	const struct api_message *message, struct sink *text, struct api_error *e)
{
	const struct json *content = json_given(message->m, "content");
	char param[32], at[64];

	name_message(message, param);
	snprintf(at, sizeof(at), "%s.content", param);
	if (json_is(content, JSON_STRING)) {
		sink_put(text, json_bytes(content).at, json_bytes(content).len);
	} else if (content != NULL && !json_is(content, JSON_ARRAY)) {
		return api_json_refuse(
			e, at, content, "a string, null or a list of text parts");
	} else if (!api_parts_join(content, at, text, e)) {
		return false;
	}
	return !text->full || api_json_no_memory(e);
}

static bool put_content(
	struct json_out *w, const struct api_message *message, struct api_error *e)
{
	const struct json *own = json_given(message->m, "content");
	struct sink text;
	bool ok = true;

	json_name(w, "content");
	if (message->content != NULL) {
		json_put_bytes(w, sink_bytes(message->content));
	} else if (json_is(own, JSON_STRING)) {
		json_put(w, own);
	} else {
		sink_init(&text, SIZE_MAX / 2);
		ok = api_message_text(message, &text, e);
		if (ok)
			json_put_bytes(w, sink_bytes(&text));
		sink_release(&text);
	}
	return ok;
}

/* Both spellings are accepted; templates read reasoning_content. */
static bool put_reasoning(
	struct json_out *w, const struct json *m, const char *param, struct api_error *e)
{
	static const char *const names[] = {"reasoning_content", "reasoning"};
	const struct json *found = NULL;
	char at[128];

	for (size_t i = 0; i < COUNT(names); i++) {
		const struct json *v = json_given(m, names[i]);

		if (v == NULL)
			continue;
		if (!json_is(v, JSON_STRING)) {
			snprintf(at, sizeof(at), "%s.%s", param, names[i]);
			return api_json_refuse(e, at, v, "a string");
		}
		if (found == NULL)
			found = v;
	}
	if (found != NULL)
		json_add_bytes(w, names[0], json_bytes(found));
	return true;
}

/* The text of an object, read on its own. */
static bool put_parsed(
	struct json_out *w, struct bytes text, const char *param, struct api_error *e)
{
	char *copy = mem_dup(text.at, text.len);
	const struct json *object;
	struct json_doc doc;

	if (copy == NULL)
		return api_json_no_memory(e);
	object = api_json_object(&doc, (uint8_t *)copy, text.len, param, param, e);
	if (object != NULL)
		json_put(w, object);
	json_release(&doc);
	mem_give(copy);
	return object != NULL;
}

/* The wire form of arguments is a JSON text; a template needs the object. */
bool api_arguments_put(struct json_out *w, const struct json *arguments, const char *at,
	struct api_error *e)
{
	struct bytes text = json_bytes(arguments);

	json_name(w, "arguments");
	if (json_is(arguments, JSON_OBJECT)) {
		json_put(w, arguments);
	} else if (arguments == NULL || (text.at != NULL && text.len == 0)) {
		json_open(w, '{');
		json_close(w);
	} else if (text.at != NULL) {
		return put_parsed(w, text, at, e);
	} else {
		return api_json_refuse(e, at, arguments, "the text of a JSON object");
	}
	return true;
}

/* All members of the object but that one, whose name is written and value is due. */
static void put_others(struct json_out *w, const struct json *object, const char *but)
{
	json_each_member(name, object)
	{
		if (json_equals(name, but))
			continue;
		json_name_bytes(w, json_bytes(name));
		json_put(w, name + 1);
	}
}

static bool put_call(struct json_out *w, const struct json *call, const char *param,
	struct api_error *e)
{
	const struct json *function = json_member(call, "function");
	const struct json *name = json_member(function, "name");
	char at[128];

	if (!json_is(function, JSON_OBJECT)) {
		snprintf(at, sizeof(at), "%s.function", param);
		return api_json_refuse(e, at, function, "an object");
	}
	if (!json_is(name, JSON_STRING)) {
		snprintf(at, sizeof(at), "%s.function.name", param);
		return api_json_refuse(e, at, name, "a string");
	}
	json_open(w, '{');
	put_others(w, call, "function");
	json_name(w, "function");
	json_open(w, '{');
	put_others(w, function, "arguments");
	snprintf(at, sizeof(at), "%s.function.arguments", param);
	if (!api_arguments_put(w, json_given(function, "arguments"), at, e))
		return false;
	json_close(w);
	json_close(w);
	return true;
}

static bool put_calls(
	struct json_out *w, const struct json *m, const char *param, struct api_error *e)
{
	const struct json *calls = json_given(m, "tool_calls");
	char at[80];
	size_t i = 0;

	if (calls == NULL || (json_is(calls, JSON_ARRAY) && json_count(calls) == 0))
		return true;
	if (!json_is(calls, JSON_ARRAY)) {
		snprintf(at, sizeof(at), "%s.tool_calls", param);
		return api_json_refuse(e, at, calls, "a list");
	}
	json_name(w, "tool_calls");
	json_open(w, '[');
	json_each(call, calls)
	{
		snprintf(at, sizeof(at), "%s.tool_calls[%zu]", param, i++);
		if (!put_call(w, call, at, e))
			return false;
	}
	json_close(w);
	return true;
}

static bool is_adapted(const struct json *name)
{
	for (size_t i = 0; i < COUNT(adapted); i++)
		if (json_equals(name, adapted[i]))
			return true;
	return false;
}

/* null means "not given", also for members that only some template reads. */
static void put_rest(struct json_out *w, const struct json *m)
{
	json_each_member(name, m)
	{
		if (is_adapted(name) || json_is(name + 1, JSON_NULL))
			continue;
		json_name_bytes(w, json_bytes(name));
		json_put(w, name + 1);
	}
}

bool api_message_put(
	struct json_out *w, const struct api_message *message, struct api_error *e)
{
	const struct json *m = message->m;
	char param[32];

	name_message(message, param);
	if (!json_is(m, JSON_OBJECT))
		return api_json_refuse(e, param, m, "an object");
	json_open(w, '{');
	if (!put_role(w, message, param, e) || !put_content(w, message, e) ||
		!put_reasoning(w, m, param, e) || !put_calls(w, m, param, e))
		return false;
	put_rest(w, m);
	json_close(w);
	return true;
}
