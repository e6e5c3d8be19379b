/* Reading JSON (RFC 8259): one flat array of values over the text itself, without
 * recursion and without one allocation for each value. Numbers keep their text, so that
 * a literal that nobody reads never matters, one that does not fit is refused by whoever
 * reads it, and one that passes through keeps every digit.
 *
 * The text is changed in place: strings are decoded where they stand and end with a zero
 * byte. Values point into it and live as long as text and document do. Invalid UTF-8,
 * lone surrogates, duplicate names, and text behind the end are refused; U+0000 is text.
 * Lines and columns in errors count from 1, columns in bytes. */
#ifndef COMMON_BASE_JSON_H
#define COMMON_BASE_JSON_H
#include "common/base/bytes.h"
#include "common/base/err.h"

/* No caller may ask for more nesting. */
#define JSON_DEPTH_MAX 256u
/* Longer texts are refused, so that a line number fits its field. */
#define JSON_TEXT_MAX  0x1fffffffu

enum json_kind {
	JSON_NULL,
	JSON_FALSE,
	JSON_TRUE,
	JSON_NUMBER,
	JSON_STRING,
	JSON_ARRAY,
	JSON_OBJECT,
};

struct json {
	/* A string's bytes, decoded, with a zero behind them; a number's text; of a
	 * large object its table of names, which is private. */
	const uint8_t *at;
	uint32_t len;  /* bytes at `at`; 0 of an object */
	uint32_t n;    /* items of an array, members of an object */
	uint32_t span; /* values of this one, itself and names included: the next
			  sibling stands at v + v->span */
	uint32_t line : 29;
	uint32_t kind : 3;
};

struct json_limits {
	uint32_t depth_max, values_max; /* names count as values */
	bool python_literals; /* NaN, Infinity, -Infinity are numbers (files that
				 Python wrote); no reader of numbers takes them */
};

struct json_doc {
	struct json *values; /* values[0] is the root */
	void *tables;        /* private: names of large objects */
};

/* text[len] is a zero byte. Storage comes from mem_take. ST_INVALID and ST_LIMIT say line
 * and column, ST_NOMEM that memory was refused; *out is then empty. */
MUST_CHECK status json_read(struct json_doc *out, uint8_t *text, size_t len,
	const struct json_limits *limits, struct err *err);
void json_release(struct json_doc *doc); /* also of an empty one */

/* Each takes NULL for an absent value and answers as for one of another kind. */
bool json_is(const struct json *v, enum json_kind kind);
bool json_is_bool(const struct json *v);
/* A string of exactly these bytes; a string with U+0000 equals no C text. */
bool json_equals(const struct json *v, const char *text);
/* A string's bytes; {NULL, 0} when it is none. */
struct bytes json_bytes(const struct json *v);
/* A string without U+0000 as C text; NULL when it is none. */
const char *json_text(const struct json *v);
/* Items or members; 0 when it is neither array nor object. */
uint32_t json_count(const struct json *v);

/* The member of that name, or NULL (also when v is no object). In constant time. */
const struct json *json_member(const struct json *v, const char *name);
/* The same with null as absent. */
const struct json *json_given(const struct json *v, const char *name);
/* Item i, or NULL; constant time when no item is an array or object. */
const struct json *json_item(const struct json *v, uint32_t i);

/* for (each item of an array); nothing when it is none. */
#define json_each(item, array)                                                           \
	for (const struct json *item = json_first((array), JSON_ARRAY),                  \
			       *item##_end = json_end(array);                            \
		item < item##_end; item += item->span)
/* for (each member of an object): name is a string, name + 1 its value. */
#define json_each_member(name, object)                                                   \
	for (const struct json *name = json_first((object), JSON_OBJECT),                \
			       *name##_end = json_end(object);                           \
		name < name##_end; name += 1 + name[1].span)
const struct json *json_first(const struct json *v, enum json_kind kind);
const struct json *json_end(const struct json *v);

/* What a number's text says exactly: 5, 5.0 and 5e0 are the integer 5. False when v is
 * no number, not whole, or beyond 64 bits. */
bool json_i64(const struct json *v, int64_t *out);
/* The nearest double; false when v is no number or it would not be finite. */
bool json_f64(const struct json *v, double *out);

/* v as JSON for a message: compact; what does not fit size - 1 bytes is cut at a whole
 * character and ends with "...". size > 8. Returns buf. */
const char *json_show(const struct json *v, char *buf, size_t size);

#endif
