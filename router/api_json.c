/* Reading JSON bodies with bounds, and typed access to their members. */
#include "router/api_json.h"

#include "common/base/mem.h"

#include <stdio.h>
#include <string.h>

/* Bytes of a client's own text repeated in an error, and their zero. */
#define ECHO_BYTES 124

bool api_json_no_memory(struct api_error *e)
{
	api_error_set(e, 503, "overloaded", NULL,
		"The server has no memory for this request now.");
	return false;
}

const struct json *api_json_object(struct json_doc *doc, uint8_t *text, size_t len,
	const char *what, const char *param, struct api_error *e)
{
	static const struct json_limits limits = {
		.depth_max = API_DEPTH_MAX, .values_max = API_VALUES_MAX};
	struct err err;
	status st;

	*doc = (struct json_doc){0};
	if (len == 0) {
		api_error_set(e, 400, "invalid_json", param, "%s is empty.", what);
		return NULL;
	}
	st = json_read(doc, text, len, &limits, &err);
	if (st == ST_NOMEM) {
		api_json_no_memory(e);
		return NULL;
	}
	if (st != ST_OK) {
		api_error_set(e, 400, "invalid_json", param, "%s is %s: %s.", what,
			st == ST_LIMIT ? "too large" : "not valid JSON", err.text);
		return NULL;
	}
	if (!json_is(doc->values, JSON_OBJECT)) {
		api_error_set(
			e, 400, "invalid_json", param, "%s must be a JSON object.", what);
		return NULL;
	}
	return doc->values;
}

const struct json *api_json_body(
	struct json_doc *doc, struct sink *body, struct api_error *e)
{
	/* The zero behind it, for which a sink always keeps room. */
	(void)sink_cstr(body);
	return api_json_object(doc, body->at, body->len, "The body", NULL, e);
}

bool api_json_refuse(struct api_error *e, const char *param, const struct json *value,
	const char *want)
{
	char echo[ECHO_BYTES];

	if (value == NULL)
		api_error_set(e, 400, "missing_required_parameter", param,
			"%s is required: %s.", param, want);
	else
		api_error_set(e, 400, "invalid_value", param, "%s must be %s, not %s.",
			param, want, json_show(value, echo, sizeof(echo)));
	return false;
}

/* The member at the end of a path; NULL: absent or null. */
static const struct json *given_at(const struct json *object, const char *path)
{
	const char *dot = strchr(path, '.');
	char name[32];

	if (dot == NULL)
		return json_given(object, path);
	snprintf(name, sizeof(name), "%.*s", (int)(dot - path), path);
	return json_given(json_given(object, name), dot + 1);
}

bool api_json_int(const struct json *object, const char *name,
	const struct api_int_range *range, int64_t *out, bool *has, struct api_error *e)
{
	const struct json *v = given_at(object, name);
	int64_t i;

	if (v == NULL)
		return true;
	if (!json_i64(v, &i) || i < range->min || i > range->max)
		return api_json_refuse(e, name, v, range->text);
	*out = i;
	if (has != NULL)
		*has = true;
	return true;
}

bool api_json_f64(const struct json *object, const char *name,
	const struct api_range *range, double *out, bool *has, struct api_error *e)
{
	const struct json *v = given_at(object, name);
	double d;

	if (v == NULL)
		return true;
	if (!json_f64(v, &d) || d < range->min || d > range->max ||
		(range->open && (float)d <= (float)range->min))
		return api_json_refuse(e, name, v, range->text);
	*out = d;
	*has = true;
	return true;
}

bool api_json_bool(const struct json *object, const char *name, bool *out, bool *has,
	struct api_error *e)
{
	const struct json *v = given_at(object, name);

	if (v == NULL)
		return true;
	if (!json_is_bool(v))
		return api_json_refuse(e, name, v, "true or false");
	*out = json_is(v, JSON_TRUE);
	if (has != NULL)
		*has = true;
	return true;
}

bool api_json_text(const struct json *object, const char *name, char **out, size_t *len,
	struct api_error *e)
{
	const struct json *v = given_at(object, name);

	if (v == NULL)
		return true;
	if (!json_is(v, JSON_STRING))
		return api_json_refuse(e, name, v, "a string");
	*out = mem_dup(v->at, v->len);
	if (*out == NULL)
		return api_json_no_memory(e);
	if (len != NULL)
		*len = v->len;
	return true;
}

bool api_json_name(
	const struct json *object, const char *name, char **out, struct api_error *e)
{
	const struct json *v = given_at(object, name);

	if (json_is(v, JSON_STRING) && json_text(v) == NULL)
		return api_json_refuse(e, name, v, "a string without U+0000");
	return api_json_text(object, name, out, NULL, e);
}

bool api_json_ids(const struct json *list, const char *param, uint32_t **ids, size_t *n,
	struct api_error *e)
{
	size_t count = json_count(list), i = 0;
	char at[96];
	uint32_t *v;

	if (!json_is(list, JSON_ARRAY) || count == 0)
		return api_json_refuse(e, param, list, "a non-empty list of token ids");
	v = mem_take(count, sizeof(*v));
	if (v == NULL)
		return api_json_no_memory(e);
	json_each(item, list)
	{
		int64_t id;

		if (!json_i64(item, &id) || id < 0 || id > API_ID_MAX) {
			mem_give(v);
			snprintf(at, sizeof(at), "%s[%zu]", param, i);
			return api_json_refuse(e, at, item, "a token id");
		}
		v[i++] = (uint32_t)id;
	}
	*ids = v;
	*n = count;
	return true;
}
