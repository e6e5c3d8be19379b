/* Reading JSON bodies with bounds, and typed access to their members. */
#include "router/api_json.h"

#include "common/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Bytes of a client's own text repeated in an error. */
#define ECHO_BYTES 120

/* The largest integer up to which every double that is whole is exact. */
#define EXACT_F64  9007199254740992.0
/* What no 64-bit integer reaches, as a double. */
#define BEYOND_I64 9223372036854775808.0

bool api_json_no_memory(struct api_error *e)
{
	api_error_set(e, 503, "overloaded", NULL,
		"The server has no memory for this request now.");
	return false;
}

/* Before a recursive parser sees the text: nesting and number of values. Brackets in
 * strings do not count; a text that is no JSON is left to the parser. */
static bool scan_bounds(
	struct bytes text, const char *what, const char *param, struct api_error *e)
{
	uint32_t depth = 0, values = 0;
	bool in_string = false;

	for (size_t i = 0; i < text.len; i++) {
		uint8_t c = text.at[i];

		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
			continue;
		}
		if (c == '"') {
			in_string = true;
		} else if (c == '[' || c == '{') {
			values++;
			if (++depth > API_DEPTH_MAX) {
				api_error_set(e, 400, "invalid_json", param,
					"%s is nested deeper than %u levels.", what,
					API_DEPTH_MAX);
				return false;
			}
		} else if ((c == ']' || c == '}') && depth > 0) {
			depth--;
		} else if (c == ',') {
			values++;
		}
		if (values > API_VALUES_MAX) {
			api_error_set(e, 400, "invalid_json", param,
				"%s holds more than %u values.", what, API_VALUES_MAX);
			return false;
		}
	}
	return true;
}

/* In value or below it, which scan_bounds has kept shallow. */
static bool has_big_number(const json_t *value)
{
	const json_t *item;
	const char *key;
	size_t i;

	if (json_is_real(value))
		return fabs(json_real_value(value)) >= BEYOND_I64;
	json_array_foreach(value, i, item)
	{
		if (has_big_number(item))
			return true;
	}
	json_object_foreach((json_t *)(uintptr_t)value, key, item)
	{
		if (has_big_number(item))
			return true;
	}
	return false;
}

/* An integer beyond 64 bits is JSON, but not for the parser. Read again with integers as
 * doubles, the text shows which member holds it; its values are of no other use. */
static bool name_big_integer(
	struct bytes text, const json_error_t *bad, struct api_error *e)
{
	json_t *root, *value;
	const char *key;
	bool found = false;

	root = json_loadb((const char *)text.at, text.len,
		JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, NULL);
	json_object_foreach(root, key, value)
	{
		found = has_big_number(value);
		if (found) {
			api_error_set(e, 400, "invalid_value", key,
				"%.200s has an integer beyond 64 bits (line %d, column "
				"%d).",
				key, bad->line, bad->column);
			break;
		}
	}
	json_decref(root);
	return found;
}

json_t *api_json_object(
	struct bytes text, const char *what, const char *param, struct api_error *e)
{
	json_error_t bad;
	json_t *root;

	if (text.len == 0) {
		api_error_set(e, 400, "invalid_json", param, "%s is empty.", what);
		return NULL;
	}
	if (!scan_bounds(text, what, param, e))
		return NULL;
	root = json_loadb((const char *)text.at, text.len,
		JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &bad);
	if (root == NULL && param == NULL &&
		json_error_code(&bad) == json_error_numeric_overflow &&
		name_big_integer(text, &bad, e))
		return NULL;
	if (root == NULL) {
		api_error_set(e, 400, "invalid_json", param,
			"%s is not valid JSON: %s (line %d, column %d).", what, bad.text,
			bad.line, bad.column);
		return NULL;
	}
	if (!json_is_object(root)) {
		json_decref(root);
		api_error_set(
			e, 400, "invalid_json", param, "%s must be a JSON object.", what);
		return NULL;
	}
	return root;
}

json_t *api_json_get(const json_t *object, const char *name)
{
	json_t *v = json_object_get(object, name);

	return json_is_null(v) ? NULL : v;
}

static int append_chunk(const char *buffer, size_t size, void *data)
{
	struct sink *s = data;

	sink_put(s, buffer, size);
	return s->full ? -1 : 0;
}

struct echo {
	char text[ECHO_BYTES + 4];
	size_t len;
};

/* Keeps what fits and asks for no more. */
static int append_echo(const char *buffer, size_t size, void *data)
{
	struct echo *echo = data;
	size_t n = MIN(size, ECHO_BYTES - echo->len);

	memcpy(echo->text + echo->len, buffer, n);
	echo->len += n;
	return echo->len == ECHO_BYTES ? -1 : 0;
}

bool api_json_refuse(
	struct api_error *e, const char *param, const json_t *value, const char *want)
{
	struct echo echo = {0};

	if (value == NULL) {
		api_error_set(e, 400, "missing_required_parameter", param,
			"%s is required: %s.", param, want);
		return false;
	}
	if (json_dump_callback(
		    value, append_echo, &echo, JSON_ENCODE_ANY | JSON_COMPACT) != 0)
		snprintf(echo.text + echo.len, sizeof(echo.text) - echo.len, "...");
	api_error_set(e, 400, "invalid_value", param, "%s must be %s, not %s.", param,
		want, echo.text);
	return false;
}

bool api_json_as_int(const json_t *value, int64_t *out)
{
	if (json_is_integer(value)) {
		*out = json_integer_value(value);
		return true;
	}
	if (json_is_real(value)) {
		double v = json_real_value(value);

		if (fabs(v) <= EXACT_F64 && v == floor(v)) {
			*out = (int64_t)v;
			return true;
		}
	}
	return false;
}

bool api_json_int(const json_t *object, const char *name,
	const struct api_int_range *range, int64_t *out, bool *has, struct api_error *e)
{
	const json_t *v = api_json_get(object, name);
	int64_t i;

	if (v == NULL)
		return true;
	if (!api_json_as_int(v, &i) || i < range->min || i > range->max)
		return api_json_refuse(e, name, v, range->text);
	*out = i;
	if (has != NULL)
		*has = true;
	return true;
}

bool api_json_f64(const json_t *object, const char *name, const struct api_range *range,
	double *out, bool *has, struct api_error *e)
{
	const json_t *v = api_json_get(object, name);
	double d;

	if (v == NULL)
		return true;
	if (!json_is_number(v))
		return api_json_refuse(e, name, v, range->text);
	d = json_number_value(v);
	if (!isfinite(d) || d < range->min || d > range->max ||
		(range->open && (float)d <= (float)range->min))
		return api_json_refuse(e, name, v, range->text);
	*out = d;
	*has = true;
	return true;
}

bool api_json_bool(
	const json_t *object, const char *name, bool *out, bool *has, struct api_error *e)
{
	const json_t *v = api_json_get(object, name);

	if (v == NULL)
		return true;
	if (!json_is_boolean(v))
		return api_json_refuse(e, name, v, "true or false");
	*out = json_is_true(v);
	if (has != NULL)
		*has = true;
	return true;
}

bool api_json_text(const json_t *object, const char *name, char **out, size_t *len,
	struct api_error *e)
{
	const json_t *v = api_json_get(object, name);

	if (v == NULL)
		return true;
	if (!json_is_string(v))
		return api_json_refuse(e, name, v, "a string");
	*out = mem_dup(json_string_value(v), json_string_length(v));
	if (*out == NULL)
		return api_json_no_memory(e);
	if (len != NULL)
		*len = json_string_length(v);
	return true;
}

bool api_json_ids(const json_t *list, const char *param, uint32_t **ids, size_t *n,
	struct api_error *e)
{
	size_t count = json_array_size(list);
	char at[96];
	uint32_t *v;

	if (!json_is_array(list) || count == 0)
		return api_json_refuse(e, param, list, "a non-empty list of token ids");
	v = mem_take(count, sizeof(*v));
	if (v == NULL)
		return api_json_no_memory(e);
	for (size_t i = 0; i < count; i++) {
		const json_t *item = json_array_get(list, i);
		int64_t id;

		if (!api_json_as_int(item, &id) || id < 0 || id > API_ID_MAX) {
			mem_give(v);
			snprintf(at, sizeof(at), "%s[%zu]", param, i);
			return api_json_refuse(e, at, item, "a token id");
		}
		v[i] = (uint32_t)id;
	}
	*ids = v;
	*n = count;
	return true;
}

bool api_json_dump(const json_t *value, char **out, size_t *len, struct api_error *e)
{
	struct sink s;

	/* Escapes can make six bytes of one; the body itself was bounded. */
	sink_init(&s, SIZE_MAX / 2);
	if (json_dump_callback(value, append_chunk, &s, JSON_ENCODE_ANY | JSON_COMPACT) !=
			0 ||
		s.full) {
		sink_release(&s);
		return api_json_no_memory(e);
	}
	sink_cstr(&s);
	*out = (char *)s.at;
	*len = s.len;
	return true;
}
