/* Which members of a generation request we know. What would change the answer and is
 * not built is refused unless it is null or has the value that changes nothing; what
 * changes nothing is ignored and named. */
#include "router/api_json.h"

#include <string.h>

static bool is_zero(const struct json *v)
{
	double d;

	return json_f64(v, &d) && d == 0;
}

static bool is_false(const struct json *v)
{
	return json_is(v, JSON_FALSE);
}

static bool is_true(const struct json *v)
{
	return json_is(v, JSON_TRUE);
}

static bool is_empty(const struct json *v)
{
	if (json_is(v, JSON_STRING))
		return json_bytes(v).len == 0;
	return (json_is(v, JSON_ARRAY) || json_is(v, JSON_OBJECT)) && json_count(v) == 0;
}

static bool is_none_or_auto(const struct json *v)
{
	return json_equals(v, "none") || json_equals(v, "auto");
}

static bool is_text_format(const struct json *v)
{
	return json_equals(json_member(v, "type"), "text");
}

static bool never(const struct json *v)
{
	(void)v;
	return false;
}

struct field {
	const char *name;
	unsigned where; /* or of api_where */
	/* NULL: we act on it. Else: has the value no effect? */
	bool (*harmless)(const struct json *v);
};

#define C API_IN_CHAT
#define P API_IN_COMPLETION

static const struct field fields[] = {
	{"model", C | P, NULL},
	{"messages", C, NULL},
	{"prompt", P, NULL},
	{"max_tokens", C | P, NULL},
	{"max_completion_tokens", C | P, NULL},
	{"temperature", C | P, NULL},
	{"top_p", C | P, NULL},
	{"top_k", C | P, NULL},
	{"min_p", C | P, NULL},
	{"seed", C | P, NULL},
	{"stop", C | P, NULL},
	{"stream", C | P, NULL},
	{"stream_options", C | P, NULL},
	{"chat_template_kwargs", C, NULL},
	{"reasoning_effort", C, NULL},
	{"ignore_eos", C | P, NULL},

	{"n", C | P, NULL},
	{"best_of", P, NULL},
	{"min_tokens", C | P, NULL},
	{"presence_penalty", C | P, NULL},
	{"frequency_penalty", C | P, NULL},
	{"repetition_penalty", C | P, NULL},
	{"stop_token_ids", C | P, NULL},
	{"logit_bias", C | P, NULL},
	{"logprobs", C | P, NULL},
	{"top_logprobs", C, NULL},
	{"prompt_logprobs", C | P, NULL},
	{"echo", P, NULL},

	{"echo", C, is_false},
	{"suffix", P, is_empty},
	{"tools", C, is_empty},
	{"tool_choice", C, is_none_or_auto},
	{"functions", C, is_empty},
	{"function_call", C, is_none_or_auto},
	/* Without tools neither value has an effect. */
	{"parallel_tool_calls", C, json_is_bool},
	{"response_format", C | P, is_text_format},
	{"add_generation_prompt", C, is_true},
	{"continue_final_message", C, is_false},
	{"chat_template", C, never},
	/* No tokenizer of this family adds any: neither value has an effect. */
	{"add_special_tokens", C | P, json_is_bool},
	{"skip_special_tokens", C | P, is_true},
	{"spaces_between_special_tokens", C | P, is_true},
	{"priority", C | P, is_zero},
	/* Constraints on the answer: leaving one out would be a wrong answer. */
	{"structured_outputs", C | P, never},
	{"guided_json", C | P, never},
	{"guided_regex", C | P, never},
	{"guided_choice", C | P, never},
	{"guided_grammar", C | P, never},
	{"regex", C | P, never},
	{"ebnf", C | P, never},
	{"json_schema", C | P, never},
	{"grammar", C | P, is_empty},
	{"bad_words", C | P, is_empty},
	{"allowed_token_ids", C | P, is_empty},
};

#undef C
#undef P

static const struct field *find_field(const struct json *name, enum api_where where)
{
	for (size_t i = 0; i < COUNT(fields); i++)
		if ((fields[i].where & where) && json_equals(name, fields[i].name))
			return &fields[i];
	return NULL;
}

/* Printable ASCII without the separator: the list goes into a log line. */
static void note_ignored(char *list, size_t list_bytes, struct bytes name)
{
	size_t used = strlen(list);
	const char *between = used > 0 ? "," : "";

	if (used + strlen(between) + name.len >= list_bytes)
		return;
	for (; *between != 0; between++)
		list[used++] = *between;
	for (size_t i = 0; i < name.len; i++)
		list[used++] =
			(char)(name.at[i] < ' ' || name.at[i] > '~' || name.at[i] == ','
					? '?'
					: name.at[i]);
	list[used] = 0;
}

bool api_fields_check(const struct json *object, enum api_where where, char *ignored,
	size_t ignored_bytes, struct api_error *e)
{
	json_each_member(name, object)
	{
		const struct json *value = name + 1;
		const struct field *f = find_field(name, where);

		if (json_is(value, JSON_NULL) || (f != NULL && f->harmless == NULL))
			continue;
		if (f == NULL) {
			note_ignored(ignored, ignored_bytes, json_bytes(name));
		} else if (!f->harmless(value)) {
			api_error_set(e, 400, "unsupported_parameter", f->name,
				"%s is not supported with this value.", f->name);
			return false;
		}
	}
	return true;
}
