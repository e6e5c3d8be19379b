/* Typed access to JSON fields. */
#include "common/model/json_field.h"

#include <stdio.h>

status json_field_refuse(
	struct err *err, const char *field, const struct json *value, const char *why)
{
	char shown[100];

	return err_set(err, ST_INVALID, "%s %s: %s (line %u)", field,
		json_show(value, shown, sizeof(shown)), why, value->line);
}

status json_field_missing(struct err *err, const char *field)
{
	return err_set(err, ST_INVALID, "%s is missing", field);
}

status json_field_uint(const struct json *v, const char *field, uint32_t min,
	uint32_t max, uint32_t *out, struct err *err)
{
	char why[64];
	int64_t n;

	if (!json_i64(v, &n) || n < (int64_t)min || n > (int64_t)max) {
		snprintf(why, sizeof(why), "must be an integer of %u to %u", min, max);
		return json_field_refuse(err, field, v, why);
	}
	*out = (uint32_t)n;
	return ST_OK;
}

status json_field_need_uint(const struct json *object, const char *field, uint32_t min,
	uint32_t max, uint32_t *out, struct err *err)
{
	const struct json *v = json_given(object, field);

	return v == NULL ? json_field_missing(err, field)
			 : json_field_uint(v, field, min, max, out, err);
}

status json_field_real(const struct json *v, const char *field, double above, double max,
	double *out, struct err *err)
{
	char why[64];
	double x;

	if (!json_f64(v, &x) || !(x > above) || !(x <= max)) {
		snprintf(why, sizeof(why), "must be a number above %g, at most %g", above,
			max);
		return json_field_refuse(err, field, v, why);
	}
	*out = x;
	return ST_OK;
}
