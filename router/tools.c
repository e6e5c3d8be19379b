/* The declarations of tools: checked, and what the reader of an answer needs kept. */
#include "router/tools.h"

#include "common/base/mem.h"
#include "router/api_json.h"

#include <stdio.h>
#include <string.h>

/* Schemas within schemas that are looked into for types. */
#define SCHEMA_DEPTH 8u

bool tool_is_name_byte(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
}

const struct tool *tools_find(const struct tool_set *set, struct bytes name)
{
	for (uint32_t i = 0; i < set->n; i++)
		if (strlen(set->tools[i].name) == name.len &&
			memcmp(set->tools[i].name, name.at, name.len) == 0)
			return &set->tools[i];
	return NULL;
}

const struct tool_param *tools_param(
	const struct tool_set *set, const struct tool *tool, struct bytes name)
{
	for (uint32_t i = 0; i < tool->n; i++) {
		const struct tool_param *p = &set->params[tool->first + i];

		if (p->len == name.len && memcmp(p->name, name.at, name.len) == 0)
			return p;
	}
	return NULL;
}

void tools_release(struct tool_set *set)
{
	if (set == NULL)
		return;
	mem_give(set->tools);
	mem_give(set->params);
	mem_give(set->names);
	*set = (struct tool_set){0};
}

/* ---- the types that a schema takes ---- */

static unsigned type_named(const struct json *name)
{
	static const struct {
		const char *name;
		unsigned types;
	} named[] = {
		{"string", TOOL_STRING},
		{"integer", TOOL_INTEGER},
		{"number", TOOL_INTEGER | TOOL_NUMBER},
		{"boolean", TOOL_BOOLEAN},
		{"null", TOOL_NULL},
		{"array", TOOL_ARRAY},
		{"object", TOOL_OBJECT},
	};

	for (size_t i = 0; i < COUNT(named); i++)
		if (json_equals(name, named[i].name))
			return named[i].types;
	return 0;
}

static unsigned type_of_value(const struct json *v)
{
	switch ((enum json_kind)v->kind) {
	case JSON_NULL:
		return TOOL_NULL;
	case JSON_FALSE:
	case JSON_TRUE:
		return TOOL_BOOLEAN;
	case JSON_NUMBER:
		return TOOL_INTEGER | TOOL_NUMBER;
	case JSON_STRING:
		return TOOL_STRING;
	case JSON_ARRAY:
		return TOOL_ARRAY;
	case JSON_OBJECT:
		return TOOL_OBJECT;
	}
	return TOOL_STRING;
}

/* "#/$defs/NAME" and "#/definitions/NAME" of the tool's own schema. */
static const struct json *follow(const struct json *root, const char *ref)
{
	static const char *const homes[] = {"$defs", "definitions"};

	for (size_t i = 0; ref != NULL && i < COUNT(homes); i++) {
		size_t n = strlen(homes[i]);

		if (strncmp(ref, "#/", 2) == 0 && strncmp(ref + 2, homes[i], n) == 0 &&
			ref[2 + n] == '/')
			return json_member(json_member(root, homes[i]), ref + 3 + n);
	}
	return NULL;
}

static unsigned types_in(
	const struct json *schema, const struct json *root, unsigned depth);

static unsigned types_of_any(
	const struct json *schema, const struct json *root, unsigned depth)
{
	static const char *const lists[] = {"anyOf", "oneOf", "allOf"};
	unsigned types = 0;

	for (size_t i = 0; i < COUNT(lists); i++)
		json_each(one, json_member(schema, lists[i])) types |=
			types_in(one, root, depth);
	return types;
}

/* 0: it does not say. */
static unsigned types_in(
	const struct json *schema, const struct json *root, unsigned depth)
{
	const struct json *type = json_member(schema, "type");
	const struct json *value = json_member(schema, "const");
	const struct json *ref = json_member(schema, "$ref");
	unsigned types = type_named(type);

	if (depth == 0)
		return 0;
	json_each(one, type) types |= type_named(one);
	if (types == 0 && value != NULL)
		types = type_of_value(value);
	if (types == 0)
		json_each(one, json_member(schema, "enum")) types |= type_of_value(one);
	if (types == 0)
		types = types_of_any(schema, root, depth - 1);
	if (types == 0 && ref != NULL)
		types = types_in(follow(root, json_text(ref)), root, depth - 1);
	if (types == 0 && json_is(json_member(schema, "properties"), JSON_OBJECT))
		types = TOOL_OBJECT;
	if (types == 0 && json_is(json_member(schema, "items"), JSON_OBJECT))
		types = TOOL_ARRAY;
	return types;
}

/* ---- the list ---- */

const struct tools_form tools_chat_form = {"function", "parameters", true};

static const struct json *function_of(
	const struct json *tool, const struct tools_form *form)
{
	return form->inside != NULL ? json_given(tool, form->inside) : tool;
}

static const struct json *schema_of(
	const struct json *tool, const struct tools_form *form)
{
	return json_given(function_of(tool, form), form->schema);
}

static const struct json *properties_of(
	const struct json *tool, const struct tools_form *form)
{
	return json_given(schema_of(tool, form), "properties");
}

static bool is_name(const struct json *v)
{
	struct bytes b = json_bytes(v);

	if (b.len == 0 || b.len >= TOOL_NAME_BYTES)
		return false;
	for (size_t i = 0; i < b.len; i++)
		if (!tool_is_name_byte(b.at[i]))
			return false;
	return true;
}

#define BASE_BYTES 64u

/* Where its name and schema stand. */
static void name_tool(char base[BASE_BYTES], size_t i, const struct tools_form *form)
{
	bool wrapped = form->inside != NULL;

	snprintf(base, BASE_BYTES, "tools[%zu]%s%s", i, wrapped ? "." : "",
		wrapped ? form->inside : "");
}

static bool check_type(const struct json *tool, size_t i, const struct tools_form *form,
	struct api_error *e)
{
	const struct json *type = json_given(tool, "type");
	char at[96];

	if (form->typed ? json_equals(type, "function")
			: type == NULL || json_equals(type, "custom"))
		return true;
	snprintf(at, sizeof(at), "tools[%zu].type", i);
	return api_json_refuse(e, at, json_member(tool, "type"),
		form->typed ? "\"function\"" : "absent or \"custom\"");
}

static bool check_tool(const struct json *tool, size_t i, const struct tools_form *form,
	struct api_error *e)
{
	const struct json *function = function_of(tool, form);
	const struct json *properties = properties_of(tool, form);
	const struct {
		const char *name, *want;
		enum json_kind kind;
	} members[] = {
		{"description", "a string", JSON_STRING},
		{form->schema, "a JSON schema (an object)", JSON_OBJECT},
	};
	char base[BASE_BYTES], at[128];

	name_tool(base, i, form);
	if (!check_type(tool, i, form, e))
		return false;
	if (!json_is(function, JSON_OBJECT))
		return api_json_refuse(e, base, function, "an object");
	snprintf(at, sizeof(at), "%s.name", base);
	if (!is_name(json_member(function, "name")))
		return api_json_refuse(e, at, json_member(function, "name"),
			"1 to 64 letters, digits, _, - and .");
	for (size_t k = 0; k < COUNT(members); k++) {
		const struct json *v = json_given(function, members[k].name);

		snprintf(at, sizeof(at), "%s.%s", base, members[k].name);
		if (v != NULL && !json_is(v, members[k].kind))
			return api_json_refuse(e, at, v, members[k].want);
	}
	snprintf(at, sizeof(at), "%s.%s.properties", base, form->schema);
	if (properties != NULL && !json_is(properties, JSON_OBJECT))
		return api_json_refuse(e, at, properties, "an object");
	return true;
}

static bool check_list(
	const struct json *list, const struct tools_form *form, struct api_error *e)
{
	size_t i = 0;

	if (!json_is(list, JSON_ARRAY))
		return api_json_refuse(e, "tools", list, "a list");
	if (json_count(list) > TOOLS_MAX) {
		api_error_set(e, 400, "invalid_value", "tools",
			"tools holds %u entries; at most %u are allowed.",
			json_count(list), TOOLS_MAX);
		return false;
	}
	json_each(tool, list) if (!check_tool(tool, i++, form, e)) return false;
	return true;
}

static bool make_room(
	struct tool_set *set, const struct json *list, const struct tools_form *form)
{
	size_t n_params = 0, name_bytes = 0;

	json_each(tool, list)
	{
		n_params += json_count(properties_of(tool, form));
		json_each_member(name, properties_of(tool, form)) name_bytes +=
			json_bytes(name).len;
	}
	set->tools = mem_take(json_count(list), sizeof(*set->tools));
	set->params = mem_take(MAX(n_params, 1u), sizeof(*set->params));
	set->names = mem_take(MAX(name_bytes, 1u), 1);
	return set->tools != NULL && set->params != NULL && set->names != NULL;
}

static bool fill(struct tool_set *set, const struct json *list,
	const struct tools_form *form, struct api_error *e)
{
	char *names = set->names;

	json_each(tool, list)
	{
		const struct json *function = function_of(tool, form);
		const struct json *root = schema_of(tool, form);
		struct bytes name = json_bytes(json_member(function, "name"));
		struct tool *t = &set->tools[set->n];

		if (tools_find(set, name) != NULL) {
			char base[BASE_BYTES], at[96];

			name_tool(base, set->n, form);
			snprintf(at, sizeof(at), "%s.name", base);
			return api_json_refuse(e, at, json_member(function, "name"),
				"unlike all names before it");
		}
		*t = (struct tool){.first = set->n_params};
		memcpy(t->name, name.at, name.len);
		json_each_member(param, properties_of(tool, form))
		{
			struct bytes p = json_bytes(param);
			unsigned types = types_in(param + 1, root, SCHEMA_DEPTH);

			if (p.len > 0)
				memcpy(names, p.at, p.len);
			set->params[set->n_params++] = (struct tool_param){.name = names,
				.len = (uint32_t)p.len,
				.types = types != 0 ? types : TOOL_STRING};
			names += p.len;
		}
		t->n = set->n_params - t->first;
		set->n++;
	}
	return true;
}

bool tools_declare(const struct json *list, const struct tools_form *form, bool offered,
	struct tool_set *set, struct api_error *e)
{
	*set = (struct tool_set){0};
	if (list != NULL && !check_list(list, form, e))
		return false;
	if (!offered || json_count(list) == 0)
		return true;
	return make_room(set, list, form) ? fill(set, list, form, e)
					  : api_json_no_memory(e);
}

void tools_put(struct json_out *w, const struct json *list, const struct tools_form *form)
{
	json_open(w, '[');
	json_each(tool, list)
	{
		const struct json *function = function_of(tool, form);

		json_open(w, '{');
		json_add_text(w, "type", "function");
		json_name(w, "function");
		json_open(w, '{');
		json_add_bytes(w, "name", json_bytes(json_member(function, "name")));
		if (json_given(function, "description") != NULL) {
			json_name(w, "description");
			json_put(w, json_given(function, "description"));
		}
		if (schema_of(tool, form) != NULL) {
			json_name(w, tools_chat_form.schema);
			json_put(w, schema_of(tool, form));
		}
		json_close(w);
		json_close(w);
	}
	json_close(w);
}

bool tools_are_offered(const struct json *object)
{
	return json_count(json_given(object, "tools")) > 0 &&
	       !json_equals(json_given(object, "tool_choice"), "none");
}

/* A call that must come needs a grammar. */
static bool check_choice(const struct json *choice, struct api_error *e)
{
	char shown[48];

	if (choice == NULL || json_equals(choice, "none") || json_equals(choice, "auto"))
		return true;
	if (!json_equals(choice, "required") && !json_is(choice, JSON_OBJECT))
		return api_json_refuse(
			e, "tool_choice", choice, "none, auto, required or a tool");
	api_error_set(e, 400, "unsupported_parameter", "tool_choice",
		"tool_choice %s is not supported; what is taken: none, auto.",
		json_show(choice, shown, sizeof(shown)));
	return false;
}

bool tools_parse(const struct json *object, const struct tools_form *form,
	struct tool_set *set, struct api_error *e)
{
	const struct json *list = json_given(object, "tools");
	bool parallel = true;

	if (!tools_declare(list, form, tools_are_offered(object), set, e))
		return false;
	if (!check_choice(json_given(object, "tool_choice"), e) ||
		!api_json_bool(object, "parallel_tool_calls", &parallel, NULL, e))
		return false;
	set->one_call = !parallel;
	return true;
}
