/* Checkpoints that must not be served: each is refused with file, tensor and reason,
 * when it is opened or, for wrong scale values, when they are read. */
#include "unit/model/edit.h"

#include <math.h>

#define P0 "model.language_model.layers.0."
#define P3 "model.language_model.layers.3."
#define X0 P0 "mlp.experts.0.gate_proj."

enum change {
	DROP,   /* the tensor */
	RENAME, /* to */
	COPY,   /* under the name `to` */
	DTYPE,  /* to arg, keeping the bytes: both have one width */
	SWAP,   /* its two dimensions */
	FLAT,   /* to one dimension */
};

static void apply(struct edit *e, enum change change, const char *name, const char *to,
	enum st_dtype dtype)
{
	struct st_out_tensor *t = edit_find(e, name);
	uint64_t bytes = t->dtype == STD_F32 ? 4 : 2;

	switch (change) {
	case DROP:
		edit_drop(e, name);
		break;
	case RENAME:
		edit_rename(e, name, to);
		break;
	case COPY:
		for (uint32_t i = 0; i < t->n_dims; i++)
			bytes *= t->dim[i];
		edit_add(e, to, t->dtype, t->dim, t->n_dims, t->data, bytes);
		break;
	case DTYPE:
		t->dtype = dtype;
		break;
	case SWAP:
		bytes = t->dim[0];
		t->dim[0] = t->dim[1];
		t->dim[1] = bytes;
		break;
	case FLAT:
		t->dim[0] *= t->dim[1];
		t->n_dims = 1;
		break;
	}
}

struct row {
	enum change change;
	const char *name, *to;
	enum st_dtype dtype;
	const char *text;
};

static void check_row(const char *dir, const struct row *row)
{
	struct edit *e = edit_open(dir);
	struct weights *w = NULL;

	apply(e, row->change, row->name, row->to, row->dtype);
	edit_save(e);
	CHECK_REFUSED(row->text, ST_INVALID, row->text,
		weights_open(&w, &e->config, e->folder.path, 0, 1, &err));
	edit_close(e);
}

#define FILE_X0 "model.safetensors: tensor " X0

static const struct row moe_rows[] = {
	{DROP, "lm_head.weight", NULL, 0,
		"no tensor lm_head.weight, and tie_word_embeddings is false"},
	{DROP, P3 "self_attn.q_proj.weight", NULL, 0,
		"no tensor layers.3.self_attn.q_proj.weight"},
	{DROP, P0 "linear_attn.A_log", NULL, 0, "no tensor layers.0.linear_attn.A_log"},
	{DROP, P0 "linear_attn.in_proj_b.weight", NULL, 0,
		"no tensor layers.0.linear_attn.in_proj_b.weight"},
	{DROP, P0 "mlp.experts.gate_up_proj", NULL, 0,
		"no tensor layers.0.mlp.experts.0.gate_proj.weight"},
	{DROP, "model.language_model.norm.weight", NULL, 0, "no tensor norm.weight"},
	{RENAME, P0 "mlp.gate.weight", P0 "mlp.router.weight", 0,
		"model.safetensors: tensor " P0 "mlp.router.weight: is unknown"},
	{RENAME, P0 "linear_attn.A_log", P0 "linear_attn.A_log.weight", 0, "is unknown"},
	{COPY, P0 "linear_attn.dt_bias",
		"model.language_model.layers.01.linear_attn.dt_bias", 0, "is unknown"},
	{COPY, P0 "linear_attn.dt_bias", P0 "linear_attn.in_proj_a.bias", 0,
		"is unknown"},
	{COPY, P0 "linear_attn.dt_bias",
		"model.language_model.layers.4.linear_attn.dt_bias", 0,
		"layers.4.linear_attn.dt_bias: the config has 4 layers "
		"(num_hidden_layers)"},
	{COPY, P0 "linear_attn.dt_bias", P3 "linear_attn.dt_bias", 0,
		"by the config, layer 3 is full attention with experts"},
	{COPY, P0 "linear_attn.dt_bias", P0 "mlp.gate_proj.weight", 0,
		"by the config, layer 0 is linear attention with experts"},
	{COPY, P0 "linear_attn.dt_bias", P0 "mlp.experts.8.gate_proj.weight", 0,
		"the config has 8 experts (num_experts)"},
	{COPY, P0 "linear_attn.dt_bias", "model.layers.0.linear_attn.dt_bias", 0,
		"are the same weights"},
	{COPY, P0 "mlp.gate.weight", P0 "mlp.experts.7.up_proj.weight", 0,
		"mlp.experts.7.up_proj.weight: and tensor " P0
		"mlp.experts.gate_up_proj are the same weights"},
	{COPY, P0 "linear_attn.in_proj_b.weight", P0 "linear_attn.in_proj_ba.weight", 0,
		"are the same weights"},
	{SWAP, P3 "self_attn.o_proj.weight", NULL, 0,
		"self_attn.o_proj.weight: shape [1024, 64], the config needs [64, 1024]"},
	{FLAT, P3 "self_attn.o_proj.weight", NULL, 0, "shape [65536], the config needs"},
	{FLAT, P0 "linear_attn.conv1d.weight", NULL, 0, "the config needs [1024, 1, 4]"},
	{SWAP, P0 "mlp.experts.down_proj", NULL, 0,
		"shape [64, 8, 32], the config needs [8, 64, 32]"},
	{DTYPE, P3 "self_attn.o_proj.weight", NULL, STD_F16,
		"dtype F16 is not supported for a matrix"},
	{DTYPE, P0 "linear_attn.dt_bias", NULL, STD_F16,
		"linear_attn.dt_bias: dtype F16, only F32 and BF16 are read here"},
	{DTYPE, P0 "linear_attn.A_log", NULL, STD_I32, "dtype I32, only F32 and BF16"},
	{DTYPE, P0 "mlp.experts.down_proj", NULL, STD_F16,
		"experts in one tensor are read as F32 or BF16 only"},
	{COPY, P0 "linear_attn.A_log", P0 "mlp.gate.weight_scale", 0,
		"mlp.gate.weight_scale: does not belong beside tensor " P0
		"mlp.gate.weight of dtype BF16"},
	{COPY, P0 "linear_attn.A_log", P0 "input_layernorm.weight_scale", 0,
		"does not belong beside"},
};

static const struct row nvfp4_rows[] = {
	{DROP, X0 "weight_scale", NULL, 0,
		FILE_X0 "weight: dtype U8 needs weight_scale of"},
	{DROP, X0 "weight_scale_2", NULL, 0, "needs weight_scale_2 of the same module"},
	{DROP, X0 "weight", NULL, 0, FILE_X0 "weight_scale: "},
	{DROP, P0 "mlp.experts.15.down_proj.weight_scale", NULL, 0,
		"experts.15.down_proj.weight: dtype U8 needs weight_scale"},
	{SWAP, P0 "mlp.experts.3.down_proj.weight", NULL, 0,
		"shape [32, 128], the config needs [128, 32]"},
	{SWAP, P0 "mlp.experts.3.down_proj.weight_scale", NULL, 0,
		"shape [4, 128], the config needs [128, 4]"},
	{DTYPE, X0 "weight_scale", NULL, STD_U8,
		"dtype U8, NVFP4 block scales are F8_E4M3"},
	{DTYPE, X0 "weight_scale_2", NULL, STD_U32, "dtype U32, only F32 is read here"},
	{DTYPE, X0 "weight", NULL, STD_I8, "dtype I8 is not supported for a matrix"},
	{COPY, X0 "input_scale", X0 "weight_scale_inv", 0, "does not belong beside"},
	{RENAME, X0 "weight_scale_2", X0 "weight_global_scale", 0,
		"needs weight_scale_2"},
};

static void refuses_wrong_tensors(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(moe_rows); i++)
		check_row(GOLDEN "tiny-moe", &moe_rows[i]);
	for (size_t i = 0; i < COUNT(nvfp4_rows); i++)
		check_row(DEMO, &nvfp4_rows[i]);
}

static void refuses_mixed_experts(void **state)
{
	static const uint8_t zeros[64 * 128 * 2];
	struct edit *e = edit_open(DEMO);
	struct weights *w = NULL;

	(void)state;
	edit_drop(e, P0 "mlp.experts.2.gate_proj.weight");
	edit_drop(e, P0 "mlp.experts.2.gate_proj.weight_scale");
	edit_drop(e, P0 "mlp.experts.2.gate_proj.weight_scale_2");
	edit_save(e);
	CHECK_REFUSED("one missing", ST_INVALID,
		"layer 0: no tensor mlp.experts.2.gate_proj.weight",
		weights_open(&w, &e->config, e->folder.path, 0, 1, &err));
	edit_add(e, P0 "mlp.experts.2.gate_proj.weight", STD_BF16, (uint64_t[]){64, 128},
		2, zeros, sizeof(zeros));
	edit_save(e);
	CHECK_REFUSED("mixed", ST_INVALID,
		"the experts of a layer differ in format (bf16 here, nvfp4 in expert 0)",
		weights_open(&w, &e->config, e->folder.path, 0, 1, &err));
	edit_close(e);
}

/* Values are seen when they are read, by the rank that reads them; the position is
 * that in the file. */
static void refuses_wrong_scale_values(void **state)
{
	static const struct {
		const char *name;
		size_t at, len;
		float f32;
		uint8_t byte;
		enum weight_role role;
		uint32_t rank;
		const char *text;
	} rows[] = {
		{X0 "weight_scale", 0, 1, 0, 0x7f, WR_EXP_GATE, 0,
			FILE_X0 "weight_scale: NaN code 0x7f at [0][0]"},
		{X0 "weight_scale", 63 * 8 + 5, 1, 0, 0xff, WR_EXP_GATE, 1,
			"weight_scale: NaN code 0xff at [63][5]"},
		{P0 "mlp.experts.9.down_proj.weight_scale", 127 * 4 + 2, 1, 0, 0x7f,
			WR_EXP_DOWN, 1,
			"experts.9.down_proj.weight_scale: NaN code 0x7f at [127][2]"},
		{X0 "weight_scale", 8, 1, 0, 0x81, WR_EXP_GATE, 0,
			"weight_scale: negative code 0x81 at [1][0]"},
		{X0 "weight_scale_2", 0, 4, 0, 0, WR_EXP_GATE, 0,
			FILE_X0 "weight_scale_2: 0 is no scale: must be positive"},
		{X0 "weight_scale_2", 0, 4, -0.5f, 0, WR_EXP_GATE, 0, "-0.5 is no scale"},
		{X0 "weight_scale_2", 0, 4, INFINITY, 0, WR_EXP_GATE, 0,
			"weight_scale_2: inf at [0][0]"},
		{X0 "weight_scale_2", 0, 4, NAN, 0, WR_EXP_GATE, 0,
			"weight_scale_2: nan at"},
		{P0 "linear_attn.A_log", 8, 4, NAN, 0, WR_GDN_A_LOG, 1,
			"linear_attn.A_log: nan at [2][0]"},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct edit *e = edit_open(DEMO);
		uint8_t *at = edit_data(e, rows[i].name) + rows[i].at;
		uint8_t data[64 * 1024], scale[64 * 1024];
		struct weights *w = NULL;
		float scale2[16];

		if (rows[i].len == 1)
			*at = rows[i].byte;
		else
			memcpy(at, &rows[i].f32, 4);
		edit_save(e);
		CHECK_OK(weights_open(
			&w, &e->config, e->folder.path, rows[i].rank, 2, &err));
		CHECK_REFUSED(rows[i].text, ST_INVALID, rows[i].text,
			weights_read(w, rows[i].role, 0, data, scale, scale2, &err));
		weights_close(w);
		edit_close(e);
	}
}

/* compressed-tensors: a global scale whose reciprocal is no number. */
static void refuses_a_global_scale_without_reciprocal(void **state)
{
	static const float values[] = {0, 1e-42f, -1};
	uint8_t data[64 * 1024], scale[8 * 1024];
	float scale2[16];

	(void)state;
	for (size_t i = 0; i < COUNT(values); i++) {
		struct edit *e = edit_open(DEMO);
		struct weights *w = NULL;

		edit_rename(e, X0 "weight", X0 "weight_packed");
		edit_rename(e, X0 "weight_scale_2", X0 "weight_global_scale");
		memcpy(edit_data(e, X0 "weight_global_scale"), &values[i], 4);
		edit_save(e);
		CHECK_OK(weights_open(&w, &e->config, e->folder.path, 0, 1, &err));
		CHECK_REFUSED("global", ST_INVALID,
			"must be positive with a finite reciprocal",
			weights_read(w, WR_EXP_GATE, 0, data, scale, scale2, &err));
		weights_close(w);
		edit_close(e);
	}
}

static void refuses_ranks_that_do_not_divide(void **state)
{
	struct model_config moe, c;
	struct weights *w = NULL;

	(void)state;
	CHECK_OK(model_config_load(&moe, GOLDEN "tiny-moe", &err));
	CHECK_OK(weights_check_ranks(&moe, 1, &err));
	CHECK_OK(weights_check_ranks(&moe, 2, &err));
	CHECK_REFUSED("0", ST_INVALID, "0 ranks", weights_check_ranks(&moe, 0, &err));
	CHECK_REFUSED("4", ST_INVALID,
		"4 ranks do not divide the model's 2 GDN key heads",
		weights_open(&w, &moe, GOLDEN "tiny-moe", 0, 4, &err));
	CHECK_REFUSED("3", ST_INVALID, "3 ranks do not divide the model's 4 query heads",
		weights_check_ranks(&moe, 3, &err));
	c = moe;
	c.expert_width = 33;
	CHECK_REFUSED("width", ST_INVALID, "the model's 33 columns of an expert",
		weights_check_ranks(&c, 2, &err));
	c = moe;
	c.n_q = c.gdn_k_heads = c.gdn_v_heads = 12;
	c.expert_width = c.shared_width = 48;
	c.n_kv = 3;
	CHECK_REFUSED("kv", ST_INVALID, "2 ranks do not divide the model's 3 KV heads",
		weights_check_ranks(&c, 2, &err));
	CHECK_REFUSED("kv", ST_INVALID,
		"the model's 3 KV heads neither divide nor are divided by 4 ranks",
		weights_check_ranks(&c, 4, &err));
	CHECK_OK(weights_check_ranks(&c, 6, &err));
}

/* Two ranks halve 160 rows into 80, which is no multiple of a block of 128. */
static void refuses_slices_that_cut_a_block(void **state)
{
	static const char name[] = P0 "mlp.gate_proj.weight";
	static const uint8_t zeros[160 * 96];
	static const float scales[2] = {1, 1};
	struct edit *e = edit_open(GOLDEN "tiny-dense");
	struct weights *w = NULL;

	(void)state;
	edit_drop(e, name);
	edit_add(e, name, STD_F8_E4M3, (uint64_t[]){160, 96}, 2, zeros, sizeof(zeros));
	edit_add(e, P0 "mlp.gate_proj.weight_scale_inv", STD_F32, (uint64_t[]){2, 1}, 2,
		scales, sizeof(scales));
	edit_save(e);
	CHECK_OK(weights_open(&w, &e->config, e->folder.path, 0, 1, &err));
	weights_close(w);
	CHECK_REFUSED("cut", ST_INVALID,
		"tensor " P0
		"mlp.gate_proj.weight: the slice of rank 1 of 2 (80 rows, 96 "
		"columns) cuts a scale block of 128 x 128",
		weights_open(&w, &e->config, e->folder.path, 1, 2, &err));
	edit_close(e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_wrong_tensors),
		cmocka_unit_test(refuses_mixed_experts),
		cmocka_unit_test(refuses_wrong_scale_values),
		cmocka_unit_test(refuses_a_global_scale_without_reciprocal),
		cmocka_unit_test(refuses_ranks_that_do_not_divide),
		cmocka_unit_test(refuses_slices_that_cut_a_block),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
