/* JSON texts as trees: those that no schema describes, and those of one type. No white
 * space is let through but for one optional space behind ':' and ','. */
#include "common/base/json_write.h"
#include "common/base/mem.h"
#include "common/grammar/schema.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LITERAL_MAX GRAMMAR_TEXT_MAX
/* Each is looked up among the required ones. */
#define MEMBERS_MAX 512u

status schema_refuse(struct reader *r, const char *fmt, ...)
{
	char what[200];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	return err_set(r->err, ST_INVALID, "at %s: %s",
		r->path[0] == 0 ? "its root" : r->path + 1, what);
}

static void add_text(struct reader *r, uint32_t to, const char *text)
{
	syntax_add(r->s, to, syntax_literal(r->s, bytes_of_str(text)));
}

/* An expression of ours. */
static uint32_t regex_of(struct reader *r, const char *text)
{
	struct err err;
	uint32_t node = 0;

	if (regex_read(r->s, bytes_of_str(text), false, &node, &err) != ST_OK)
		assert(r->s->full || r->s->no_memory);
	return node;
}

static uint32_t optional_space(struct reader *r)
{
	return syntax_repeat(r->s, syntax_char(r->s, ' '), 0, 1);
}

/* ---- values that no schema describes ---- */

static uint32_t string_of(struct reader *r, uint32_t chars)
{
	uint32_t node = syntax_node(r->s, SYNTAX_ALL);

	add_text(r, node, "\"");
	syntax_add(r->s, node, chars);
	add_text(r, node, "\"");
	return node;
}

static uint32_t any_chars(struct reader *r, uint32_t min, uint32_t max)
{
	struct charset set = {.n = 0};
	uint32_t one;

	/* Of control characters those that have a short escape. */
	charset_add(&set, '\b', '\n');
	charset_add(&set, '\f', '\r');
	charset_add(&set, ' ', CHARSET_LAST);
	charset_normalize(&set);
	r->s->json = true;
	one = syntax_set(r->s, &set);
	r->s->json = false;
	return syntax_repeat(r->s, one, min, max);
}

/* Digits as far as doubles keep them. */
static uint32_t number(struct reader *r, bool whole)
{
	return regex_of(r, whole ? "-?(?:0|[1-9][0-9]{0,14})"
				 : "-?(?:0|[1-9][0-9]{0,14})(?:\\.[0-9]{1,15})?"
				   "(?:[eE][+-]?[0-9]{1,2})?");
}

/* item, or several with commas between. */
static uint32_t repeated(struct reader *r, uint32_t item, uint32_t min, uint32_t max)
{
	uint32_t more, all, rest;

	if (max == 0)
		return syntax_node(r->s, SYNTAX_ALL);
	if (min <= 1 && max == NFA_NO_MAX) {
		all = syntax_node(r->s, SYNTAX_MANY);
		syntax_add(r->s, all, item);
		return min > 0 ? all : syntax_repeat(r->s, all, 0, 1);
	}
	more = syntax_node(r->s, SYNTAX_ALL);
	add_text(r, more, ",");
	syntax_add(r->s, more, optional_space(r));
	syntax_add(r->s, more, syntax_same(r->s, item));
	all = syntax_node(r->s, SYNTAX_ALL);
	rest = syntax_repeat(
		r->s, more, min == 0 ? 0 : min - 1, max == NFA_NO_MAX ? max : max - 1);
	syntax_add(r->s, all, item);
	syntax_add(r->s, all, rest);
	return min > 0 ? all : syntax_repeat(r->s, all, 0, 1);
}

static uint32_t between(
	struct reader *r, const char *open, uint32_t inside, const char *close)
{
	uint32_t node = syntax_node(r->s, SYNTAX_ALL);

	add_text(r, node, open);
	syntax_add(r->s, node, inside);
	add_text(r, node, close);
	return node;
}

/* An object of any names. */
static uint32_t dictionary(struct reader *r, uint32_t value)
{
	uint32_t member = syntax_node(r->s, SYNTAX_ALL);

	syntax_add(r->s, member, string_of(r, any_chars(r, 0, NFA_NO_MAX)));
	add_text(r, member, ":");
	syntax_add(r->s, member, optional_space(r));
	syntax_add(r->s, member, value);
	return between(r, "{", repeated(r, member, 0, NFA_NO_MAX), "}");
}

uint32_t schema_free(struct reader *r, uint32_t levels)
{
	uint32_t node = syntax_node(r->s, SYNTAX_ANY), inside;

	add_text(r, node, "null");
	add_text(r, node, "true");
	add_text(r, node, "false");
	syntax_add(r->s, node, number(r, false));
	syntax_add(r->s, node, string_of(r, any_chars(r, 0, NFA_NO_MAX)));
	if (levels == 0)
		return node;
	inside = schema_free(r, levels - 1);
	syntax_add(r->s, node, between(r, "[", repeated(r, inside, 0, NFA_NO_MAX), "]"));
	syntax_add(r->s, node, dictionary(r, syntax_same(r->s, inside)));
	return node;
}

/* ---- types ---- */

static status read_count(struct reader *r, const struct json *v, const char *name,
	uint32_t absent, uint32_t *out)
{
	const struct json *given = json_member(v, name);
	int64_t n;

	*out = absent;
	if (given == NULL)
		return ST_OK;
	if (!json_i64(given, &n) || n < 0 || n > SYNTAX_REPEAT_MAX)
		return schema_refuse(
			r, "%s is not a number from 0 to %u", name, SYNTAX_REPEAT_MAX);
	*out = (uint32_t)n;
	return ST_OK;
}

static status read_counts(struct reader *r, const struct json *v, const char *least,
	const char *most, uint32_t *min, uint32_t *max)
{
	status st = read_count(r, v, least, 0, min);

	if (st == ST_OK)
		st = read_count(r, v, most, NFA_NO_MAX, max);
	if (st == ST_OK && *min > *max)
		st = schema_refuse(r, "%s is above %s", least, most);
	return st;
}

status schema_string(struct reader *r, const struct json *v, uint32_t *node)
{
	const struct json *pattern = json_member(v, "pattern");
	uint32_t min, max, chars;
	status st = read_counts(r, v, "minLength", "maxLength", &min, &max);

	if (st != ST_OK)
		return st;
	if (pattern == NULL) {
		*node = string_of(r, any_chars(r, min, max));
		return ST_OK;
	}
	if (!json_is(pattern, JSON_STRING))
		return schema_refuse(r, "pattern is no text");
	if (min > 0 || max != NFA_NO_MAX)
		return schema_refuse(r, "pattern beside minLength or maxLength is not "
					"supported");
	r->s->json = true;
	st = regex_read(r->s, json_bytes(pattern), true, &chars, r->err);
	r->s->json = false;
	if (st != ST_OK) {
		struct err why = *r->err;

		return schema_refuse(r, "pattern: %s", why.text);
	}
	*node = string_of(r, chars);
	return ST_OK;
}

status schema_array(struct reader *r, const struct json *v, uint32_t *node)
{
	const struct json *items = json_member(v, "items");
	uint32_t min, max, item = 0;
	status st = read_counts(r, v, "minItems", "maxItems", &min, &max);

	if (st == ST_OK && items != NULL)
		st = schema_part(r, "items", items, &item);
	else if (st == ST_OK)
		item = schema_free(r, GRAMMAR_FREE_MAX - 1);
	if (st == ST_OK)
		*node = between(r, "[", repeated(r, item, min, max), "]");
	return st;
}

static bool is_required(const struct json *required, struct bytes name)
{
	json_each(item, required) if (bytes_eq(json_bytes(item), name)) return true;
	return false;
}

/* A value's own text. */
status schema_value(struct reader *r, uint32_t to, const struct json *v)
{
	struct json_out w;
	struct sink text;
	bool full;

	sink_init(&text, LITERAL_MAX);
	json_out_init(&w, &text);
	json_put(&w, v);
	full = text.full;
	if (!full)
		syntax_add(r->s, to, syntax_literal(r->s, sink_bytes(&text)));
	sink_release(&text);
	return full ? schema_refuse(r, "a text of it is too long") : ST_OK;
}

static status read_member(struct reader *r, const struct json *name,
	const struct json *required, uint32_t list)
{
	uint32_t member = syntax_node(r->s, SYNTAX_ALL), value = 0;
	char shown[48];
	status st;

	(void)snprintf(shown, sizeof(shown), "properties.%.*s", (int)MIN(name->len, 32u),
		(const char *)name->at);
	st = schema_value(r, member, name);
	if (st != ST_OK)
		return st;
	add_text(r, member, ":");
	syntax_add(r->s, member, optional_space(r));
	st = schema_part(r, shown, name + 1, &value);
	if (st == ST_OK)
		st = syntax_check(r->s, r->err);
	if (st != ST_OK)
		return st;
	syntax_add(r->s, member, value);
	r->s->nodes[member].optional = !is_required(required, json_bytes(name));
	syntax_add(r->s, list, member);
	return syntax_check(r->s, r->err);
}

static status check_required(
	struct reader *r, const struct json *required, const struct json *properties)
{
	uint32_t found = 0, wanted = 0;

	if (required != NULL && !json_is(required, JSON_ARRAY))
		return schema_refuse(r, "required is no list");
	if (json_count(required) > MEMBERS_MAX || json_count(properties) > MEMBERS_MAX)
		return schema_refuse(r, "more than %u members", MEMBERS_MAX);
	json_each(item, required)
	{
		bool twice = false;

		if (!json_is(item, JSON_STRING))
			return schema_refuse(r, "required has something that is no name");
		for (const struct json *o = json_first(required, JSON_ARRAY); o < item;
			o += o->span)
			twice |= bytes_eq(json_bytes(o), json_bytes(item));
		wanted += !twice;
	}
	json_each_member(name, properties) found +=
		is_required(required, json_bytes(name));
	if (found != wanted)
		return schema_refuse(
			r, "required has a name that properties does not describe");
	return ST_OK;
}

/* Beside `properties` no other members are let through, whatever additionalProperties
 * says of them. */
status schema_object(struct reader *r, const struct json *v, uint32_t *node)
{
	const struct json *properties = json_member(v, "properties");
	const struct json *more = json_member(v, "additionalProperties");
	const struct json *required = json_member(v, "required");
	uint32_t list = 0, value = 0;
	status st;

	if (properties != NULL && !json_is(properties, JSON_OBJECT))
		return schema_refuse(r, "properties is no object");
	if (more != NULL && !json_is_bool(more) && !json_is(more, JSON_OBJECT))
		return schema_refuse(r, "additionalProperties is no schema");
	st = check_required(r, required, properties);
	if (st != ST_OK)
		return st;
	if (json_count(properties) == 0 && !json_is(more, JSON_FALSE)) {
		if (json_is(more, JSON_OBJECT))
			st = schema_part(r, "additionalProperties", more, &value);
		else
			value = schema_free(r, GRAMMAR_FREE_MAX - 1);
		if (st == ST_OK)
			*node = dictionary(r, value);
		return st;
	}
	list = syntax_node(r->s, SYNTAX_LIST);
	json_each_member(name, properties)
	{
		st = read_member(r, name, required, list);
		if (st != ST_OK)
			return st;
	}
	*node = between(r, "{", list, "}");
	return ST_OK;
}

static status read_type(
	struct reader *r, const struct json *v, const char *type, uint32_t *node)
{
	if (type != NULL && strcmp(type, "object") == 0)
		return schema_object(r, v, node);
	if (type != NULL && strcmp(type, "array") == 0)
		return schema_array(r, v, node);
	if (type != NULL && strcmp(type, "string") == 0)
		return schema_string(r, v, node);
	if (type != NULL && strcmp(type, "number") == 0)
		*node = number(r, false);
	else if (type != NULL && strcmp(type, "integer") == 0)
		*node = number(r, true);
	else if (type != NULL && strcmp(type, "boolean") == 0)
		*node = regex_of(r, "true|false");
	else if (type != NULL && strcmp(type, "null") == 0)
		*node = regex_of(r, "null");
	else
		return schema_refuse(r,
			"type is not one of object, array, string, number, "
			"integer, boolean, null");
	return ST_OK;
}

status schema_types(
	struct reader *r, const struct json *v, const struct json *types, uint32_t *node)
{
	if (json_is(types, JSON_STRING))
		return read_type(r, v, json_text(types), node);
	if (!json_is(types, JSON_ARRAY) || json_count(types) == 0)
		return schema_refuse(r, "type is neither a name nor a list of names");
	*node = syntax_node(r->s, SYNTAX_ANY);
	json_each(type, types)
	{
		uint32_t part = 0;
		status st = read_type(r, v, json_text(type), &part);

		if (st != ST_OK)
			return st;
		syntax_add(r->s, *node, part);
	}
	return ST_OK;
}
