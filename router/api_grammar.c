/* Members of generation requests that say what the answer may look like: each becomes a
 * grammar's kind and text, of which there is one at most. */
#include "common/base/mem.h"
#include "common/grammar/grammar.h"
#include "router/api_fields.h"
#include "router/tools.h"

#include <stdio.h>

/* What of a request is read, and as what it is named. */
struct reading {
	struct gen_request *req;
	struct api_error *e;
};

static bool set(const struct reading *r, enum grammar_kind kind, struct bytes text,
	const char *param)
{
	struct gen_request *req = r->req;

	if (req->grammar != NULL) {
		api_error_set(r->e, 400, "invalid_value", param,
			"%s beside %s: an answer can have one form only.", param,
			req->grammar_param);
		return false;
	}
	if (text.len > GRAMMAR_TEXT_MAX) {
		api_error_set(r->e, 400, "invalid_value", param,
			"%s has %zu bytes; at most %u are allowed.", param, text.len,
			GRAMMAR_TEXT_MAX);
		return false;
	}
	req->grammar = (uint8_t *)mem_dup(text.at, text.len);
	if (req->grammar == NULL)
		return api_json_no_memory(r->e);
	snprintf(req->grammar_param, sizeof(req->grammar_param), "%s", param);
	req->draw.grammar = (struct bytes){req->grammar, text.len};
	req->draw.grammar_kind = kind;
	return true;
}

static bool set_json(const struct reading *r, enum grammar_kind kind,
	const struct json *v, const char *param)
{
	struct json_out w;
	struct sink text;
	bool ok;

	sink_init(&text, SIZE_MAX / 2);
	json_out_init(&w, &text);
	json_put(&w, v);
	ok = text.full ? api_json_no_memory(r->e)
		       : set(r, kind, sink_bytes(&text), param);
	sink_release(&text);
	return ok;
}

/* A schema, or its text. */
static bool take_schema(const struct reading *r, const struct json *v, const char *param)
{
	if (json_is(v, JSON_STRING))
		return set(r, GRAMMAR_SCHEMA, json_bytes(v), param);
	if (!json_is(v, JSON_OBJECT) && !json_is_bool(v))
		return api_json_refuse(r->e, param, v, "a JSON schema");
	return set_json(r, GRAMMAR_SCHEMA, v, param);
}

static bool take_regex(const struct reading *r, const struct json *v, const char *param)
{
	if (json_bytes(v).len == 0)
		return api_json_refuse(r->e, param, v, "a non-empty string");
	return set(r, GRAMMAR_REGEX, json_bytes(v), param);
}

static bool take_choice(const struct reading *r, const struct json *v, const char *param)
{
	if (!json_is(v, JSON_ARRAY) || json_count(v) == 0)
		return api_json_refuse(r->e, param, v, "a non-empty list of strings");
	json_each(item, v)
	{
		if (json_bytes(item).len == 0)
			return api_json_refuse(r->e, param, item, "a non-empty string");
	}
	return set_json(r, GRAMMAR_CHOICE, v, param);
}

static bool take_object(const struct reading *r, const char *param)
{
	return set(r, GRAMMAR_SCHEMA, BYTES_STR("{\"type\":\"object\"}"), param);
}

static bool take_format(const struct reading *r, const struct json *v)
{
	const struct json *type = json_member(v, "type");
	const struct json *holder = json_given(v, "json_schema");
	const struct json *schema = json_given(holder, "schema");

	if (!json_is(v, JSON_OBJECT))
		return api_json_refuse(r->e, "response_format", v, "an object");
	if (json_equals(type, "text"))
		return true;
	if (json_equals(type, "json_object"))
		return take_object(r, "response_format");
	if (!json_equals(type, "json_schema"))
		return api_json_refuse(r->e, "response_format.type", type,
			"text, json_object or json_schema");
	if (!json_is(holder, JSON_OBJECT))
		return api_json_refuse(
			r->e, "response_format.json_schema", holder, "an object");
	if (!json_is(schema, JSON_OBJECT))
		return api_json_refuse(r->e, "response_format.json_schema.schema", schema,
			"a JSON schema");
	return take_schema(r, schema, "response_format.json_schema.schema");
}

static bool take_outputs_member(
	const struct reading *r, const struct json *name, const struct json *v)
{
	char param[64];

	snprintf(param, sizeof(param), "structured_outputs.%.30s",
		json_text(name) != NULL ? json_text(name) : "?");
	if (json_is(v, JSON_NULL))
		return true;
	if (json_equals(name, "json"))
		return take_schema(r, v, param);
	if (json_equals(name, "regex"))
		return take_regex(r, v, param);
	if (json_equals(name, "choice"))
		return take_choice(r, v, param);
	if (json_equals(name, "json_object") && json_is_bool(v))
		return json_is(v, JSON_FALSE) || take_object(r, param);
	api_error_set(r->e, 400, "unsupported_parameter", param,
		"%s is not supported; what is taken: json, regex, choice, json_object.",
		param);
	return false;
}

static bool take_outputs(const struct reading *r, const struct json *v)
{
	if (!json_is(v, JSON_OBJECT) || json_count(v) == 0)
		return api_json_refuse(r->e, "structured_outputs", v,
			"an object with json, regex, choice or json_object");
	json_each_member(name, v)
	{
		if (!take_outputs_member(r, name, name + 1))
			return false;
	}
	return true;
}

bool api_grammar_parse(
	const struct json *object, struct gen_request *req, struct api_error *e)
{
	static const struct {
		const char *name;
		bool (*take)(
			const struct reading *r, const struct json *v, const char *param);
	} members[] = {
		{"guided_json", take_schema},
		{"json_schema", take_schema},
		{"guided_regex", take_regex},
		{"regex", take_regex},
		{"guided_choice", take_choice},
	};
	const struct reading r = {req, e};
	const struct json *format = json_given(object, "response_format");
	const struct json *outputs = json_given(object, "structured_outputs");

	if ((format != NULL && !take_format(&r, format)) ||
		(outputs != NULL && !take_outputs(&r, outputs)))
		return false;
	for (size_t i = 0; i < COUNT(members); i++) {
		const struct json *v = json_given(object, members[i].name);

		if (v != NULL && !members[i].take(&r, v, members[i].name))
			return false;
	}
	return true;
}

bool api_grammar_understood(const struct gen_request *req, struct api_error *e)
{
	struct grammar *g = NULL;
	struct err err;
	status st;

	if (req->grammar == NULL)
		return true;
	st = grammar_compile(
		&g, (enum grammar_kind)req->draw.grammar_kind, req->draw.grammar, &err);
	grammar_destroy(g);
	if (st == ST_NOMEM)
		return api_json_no_memory(e);
	if (st != ST_OK)
		api_error_set(e, 400, "invalid_value", req->grammar_param,
			"%s is not supported: %s.", req->grammar_param, err.text);
	return st == ST_OK;
}

/* What could end an answer inside of its form, or keep it from ending. */
bool api_grammar_alone(const struct gen_request *req, struct api_error *e)
{
	bool has_tools = req->tools != NULL && req->tools->n > 0;
	const char *beside = req->stop.n > 0             ? "stop"
			     : req->n_stop_token_ids > 0 ? "stop_token_ids"
			     : req->ignore_eos           ? "ignore_eos"
			     : req->draw.min_tokens > 0  ? "min_tokens"
			     : has_tools                 ? "tools"
							 : NULL;

	if (req->grammar == NULL || beside == NULL)
		return true;
	api_error_set(e, 400, "unsupported_parameter", beside,
		"%s is not supported with %s.", beside, req->grammar_param);
	return false;
}
