/* Typed access to the fields of a JSON object, refusing by field name and value. */
#ifndef COMMON_MODEL_JSON_FIELD_H
#define COMMON_MODEL_JSON_FIELD_H
#include "common/base/json.h"

/* "field VALUE: why (line N)", the value as JSON, cut to a readable length. */
status json_field_refuse(
	struct err *err, const char *field, const struct json *value, const char *why);
status json_field_missing(struct err *err, const char *field);

/* The value is an integer of min to max. */
MUST_CHECK status json_field_uint(const struct json *value, const char *field,
	uint32_t min, uint32_t max, uint32_t *out, struct err *err);
/* The same, for a field of object that must be there. */
MUST_CHECK status json_field_need_uint(const struct json *object, const char *field,
	uint32_t min, uint32_t max, uint32_t *out, struct err *err);
/* The value is a number above `above` and at most max. */
MUST_CHECK status json_field_real(const struct json *value, const char *field,
	double above, double max, double *out, struct err *err);

#endif
