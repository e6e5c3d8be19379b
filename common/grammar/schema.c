/* JSON schemas as trees of the texts that they allow. Members come in the order of the
 * schema. What a schema leaves open is narrowed where README.md says so; a keyword that
 * is not in the table is refused by name. */
#include "common/grammar/schema.h"

#include <stdio.h>
#include <string.h>

/* What becomes of a keyword: it is about values of a type, or of all, or says nothing
 * of them. */
enum about { NOTHING, ALL, STRING, NUMBER, ARRAY, OBJECT };
static const struct keyword {
	const char *name;
	enum about about;
} keywords[] = {
	{"$schema", NOTHING},
	{"$id", NOTHING},
	{"$comment", NOTHING},
	{"$defs", NOTHING},
	{"definitions", NOTHING},
	{"title", NOTHING},
	{"description", NOTHING},
	{"default", NOTHING},
	{"examples", NOTHING},
	{"deprecated", NOTHING},
	{"readOnly", NOTHING},
	{"writeOnly", NOTHING},
	{"type", ALL},
	{"enum", ALL},
	{"const", ALL},
	{"anyOf", ALL},
	{"$ref", ALL},
	{"minLength", STRING},
	{"maxLength", STRING},
	{"pattern", STRING},
	{"items", ARRAY},
	{"minItems", ARRAY},
	{"maxItems", ARRAY},
	{"properties", OBJECT},
	{"required", OBJECT},
	{"additionalProperties", OBJECT},
};

status schema_part(
	struct reader *r, const char *name, const struct json *v, uint32_t *node)
{
	size_t len = strlen(r->path);
	status st;

	(void)snprintf(r->path + len, sizeof(r->path) - len, ".%.40s", name);
	st = schema_any(r, v, node);
	r->path[len] = 0;
	return st;
}

/* ---- keywords of all types ---- */

static bool is_of_type(const struct json *v, const char *type)
{
	int64_t whole;

	if (type == NULL)
		return false;
	if (strcmp(type, "integer") == 0)
		return json_i64(v, &whole);
	return (json_is(v, JSON_OBJECT) && strcmp(type, "object") == 0) ||
	       (json_is(v, JSON_ARRAY) && strcmp(type, "array") == 0) ||
	       (json_is(v, JSON_STRING) && strcmp(type, "string") == 0) ||
	       (json_is(v, JSON_NUMBER) && strcmp(type, "number") == 0) ||
	       (json_is_bool(v) && strcmp(type, "boolean") == 0) ||
	       (json_is(v, JSON_NULL) && strcmp(type, "null") == 0);
}

static bool is_of_types(const struct json *v, const struct json *types)
{
	bool found = types == NULL || is_of_type(v, json_text(types));

	json_each(type, types) found |= is_of_type(v, json_text(type));
	return found;
}

static status read_values(struct reader *r, const struct json *schema, uint32_t *node)
{
	const struct json *types = json_member(schema, "type");
	const struct json *one = json_member(schema, "const");
	const struct json *some = json_member(schema, "enum");
	uint32_t n = 0;

	if (one != NULL && some != NULL)
		return schema_refuse(r, "const beside enum is not supported");
	if (some != NULL && !json_is(some, JSON_ARRAY))
		return schema_refuse(r, "enum is no list");
	*node = syntax_node(r->s, SYNTAX_ANY);
	if (one != NULL && is_of_types(one, types)) {
		n++;
		if (schema_value(r, *node, one) != ST_OK)
			return ST_INVALID;
	}
	json_each(v, some)
	{
		if (!is_of_types(v, types))
			continue;
		n++;
		if (schema_value(r, *node, v) != ST_OK)
			return ST_INVALID;
	}
	return n > 0 ? ST_OK : schema_refuse(r, "no value is allowed");
}

static status read_any_of(struct reader *r, const struct json *list, uint32_t *node)
{
	uint32_t n = 0;

	if (!json_is(list, JSON_ARRAY) || json_count(list) == 0)
		return schema_refuse(r, "anyOf is no list of schemas");
	*node = syntax_node(r->s, SYNTAX_ANY);
	json_each(item, list)
	{
		char name[24];
		uint32_t part = 0;
		status st;

		(void)snprintf(name, sizeof(name), "anyOf[%u]", n++);
		st = schema_part(r, name, item, &part);
		if (st != ST_OK)
			return st;
		syntax_add(r->s, *node, part);
	}
	return ST_OK;
}

/* "#/$defs/name" and "#/definitions/name". */
static const struct json *find_ref(const struct reader *r, struct bytes ref)
{
	static const char *const places[] = {"#/$defs/", "#/definitions/"};
	static const char *const members[] = {"$defs", "definitions"};
	char name[128];

	for (size_t i = 0; i < COUNT(places); i++) {
		size_t n = strlen(places[i]);

		if (ref.len <= n || ref.len - n >= sizeof(name) ||
			memcmp(ref.at, places[i], n) != 0)
			continue;
		memcpy(name, ref.at + n, ref.len - n);
		name[ref.len - n] = 0;
		return json_member(json_member(r->root, members[i]), name);
	}
	return NULL;
}

static status read_ref(struct reader *r, const struct json *ref, uint32_t *node)
{
	const struct json *to = find_ref(r, json_bytes(ref));
	char shown[80];
	status st;

	if (json_equals(ref, "#"))
		to = r->root;
	if (to == NULL)
		return schema_refuse(r,
			"$ref %s is not found; taken are #/$defs/NAME and "
			"#/definitions/NAME",
			json_show(ref, shown, sizeof(shown)));
	for (uint32_t i = 0; i < r->n_refs; i++)
		if (r->refs[i] == to)
			return schema_refuse(r,
				"$ref %s: recursive schemas are not supported",
				json_show(ref, shown, sizeof(shown)));
	if (r->n_refs == GRAMMAR_NEST_MAX)
		return schema_refuse(
			r, "more than %u schemas in each other", GRAMMAR_NEST_MAX);
	r->refs[r->n_refs++] = to;
	st = schema_part(r, "$ref", to, node);
	r->n_refs--;
	return st;
}

/* ---- the schema itself ---- */

static const struct keyword *find_keyword(const struct json *name)
{
	for (size_t i = 0; i < COUNT(keywords); i++)
		if (json_equals(name, keywords[i].name))
			return &keywords[i];
	return NULL;
}

/* *says: a bit for each enum about. lone: no other keyword may say something beside it.
 */
static status check_keywords(
	struct reader *r, const struct json *v, const char *lone, unsigned *says)
{
	char shown[80];

	*says = 0;
	json_each_member(name, v)
	{
		const struct keyword *k = find_keyword(name);

		if (k == NULL)
			return schema_refuse(r, "the keyword %s is not supported",
				json_show(name, shown, sizeof(shown)));
		*says |= 1u << k->about;
		if (lone == NULL || k->about == NOTHING || json_equals(name, lone))
			continue;
		if (strcmp(lone, "enum or const") == 0 &&
			(json_equals(name, "enum") || json_equals(name, "const") ||
				json_equals(name, "type")))
			continue;
		return schema_refuse(r, "%s beside %s is not supported", k->name, lone);
	}
	return ST_OK;
}

/* Without a type, the one that the other keywords are about. */
static status read_untyped(
	struct reader *r, const struct json *v, unsigned says, uint32_t *node)
{
	if ((says & 1u << OBJECT) != 0)
		return schema_object(r, v, node);
	if ((says & 1u << ARRAY) != 0)
		return schema_array(r, v, node);
	if ((says & 1u << STRING) != 0)
		return schema_string(r, v, node);
	*node = schema_free(r, GRAMMAR_FREE_MAX);
	return ST_OK;
}

static status read_kind(struct reader *r, const struct json *v, uint32_t *node)
{
	const struct json *ref = json_member(v, "$ref"), *any = json_member(v, "anyOf");
	const struct json *types = json_member(v, "type");
	bool values = json_member(v, "enum") != NULL || json_member(v, "const") != NULL;
	const char *lone = ref != NULL   ? "$ref"
			   : any != NULL ? "anyOf"
			   : values      ? "enum or const"
					 : NULL;
	unsigned says;
	status st = check_keywords(r, v, lone, &says);

	if (st != ST_OK)
		return st;
	if (ref != NULL)
		return read_ref(r, ref, node);
	if (any != NULL)
		return read_any_of(r, any, node);
	if (values)
		return read_values(r, v, node);
	if (types != NULL)
		return schema_types(r, v, types, node);
	return read_untyped(r, v, says, node);
}

status schema_any(struct reader *r, const struct json *v, uint32_t *node)
{
	status st;

	if (r->s->full || r->s->no_memory)
		return syntax_check(r->s, r->err);
	if (json_is(v, JSON_TRUE)) {
		*node = schema_free(r, GRAMMAR_FREE_MAX);
		return ST_OK;
	}
	if (!json_is(v, JSON_OBJECT))
		return schema_refuse(r, "it is no schema");
	if (++r->depth > GRAMMAR_NEST_MAX)
		return schema_refuse(
			r, "more than %u schemas in each other", GRAMMAR_NEST_MAX);
	st = read_kind(r, v, node);
	r->depth--;
	return st;
}

status schema_read(
	struct syntax *s, const struct json *schema, uint32_t *node, struct err *err)
{
	struct reader r = {.s = s, .root = schema, .err = err};

	r.refs[r.n_refs++] = schema;
	return schema_any(&r, schema, node);
}
