/* JSON files of a checkpoint folder: size, nesting (128) and number of values are
 * bounded, and NaN and infinities load, as Python writes them; whoever reads one refuses
 * it. */
#ifndef COMMON_MODEL_JSON_FILE_H
#define COMMON_MODEL_JSON_FILE_H
#include "common/base/json.h"

struct json_file {
	struct json_doc doc; /* doc.values is the root; NULL: there is no file */
	uint8_t *text;
};

/* Errors start with the path. */
MUST_CHECK status json_file_read(
	struct json_file *out, const char *path, uint64_t bytes_max, struct err *err);
/* The same of a text in memory, which is copied; errors say line and column. */
MUST_CHECK status json_file_parse(
	struct json_file *out, struct bytes text, struct err *err);
void json_file_release(struct json_file *file); /* also of an empty one */

#endif
