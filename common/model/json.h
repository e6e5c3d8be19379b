/* JSON texts of a checkpoint folder, bounded before jansson sees them: nesting depth
 * at most 128, duplicate keys refused, file size at most what the caller allows. */
#ifndef COMMON_MODEL_JSON_H
#define COMMON_MODEL_JSON_H
#include "common/base/bytes.h"
#include "common/base/err.h"
#include <jansson.h>

#define JSON_DEPTH_MAX 128u

/* The root is an object or an array. Release with json_decref. Errors say line and
 * column; the caller prefixes the file. */
MUST_CHECK status json_parse(json_t **out, struct bytes text, struct err *err);
/* All bytes of a regular file, from mem_take, to be returned with mem_give; a zero
 * stands after them. Errors start with the path. */
MUST_CHECK status json_read_file(
	struct bytes *out, const char *path, uint64_t bytes_max, struct err *err);
/* json_read_file and json_parse; errors start with the path. */
MUST_CHECK status json_parse_file(
	json_t **out, const char *path, uint64_t bytes_max, struct err *err);

#endif
