/* The messages of a chat request and what goes with them, as one JSON object for the
 * template child. */
#include "common/base/mem.h"
#include "router/api_json.h"

#include <stdio.h>
#include <string.h>

/* Names that the renderer sets itself. */
static const char *const reserved_kwargs[] = {
	"messages", "tools", "documents", "add_generation_prompt"};

static const char *const efforts[] = {
	"none", "minimal", "low", "medium", "high", "xhigh", "max"};

static bool is_system(const json_t *m)
{
	const char *role = json_string_value(json_object_get(m, "role"));

	return role != NULL && strcmp(role, "system") == 0;
}

static bool needs_merge(const json_t *messages)
{
	const json_t *m;
	size_t i;

	json_array_foreach(messages, i, m)
	{
		if (i > 0 && is_system(m))
			return true;
	}
	return false;
}

/* Templates take one system message, in front; clients send several, anywhere. Their
 * texts are joined in order with a blank line between. *messages becomes a new list. */
static bool merge_system(json_t **messages, struct api_error *e)
{
	json_t *merged = json_array(), *first = NULL, *m;
	struct sink text;
	bool ok = merged != NULL;
	size_t i;

	sink_init(&text, SIZE_MAX / 2);
	json_array_foreach(*messages, i, m)
	{
		const json_t *content = json_object_get(m, "content");

		if (!is_system(m)) {
			ok = ok && json_array_append(merged, m) == 0;
			continue;
		}
		if (first != NULL)
			sink_str(&text, "\n\n");
		else
			first = m;
		sink_put(&text, json_string_value(content), json_string_length(content));
	}
	ok = ok && !text.full &&
	     json_object_set_new(
		     first, "content", json_stringn(sink_cstr(&text), text.len)) == 0 &&
	     json_array_insert(merged, 0, first) == 0;
	sink_release(&text);
	if (!ok) {
		json_decref(merged);
		return api_json_no_memory(e);
	}
	*messages = merged;
	return true;
}

static bool adapt_messages(json_t *object, const struct api_options *options,
	json_t *render, struct api_error *e)
{
	json_t *list = api_json_get(object, "messages"), *message;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) == 0)
		return api_json_refuse(
			e, "messages", list, "a non-empty list of messages");
	if (json_array_size(list) > API_MESSAGES_MAX) {
		api_error_set(e, 400, "invalid_value", "messages",
			"messages holds %zu entries; at most %u are allowed.",
			json_array_size(list), API_MESSAGES_MAX);
		return false;
	}
	json_array_foreach(list, i, message)
	{
		if (!api_message_adapt(message, i, options, e))
			return false;
	}
	if (options->strict_template || !needs_merge(list))
		json_incref(list);
	else if (!merge_system(&list, e))
		return false;
	return json_object_set_new(render, "messages", list) == 0 ||
	       api_json_no_memory(e);
}

/* reasoning_effort is a kwarg of the template, and unless enable_thinking says
 * otherwise it also turns thinking on or off. */
static bool adapt_effort(const json_t *object, json_t *kwargs, struct api_error *e)
{
	json_t *v = api_json_get(object, "reasoning_effort");
	bool known = false;

	if (v == NULL)
		return true;
	for (size_t i = 0; json_is_string(v) && i < COUNT(efforts); i++)
		known = known || strcmp(json_string_value(v), efforts[i]) == 0;
	if (!known)
		return api_json_refuse(e, "reasoning_effort", v,
			"one of none, minimal, low, medium, high, xhigh, max");
	if (json_object_get(kwargs, "enable_thinking") == NULL &&
		json_object_set_new(kwargs, "enable_thinking",
			json_boolean(strcmp(json_string_value(v), "none") != 0)) != 0)
		return api_json_no_memory(e);
	return json_object_set(kwargs, "reasoning_effort", v) == 0 ||
	       api_json_no_memory(e);
}

static bool adapt_kwargs(
	const json_t *object, json_t *render, struct api_render *out, struct api_error *e)
{
	json_t *given = api_json_get(object, "chat_template_kwargs");
	json_t *kwargs, *thinking;
	char at[96];

	if (given != NULL && !json_is_object(given))
		return api_json_refuse(e, "chat_template_kwargs", given, "an object");
	for (size_t i = 0; i < COUNT(reserved_kwargs); i++) {
		if (json_object_get(given, reserved_kwargs[i]) == NULL)
			continue;
		snprintf(at, sizeof(at), "chat_template_kwargs.%s", reserved_kwargs[i]);
		api_error_set(e, 400, "invalid_value", at,
			"%s cannot be given as an argument of the template.",
			reserved_kwargs[i]);
		return false;
	}
	kwargs = given != NULL ? json_copy(given) : json_object();
	if (kwargs == NULL || json_object_set_new(render, "kwargs", kwargs) != 0)
		return api_json_no_memory(e);
	if (json_is_null(json_object_get(kwargs, "enable_thinking")))
		json_object_del(kwargs, "enable_thinking");
	if (!adapt_effort(object, kwargs, e))
		return false;
	thinking = json_object_get(kwargs, "enable_thinking");
	if (thinking != NULL && !json_is_boolean(thinking))
		return api_json_refuse(e, "chat_template_kwargs.enable_thinking",
			thinking, "true or false");
	out->has_thinking = thinking != NULL;
	out->thinking = json_is_true(thinking);
	return true;
}

bool api_chat_render(json_t *object, const struct api_options *options,
	bool generation_prompt, struct api_render *out, struct api_error *e)
{
	json_t *render = json_object();
	bool ok;

	if (render == NULL)
		return api_json_no_memory(e);
	ok = adapt_messages(object, options, render, e) &&
	     adapt_kwargs(object, render, out, e);
	if (ok && json_object_set_new(render, "add_generation_prompt",
			  json_boolean(generation_prompt)) != 0)
		ok = api_json_no_memory(e);
	if (ok)
		ok = api_json_dump(render, &out->text, &out->len, e);
	json_decref(render);
	return ok;
}
