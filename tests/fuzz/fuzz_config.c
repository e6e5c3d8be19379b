// layers: base model
/* Any bytes as config.json. A config that is accepted is consistent, and every slice
 * of it that weights_check_ranks allows lies inside its matrix. What it says of its own
 * quantisation is accepted or refused with a text, and then says one thing of a module.
 */
#include "common/model/json_file.h"
#include "common/model/quant_impl.h"
#include "common/model/weights_impl.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_slice(const struct model_config *c, enum weight_role role,
	enum module module, uint32_t rank, uint32_t n_ranks)
{
	struct slice s, blocks;

	slice_of(&s, c, role, module, rank, n_ranks);
	if (s.n_rows == 0) /* a width that this model has not */
		return;
	assert(slice_source_row(&s, 0) < s.src_rows);
	assert(slice_source_row(&s, s.n_rows - 1) < s.src_rows);
	assert(s.col0 + s.cols <= s.src_cols);
	if (slice_in_blocks(&blocks, &s, FP8_BLOCK, FP8_BLOCK))
		assert(blocks.n_rows == CEIL_DIV(s.n_rows, FP8_BLOCK));
}

static void check_ranks(const struct model_config *c, uint32_t n_ranks)
{
	struct err err;

	if (weights_check_ranks(c, n_ranks, &err) != ST_OK)
		return;
	for (uint32_t rank = 0; rank < n_ranks; rank++) {
		for (uint32_t role = 0; role < WR__COUNT; role++)
			check_slice(c, (enum weight_role)role, MOD_Q, rank, n_ranks);
		check_slice(c, WR_GDN_QKV, MOD_QKVZ, rank, n_ranks);
		check_slice(c, WR_GDN_Z, MOD_QKVZ, rank, n_ranks);
		check_slice(c, WR_GDN_A, MOD_BA, rank, n_ranks);
		check_slice(c, WR_GDN_B, MOD_BA, rank, n_ranks);
	}
}

static void check_quant(const uint8_t *data, size_t size)
{
	static const char *const modules[] = {"lm_head",
		"model.language_model.layers.3.mlp.experts.0.gate_proj",
		"model.layers.12.self_attn.q_proj"};
	struct json_file file;
	const struct json *q;
	struct err err = {0};

	if (json_file_parse(&file, (struct bytes){data, size}, &err) != ST_OK)
		return;
	q = json_given(file.doc.values, "quantization_config");
	if (quant_config_check(q, &err) != ST_OK)
		assert(err.text[0] != 0);
	for (size_t i = 0; i < COUNT(modules) && json_is(q, JSON_OBJECT); i++) {
		struct quant_said s = quant_said_of(q, modules[i]);

		assert(s.group >= 0 && s.kinds != 0);
		assert(s.kinds == KIND_ANY || s.word[0] != 0);
	}
	json_file_release(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct model_config c;
	struct err err;

	check_quant(data, size);

	if (model_config_parse(&c, (struct bytes){data, size}, &err) != ST_OK) {
		assert(err.text[0] != 0);
		return 0;
	}
	assert(c.n_attn_layers + c.n_gdn_layers == c.n_layers);
	assert(c.rotary_dim % 2 == 0 && c.rotary_dim > 0 && c.rotary_dim <= c.head_dim);
	assert(c.n_q % c.n_kv == 0 && c.gdn_v_heads % c.gdn_k_heads == 0);
	for (uint32_t n_ranks = 1; n_ranks <= 8; n_ranks++)
		check_ranks(&c, n_ranks);
	return 0;
}
