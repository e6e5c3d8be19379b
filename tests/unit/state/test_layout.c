/* Sizes of the published models, division by tensor parallelism, the record. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/state/layout.h"
#include <string.h>

/* GDN and KV bytes of one sequence at BF16 KV and conv; worked out by hand from the
 * shapes in the models' published configs. */
static const struct {
	const char *name;
	uint32_t n_attn, n_gdn, n_q, n_kv, n_k, n_v;
	uint64_t recurrent, conv, kv_token;
} models[] = {
	{"397B-A17B", 15, 45, 32, 2, 16, 64, 188743680, 3317760, 30720},
	{"122B-A10B", 12, 36, 32, 2, 16, 64, 150994944, 2654208, 24576},
	{"35B-A3B", 10, 30, 16, 2, 16, 32, 62914560, 1474560, 20480},
	{"27B", 16, 48, 24, 4, 16, 48, 150994944, 2949120, 65536},
	{"Next-80B-A3B", 12, 36, 16, 2, 16, 32, 75497472, 1769472, 24576},
	{"9B", 8, 24, 16, 4, 16, 32, 50331648, 1179648, 32768},
	{"4B", 8, 24, 16, 4, 16, 32, 50331648, 1179648, 32768},
	{"2B", 6, 18, 8, 2, 16, 16, 18874368, 663552, 12288},
	{"0.8B", 6, 18, 8, 2, 16, 16, 18874368, 663552, 12288},
};

static struct model_config config_of(size_t i)
{
	return (struct model_config){
		.n_layers = models[i].n_attn + models[i].n_gdn,
		.n_attn_layers = models[i].n_attn,
		.n_gdn_layers = models[i].n_gdn,
		.n_q = models[i].n_q,
		.n_kv = models[i].n_kv,
		.head_dim = 256,
		.gdn_k_heads = models[i].n_k,
		.gdn_v_heads = models[i].n_v,
		.gdn_k_dim = 128,
		.gdn_v_dim = 128,
		.conv_taps = 4,
	};
}

static void published_models_have_their_published_sizes(void **state)
{
	struct err err;

	(void)state;
	for (size_t i = 0; i < COUNT(models); i++) {
		struct model_config config = config_of(i);
		struct layout l;

		print_message("%s\n", models[i].name);
		assert_int_equal(
			ST_OK, layout_compute(&l, &config, 1, 1, DT_BF16, DT_BF16, &err));
		assert_int_equal(models[i].recurrent, l.n_gdn * l.rec_layer_bytes);
		assert_int_equal(models[i].recurrent, l.conv_offset);
		assert_int_equal(models[i].conv, l.n_gdn * l.conv_layer_bytes);
		assert_int_equal(64 * models[i].kv_token, l.page_bytes);
		assert_int_equal(
			models[i].recurrent + models[i].conv, layout_state_bytes(&l));
		assert_int_equal(layout_state_bytes(&l), l.slot_bytes); /* 256 divides */

		assert_int_equal(
			ST_OK, layout_compute(&l, &config, 1, 1, DT_F32, DT_F32, &err));
		assert_int_equal(models[i].recurrent, l.conv_offset);
		assert_int_equal(2 * models[i].conv, l.n_gdn * l.conv_layer_bytes);
		assert_int_equal(2 * 64 * models[i].kv_token, l.page_bytes);
	}
}

static void config_files_give_the_same_sizes(void **state)
{
	static const struct {
		const char *file;
		size_t model;
	} files[] = {
		{"Qwen--Qwen3.5-397B-A17B_config.json", 0},
		{"Qwen--Qwen3.5-122B-A10B_config.json", 1},
		{"Qwen--Qwen3.5-35B-A3B_config.json", 2},
		{"Qwen--Qwen3.5-27B_config.json", 3},
	};
	static uint8_t text[1 << 20];
	struct err err;

	(void)state;
	for (size_t i = 0; i < COUNT(files); i++) {
		struct model_config config;
		struct layout l;
		char path[512];
		FILE *f;
		size_t n;

		snprintf(path, sizeof(path), "%s/tests/golden/configs/%s",
			BATON_SOURCE_DIR, files[i].file);
		f = fopen(path, "rb");
		assert_non_null(f);
		n = fread(text, 1, sizeof(text), f);
		fclose(f);
		assert_int_equal(ST_OK,
			model_config_parse(&config, (struct bytes){text, n}, &err));
		assert_int_equal(
			ST_OK, layout_compute(&l, &config, 1, 1, DT_BF16, DT_BF16, &err));
		assert_int_equal(models[files[i].model].recurrent, l.conv_offset);
		assert_int_equal(
			models[files[i].model].conv, l.n_gdn * l.conv_layer_bytes);
		assert_int_equal(64 * models[files[i].model].kv_token, l.page_bytes);
	}
}

static void ranks_divide_the_state(void **state)
{
	static const uint32_t ranks[] = {1, 2, 4, 8};
	struct err err;

	(void)state;
	for (size_t i = 0; i < COUNT(models); i++)
		for (size_t r = 0; r < COUNT(ranks); r++) {
			struct model_config config = config_of(i);
			uint32_t copies =
				ranks[r] > models[i].n_kv ? ranks[r] / models[i].n_kv : 1;
			struct layout one, l;

			assert_int_equal(ST_OK, layout_compute(&one, &config, 1, 1,
							DT_BF16, DT_BF16, &err));
			assert_int_equal(ST_OK, layout_compute(&l, &config, 1, ranks[r],
							DT_BF16, DT_BF16, &err));
			assert_int_equal(layout_state_bytes(&one),
				ranks[r] * layout_state_bytes(&l));
			assert_int_equal(
				copies * one.page_bytes, ranks[r] * l.page_bytes);
			assert_int_equal(
				layout_compat_hash(&one), layout_compat_hash(&l));
		}
}

static void refuses_ranks_that_do_not_divide(void **state)
{
	static const struct {
		uint32_t n_q, n_kv, n_k, n_v, ranks;
		const char *text;
	} c[] = {
		{16, 2, 16, 32, 0, "ranks is 0"},
		{16, 2, 16, 32, 9, "ranks is 9"},
		{12, 3, 4, 8, 8, "8 does not divide the 4 GDN key heads"},
		{12, 3, 8, 12, 8, "8 does not divide the 12 GDN value heads"},
		{12, 3, 4, 8, 2, "2 neither divides the 3 KV heads"},
		{6, 2, 4, 8, 4, "4 does not divide the 6 query heads"},
	};
	struct err err;

	(void)state;
	for (size_t i = 0; i < COUNT(c); i++) {
		struct model_config config = config_of(0);
		struct layout l;

		config.n_q = c[i].n_q;
		config.n_kv = c[i].n_kv;
		config.gdn_k_heads = c[i].n_k;
		config.gdn_v_heads = c[i].n_v;
		assert_int_equal(ST_INVALID, layout_compute(&l, &config, 1, c[i].ranks,
						     DT_BF16, DT_BF16, &err));
		if (strstr(err.text, c[i].text) == NULL)
			fail_msg("case %zu says: %s", i, err.text);
	}
}

static struct layout layout_27b(uint32_t ranks)
{
	struct model_config config = config_of(3);
	struct layout l;
	struct err err;

	assert_int_equal(ST_OK, layout_compute(&l, &config, 0x1122334455667788, ranks,
					DT_BF16, DT_F32, &err));
	return l;
}

static void offsets_do_not_overlap(void **state)
{
	struct layout l = layout_27b(4);
	const uint64_t pages = 100000, slots = 70;

	(void)state;
	assert_int_equal(0, layout_page_offset(&l, 0));
	assert_int_equal(99999 * l.page_bytes, layout_page_offset(&l, 99999));
	assert_true(layout_page_offset(&l, pages) <= layout_slot_offset(&l, pages, 0));
	assert_int_equal(0, layout_slot_offset(&l, pages, 1) % 256);
	assert_int_equal(l.slot_bytes,
		layout_slot_offset(&l, pages, 69) - layout_slot_offset(&l, pages, 68));
	assert_int_equal(layout_slot_offset(&l, pages, 69) + l.slot_bytes,
		layout_arena_bytes(&l, pages, slots));
	assert_true(layout_arena_bytes(&l, pages, slots) > UINT64_C(1) << 32);
}

static void compat_hash_sees_every_field_but_ranks(void **state)
{
	struct layout l = layout_27b(2), m;
	uint64_t hash = layout_compat_hash(&l);
	uint32_t *fields[] = {&m.version, &m.page_tokens, &m.kv_dtype, &m.conv_dtype,
		&m.n_attn, &m.n_gdn, &m.n_kv, &m.head_dim, &m.n_k, &m.n_v, &m.dk, &m.dv,
		&m.taps, &m.aux_bytes};

	(void)state;
	for (size_t i = 0; i < COUNT(fields); i++) {
		m = l;
		*fields[i] += 1;
		assert_true(hash != layout_compat_hash(&m));
	}
	m = l;
	m.model_hash++;
	assert_true(hash != layout_compat_hash(&m));
	/* Swapped numbers are different numbers. */
	m = l;
	m.n_k = l.n_v;
	m.n_v = l.n_k;
	assert_true(hash != layout_compat_hash(&m));
	m = layout_27b(8);
	assert_int_equal(hash, layout_compat_hash(&m));
}

static void record_round_trip(void **state)
{
	struct layout l = layout_27b(8), back;
	uint8_t record[LAYOUT_RECORD_BYTES];
	struct err err;

	(void)state;
	layout_put(&l, record);
	assert_int_equal(0x88, record[0]); /* model hash, little-endian */
	assert_int_equal(
		ST_OK, layout_get(&back, (struct bytes){record, sizeof(record)}, &err));
	assert_memory_equal(&l, &back, sizeof(l));
	for (size_t cut = 0; cut < sizeof(record); cut++)
		assert_int_equal(
			ST_INVALID, layout_get(&back, (struct bytes){record, cut}, &err));
}

/* Whatever one foreign byte is, the record is refused, or it is a sound layout of
 * another model, which the compat hash tells apart. */
static void changed_records_are_refused_or_sound(void **state)
{
	struct layout l = layout_27b(4), back;
	uint8_t record[LAYOUT_RECORD_BYTES], again[LAYOUT_RECORD_BYTES];
	uint32_t accepted = 0;
	struct err err;

	(void)state;
	for (size_t at = 0; at < sizeof(record); at++)
		for (unsigned value = 0; value < 256; value++) {
			layout_put(&l, record);
			if (record[at] == value)
				continue;
			record[at] = (uint8_t)value;
			if (layout_get(&back, (struct bytes){record, sizeof(record)},
				    &err) != ST_OK)
				continue;
			accepted++;
			layout_put(&back, again);
			assert_memory_equal(record, again, sizeof(record));
			assert_true(layout_compat_hash(&back) != layout_compat_hash(&l));
		}
	/* 8 bytes of model hash, and 1 or 2 KV heads, replicated over 4 ranks, which need
	 * as many bytes per rank as 4 heads do. */
	assert_int_equal(8 * 255 + 2, accepted);
}

static void record_bounds_are_named(void **state)
{
	static const struct {
		size_t at;
		uint32_t value;
		const char *text;
	} c[] = {
		{8, 2, "layout version 2, ours is 1"},
		{12, 3, "3 does not divide the 16 GDN key heads"},
		{12, 0, "ranks is 0, not in 1..8"},
		{20, 9, "kv_dtype is 9"},
		{28, 0xffffffff, "n_attn is 4294967295"},
		{64, 6, "aux_bytes is 6, not a multiple of 4"},
		{64, 8, "slot_bytes is"},
		{68, 2, "local_kv is 2, its heads and dtypes give 1"},
		{80, 1, "kv_layer_bytes is"},
	};
	struct layout l = layout_27b(4), back;
	uint8_t record[LAYOUT_RECORD_BYTES];
	struct err err;

	(void)state;
	for (size_t i = 0; i < COUNT(c); i++) {
		layout_put(&l, record);
		for (size_t b = 0; b < 4; b++)
			record[c[i].at + b] = (uint8_t)(c[i].value >> (8 * b));
		assert_int_equal(ST_INVALID,
			layout_get(&back, (struct bytes){record, sizeof(record)}, &err));
		if (strstr(err.text, c[i].text) == NULL)
			fail_msg("case %zu says: %s", i, err.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_models_have_their_published_sizes),
		cmocka_unit_test(config_files_give_the_same_sizes),
		cmocka_unit_test(ranks_divide_the_state),
		cmocka_unit_test(refuses_ranks_that_do_not_divide),
		cmocka_unit_test(offsets_do_not_overlap),
		cmocka_unit_test(compat_hash_sees_every_field_but_ranks),
		cmocka_unit_test(record_round_trip),
		cmocka_unit_test(changed_records_are_refused_or_sound),
		cmocka_unit_test(record_bounds_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
