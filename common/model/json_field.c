/* Typed access to JSON fields. */
#include "common/model/json_field.h"

#include <string.h>

const json_t *json_field_get(const json_t *object, const char *field)
{
	const json_t *v = json_object_get(object, field);

	return v == NULL || json_is_null(v) ? NULL : v;
}

status json_field_refuse(
	struct err *err, const char *field, const json_t *value, const char *why)
{
	char shown[100];
	size_t n = json_dumpb(
		value, shown, sizeof(shown) - 1, JSON_ENCODE_ANY | JSON_COMPACT);

	shown[MIN(n, sizeof(shown) - 1)] = 0;
	return err_set(err, ST_INVALID, "%s %s%s: %s", field, shown,
		n >= sizeof(shown) ? "..." : "", why);
}

status json_field_missing(struct err *err, const char *field)
{
	return err_set(err, ST_INVALID, "%s is missing", field);
}

status json_field_uint(const json_t *v, const char *field, uint32_t min, uint32_t max,
	uint32_t *out, struct err *err)
{
	char why[64];

	if (!json_is_integer(v) || json_integer_value(v) < (json_int_t)min ||
		json_integer_value(v) > (json_int_t)max) {
		snprintf(why, sizeof(why), "must be an integer of %u to %u", min, max);
		return json_field_refuse(err, field, v, why);
	}
	*out = (uint32_t)json_integer_value(v);
	return ST_OK;
}

status json_field_need_uint(const json_t *object, const char *field, uint32_t min,
	uint32_t max, uint32_t *out, struct err *err)
{
	const json_t *v = json_field_get(object, field);

	return v == NULL ? json_field_missing(err, field)
			 : json_field_uint(v, field, min, max, out, err);
}

status json_field_real(const json_t *v, const char *field, double above, double max,
	double *out, struct err *err)
{
	char why[64];

	if (!json_is_number(v) || !(json_number_value(v) > above) ||
		!(json_number_value(v) <= max)) {
		snprintf(why, sizeof(why), "must be a number above %g, at most %g", above,
			max);
		return json_field_refuse(err, field, v, why);
	}
	*out = json_number_value(v);
	return ST_OK;
}

status json_field_only_bool(
	const json_t *object, const char *field, bool want, struct err *err)
{
	const json_t *v = json_field_get(object, field);

	if (v == NULL || (json_is_boolean(v) && json_is_true(v) == want))
		return ST_OK;
	return json_field_refuse(err, field, v,
		want ? "only true is supported" : "only false is supported");
}

status json_field_only_text(
	const json_t *object, const char *field, const char *want, struct err *err)
{
	const json_t *v = json_field_get(object, field);
	char why[64];

	if (v == NULL || (json_is_string(v) && strcmp(json_string_value(v), want) == 0))
		return ST_OK;
	snprintf(why, sizeof(why), "only \"%s\" is supported", want);
	return json_field_refuse(err, field, v, why);
}
