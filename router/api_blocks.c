/* system and messages of Anthropic's form, into messages that templates know. A message
 * is a text or a list of blocks; results of tools stand in messages of the user, and
 * become messages of their own, in their order. */
#include "router/api_turn.h"

#include <stdio.h>

struct reader {
	struct json_out *w;
	struct api_turn turn;
};

static bool take_text(
	struct reader *r, const struct json *block, const char *at, struct api_error *e)
{
	struct bytes text;

	if (!api_turn_string(block, "text", at, &text, e))
		return false;
	api_turn_text(&r->turn, text);
	return true;
}

/* Its signature says nothing here: what a client calls our thought is read as one. */
static bool take_thinking(
	struct reader *r, const struct json *block, const char *at, struct api_error *e)
{
	struct bytes text;

	if (!api_turn_string(block, "thinking", at, &text, e))
		return false;
	api_turn_reasoning(&r->turn, text);
	return true;
}

static bool take_use(
	struct reader *r, const struct json *block, const char *at, struct api_error *e)
{
	struct api_turn_call call = {.arguments = json_given(block, "input")};
	char path[96];

	snprintf(path, sizeof(path), "%s.input", at);
	if (!api_turn_string(block, "id", at, &call.id, e) ||
		!api_turn_string(block, "name", at, &call.name, e))
		return false;
	if (!json_is(call.arguments, JSON_OBJECT))
		return api_json_refuse(e, path, call.arguments, "an object");
	return api_turn_call(&r->turn, &call, path, e);
}

/* That it is an error has no place in a template: its text says so. */
static bool take_result(
	struct reader *r, const struct json *block, const char *at, struct api_error *e)
{
	struct bytes id;
	char path[96];

	snprintf(path, sizeof(path), "%s.content", at);
	return api_turn_string(block, "tool_use_id", at, &id, e) &&
	       (api_turn_is_empty(&r->turn) || api_turn_put(&r->turn, r->w, "user", e)) &&
	       api_turn_result(r->w, id, json_given(block, "content"), path, e);
}

static const struct {
	const char *type, *role; /* NULL: in messages of both */
	bool (*take)(struct reader *r, const struct json *block, const char *at,
		struct api_error *e);
} blocks[] = {
	{"text", NULL, take_text},
	{"thinking", "assistant", take_thinking},
	{"tool_use", "assistant", take_use},
	{"tool_result", "user", take_result},
};

static bool refuse_block(const struct json *type, const char *at, struct api_error *e)
{
	char path[96], shown[48];

	snprintf(path, sizeof(path), "%s.type", at);
	if (!json_is(type, JSON_STRING))
		return api_json_refuse(e, path, type, "a string");
	api_error_set(e, 400, "invalid_value", path,
		"Blocks of type %s are not supported here; what is taken: text, "
		"thinking and tool_use of the assistant, tool_result of the user.",
		json_show(type, shown, sizeof(shown)));
	return false;
}

static bool take_block(struct reader *r, const struct json *block, const char *role,
	const char *at, struct api_error *e)
{
	const struct json *type = json_member(block, "type");

	for (size_t i = 0; i < COUNT(blocks); i++)
		if (json_equals(type, blocks[i].type) &&
			(blocks[i].role == NULL || blocks[i].role == role))
			return blocks[i].take(r, block, at, e);
	return refuse_block(type, at, e);
}

static bool take_message(struct reader *r, const struct json *m, const char *role,
	size_t i, struct api_error *e)
{
	const struct json *content = json_given(m, "content");
	char at[64];
	size_t k = 0;

	snprintf(at, sizeof(at), "messages[%zu].content", i);
	if (json_is(content, JSON_STRING))
		api_turn_text(&r->turn, json_bytes(content));
	else if (!json_is(content, JSON_ARRAY))
		return api_json_refuse(e, at, content, "a string or a list of blocks");
	json_each(block, content)
	{
		snprintf(at, sizeof(at), "messages[%zu].content[%zu]", i, k++);
		if (!take_block(r, block, role, at, e))
			return false;
	}
	/* Of results alone nothing is left to say. */
	return (k > 0 && api_turn_is_empty(&r->turn)) ||
	       api_turn_put(&r->turn, r->w, role, e);
}

static const char *role_of(const struct json *m)
{
	const struct json *role = json_given(m, "role");

	return json_equals(role, "user")        ? "user"
	       : json_equals(role, "assistant") ? "assistant"
						: NULL;
}

/* Only a text has a place at which it goes on. */
static bool check_last(const struct json *content, struct api_error *e)
{
	bool text = json_bytes(content).len > 0;

	json_each(block, content)
	{
		if (json_equals(json_member(block, "type"), "tool_use")) {
			api_error_set(e, 400, "invalid_value", "messages",
				"messages: the last one ends with tool_use; what came of "
				"it must follow.");
			return false;
		}
		text |= json_bytes(json_member(block, "text")).len > 0;
	}
	if (!text)
		api_error_set(e, 400, "invalid_value", "messages",
			"messages: the last one is the assistant's and has no text to "
			"go on with.");
	return text;
}

static bool put_messages(struct reader *r, const struct json *list,
	enum api_prompt_end *end, struct api_error *e)
{
	const char *role = NULL;
	char at[48];
	size_t i = 0;

	json_each(m, list)
	{
		snprintf(at, sizeof(at), "messages[%zu]", i);
		if (!json_is(m, JSON_OBJECT))
			return api_json_refuse(e, at, m, "an object");
		role = role_of(m);
		snprintf(at, sizeof(at), "messages[%zu].role", i);
		if (role == NULL)
			return api_json_refuse(e, at, json_given(m, "role"),
				"user or assistant; system is a member of the request");
		*end = role[0] == 'a' ? API_PROMPT_GOES_ON : API_PROMPT_ASKS;
		if (*end == API_PROMPT_GOES_ON && i + 1 == json_count(list) &&
			!check_last(json_given(m, "content"), e))
			return false;
		if (!take_message(r, m, role, i++, e))
			return false;
	}
	return true;
}

static bool put_system(struct reader *r, const struct json *system, struct api_error *e)
{
	if (system == NULL)
		return true;
	r->turn.has_text = true;
	return api_turn_join(system, "system", &r->turn.text, e) &&
	       api_turn_put(&r->turn, r->w, "system", e);
}

bool api_blocks_put(struct json_out *w, const struct json *object,
	enum api_prompt_end *end, struct api_error *e)
{
	const struct json *list = json_given(object, "messages");
	struct reader r = {.w = w};
	bool ok;

	if (!api_message_count(list, "messages", e))
		return false;
	api_turn_init(&r.turn);
	ok = put_system(&r, json_given(object, "system"), e) &&
	     put_messages(&r, list, end, e);
	api_turn_release(&r.turn);
	json_close(w);
	return ok;
}
