/* Messages out of blocks and items. */
#include "router/api_turn.h"

#include <stdio.h>

void api_turn_init(struct api_turn *t)
{
	*t = (struct api_turn){0};
	/* The body itself was bounded. */
	sink_init(&t->text, SIZE_MAX / 2);
	sink_init(&t->reasoning, SIZE_MAX / 2);
	sink_init(&t->calls, SIZE_MAX / 2);
}

void api_turn_release(struct api_turn *t)
{
	sink_release(&t->text);
	sink_release(&t->reasoning);
	sink_release(&t->calls);
}

bool api_turn_is_empty(const struct api_turn *t)
{
	return !t->has_text && !t->has_reasoning && !t->has_calls;
}

void api_turn_text(struct api_turn *t, struct bytes text)
{
	sink_put(&t->text, text.at, text.len);
	t->has_text = true;
}

void api_turn_reasoning(struct api_turn *t, struct bytes text)
{
	sink_put(&t->reasoning, text.at, text.len);
	t->has_reasoning = true;
}

bool api_turn_call(struct api_turn *t, const struct api_turn_call *call, const char *at,
	struct api_error *e)
{
	struct json_out *w = &t->list;

	if (!t->has_calls) {
		json_out_init(w, &t->calls);
		json_open(w, '[');
		t->has_calls = true;
	}
	json_open(w, '{');
	json_add_bytes(w, "id", call->id);
	json_add_text(w, "type", "function");
	json_name(w, "function");
	json_open(w, '{');
	json_add_bytes(w, "name", call->name);
	if (!api_arguments_put(w, call->arguments, at, e))
		return false;
	json_close(w);
	json_close(w);
	return true;
}

bool api_turn_put(
	struct api_turn *t, struct json_out *w, const char *role, struct api_error *e)
{
	if (t->has_calls)
		json_close(&t->list);
	if (t->text.full || t->reasoning.full || t->calls.full)
		return api_json_no_memory(e);
	json_open(w, '{');
	json_add_text(w, "role", role);
	json_add_bytes(
		w, "content", t->text.len > 0 ? sink_bytes(&t->text) : BYTES_STR(""));
	if (t->has_reasoning)
		json_add_bytes(w, "reasoning_content",
			t->reasoning.len > 0 ? sink_bytes(&t->reasoning) : BYTES_STR(""));
	if (t->has_calls) {
		json_name(w, "tool_calls");
		json_put_raw(w, sink_bytes(&t->calls));
	}
	json_close(w);
	sink_reset(&t->text);
	sink_reset(&t->reasoning);
	sink_reset(&t->calls);
	t->has_text = t->has_reasoning = t->has_calls = false;
	return true;
}

bool api_turn_join(
	const struct json *value, const char *at, struct sink *text, struct api_error *e)
{
	struct bytes all = json_bytes(value);

	if (all.at != NULL)
		sink_put(text, all.at, all.len);
	else if (!json_is(value, JSON_ARRAY))
		return api_json_refuse(e, at, value, "a string or a list of texts");
	else if (!api_parts_join(value, at, text, e))
		return false;
	return !text->full || api_json_no_memory(e);
}

bool api_turn_result(struct json_out *w, struct bytes id, const struct json *value,
	const char *at, struct api_error *e)
{
	struct sink text;
	bool ok;

	sink_init(&text, SIZE_MAX / 2);
	ok = value == NULL || api_turn_join(value, at, &text, e);
	if (ok) {
		json_open(w, '{');
		json_add_text(w, "role", "tool");
		json_add_bytes(
			w, "content", text.len > 0 ? sink_bytes(&text) : BYTES_STR(""));
		json_add_bytes(w, "tool_call_id", id);
		json_close(w);
	}
	sink_release(&text);
	return ok;
}

bool api_turn_string(const struct json *object, const char *name, const char *at,
	struct bytes *out, struct api_error *e)
{
	const struct json *v = json_given(object, name);
	char path[96];

	*out = json_bytes(v);
	if (json_is(v, JSON_STRING))
		return true;
	snprintf(path, sizeof(path), "%s.%s", at, name);
	return api_json_refuse(e, path, v, "a string");
}
