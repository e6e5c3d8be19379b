/* Writing JSON by hand. */
#include "router/put_json.h"

#include "common/base/utf8.h"

#include <math.h>
#include <string.h>

/* Bytes at p that stand for themselves: up to the first that must be escaped. */
static size_t plain_len(const uint8_t *p, const uint8_t *end)
{
	const uint8_t *from = p;

	while (p < end && *p >= 0x20 && *p != '"' && *p != '\\' && *p != 0x7F &&
		!(*p == 0xE2 && end - p >= 3 && p[1] == 0x80 && (p[2] | 1) == 0xA9))
		p++;
	return (size_t)(p - from);
}

/* Returns the bytes of text that the escape stands for. */
static size_t put_escape(struct sink *out, const uint8_t *p)
{
	switch (*p) {
	case '"':
		sink_put(out, "\\\"", 2);
		return 1;
	case '\\':
		sink_put(out, "\\\\", 2);
		return 1;
	case '\n':
		sink_put(out, "\\n", 2);
		return 1;
	case '\r':
		sink_put(out, "\\r", 2);
		return 1;
	case '\t':
		sink_put(out, "\\t", 2);
		return 1;
	case 0xE2:
		sink_put(out, p[2] == 0xA8 ? "\\u2028" : "\\u2029", 6);
		return 3;
	default:
		sink_fmt(out, "\\u%04x", *p);
		return 1;
	}
}

void put_json_string(struct sink *out, struct bytes text)
{
	const uint8_t *p = text.at, *end = p + text.len;

	sink_put(out, "\"", 1);
	while (p < end) {
		size_t n = plain_len(p, end);

		sink_put(out, p, n);
		p += n;
		if (p < end)
			p += put_escape(out, p);
	}
	sink_put(out, "\"", 1);
}

void put_json_f64(struct sink *out, double v)
{
	if (isfinite(v))
		sink_fmt(out, "%.17g", v);
	else
		sink_str(out, "null");
}

void put_json_bytes(struct sink *out, struct bytes piece)
{
	struct sink text;

	sink_init(&text, 4 * piece.len);
	while (piece.len > 0) {
		struct utf8_step s = utf8_step(piece);

		if (s.kind == UTF8_WHOLE)
			sink_put(&text, piece.at, s.len);
		else
			sink_str(&text, UTF8_REPLACEMENT);
		piece.at += s.len;
		piece.len -= s.len;
	}
	out->full = out->full || text.full;
	put_json_string(out, sink_bytes(&text));
	sink_release(&text);
}
