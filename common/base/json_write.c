/* The JSON writer. */
#include "common/base/json_write.h"

#include "common/base/json_impl.h"
#include "common/base/utf8.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool put_sink(void *to, const void *at, size_t len)
{
	struct sink *s = to;

	sink_put(s, at, len);
	return !s->full;
}

void json_out_init(struct json_out *w, struct sink *sink)
{
	*w = (struct json_out){.sink = sink};
}

/* What stands before the next value or name. */
static void comma(struct json_out *w)
{
	uint64_t bit = UINT64_C(1) << w->depth;

	if (w->has_items & bit)
		sink_put(w->sink, ",", 1);
	w->has_items |= bit;
}

static void begin_value(struct json_out *w)
{
	if (w->named) {
		w->named = false;
		return;
	}
	assert(w->depth == 0 || w->is_array >> w->depth & 1);
	comma(w);
}

void json_open(struct json_out *w, char bracket)
{
	uint64_t bit;

	assert(bracket == '{' || bracket == '[');
	begin_value(w);
	assert(w->depth < 63);
	bit = UINT64_C(1) << ++w->depth;
	w->has_items &= ~bit;
	w->is_array = bracket == '[' ? w->is_array | bit : w->is_array & ~bit;
	sink_put(w->sink, &bracket, 1);
}

void json_close(struct json_out *w)
{
	assert(w->depth > 0 && !w->named);
	sink_put(w->sink, w->is_array >> w->depth & 1 ? "]" : "}", 1);
	w->depth--;
}

void json_name(struct json_out *w, const char *name)
{
	json_name_bytes(w, bytes_of_str(name));
}

void json_name_bytes(struct json_out *w, struct bytes name)
{
	assert(w->depth > 0 && !(w->is_array >> w->depth & 1) && !w->named);
	comma(w);
	json_emit_text(put_sink, w->sink, name);
	sink_put(w->sink, ":", 1);
	w->named = true;
}

void json_put_bytes(struct json_out *w, struct bytes text)
{
	begin_value(w);
	json_emit_text(put_sink, w->sink, text);
}

void json_put_text(struct json_out *w, const char *text)
{
	json_put_bytes(w, bytes_of_str(text));
}

/* By hand: a million ids by printf take ten times as long. */
void json_put_u64(struct json_out *w, uint64_t v)
{
	char text[20], *at = text + sizeof(text);

	begin_value(w);
	do {
		*--at = (char)('0' + v % 10);
		v /= 10;
	} while (v > 0);
	sink_put(w->sink, at, (size_t)(text + sizeof(text) - at));
}

void json_put_i64(struct json_out *w, int64_t v)
{
	begin_value(w);
	sink_fmt(w->sink, "%" PRId64, v);
}

void json_put_f64(struct json_out *w, double v)
{
	char text[40] = "null";

	begin_value(w);
	/* 15 digits are always kept, 17 always tell two doubles apart. */
	for (int digits = 15; isfinite(v) && digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, v);
		if (strtod(text, NULL) == v)
			break;
	}
	sink_str(w->sink, text);
}

void json_put_bool(struct json_out *w, bool v)
{
	begin_value(w);
	sink_str(w->sink, v ? "true" : "false");
}

void json_put_null(struct json_out *w)
{
	begin_value(w);
	sink_str(w->sink, "null");
}

void json_put_pieces(struct json_out *w, struct bytes piece)
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
	w->sink->full = w->sink->full || text.full;
	json_put_bytes(w, sink_bytes(&text));
	sink_release(&text);
}

void json_put(struct json_out *w, const struct json *v)
{
	begin_value(w);
	json_emit(put_sink, w->sink, v);
}

void json_put_raw(struct json_out *w, struct bytes json)
{
	begin_value(w);
	sink_put(w->sink, json.at, json.len);
}

void json_put_members(struct json_out *w, struct bytes object)
{
	assert(w->depth > 0 && !(w->is_array >> w->depth & 1) && !w->named);
	assert(object.len >= 2 && object.at[0] == '{');
	if (object.len == 2)
		return;
	comma(w);
	sink_put(w->sink, object.at + 1, object.len - 2);
}

void json_add_text(struct json_out *w, const char *name, const char *text)
{
	json_name(w, name);
	json_put_text(w, text);
}

void json_add_bytes(struct json_out *w, const char *name, struct bytes text)
{
	json_name(w, name);
	json_put_bytes(w, text);
}

void json_add_u64(struct json_out *w, const char *name, uint64_t v)
{
	json_name(w, name);
	json_put_u64(w, v);
}

void json_add_i64(struct json_out *w, const char *name, int64_t v)
{
	json_name(w, name);
	json_put_i64(w, v);
}

void json_add_f64(struct json_out *w, const char *name, double v)
{
	json_name(w, name);
	json_put_f64(w, v);
}

void json_add_bool(struct json_out *w, const char *name, bool v)
{
	json_name(w, name);
	json_put_bool(w, v);
}

void json_add_null(struct json_out *w, const char *name)
{
	json_name(w, name);
	json_put_null(w);
}
