/* Answers that are not generated text: models, tokens, texts; marks of answers. */
#include "router/api_out.h"

#include "common/base/json_write.h"
#include "common/base/rng.h"
#include "common/base/utf8.h"

#include <inttypes.h>
#include <stdio.h>

void out_id_make(char id[OUT_ID_BYTES], const char *prefix)
{
	snprintf(id, OUT_ID_BYTES, "%s%016" PRIx64 "%016" PRIx64, prefix, rng_entropy64(),
		rng_entropy64());
}

void out_sse_keepalive(struct sink *out)
{
	sink_str(out, ":\n\n");
}

static void put_model(struct json_out *w, const struct out_model *m)
{
	json_open(w, '{');
	json_add_text(w, "id", m->id);
	json_add_text(w, "object", "model");
	json_add_u64(w, "created", m->created);
	json_add_text(w, "owned_by", "baton");
	json_add_text(w, "root", m->root != NULL ? m->root : m->id);
	json_add_null(w, "parent");
	json_add_u64(w, "max_model_len", m->len_max);
	json_name(w, "permission");
	json_open(w, '[');
	json_close(w);
	json_close(w);
}

void out_model(struct sink *out, const struct out_model *m)
{
	struct json_out w;

	json_out_init(&w, out);
	put_model(&w, m);
}

void out_models(struct sink *out, const struct out_model *models, size_t n)
{
	struct json_out w;

	json_out_init(&w, out);
	json_open(&w, '{');
	json_add_text(&w, "object", "list");
	json_name(&w, "data");
	json_open(&w, '[');
	for (size_t i = 0; i < n; i++)
		put_model(&w, &models[i]);
	json_close(&w);
	json_close(&w);
}

static void put_ids(struct json_out *w, const uint32_t *ids, size_t n)
{
	json_name(w, "tokens");
	json_open(w, '[');
	for (size_t i = 0; i < n; i++)
		json_put_u64(w, ids[i]);
	json_close(w);
}

/* llama.cpp's tokens with pieces: text where it is whole characters, else bytes. */
static void put_id_pieces(
	struct json_out *w, const uint32_t *ids, size_t n, const struct bytes *pieces)
{
	json_name(w, "tokens");
	json_open(w, '[');
	for (size_t i = 0; i < n; i++) {
		json_open(w, '{');
		json_add_u64(w, "id", ids[i]);
		json_name(w, "piece");
		if (utf8_valid_len(pieces[i]) == pieces[i].len) {
			json_put_bytes(w, pieces[i]);
		} else {
			json_open(w, '[');
			for (size_t k = 0; k < pieces[i].len; k++)
				json_put_u64(w, pieces[i].at[k]);
			json_close(w);
		}
		json_close(w);
	}
	json_close(w);
}

static void put_strs(struct json_out *w, const struct bytes *pieces, size_t n)
{
	json_name(w, "token_strs");
	if (pieces == NULL) {
		json_put_null(w);
		return;
	}
	json_open(w, '[');
	for (size_t i = 0; i < n; i++)
		json_put_pieces(w, pieces[i]);
	json_close(w);
}

void out_tokens(struct sink *out, enum tok_shape shape, const uint32_t *ids, size_t n,
	const struct bytes *pieces, uint64_t len_max)
{
	struct json_out w;

	json_out_init(&w, out);
	json_open(&w, '{');
	if (shape == TOK_SHAPE_COUNT) {
		json_add_u64(&w, "input_tokens", n);
	} else if (shape == TOK_SHAPE_VLLM) {
		json_add_u64(&w, "count", n);
		json_add_u64(&w, "max_model_len", len_max);
		put_ids(&w, ids, n);
		put_strs(&w, pieces, n);
	} else if (pieces != NULL) {
		put_id_pieces(&w, ids, n, pieces);
	} else {
		put_ids(&w, ids, n);
	}
	json_close(&w);
}

void out_text(struct sink *out, struct bytes text)
{
	struct json_out w;

	json_out_init(&w, out);
	json_open(&w, '{');
	json_add_bytes(&w, "prompt", text);
	json_add_bytes(&w, "content", text);
	json_close(&w);
}
