/* What the files of the JSON reader and writer share. */
#ifndef COMMON_BASE_JSON_IMPL_H
#define COMMON_BASE_JSON_IMPL_H
#include "common/base/json.h"

/* Objects of more members than this find their names through a table. */
#define JSON_LINEAR_MAX 16u

/* Open addressing, at most half full. A slot holds the distance of a name from its
 * object, 0 when it is free. The seed differs from process to process, so that nobody
 * can choose names that meet. */
struct json_table {
	struct json_table *next, **back; /* list of a document */
	uint32_t mask;
	uint32_t slots[];
};

/* Object has n members and one more, name, stands at the end. Returns the member that
 * has the name already, or NULL. *ok is false when memory was refused. */
const struct json *json_table_add(
	struct json_table **list, struct json *object, const struct json *name, bool *ok);
const struct json *json_table_find(const struct json *object, struct bytes name);
void json_table_release(struct json_table *list);

/* A string from its opening quote: decodes in place and sets *text. Returns the byte
 * behind the closing quote; NULL with the place and the reason when it is refused. */
struct json_fault {
	const uint8_t *at;
	char why[96];
};
uint8_t *json_decode(
	uint8_t *p, const uint8_t *end, struct bytes *text, struct json_fault *fault);

/* Takes a piece of the text; false ends the writing. */
typedef bool json_put_fn(void *to, const void *at, size_t len);
bool json_emit_text(json_put_fn *put, void *to, struct bytes text);
bool json_emit(json_put_fn *put, void *to, const struct json *v);

#endif
