/* What the readers of schemas share. Private to this folder. */
#ifndef COMMON_GRAMMAR_SCHEMA_H
#define COMMON_GRAMMAR_SCHEMA_H
#include "common/base/json.h"
#include "common/grammar/syntax.h"

struct reader {
	struct syntax *s;
	const struct json *root;
	const struct json *refs[GRAMMAR_NEST_MAX]; /* that are being followed */
	uint32_t n_refs, depth;
	char path[160];
	struct err *err;
};

/* schema.c: any schema. */
MUST_CHECK status schema_any(struct reader *r, const struct json *v, uint32_t *node);
/* The schema of a part of the one at the place. */
MUST_CHECK status schema_part(
	struct reader *r, const char *name, const struct json *v, uint32_t *node);

/* schema_type.c: nodes of JSON texts. */
/* "at properties.a: ..." */
status schema_refuse(struct reader *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* A value's own text becomes a part. */
MUST_CHECK status schema_value(struct reader *r, uint32_t to, const struct json *v);
/* Any value with so many levels inside. */
uint32_t schema_free(struct reader *r, uint32_t levels);
/* What the schema says of the values of one type, or of several. */
MUST_CHECK status schema_object(struct reader *r, const struct json *v, uint32_t *node);
MUST_CHECK status schema_array(struct reader *r, const struct json *v, uint32_t *node);
MUST_CHECK status schema_string(struct reader *r, const struct json *v, uint32_t *node);
MUST_CHECK status schema_types(
	struct reader *r, const struct json *v, const struct json *types, uint32_t *node);

#endif
