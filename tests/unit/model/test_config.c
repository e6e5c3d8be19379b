/* config.json: every published file of the family loads with its known values, and
 * whatever Baton does not compute is refused by field name and value. */
#include "common/model/model_config.h"
#include "common/model/quant_config.h"

#include "unit/model/checkpoint.h"

#include <string.h>

/* A small mixture-of-experts config as text; the rows below change one thing each. */
static const char base_moe[] =
	"{\"architectures\":[\"Qwen3_5MoeForConditionalGeneration\"],"
	"\"model_type\":\"qwen3_5_moe\",\"text_config\":{\"model_type\":\"qwen3_5_moe_"
	"text\","
	"\"vocab_size\":384,\"hidden_size\":64,\"num_hidden_layers\":4,"
	"\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":256,"
	"\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,"
	"\"linear_key_head_dim\":128,\"linear_value_head_dim\":128,"
	"\"linear_conv_kernel_dim\":4,\"hidden_act\":\"silu\",\"rms_norm_eps\":1e-06,"
	"\"max_position_embeddings\":4096,\"rope_parameters\":{\"rope_type\":\"default\","
	"\"rope_theta\":10000000.0,\"partial_rotary_factor\":0.25},"
	"\"attn_output_gate\":true,\"attention_bias\":false,"
	"\"full_attention_interval\":4,\"eos_token_id\":[2,3],\"num_experts\":8,"
	"\"num_experts_per_tok\":3,\"moe_intermediate_size\":32,"
	"\"shared_expert_intermediate_size\":48,\"mlp_only_layers\":[],"
	"\"mamba_ssm_dtype\":\"float32\",\"tie_word_embeddings\":false}}";

/* base_moe with the first `from` replaced. */
static struct bytes patched(const char *from, const char *to)
{
	static char text[64 * 1024];
	const char *at = strstr(base_moe, from);

	assert_non_null(at);
	snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - base_moe), base_moe, to,
		at + strlen(from));
	return bytes_of_str(text);
}

static const struct {
	const char *file;
	uint32_t layers, attn, hidden, q, kv, gk, gv, experts, top_k, width, shared;
	uint32_t dense;
} published[] = {
	{"Qwen--Qwen3.5-397B-A17B", 60, 15, 4096, 32, 2, 16, 64, 512, 10, 1024, 1024, 0},
	{"Qwen--Qwen3.5-122B-A10B", 48, 12, 3072, 32, 2, 16, 64, 256, 8, 1024, 1024, 0},
	{"Qwen--Qwen3.5-35B-A3B", 40, 10, 2048, 16, 2, 16, 32, 256, 8, 512, 512, 0},
	{"Qwen--Qwen3.5-27B", 64, 16, 5120, 24, 4, 16, 48, 0, 0, 0, 0, 17408},
	{"nvidia--Qwen3.5-397B-A17B-NVFP4", 60, 15, 4096, 32, 2, 16, 64, 512, 10, 1024,
		1024, 0},
	{"nvidia--Qwen3.5-122B-A10B-NVFP4", 48, 12, 3072, 32, 2, 16, 64, 256, 8, 1024,
		1024, 0},
	{"nvidia--Qwen3.6-27B-NVFP4", 64, 16, 5120, 24, 4, 16, 48, 0, 0, 0, 0, 17408},
	{"nvidia--Qwen3.6-35B-A3B-NVFP4", 40, 10, 2048, 16, 2, 16, 32, 256, 8, 512, 512,
		0},
};

static void check_published(const struct model_config *c, size_t i)
{
	assert_int_equal(c->n_layers, published[i].layers);
	assert_int_equal(c->n_attn_layers, published[i].attn);
	assert_int_equal(c->n_gdn_layers, published[i].layers - published[i].attn);
	assert_int_equal(c->hidden, published[i].hidden);
	assert_int_equal(c->n_q, published[i].q);
	assert_int_equal(c->n_kv, published[i].kv);
	assert_int_equal(c->gdn_k_heads, published[i].gk);
	assert_int_equal(c->gdn_v_heads, published[i].gv);
	assert_int_equal(c->n_experts, published[i].experts);
	assert_int_equal(c->top_k, published[i].top_k);
	assert_int_equal(c->expert_width, published[i].width);
	assert_int_equal(c->shared_width, published[i].shared);
	assert_int_equal(c->dense_width, published[i].dense);
	assert_int_equal(
		c->arch, published[i].experts > 0 ? ARCH_QWEN35_MOE : ARCH_QWEN35_DENSE);
	assert_int_equal(c->head_dim, 256);
	assert_int_equal(c->rotary_dim, 64);
	assert_true(c->rope_theta == 1e7);
	assert_true(c->rms_eps == 1e-6f);
	assert_int_equal(c->vocab, 248320);
	assert_int_equal(c->max_position, 262144);
	assert_int_equal(c->gdn_k_dim, 128);
	assert_int_equal(c->gdn_v_dim, 128);
	assert_int_equal(c->mtp_layers, 1);
	assert_int_equal(c->n_eos, 1);
	assert_int_equal(c->eos[0], 248044);
	assert_false(c->tied);
	assert_int_equal(c->gdn_gate, GATE_SILU);
	for (uint32_t l = 0; l < c->n_layers; l++) {
		assert_int_equal(c->layer_kind[l], l % 4 == 3 ? LAYER_ATTN : LAYER_GDN);
		assert_int_equal(c->layer_ordinal[l], l % 4 == 3 ? l / 4 : l - l / 4);
		assert_int_equal(c->layer_moe[l], published[i].experts > 0);
	}
}

static void loads_every_published_config(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(published); i++) {
		struct folder f;
		struct model_config c;
		char path[512], target[512];

		folder_create(&f);
		snprintf(path, sizeof(path), GOLDEN "configs/%s_config.json",
			published[i].file);
		snprintf(target, sizeof(target), "%s/config.json", f.path);
		assert_int_equal(symlink(path, target), 0);
		CHECK_OK(model_config_load(&c, f.path, &err));
		snprintf(path, sizeof(path), GOLDEN "configs/%s_hf_quant_config.json",
			published[i].file);
		snprintf(target, sizeof(target), "%s/hf_quant_config.json", f.path);
		if (access(path, F_OK) == 0)
			assert_int_equal(symlink(path, target), 0);
		CHECK_OK(quant_config_check_dir(f.path, false, &err));
		folder_remove(&f);
		check_published(&c, i);
	}
}

static void loads_the_tiny_checkpoints(void **state)
{
	struct model_config c;

	(void)state;
	CHECK_OK(model_config_load(&c, GOLDEN "tiny-moe", &err));
	assert_int_equal(c.arch, ARCH_QWEN35_MOE);
	assert_int_equal(c.shared_width, 48);
	CHECK_OK(model_config_load(&c, GOLDEN "tiny-dense", &err));
	assert_int_equal(c.arch, ARCH_QWEN35_DENSE);
	assert_true(c.tied);
	assert_int_equal(c.dense_width, 160);
	CHECK_OK(model_config_load(&c, GOLDEN "tiny-next", &err));
	assert_int_equal(c.arch, ARCH_QWEN3_NEXT);
	assert_int_equal(c.rotary_dim, 64);
	assert_int_equal(c.dense_width, 0); /* its intermediate_size serves no layer */
	assert_int_equal(c.mtp_layers, 0);
	CHECK_REFUSED("no folder", ST_IO, "/nowhere/config.json: open: No such file",
		model_config_load(&c, "/nowhere", &err));
}

/* Python writes infinities, and other tools write "no limit" as a number of 31 digits. */
static void literals_that_nobody_reads_do_not_matter(void **state)
{
	static const char *const unread[] = {"Infinity", "-Infinity", "NaN", "1e400",
		"1000000000000000019884624838656", "[0.0,Infinity]"};
	struct model_config c;
	char text[80];

	(void)state;
	for (size_t i = 0; i < COUNT(unread); i++) {
		snprintf(text, sizeof(text), "\"vocab_size\":384,\"x\":%s", unread[i]);
		CHECK_OK(model_config_parse(
			&c, patched("\"vocab_size\":384", text), &err));
		snprintf(text, sizeof(text), "\n\"hidden_size\":%s", unread[i]);
		CHECK_REFUSED(unread[i], ST_INVALID, "hidden_size ",
			model_config_parse(
				&c, patched("\"hidden_size\":64", text), &err));
		CHECK_REFUSED(unread[i], ST_INVALID, "(line 2)",
			model_config_parse(
				&c, patched("\"hidden_size\":64", text), &err));
	}
	CHECK_REFUSED("NaN", ST_INVALID, "rms_norm_eps NaN: must be a number",
		model_config_parse(&c, patched("1e-06", "NaN"), &err));
}

static void understands_variants(void **state)
{
	struct model_config c;
	struct bytes text;

	(void)state;
	CHECK_OK(model_config_parse(&c, BYTES_STR(base_moe), &err));
	assert_int_equal(c.n_eos, 2);
	assert_int_equal(c.eos[1], 3);
	assert_int_equal(c.layer_kind[3], LAYER_ATTN);
	text = patched("\"mlp_only_layers\":[]",
		"\"mlp_only_layers\":[1],\"intermediate_size\":96");
	CHECK_OK(model_config_parse(&c, text, &err));
	assert_true(c.layer_moe[0]);
	assert_false(c.layer_moe[1]);
	assert_int_equal(c.dense_width, 96);
	text = patched(
		"\"hidden_act\"", "\"output_gate_type\":\"sigmoid\",\"hidden_act\"");
	CHECK_OK(model_config_parse(&c, text, &err));
	assert_int_equal(c.gdn_gate, GATE_SIGMOID);
	text = patched("\"full_attention_interval\":4",
		"\"layer_types\":[\"full_attention\",\"linear_attention\",\"linear_"
		"attention\","
		"\"full_attention\"],\"full_attention_interval\":4");
	CHECK_OK(model_config_parse(&c, text, &err));
	assert_int_equal(c.layer_kind[0], LAYER_ATTN);
	assert_int_equal(c.layer_ordinal[3], 1);
	assert_int_equal(c.layer_ordinal[2], 1);
	text = patched(
		",\"tie_word_embeddings\":false}}", "},\"tie_word_embeddings\":true}");
	CHECK_OK(model_config_parse(&c, text, &err));
	assert_true(c.tied);
	/* rope_parameters wins over the field beside it. */
	text = patched("\"hidden_act\"", "\"partial_rotary_factor\":0.5,\"hidden_act\"");
	CHECK_OK(model_config_parse(&c, text, &err));
	assert_int_equal(c.rotary_dim, 64);
}

static const struct {
	const char *from, *to, *text;
} refused[] = {
	{"\"qwen3_5_moe\"", "\"qwen4_exp\"", "model_type \"qwen4_exp\": not supported"},
	{"\"qwen3_5_moe\"", "\"llama\"", "model_type \"llama\": not supported"},
	{"\"qwen3_5_moe_text\"", "\"qwen4_exp_text\"",
		"text_config.model_type \"qwen4_exp_text\": not supported"},
	{"\"qwen3_5_moe_text\"", "\"qwen3_5_text\"", "contradicts model_type"},
	{"\"qwen3_5_moe\"", "\"qwen3_5\"", "text_config.model_type \"qwen3_5_moe_text\""},
	{"Qwen3_5MoeForConditionalGeneration", "LlamaForCausalLM",
		"architectures [\"LlamaForCausalLM\"]: not supported"},
	{"Qwen3_5MoeForConditionalGeneration", "Qwen3_5ForCausalLM",
		"contradicts model_type"},
	{"\"architectures\":[\"Qwen3_5MoeForConditionalGeneration\"],", "",
		"architectures is missing"},
	{"\"model_type\":\"qwen3_5_moe\",", "", "model_type is missing"},
	{"\"default\"", "\"yarn\"", "rope_parameters.rope_type \"yarn\""},
	{"\"rope_type\":\"default\"", "\"type\":\"linear\"",
		"rope_parameters.type \"linear\""},
	{"\"rope_type\":\"default\"", "\"factor\":4.0", "rope_parameters.factor 4.0"},
	{"\"hidden_act\"", "\"rope_scaling\":{\"type\":\"yarn\"},\"hidden_act\"",
		"rope_scaling.type \"yarn\""},
	{"\"rope_theta\":10000000.0,", "", "rope_theta is missing"},
	{"\"rope_theta\":10000000.0", "\"rope_theta\":0", "rope_theta 0: must be"},
	{",\"partial_rotary_factor\":0.25", "", "partial_rotary_factor is missing"},
	{"\"partial_rotary_factor\":0.25", "\"partial_rotary_factor\":1.5",
		"partial_rotary_factor 1.5: must be"},
	{"\"partial_rotary_factor\":0.25", "\"partial_rotary_factor\":0.26",
		"rotates 66.56 dimensions"},
	{"\"partial_rotary_factor\":0.25", "\"partial_rotary_factor\":0.17578125",
		"rotates 45 dimensions: must be an even number"},
	{"\"attention_bias\":false", "\"attention_bias\":true", "attention_bias true"},
	{"\"attn_output_gate\":true", "\"attn_output_gate\":false",
		"attn_output_gate false"},
	{"\"attn_output_gate\":true", "\"attn_output_gate\":\"yes\"",
		"attn_output_gate \"yes\""},
	{"\"silu\"", "\"gelu\"", "hidden_act \"gelu\": only \"silu\""},
	{"\"hidden_act\"", "\"layer_scale\":true,\"hidden_act\"", "layer_scale true"},
	{"\"hidden_act\"", "\"output_gate_type\":\"tanh\",\"hidden_act\"",
		"output_gate_type \"tanh\""},
	{"\"hidden_act\"", "\"decoder_sparse_step\":2,\"hidden_act\"",
		"decoder_sparse_step 2"},
	{"\"hidden_act\"", "\"norm_topk_prob\":false,\"hidden_act\"",
		"norm_topk_prob false"},
	{"\"hidden_act\"", "\"mtp_use_dedicated_embeddings\":true,\"hidden_act\"",
		"mtp_use_dedicated_embeddings true"},
	{"\"hidden_act\"", "\"mtp_num_hidden_layers\":-1,\"hidden_act\"",
		"mtp_num_hidden_layers -1"},
	{"\"float32\"", "\"bfloat16\"", "mamba_ssm_dtype \"bfloat16\""},
	{"\"linear_conv_kernel_dim\":4", "\"linear_conv_kernel_dim\":3",
		"linear_conv_kernel_dim 3"},
	{"\"head_dim\":256", "\"head_dim\":512", "head_dim 512"},
	{"\"head_dim\":256", "\"head_dim\":256.5", "head_dim 256.5: must be an integer"},
	{"\"hidden_size\":64", "\"hidden_size\":0", "hidden_size 0"},
	{"\"hidden_size\":64", "\"hidden_size\":\"64\"", "hidden_size \"64\""},
	{"\"hidden_size\":64,", "", "hidden_size is missing"},
	{"\"hidden_size\":64", "\"hidden_size\":null", "hidden_size is missing"},
	{"\"vocab_size\":384", "\"vocab_size\":99999999999", "vocab_size 99999999999"},
	{"\"num_hidden_layers\":4", "\"num_hidden_layers\":257", "num_hidden_layers 257"},
	{"\"num_key_value_heads\":2", "\"num_key_value_heads\":3",
		"num_attention_heads 4 is no multiple of num_key_value_heads 3"},
	{"\"linear_num_value_heads\":4", "\"linear_num_value_heads\":5",
		"linear_num_value_heads 5 is no multiple"},
	{"1e-06", "0", "rms_norm_eps 0"},
	{"\"rms_norm_eps\":1e-06,", "", "rms_norm_eps is missing"},
	{"\"full_attention_interval\":4", "\"full_attention_interval\":0",
		"full_attention_interval 0"},
	{"\"full_attention_interval\":4,", "",
		"layer_types and full_attention_interval are both missing"},
	{"\"hidden_act\"", "\"layer_types\":[\"full_attention\"],\"hidden_act\"",
		"layer_types lists 1 layers, num_hidden_layers is 4"},
	{"\"hidden_act\"",
		"\"layer_types\":[\"full_attention\",\"sliding_attention\",1,2],"
		"\"hidden_act\"",
		"layer_types[1] \"sliding_attention\""},
	{"\"num_experts\":8", "\"num_experts\":0", "num_experts 0"},
	{"\"num_experts\":8,", "", "num_experts is missing"},
	{"\"num_experts_per_tok\":3", "\"num_experts_per_tok\":9",
		"num_experts_per_tok 9: must be an integer of 1 to 8"},
	{"\"moe_intermediate_size\":32,", "", "moe_intermediate_size is missing"},
	{"\"shared_expert_intermediate_size\":48",
		"\"shared_expert_intermediate_size\":0",
		"shared_expert_intermediate_size 0"},
	{"\"mlp_only_layers\":[]", "\"mlp_only_layers\":[0]",
		"intermediate_size is missing"},
	{"\"mlp_only_layers\":[]", "\"mlp_only_layers\":[4]", "mlp_only_layers entry 4"},
	{"\"mlp_only_layers\":[]", "\"mlp_only_layers\":3", "mlp_only_layers 3"},
	{"\"tie_word_embeddings\":false", "\"tie_word_embeddings\":1",
		"tie_word_embeddings 1"},
	{"[2,3]", "384", "eos_token_id 384"},
	{"[2,3]", "[2,-1]", "eos_token_id entry -1"},
	{"\"hidden_size\":64", "\"hidden_size\":64,\"hidden_size\":64",
		"stands there twice"},
	{"}}", "}", "JSON line 1"},
	{"}}", "}}x", "JSON line 1"},
	{"{\"architectures\"", "[\"architectures\"", "JSON line 1"},
};

static void refuses_what_it_does_not_compute(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(refused); i++) {
		struct model_config c;

		CHECK_REFUSED(refused[i].text, ST_INVALID, refused[i].text,
			model_config_parse(
				&c, patched(refused[i].from, refused[i].to), &err));
	}
}

static void refuses_other_texts(void **state)
{
	struct model_config c;
	char deep[300];

	(void)state;
	CHECK_REFUSED("many eos", ST_LIMIT,
		"eos_token_id lists 17 ids, at most 16 are read",
		model_config_parse(&c,
			patched("[2,3]", "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]"), &err));
	CHECK_REFUSED("empty", ST_INVALID, "JSON line",
		model_config_parse(&c, BYTES_STR(""), &err));
	CHECK_REFUSED("list", ST_INVALID, "not a JSON object",
		model_config_parse(&c, BYTES_STR("[]"), &err));
	memset(deep, '[', sizeof(deep));
	CHECK_REFUSED("deep", ST_LIMIT, "column 129: nested deeper than 128",
		model_config_parse(
			&c, (struct bytes){(uint8_t *)deep, sizeof(deep)}, &err));
	/* Brackets in a string do not count. */
	deep[0] = '"';
	CHECK_REFUSED("string", ST_INVALID, "JSON line",
		model_config_parse(
			&c, (struct bytes){(uint8_t *)deep, sizeof(deep)}, &err));
}

static void every_truncation_is_refused(void **state)
{
	struct model_config c;
	struct err err;

	(void)state;
	for (size_t cut = 0; cut < sizeof(base_moe) - 1; cut++) {
		uint8_t *copy = malloc(cut + (cut == 0));

		memcpy(copy, base_moe, cut);
		assert_int_not_equal(
			model_config_parse(&c, (struct bytes){copy, cut}, &err), ST_OK);
		free(copy);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loads_every_published_config),
		cmocka_unit_test(loads_the_tiny_checkpoints),
		cmocka_unit_test(literals_that_nobody_reads_do_not_matter),
		cmocka_unit_test(understands_variants),
		cmocka_unit_test(refuses_what_it_does_not_compute),
		cmocka_unit_test(refuses_other_texts),
		cmocka_unit_test(every_truncation_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
