/* Values as compact JSON text, handed out in pieces. */
#include "common/base/json_impl.h"

#include <assert.h>

/* Bytes at p that stand for themselves: up to the first that must be escaped. U+2028
 * and U+2029 end a line in JavaScript. */
static size_t plain_len(const uint8_t *p, const uint8_t *end)
{
	const uint8_t *from = p;

	while (p < end && *p >= 0x20 && *p != '"' && *p != '\\' && *p != 0x7F &&
		!(*p == 0xE2 && end - p >= 3 && p[1] == 0x80 && (p[2] | 1) == 0xA9))
		p++;
	return (size_t)(p - from);
}

/* *len becomes the bytes of text that the escape stands for. */
static bool emit_escape(json_put_fn *put, void *to, const uint8_t *p, size_t *len)
{
	static const char digits[] = "0123456789abcdef";
	char hex[6] = {'\\', 'u', '0', '0'};

	*len = 1;
	switch (*p) {
	case '"':
		return put(to, "\\\"", 2);
	case '\\':
		return put(to, "\\\\", 2);
	case '\n':
		return put(to, "\\n", 2);
	case '\r':
		return put(to, "\\r", 2);
	case '\t':
		return put(to, "\\t", 2);
	case 0xE2:
		*len = 3;
		return put(to, p[2] == 0xA8 ? "\\u2028" : "\\u2029", 6);
	default:
		hex[4] = digits[*p >> 4];
		hex[5] = digits[*p & 15];
		return put(to, hex, 6);
	}
}

bool json_emit_text(json_put_fn *put, void *to, struct bytes text)
{
	const uint8_t *p, *end;

	if (text.len == 0) /* at may be NULL */
		return put(to, "\"\"", 2);
	p = text.at;
	end = p + text.len;
	if (!put(to, "\"", 1))
		return false;
	while (p < end) {
		size_t n = plain_len(p, end);

		if (n > 0 && !put(to, p, n))
			return false;
		p += n;
		if (p == end)
			break;
		if (!emit_escape(put, to, p, &n))
			return false;
		p += n;
	}
	return put(to, "\"", 1);
}

static bool emit_start(json_put_fn *put, void *to, const struct json *v)
{
	switch ((enum json_kind)v->kind) {
	case JSON_NULL:
		return put(to, "null", 4);
	case JSON_FALSE:
		return put(to, "false", 5);
	case JSON_TRUE:
		return put(to, "true", 4);
	case JSON_NUMBER:
		return put(to, v->at, v->len);
	case JSON_STRING:
		return json_emit_text(put, to, json_bytes(v));
	case JSON_ARRAY:
		return put(to, "[", 1);
	case JSON_OBJECT:
		return put(to, "{", 1);
	}
	assert(false);
	return false;
}

/* One entry for each open array or object. */
struct level {
	const struct json *end;
	bool is_object, has_items, value_due;
};

static bool emit_before(json_put_fn *put, void *to, struct level *in)
{
	bool more = in->has_items;

	if (in->value_due) {
		in->value_due = false;
		return put(to, ":", 1);
	}
	in->value_due = in->is_object;
	in->has_items = true;
	return !more || put(to, ",", 1);
}

bool json_emit(json_put_fn *put, void *to, const struct json *v)
{
	struct level levels[JSON_DEPTH_MAX];
	const struct json *end = v + v->span;
	uint32_t depth = 0;

	while (v < end) {
		if (depth > 0 && !emit_before(put, to, &levels[depth - 1]))
			return false;
		if (!emit_start(put, to, v))
			return false;
		if (v->kind == JSON_ARRAY || v->kind == JSON_OBJECT) {
			assert(depth < JSON_DEPTH_MAX);
			levels[depth++] = (struct level){
				.end = v + v->span,
				.is_object = v->kind == JSON_OBJECT,
			};
		}
		v++;
		while (depth > 0 && v == levels[depth - 1].end)
			if (!put(to, levels[--depth].is_object ? "}" : "]", 1))
				return false;
	}
	return true;
}
