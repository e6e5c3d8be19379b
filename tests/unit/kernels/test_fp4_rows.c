/* Rows of BF16 as sums of NVFP4 rows (kernels/cuda/fp4_value.h): how near they are, and
 * what becomes of zeros, ties and what is not finite. */
#include "fp4_warp.h"

/* As the kernel turns a row's stage into terms; how much sums are multiplied by. */
static float split_row(const float v[K], struct fp4_terms out[BLOCKS])
{
	uint32_t largest = 0;

	for (uint32_t k = 0; k < K; k++)
		largest = MAX(largest, fp4_bits(v[k]) & 0x7FFFFFFFu);
	for (uint32_t b = 0; b < BLOCKS; b++) {
		float part[FP4_BLOCK];

		for (uint32_t i = 0; i < FP4_BLOCK; i++)
			part[i] = largest < 0x7F800000u
					  ? v[b * FP4_BLOCK + i] * fp4_shrink(largest)
					  : 0.0f;
		fp4_split(part, &out[b]);
	}
	return fp4_restore(largest);
}

/* A row of a kind: plain, in blocks of sizes far apart, with one outlier, very small,
 * very large. */
static void random_row(float v[K], uint32_t kind)
{
	for (uint32_t k = 0; k < K; k++) {
		float size = kind == 1 ? ldexpf(1.0f, (int)(k / 16 * 2)) : 1.0f;

		if (kind >= 3)
			size = kind == 3 ? 0x1p-120f : 0x1p120f;
		v[k] = bf16_value(bf16_round(random_uniform(-1.0f, 1.0f) * size));
	}
	if (kind == 2)
		v[random_below(K)] = 300.0f;
}

/* Error of so many terms of a row, of the row's size. */
static double error_of(const float v[K], uint32_t terms)
{
	struct fp4_terms split[BLOCKS];
	double restore = (double)split_row(v, split), error = 0, size = 0;

	for (uint32_t k = 0; k < K; k++) {
		double sum = 0, d;
		const struct fp4_terms *s = &split[k / FP4_BLOCK];

		for (uint32_t t = 0; t < terms; t++)
			sum += (double)e2m1_value(
				       s->codes[t][k / 8 % 2] >> (k % 8 * 4) & 15u) *
			       (double)e4m3_value((uint8_t)s->scale[t]);
		d = sum * restore - (double)v[k];
		error += d * d;
		size += (double)v[k] * (double)v[k];
	}
	return sqrt(error / size);
}

/* An op in BF16 may differ by 5e-3. Three terms are within half of that in every row and
 * by about a rounding to BF16 in most; one term is beyond it in every row whose size is
 * not one value's, so that a kernel with one would be refused. */
static void three_terms_are_a_row_and_one_is_not(void **state)
{
	enum { TIMES = 2000 };
	double one = 1, three = 0, sum = 0;

	(void)state;
	for (uint32_t i = 0; i < TIMES; i++) {
		float v[K];
		double error;

		random_row(v, i % 5);
		error = error_of(v, FP4_TERMS);
		three = fmax(three, error);
		sum += error / TIMES;
		one = i % 5 == 2 ? one : fmin(one, error_of(v, 1));
	}
	if (three > 2.5e-3 || sum > 1.4e-3 || one < 5e-3)
		fail_msg("three terms: %g at most, %g on average; one: %g at least",
			three, sum, one);
}

static void a_row_of_zeros_is_zeros_and_one_that_is_not_finite_is_nan(void **state)
{
	static const uint32_t bad[3] = {0x7FC00000u, 0x7F800000u, 0xFF800000u};
	struct fp4_terms split[BLOCKS];
	float v[K] = {0};

	(void)state;
	assert_true(isfinite(split_row(v, split)));
	for (uint32_t b = 0; b < BLOCKS; b++)
		assert_true((split[b].codes[0][0] | split[b].codes[2][1]) == 0);
	for (uint32_t i = 0; i < COUNT(bad); i++) {
		random_row(v, 0);
		v[77] = bits_to_float(bad[i]);
		assert_true(isnan(split_row(v, split)));
		for (uint32_t b = 0; b < BLOCKS; b++) {
			for (uint32_t t = 0; t < FP4_TERMS; t++)
				assert_true(split[b].scale[t] < 0x7F);
		}
	}
}

static void codes_round_to_nearest_even(void **state)
{
	static const float ties[][2] = {{0.25f, 0}, {0.75f, 1}, {1.25f, 1}, {1.75f, 2},
		{2.5f, 2}, {3.5f, 4}, {5, 4}, {6, 6}, {7, 6}, {900, 6}, {0.26f, 0.5f},
		{0.74f, 0.5f}, {5.1f, 6}, {0, 0}};

	(void)state;
	for (size_t i = 0; i < COUNT(ties); i++)
		assert_true(e2m1_value(fp4_e2m1(ties[i][0])) == ties[i][1]);
	for (uint32_t code = 0; code < 16; code++) {
		assert_true(fp4_e2m1_value(code) == e2m1_value(code));
		assert_int_equal(fp4_e2m1(e2m1_value(code)), code & 7u);
	}
	for (uint32_t code = 0; code < 0x7F; code++) {
		float v = e4m3_value((uint8_t)code), next = e4m3_value((uint8_t)code + 1);
		uint32_t even = code % 2 == 0 ? code : code + 1;

		assert_true(fp4_e4m3_value(code) == v);
		assert_int_equal(fp4_e4m3(v), code);
		if (code < 0x7E)
			assert_int_equal(fp4_e4m3((v + next) / 2), even);
	}
	assert_true(isnan(fp4_e4m3_value(0x7F)));
}

/* The whole way of a product of a stage: rows of BF16 in, sums out, against the product
 * of the same numbers. */
static void a_product_of_bf16_rows_is_within_the_tolerance_of_the_op(void **state)
{
	static float v[COLS][K], restore[COLS];

	(void)state;
	random_stage();
	for (uint32_t c = 0; c < COLS; c++) {
		random_row(v[c], c % 5);
		restore[c] = split_row(v[c], at.x[c]);
	}
	assert_true(run_stage(NULL, by_mma));
	for (uint32_t c = 0; c < COLS; c++) {
		double error = 0, size = 0;

		for (uint32_t r = 0; r < ROWS; r++) {
			double want = 0, d;

			for (uint32_t k = 0; k < K; k++)
				want += weight_at(r, k) * (double)v[c][k];
			d = at.got[r][c] * (double)restore[c] - want;
			error += d * d;
			size += want * want;
		}
		assert_true(sqrt(error / size) < 2.5e-3);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(codes_round_to_nearest_even),
		cmocka_unit_test(three_terms_are_a_row_and_one_is_not),
		cmocka_unit_test(
			a_row_of_zeros_is_zeros_and_one_that_is_not_finite_is_nan),
		cmocka_unit_test(
			a_product_of_bf16_rows_is_within_the_tolerance_of_the_op),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
