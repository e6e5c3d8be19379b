/* Answers that are not generated text: errors, marks of streams, models, tokens. */
#include "common/base/utf8.h"
#include "router/api_out.h"

#include <inttypes.h>

void out_error(struct sink *out, const struct api_error *e)
{
	sink_str(out, "{\"error\":{\"message\":");
	put_json_string(out, bytes_of_str(e->message));
	sink_str(out, ",\"type\":");
	put_json_string(out, bytes_of_str(e->type));
	sink_str(out, ",\"param\":");
	if (e->param[0] != '\0')
		put_json_string(out, bytes_of_str(e->param));
	else
		sink_str(out, "null");
	sink_str(out, ",\"code\":");
	if (e->code != NULL)
		put_json_string(out, bytes_of_str(e->code));
	else
		sink_str(out, "null");
	sink_str(out, "}}");
}

void out_sse_error(struct sink *out, const struct api_error *e)
{
	sink_str(out, "data: ");
	out_error(out, e);
	sink_str(out, "\n\n");
}

void out_sse_done(struct sink *out)
{
	sink_str(out, "data: [DONE]\n\n");
}

void out_sse_keepalive(struct sink *out)
{
	sink_str(out, ":\n\n");
}

void out_model(struct sink *out, const struct out_model *m)
{
	sink_str(out, "{\"id\":");
	put_json_string(out, bytes_of_str(m->id));
	sink_fmt(out,
		",\"object\":\"model\",\"created\":%" PRIu64
		",\"owned_by\":\"baton\",\"root\":",
		m->created);
	put_json_string(out, bytes_of_str(m->root != NULL ? m->root : m->id));
	sink_fmt(out, ",\"parent\":null,\"max_model_len\":%" PRIu64 ",\"permission\":[]}",
		m->len_max);
}

void out_models(struct sink *out, const struct out_model *models, size_t n)
{
	sink_str(out, "{\"object\":\"list\",\"data\":[");
	for (size_t i = 0; i < n; i++) {
		if (i > 0)
			sink_str(out, ",");
		out_model(out, &models[i]);
	}
	sink_str(out, "]}");
}

/* A million ids are written on the thread that also answers probes: without printf,
 * which takes ten times as long. */
static void put_ids(struct sink *out, const uint32_t *ids, size_t n)
{
	sink_str(out, "[");
	for (size_t i = 0; i < n; i++) {
		char text[11]; /* ten digits and a comma */
		char *at = text + sizeof(text);
		uint32_t v = ids[i];

		do {
			*--at = (char)('0' + v % 10);
			v /= 10;
		} while (v > 0);
		if (i > 0)
			*--at = ',';
		sink_put(out, at, (size_t)(text + sizeof(text) - at));
	}
	sink_str(out, "]");
}

static void put_piece_bytes(struct sink *out, struct bytes piece)
{
	sink_str(out, "[");
	for (size_t i = 0; i < piece.len; i++)
		sink_fmt(out, "%s%u", i > 0 ? "," : "", piece.at[i]);
	sink_str(out, "]");
}

/* llama.cpp's tokens with pieces: text where it is whole characters, else bytes. */
static void put_id_pieces(
	struct sink *out, const uint32_t *ids, size_t n, const struct bytes *pieces)
{
	sink_str(out, "[");
	for (size_t i = 0; i < n; i++) {
		sink_fmt(out, "%s{\"id\":%" PRIu32 ",\"piece\":", i > 0 ? "," : "",
			ids[i]);
		if (utf8_valid_len(pieces[i]) == pieces[i].len)
			put_json_string(out, pieces[i]);
		else
			put_piece_bytes(out, pieces[i]);
		sink_str(out, "}");
	}
	sink_str(out, "]");
}

void out_tokens(struct sink *out, enum tok_shape shape, const uint32_t *ids, size_t n,
	const struct bytes *pieces, uint64_t len_max)
{
	if (shape == TOK_SHAPE_LLAMA) {
		sink_str(out, "{\"tokens\":");
		if (pieces != NULL)
			put_id_pieces(out, ids, n, pieces);
		else
			put_ids(out, ids, n);
		sink_str(out, "}");
		return;
	}
	sink_fmt(out, "{\"count\":%zu,\"max_model_len\":%" PRIu64 ",\"tokens\":", n,
		len_max);
	put_ids(out, ids, n);
	sink_str(out, ",\"token_strs\":");
	if (pieces == NULL) {
		sink_str(out, "null}");
		return;
	}
	sink_str(out, "[");
	for (size_t i = 0; i < n; i++) {
		if (i > 0)
			sink_str(out, ",");
		put_json_bytes(out, pieces[i]);
	}
	sink_str(out, "]}");
}

void out_text(struct sink *out, struct bytes text)
{
	sink_str(out, "{\"prompt\":");
	put_json_string(out, text);
	sink_str(out, ",\"content\":");
	put_json_string(out, text);
	sink_str(out, "}");
}
