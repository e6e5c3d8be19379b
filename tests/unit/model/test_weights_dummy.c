/* Dummy weights: the shapes and formats asked for, numbers of a sensible size, the same
 * in every process, and slices of ranks that make up the whole. */
#include "common/model/weights_dummy.h"

#include "common/model/weights_impl.h"
#include "unit/model/checkpoint.h"

#include <math.h>
#include <string.h>

static const char *const models[] = {
	GOLDEN "tiny-moe", GOLDEN "tiny-dense", GOLDEN "tiny-next"};

struct read {
	struct weight_info info;
	uint8_t *data, *scale;
	float *scale2;
};

static struct read read_role(
	const struct weights *w, enum weight_role role, uint32_t layer)
{
	struct read r = {.info = weights_info(w, role, layer)};

	r.data = test_malloc(r.info.data_bytes);
	r.scale = test_malloc(MAX(r.info.scale_bytes, 1));
	r.scale2 = test_malloc(MAX(r.info.scale2_bytes, 1));
	CHECK_OK(weights_read(w, role, layer, r.data, r.scale, r.scale2, &err));
	return r;
}

static void read_free(struct read *r)
{
	test_free(r->data);
	test_free(r->scale);
	test_free(r->scale2);
}

static struct weights *open_dummy(const struct model_config *c, enum dummy_format format,
	uint32_t rank, uint32_t n_ranks)
{
	struct weights *w = NULL;

	CHECK_OK(weights_open_dummy(&w, c, format, rank, n_ranks, &err));
	return w;
}

static float bf16_at(const uint8_t *data, uint64_t i)
{
	uint16_t half;
	uint32_t word;
	float v;

	memcpy(&half, data + 2 * i, sizeof(half));
	word = (uint32_t)half << 16;
	memcpy(&v, &word, sizeof(v));
	return v;
}

static float e4m3(uint8_t code)
{
	return ldexpf(1.0f + (float)(code & 7) / 8.0f, (code >> 3) - 7);
}

static float weight_at(const struct read *r, uint64_t i)
{
	static const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
	uint8_t code;
	float v;

	if (r->info.format == WF_BF16)
		return bf16_at(r->data, i);
	if (r->info.format == WF_FP8) {
		v = e4m3(r->data[i] & 0x7Fu) *
		    ((const float *)(const void *)
				    r->scale)[i / ((uint64_t)r->info.n * r->info.k)];
		return r->data[i] & 0x80u ? -v : v;
	}
	code = (uint8_t)(r->data[i / 2] >> (i % 2 * 4) & 15);
	v = e2m1[code & 7] * e4m3(r->scale[i / NVFP4_GROUP]) *
	    r->scale2[i / ((uint64_t)r->info.n * r->info.k)];
	return code & 8 ? -v : v;
}

static void check_sizes(enum dummy_format format)
{
	for (size_t m = 0; m < COUNT(models); m++) {
		struct model_config c;
		struct weights *w;

		CHECK_OK(model_config_load(&c, models[m], &err));
		w = open_dummy(&c, format, 0, 1);
		for (uint32_t layer = 0; layer < c.n_layers; layer++)
			for (uint32_t role = 0; role < WR__COUNT; role++) {
				struct read r;
				double sum = 0;
				uint64_t n;

				if (!weights_has_role(w, role, layer) ||
					role_is_vec(role))
					continue;
				r = read_role(w, role, layer);
				n = (uint64_t)r.info.count * r.info.n * r.info.k;
				for (uint64_t i = 0; i < n; i++)
					sum += pow(weight_at(&r, i), 2);
				/* Few numbers scatter more: 1 row of 64 at least. */
				assert_true(fabs(sqrt(sum / (double)n * r.info.k) - 1) <
					    (n < 4096 ? 0.35 : 0.15));
				read_free(&r);
			}
		weights_close(w);
	}
}

static void test_matrices_keep_the_size_of_what_they_multiply(void **state)
{
	(void)state;
	check_sizes(DUMMY_NVFP4);
	check_sizes(DUMMY_RELEASED);
}

static void test_a_released_mix_has_its_formats(void **state)
{
	static const enum weight_format want[WR__COUNT] = {[WR_EMBED] = WF_BF16,
		[WR_LM_HEAD] = WF_NVFP4,
		[WR_Q] = WF_FP8,
		[WR_K] = WF_FP8,
		[WR_V] = WF_FP8,
		[WR_O] = WF_FP8,
		[WR_GDN_QKV] = WF_FP8,
		[WR_GDN_Z] = WF_FP8,
		[WR_GDN_OUT] = WF_FP8,
		[WR_GDN_A] = WF_BF16,
		[WR_GDN_B] = WF_BF16,
		[WR_MLP_GATE] = WF_NVFP4,
		[WR_MLP_UP] = WF_NVFP4,
		[WR_MLP_DOWN] = WF_NVFP4,
		[WR_ROUTER] = WF_BF16,
		[WR_SH_ROUTER] = WF_BF16,
		[WR_EXP_GATE] = WF_NVFP4,
		[WR_EXP_UP] = WF_NVFP4,
		[WR_EXP_DOWN] = WF_NVFP4,
		[WR_SH_GATE] = WF_NVFP4,
		[WR_SH_UP] = WF_NVFP4,
		[WR_SH_DOWN] = WF_NVFP4};

	(void)state;
	for (size_t m = 0; m < COUNT(models); m++) {
		struct model_config c;
		struct weights *w;

		CHECK_OK(model_config_load(&c, models[m], &err));
		w = open_dummy(&c, DUMMY_RELEASED, 0, 1);
		for (uint32_t layer = 0; layer < c.n_layers; layer++)
			for (uint32_t role = 0; role < WR__COUNT; role++)
				if (weights_has_role(w, role, layer))
					assert_int_equal(
						weights_info(w, role, layer).format,
						want[role]);
		weights_close(w);
	}
}

static void test_experts_or_mlps_are_nvfp4_and_nothing_else(void **state)
{
	(void)state;
	for (size_t m = 0; m < COUNT(models); m++) {
		struct model_config c;
		struct weights *bf16, *nvfp4;

		CHECK_OK(model_config_load(&c, models[m], &err));
		bf16 = open_dummy(&c, DUMMY_BF16, 0, 1);
		nvfp4 = open_dummy(&c, DUMMY_NVFP4, 0, 1);
		for (uint32_t role = 0; role < WR__COUNT; role++) {
			bool experts = role == WR_EXP_GATE || role == WR_EXP_UP ||
				       role == WR_EXP_DOWN;
			bool mlp = role == WR_MLP_GATE || role == WR_MLP_UP ||
				   role == WR_MLP_DOWN;

			if (!weights_has_role(bf16, role, 0))
				continue;
			assert_int_equal(weights_info(bf16, role, 0).format,
				role_is_vec(role) ? WF_F32 : WF_BF16);
			assert_int_equal(weights_info(nvfp4, role, 0).format,
				experts || mlp      ? WF_NVFP4
				: role_is_vec(role) ? WF_F32
						    : WF_BF16);
		}
		weights_close(bf16);
		weights_close(nvfp4);
	}
}

/* Row i of the slice is row slice_source_row(i) of the whole, from column col0 on. */
static void check_slice(const struct weights *part, const struct weights *whole,
	enum weight_role role, uint32_t layer)
{
	const struct entry *e = weights_entry(part, role, layer);
	struct read a = read_role(part, role, layer), b = read_role(whole, role, layer);
	bool vec = role_is_vec(role);

	for (uint32_t x = 0; x < a.info.count; x++)
		for (uint32_t i = 0; i < a.info.n; i++)
			for (uint32_t k = 0; k < a.info.k; k++) {
				uint64_t from =
					((uint64_t)x * a.info.n + i) * a.info.k + k;
				uint64_t to = ((uint64_t)x * b.info.n +
						      slice_source_row(&e->slice, i)) *
						      b.info.k +
					      e->slice.col0 + k;

				if (vec)
					assert_memory_equal(
						a.data + 4 * from, b.data + 4 * to, 4);
				else
					assert_true(
						weight_at(&a, from) == weight_at(&b, to));
			}
	read_free(&a);
	read_free(&b);
}

static void test_ranks_hold_slices_of_one_model(void **state)
{
	(void)state;
	for (size_t m = 0; m < COUNT(models); m++)
		for (uint32_t rank = 0; rank < 2; rank++) {
			struct model_config c;
			struct weights *part, *whole;

			CHECK_OK(model_config_load(&c, models[m], &err));
			/* Two ranks must cut NVFP4 at whole scales. */
			c.shared_width = c.shared_width > 0 ? 64 : 0;
			part = open_dummy(&c, DUMMY_RELEASED, rank, 2);
			whole = open_dummy(&c, DUMMY_RELEASED, 0, 1);
			for (uint32_t layer = 0; layer < c.n_layers; layer++)
				for (uint32_t r = 0; r < WR__COUNT; r++)
					if (weights_has_role(part, r, layer))
						check_slice(part, whole, r, layer);
			weights_close(part);
			weights_close(whole);
		}
}

static void test_what_cannot_be_is_refused(void **state)
{
	enum dummy_format format;
	struct model_config c;
	struct weights *w;

	(void)state;
	CHECK_OK(model_config_load(&c, models[0], &err));
	CHECK_REFUSED("ranks", ST_INVALID, "3 ranks do not divide",
		weights_open_dummy(&w, &c, DUMMY_BF16, 0, 3, &err));
	c.expert_width = 40;
	CHECK_REFUSED("groups", ST_INVALID,
		"layer 0, EXP_DOWN: 40 columns are no multiple of 16",
		weights_open_dummy(&w, &c, DUMMY_NVFP4, 0, 1, &err));
	c.expert_width = 48;
	CHECK_REFUSED("cut", ST_INVALID, "EXP_DOWN: the slice of rank 0 of 2",
		weights_open_dummy(&w, &c, DUMMY_NVFP4, 0, 2, &err));
	CHECK_OK(dummy_format_of("bf16", &format, &err));
	assert_int_equal(format, DUMMY_BF16);
	CHECK_OK(dummy_format_of("released", &format, &err));
	assert_int_equal(format, DUMMY_RELEASED);
	CHECK_REFUSED("word", ST_INVALID, "'fp8'", dummy_format_of("fp8", &format, &err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_matrices_keep_the_size_of_what_they_multiply),
		cmocka_unit_test(test_experts_or_mlps_are_nvfp4_and_nothing_else),
		cmocka_unit_test(test_a_released_mix_has_its_formats),
		cmocka_unit_test(test_ranks_hold_slices_of_one_model),
		cmocka_unit_test(test_what_cannot_be_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
