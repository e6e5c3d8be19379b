/* Which members of a generation request we know. What would change the answer and is
 * not built is refused unless it is null or has the value that changes nothing; what
 * changes nothing is ignored and named. */
#include "router/api_json.h"

#include <stdio.h>
#include <string.h>

static bool is_zero(const json_t *v)
{
	return json_is_number(v) && json_number_value(v) == 0;
}

static bool is_false(const json_t *v)
{
	return json_is_false(v);
}

static bool is_true(const json_t *v)
{
	return json_is_true(v);
}

static bool is_bool(const json_t *v)
{
	return json_is_boolean(v);
}

static bool is_empty(const json_t *v)
{
	return (json_is_array(v) && json_array_size(v) == 0) ||
	       (json_is_object(v) && json_object_size(v) == 0) ||
	       (json_is_string(v) && json_string_length(v) == 0);
}

static bool is_none_or_auto(const json_t *v)
{
	return json_is_string(v) && (strcmp(json_string_value(v), "none") == 0 ||
					    strcmp(json_string_value(v), "auto") == 0);
}

static bool is_text_format(const json_t *v)
{
	const char *type = json_string_value(json_object_get(v, "type"));

	return type != NULL && strcmp(type, "text") == 0;
}

static bool never(const json_t *v)
{
	(void)v;
	return false;
}

struct field {
	const char *name;
	unsigned where; /* or of api_where */
	/* NULL: we act on it. Else: has the value no effect? */
	bool (*harmless)(const json_t *v);
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
	{"parallel_tool_calls", C, is_bool},
	{"response_format", C | P, is_text_format},
	{"add_generation_prompt", C, is_true},
	{"continue_final_message", C, is_false},
	{"chat_template", C, never},
	/* No tokenizer of this family adds any: neither value has an effect. */
	{"add_special_tokens", C | P, is_bool},
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

static const struct field *find_field(const char *name, enum api_where where)
{
	for (size_t i = 0; i < COUNT(fields); i++)
		if ((fields[i].where & where) && strcmp(fields[i].name, name) == 0)
			return &fields[i];
	return NULL;
}

/* Printable ASCII only: the list goes into a log line. */
static void note_ignored(char *list, size_t list_bytes, const char *name)
{
	size_t used = strlen(list);
	size_t need = strlen(name) + (used > 0 ? 2 : 0);

	if (used + need >= list_bytes)
		return;
	snprintf(list + used, list_bytes - used, "%s%s", used > 0 ? ", " : "", name);
	for (char *c = list + used; *c != '\0'; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
}

bool api_fields_check(json_t *object, enum api_where where, char *ignored,
	size_t ignored_bytes, struct api_error *e)
{
	const char *name;
	json_t *value;

	json_object_foreach(object, name, value)
	{
		const struct field *f = find_field(name, where);

		if (json_is_null(value) || (f != NULL && f->harmless == NULL))
			continue;
		if (f == NULL) {
			note_ignored(ignored, ignored_bytes, name);
		} else if (!f->harmless(value)) {
			api_error_set(e, 400, "unsupported_parameter", name,
				"%s is not supported with this value.", name);
			return false;
		}
	}
	return true;
}
