/* Quantisation files: what the published ones say of each module, which entries of their
 * lists name it, and that every member of every published file is in a table. */
#include "common/model/json_file.h"
#include "common/model/model_config_impl.h"
#include "common/model/quant_impl.h"

#include "unit/model/checkpoint.h"

#include <glob.h>
#include <string.h>

#define L "model.language_model.layers."

static const struct {
	const char *file, *module;
	uint32_t kinds;
	int64_t group;
} published[] = {
	{"nvidia--Qwen3.5-122B-A10B", L "0.mlp.experts.17.gate_proj", KIND_NVFP4, 16},
	{"nvidia--Qwen3.5-122B-A10B", L "47.mlp.experts.0.down_proj", KIND_NVFP4, 16},
	{"nvidia--Qwen3.5-122B-A10B", L "0.linear_attn.in_proj_qkv", KIND_PLAIN, 0},
	{"nvidia--Qwen3.5-122B-A10B", L "3.self_attn.q_proj", KIND_PLAIN, 0},
	{"nvidia--Qwen3.5-122B-A10B", L "10.mlp.shared_expert.up_proj", KIND_PLAIN, 0},
	{"nvidia--Qwen3.5-122B-A10B", "lm_head", KIND_PLAIN, 0},
	{"nvidia--Qwen3.5-397B-A17B", L "59.mlp.experts.511.up_proj", KIND_NVFP4, 16},
	{"nvidia--Qwen3.5-397B-A17B", L "58.linear_attn.out_proj", KIND_PLAIN, 0},
	{"nvidia--Qwen3.5-397B-A17B", L "59.self_attn.o_proj", KIND_PLAIN, 0},
	{"nvidia--Qwen3.5-397B-A17B", L "59.mlp.shared_expert.down_proj", KIND_PLAIN, 0},
	{"nvidia--Qwen3.6-27B", L "0.linear_attn.in_proj_qkv", KIND_FP8, 0},
	{"nvidia--Qwen3.6-27B", L "63.self_attn.k_proj", KIND_FP8, 0},
	{"nvidia--Qwen3.6-27B", L "63.mlp.down_proj", KIND_NVFP4, 16},
	{"nvidia--Qwen3.6-27B", "lm_head", KIND_NVFP4, 16},
	{"nvidia--Qwen3.6-27B", L "0.linear_attn.in_proj_a", KIND_PLAIN, 0},
	{"nvidia--Qwen3.6-35B-A3B", L "39.mlp.experts.255.down_proj", KIND_NVFP4, 16},
	{"nvidia--Qwen3.6-35B-A3B", L "0.mlp.shared_expert.gate_proj", KIND_NVFP4, 16},
	{"nvidia--Qwen3.6-35B-A3B", L "0.linear_attn.in_proj_z", KIND_FP8, 0},
	{"nvidia--Qwen3.6-35B-A3B", "model.layers.0.linear_attn.in_proj_z", KIND_FP8, 0},
	{"nvidia--Qwen3.6-35B-A3B", "mtp.layers.0.self_attn.q_proj", KIND_PLAIN, 0},
};

static void check_said(const char *path, const char *member, size_t i)
{
	struct json_file file;
	struct quant_said s;

	CHECK_OK(json_file_read(&file, path, 16 << 20, &err));
	s = quant_said_of(json_given(file.doc.values, member), published[i].module);
	if (s.kinds != published[i].kinds)
		fail_msg("%s: %s: %s", path, published[i].module, s.word);
	/* One of the two files leaves the size to the format. */
	if (s.group != published[i].group && s.group != 0)
		fail_msg("%s: %s: groups of %lld", path, published[i].module,
			(long long)s.group);
	json_file_release(&file);
}

static void both_published_files_say_what_is_stored(void **state)
{
	char path[512];

	(void)state;
	for (size_t i = 0; i < COUNT(published); i++) {
		snprintf(path, sizeof(path), GOLDEN "configs/%s-NVFP4_config.json",
			published[i].file);
		check_said(path, "quantization_config", i);
		snprintf(path, sizeof(path),
			GOLDEN "configs/%s-NVFP4_hf_quant_config.json",
			published[i].file);
		check_said(path, "quantization", i);
	}
}

/* Objects as other tools write them. */
static const struct {
	const char *text, *module;
	uint32_t kinds;
	int64_t group;
} objects[] = {
	{"{}", "model.layers.0.mlp.up_proj", KIND_ANY, 0},
	{"{\"group_size\":32}", "model.layers.0.mlp.up_proj", KIND_ANY, 32},
	{"{\"quant_algo\":\"NO_QUANT\"}", "model.layers.0.mlp.up_proj", KIND_PLAIN, 0},
	{"{\"quant_algo\":\"FP8_PB_WO\",\"exclude_modules\":[\"lm_head\"]}",
		"model.layers.0.mlp.up_proj", KIND_BLOCK, 0},
	{"{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128],"
	 "\"modules_to_not_convert\":[\"model.layers.1.mlp\"]}",
		L "1.mlp.up_proj", KIND_PLAIN, 0},
	{"{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}", L "1.mlp.up_proj",
		KIND_BLOCK, 0},
	{"{\"quant_method\":\"fp8\"}", L "1.mlp.up_proj", KIND_FP8, 0},
	{"{\"quant_method\":\"fp8\"}", "lm_head", KIND_ANY, 0},
	{"{\"config_groups\":{\"g\":{\"weights\":{\"num_bits\":4,\"group_size\":16},"
	 "\"targets\":[\"Linear\"]}},\"ignore\":[\"re:.*self_attn.*\"]}",
		"model.layers.1.mlp.up_proj", KIND_NVFP4, 16},
	{"{\"config_groups\":{\"g\":{\"weights\":{\"num_bits\":4},"
	 "\"targets\":[\"Linear\"]}},\"ignore\":[\"re:.*self_attn.*\"]}",
		"model.layers.1.self_attn.q_proj", KIND_PLAIN, 0},
	{"{\"config_groups\":{\"g\":{\"weights\":{\"num_bits\":4},"
	 "\"targets\":[\"Linear\"]}},\"ignore\":[\"re:.*(self|linear)_attn\"]}",
		"model.layers.1.mlp.up_proj", KIND_ANY, 0},
	{"{\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":8,\"strategy\":\"block\"},"
	 "\"targets\":[\"re:.*attn.*\"]},\"b\":{\"weights\":{\"num_bits\":8},"
	 "\"targets\":[\"re:.*mlp.*\"]}}}",
		"model.layers.1.self_attn.q_proj", KIND_BLOCK, 0},
	{"{\"config_groups\":{\"b\":{\"weights\":{\"num_bits\":8},"
	 "\"targets\":[\"re:.*mlp.*\"]}}}",
		"model.layers.1.self_attn.q_proj", KIND_ANY, 0},
};

static void objects_of_other_tools_say_what_they_mean(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(objects); i++) {
		struct json_file file;
		struct quant_said s;

		CHECK_OK(json_file_parse(&file, bytes_of_str(objects[i].text), &err));
		s = quant_said_of(file.doc.values, objects[i].module);
		if (s.kinds != objects[i].kinds || s.group != objects[i].group)
			fail_msg("%s: %s: \"%s\", groups of %lld", objects[i].text,
				objects[i].module, s.word, (long long)s.group);
		json_file_release(&file);
	}
}

static const struct {
	const char *pattern, *module;
	enum quant_covers covers;
} patterns[] = {
	{"lm_head", "lm_head", COVERS_YES},
	{"lm_head", "lm_head2", COVERS_NO},
	{L "0.mlp", L "0.mlp.up_proj", COVERS_YES},
	{L "1", L "10.mlp.up_proj", COVERS_NO},
	{"mlp.gate", L "0.mlp.gate_proj", COVERS_NO},
	{"mlp.gate", L "0.mlp.gate", COVERS_YES},
	{"mtp*", "mtp.layers.0.mlp", COVERS_YES},
	{L "1.linear_attn*", L "1.linear_attn.in_proj_z", COVERS_YES},
	{L "1.linear_attn*", L "11.linear_attn.in_proj_z", COVERS_NO},
	{"*.mlp.shared_expert.*", L "1.mlp.shared_expert.up_proj", COVERS_YES},
	{"*.mlp.shared_expert.*", L "1.mlp.shared_expert_gate", COVERS_NO},
	{"*self_attn", L "3.self_attn.q_proj", COVERS_YES},
	{"model.layers.?.mlp", "model.layers.3.mlp", COVERS_YES},
	{"model.layers.?.mlp", "model.layers.13.mlp", COVERS_NO},
	{"*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", COVERS_NO},
	{"re:.*lm_head", "language_model.lm_head", COVERS_YES},
	{"re:lm_head", "language_model.lm_head", COVERS_NO},
	{"re:^lm_head$", "lm_head", COVERS_YES},
	{"re:.*mlp\\.gate$", L "0.mlp.gate", COVERS_YES},
	{"re:.*mlp\\.gate$", L "0.mlp.gate_proj", COVERS_NO},
	{"re:.*mlp.gate", L "0.mlp.gate_proj", COVERS_YES},
	{"re:.*layers\\.[0-9]", L "0.mlp", COVERS_UNSURE},
	{"re:a+", "aa", COVERS_UNSURE},
	{"re:.+attn", "aa", COVERS_UNSURE},
	{"re:(a|b)", "a", COVERS_UNSURE},
	{"re:a\\d", "a1", COVERS_UNSURE},
	{"re:", "a", COVERS_YES},
	{"", "a", COVERS_NO},
};

static void entries_name_the_modules_that_their_dialect_says(void **state)
{
	static char name[400];

	(void)state;
	for (size_t i = 0; i < COUNT(patterns); i++) {
		if (quant_pattern_covers(patterns[i].pattern, patterns[i].module) !=
			patterns[i].covers)
			fail_msg("%s of %s", patterns[i].pattern, patterns[i].module);
	}
	memset(name, 'a', sizeof(name) - 1);
	assert_int_equal(COVERS_UNSURE, quant_pattern_covers(name, "a"));
	assert_int_equal(COVERS_UNSURE, quant_pattern_covers("a*", name));
}

static void the_tables_know_every_member_of_the_published_files(void **state)
{
	glob_t files;
	struct sink out;

	(void)state;
	sink_init(&out, 4000);
	assert_int_equal(0, glob(GOLDEN "configs/*.json", 0, NULL, &files));
	assert_true(files.gl_pathc >= 12);
	for (size_t i = 0; i < files.gl_pathc; i++) {
		struct json_file file;
		const struct json *q;

		CHECK_OK(json_file_read(&file, files.gl_pathv[i], 16 << 20, &err));
		q = json_given(file.doc.values, "quantization");
		if (q == NULL) {
			q = json_given(file.doc.values, "quantization_config");
			model_config_list_unknown(file.doc.values, &out);
		}
		quant_config_list_unknown(q, &out);
		if (out.len > 0)
			fail_msg("%s: %s", files.gl_pathv[i], sink_cstr(&out));
		json_file_release(&file);
	}
	globfree(&files);
	sink_release(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_published_files_say_what_is_stored),
		cmocka_unit_test(objects_of_other_tools_say_what_they_mean),
		cmocka_unit_test(entries_name_the_modules_that_their_dialect_says),
		cmocka_unit_test(the_tables_know_every_member_of_the_published_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
