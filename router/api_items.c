/* instructions and input of OpenAI's responses, into messages that templates know. What
 * stands between two messages of others is one turn of the assistant: its reasoning, its
 * text, its calls, each an item of its own. */
#include "router/api_turn.h"

#include <stdio.h>
#include <string.h>

#define AT_BYTES 64u

struct reader {
	struct json_out *w;
	const struct api_options *options;
	struct api_turn turn; /* of the assistant */
};

static bool end_turn(struct reader *r, struct api_error *e)
{
	return api_turn_is_empty(&r->turn) ||
	       api_turn_put(&r->turn, r->w, "assistant", e);
}

static bool is_message(const struct json *item)
{
	return json_given(item, "type") == NULL ||
	       json_equals(json_member(item, "type"), "message");
}

/* Templates take one system message, in front: chat's rule. */
static bool is_system(const struct json *item)
{
	const char *role = api_message_role(item);

	return is_message(item) && role != NULL && strcmp(role, "system") == 0;
}

static bool take_message(
	struct reader *r, const struct json *item, const char *at, struct api_error *e)
{
	const char *role = api_message_role(item);
	char path[AT_BYTES + 16];

	snprintf(path, sizeof(path), "%s.role", at);
	if (role == NULL || strcmp(role, "tool") == 0)
		return api_json_refuse(e, path, json_given(item, "role"),
			"one of system, developer, user, assistant");
	if (is_system(item) && !r->options->strict_template)
		return true;
	snprintf(path, sizeof(path), "%s.content", at);
	if (strcmp(role, "assistant") != 0 || r->turn.has_text)
		if (!end_turn(r, e))
			return false;
	r->turn.has_text = true;
	if (!api_turn_join(json_given(item, "content"), path, &r->turn.text, e))
		return false;
	if (strcmp(role, "assistant") == 0)
		return true;
	return api_turn_put(&r->turn, r->w,
		r->options->strict_template ? json_text(json_member(item, "role")) : role,
		e);
}

/* The texts of a list. */
static bool take_thoughts(
	struct reader *r, const struct json *list, const char *at, struct api_error *e)
{
	char path[2 * AT_BYTES + 32];
	struct bytes text;
	size_t i = 0;

	if (list != NULL && !json_is(list, JSON_ARRAY))
		return api_json_refuse(e, at, list, "a list");
	json_each(part, list)
	{
		snprintf(path, sizeof(path), "%s[%zu]", at, i++);
		if (!api_turn_string(part, "text", path, &text, e))
			return false;
		api_turn_reasoning(&r->turn, text);
	}
	return true;
}

static bool take_reasoning(
	struct reader *r, const struct json *item, const char *at, struct api_error *e)
{
	const struct json *content = json_given(item, "content");
	const struct json *summary = json_given(item, "summary");
	const struct json *secret = json_given(item, "encrypted_content");
	bool whole = json_count(content) > 0;
	char path[AT_BYTES + 24];

	snprintf(path, sizeof(path), "%s.encrypted_content", at);
	if (secret != NULL && !whole) {
		api_error_set(e, 400, "unsupported_parameter", path,
			"%s cannot be read here: reasoning is taken as text.", path);
		return false;
	}
	if ((r->turn.has_text || r->turn.has_calls) && !end_turn(r, e))
		return false;
	snprintf(path, sizeof(path), "%s.%s", at, whole ? "content" : "summary");
	return take_thoughts(r, whole ? content : summary, path, e);
}

static bool take_call(
	struct reader *r, const struct json *item, const char *at, struct api_error *e)
{
	struct api_turn_call call = {.arguments = json_given(item, "arguments")};
	char path[AT_BYTES + 16];

	snprintf(path, sizeof(path), "%s.arguments", at);
	return api_turn_string(item, "call_id", at, &call.id, e) &&
	       api_turn_string(item, "name", at, &call.name, e) &&
	       api_turn_call(&r->turn, &call, path, e);
}

static bool take_output(
	struct reader *r, const struct json *item, const char *at, struct api_error *e)
{
	const struct json *output = json_given(item, "output");
	char path[AT_BYTES + 16];
	struct bytes id;

	snprintf(path, sizeof(path), "%s.output", at);
	if (output == NULL)
		return api_json_refuse(e, path, output, "a string or a list of texts");
	return api_turn_string(item, "call_id", at, &id, e) && end_turn(r, e) &&
	       api_turn_result(r->w, id, output, path, e);
}

static const struct {
	const char *type;
	bool (*take)(struct reader *r, const struct json *item, const char *at,
		struct api_error *e);
} items[] = {
	{"message", take_message},
	{"reasoning", take_reasoning},
	{"function_call", take_call},
	{"function_call_output", take_output},
};

static bool take_item(
	struct reader *r, const struct json *item, size_t i, struct api_error *e)
{
	const struct json *type = json_given(item, "type");
	char at[AT_BYTES], path[AT_BYTES + 16], shown[48];

	snprintf(at, sizeof(at), "input[%zu]", i);
	if (!json_is(item, JSON_OBJECT))
		return api_json_refuse(e, at, item, "an object");
	if (type == NULL)
		return take_message(r, item, at, e);
	for (size_t k = 0; k < COUNT(items); k++)
		if (json_equals(type, items[k].type))
			return items[k].take(r, item, at, e);
	snprintf(path, sizeof(path), "%s.type", at);
	api_error_set(e, 400, "invalid_value", path,
		"Items of type %s are not supported here; what is taken: message, "
		"reasoning, function_call, function_call_output.",
		json_show(type, shown, sizeof(shown)));
	return false;
}

/* Behind what is there already, with a blank line between. */
static bool add_system(
	struct reader *r, const struct json *value, const char *at, struct api_error *e)
{
	if (r->turn.has_text)
		sink_str(&r->turn.text, "\n\n");
	r->turn.has_text = true;
	return api_turn_join(value, at, &r->turn.text, e);
}

static bool put_system(struct reader *r, const struct json *instructions,
	const struct json *input, struct api_error *e)
{
	char path[AT_BYTES];
	size_t i = 0;

	if (instructions != NULL && !json_is(instructions, JSON_STRING))
		return api_json_refuse(e, "instructions", instructions, "a string");
	if (instructions != NULL && !add_system(r, instructions, "instructions", e))
		return false;
	json_each(item, input)
	{
		snprintf(path, sizeof(path), "input[%zu].content", i++);
		if (!r->options->strict_template && is_system(item) &&
			!add_system(r, json_given(item, "content"), path, e))
			return false;
	}
	return api_turn_is_empty(&r->turn) || api_turn_put(&r->turn, r->w, "system", e);
}

static bool put_input(struct reader *r, const struct json *input, struct api_error *e)
{
	size_t i = 0;

	if (json_is(input, JSON_STRING)) {
		api_turn_text(&r->turn, json_bytes(input));
		return api_turn_put(&r->turn, r->w, "user", e);
	}
	json_each(item, input) if (!take_item(r, item, i++, e)) return false;
	return end_turn(r, e);
}

bool api_items_put(struct json_out *w, const struct json *object,
	const struct api_options *options, struct api_error *e)
{
	const struct json *input = json_given(object, "input");
	struct reader r = {.w = w, .options = options};
	bool ok;

	if (!json_is(input, JSON_STRING) && !api_message_count(input, "input", e))
		return false;
	api_turn_init(&r.turn);
	ok = put_system(&r, json_given(object, "instructions"), input, e) &&
	     put_input(&r, input, e);
	api_turn_release(&r.turn);
	json_close(w);
	return ok;
}
