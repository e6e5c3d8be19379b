/* Writing JSON: commas, escapes and nesting are kept here, so that a caller names only
 * what it says. What does not fit, or finds no memory, shows as `full` of the sink. */
#ifndef COMMON_BASE_JSON_WRITE_H
#define COMMON_BASE_JSON_WRITE_H
#include "common/base/bytes.h"

struct json; /* common/base/json.h */

struct json_out {
	struct sink *sink;
	uint64_t has_items; /* a bit for each open level */
	uint64_t is_array;
	uint32_t depth; /* at most 63 by hand; json_put copies any value */
	bool named;     /* a name was written, its value is due */
};

void json_out_init(struct json_out *w, struct sink *sink);

/* A value of the list or object that is open; in an object after json_name. */
void json_open(struct json_out *w, char bracket); /* '{' or '[' */
void json_close(struct json_out *w);
void json_name(struct json_out *w, const char *name);
void json_name_bytes(struct json_out *w, struct bytes name);
/* A string; text is valid UTF-8. Control characters, quote, backslash, U+007F, U+2028
 * and U+2029 are escaped; all else is copied. */
void json_put_bytes(struct json_out *w, struct bytes text);
void json_put_text(struct json_out *w, const char *text);
void json_put_u64(struct json_out *w, uint64_t v);
void json_put_i64(struct json_out *w, int64_t v);
/* The shortest text that reads back as v; NaN and infinities become null. */
void json_put_f64(struct json_out *w, double v);
void json_put_bool(struct json_out *w, bool v);
void json_put_null(struct json_out *w);
/* A string of bytes that need not be text: what is no character becomes U+FFFD, one for
 * each maximal part. A token can hold part of a character. */
void json_put_pieces(struct json_out *w, struct bytes piece);
/* A value that was read: numbers with every digit. */
void json_put(struct json_out *w, const struct json *v);
/* Text that is JSON already. */
void json_put_raw(struct json_out *w, struct bytes json);
/* The members of an object that is JSON already, into the one that is open. */
void json_put_members(struct json_out *w, struct bytes object);

/* name and value in one */
void json_add_text(struct json_out *w, const char *name, const char *text);
void json_add_bytes(struct json_out *w, const char *name, struct bytes text);
void json_add_u64(struct json_out *w, const char *name, uint64_t v);
void json_add_i64(struct json_out *w, const char *name, int64_t v);
void json_add_f64(struct json_out *w, const char *name, double v);
void json_add_bool(struct json_out *w, const char *name, bool v);
void json_add_null(struct json_out *w, const char *name);

#endif
