/* linear and head, every variant, every weight format. */
#include "weight_test.h"

/* F32 sums of K random products: about 2^-24 sqrt(K) of the result's size per row of
 * many elements, 3e-6 at K = 1040; the factor of ten covers rows of few elements, whose
 * sums may cancel. */
#define TOLERANCE 3e-5

struct shape {
	uint32_t rows, k, n;
};

static void check_linear(const struct variant *v, enum weight_format f, struct shape s)
{
	struct test_weight w = weight_make(f, 1, s.n, s.k, false);
	uint32_t xs = s.k + 3, ys = s.n + 5;
	float *x = random_floats((uint64_t)s.rows * xs, 1.0f);
	float *y = canary_floats((uint64_t)s.rows * ys);
	double *want = mem_alloc((uint64_t)s.rows * s.n, sizeof(*want));
	struct op_linear op = {.y = y,
		.x = x,
		.w = &w.w,
		.n_rows = s.rows,
		.x_stride = xs,
		.y_stride = ys};

	/* A NaN between rows must not reach a result. */
	for (uint32_t r = 0; r < s.rows; r++)
		x[(uint64_t)r * xs + s.k] = NAN;
	RUN(linear, v, &op);
	product_double(&w.w, 0, x, xs, s.rows, want);
	assert_close(y, ys, want, s.rows, s.n, TOLERANCE);
	for (uint32_t r = 0; r < s.rows; r++) {
		for (uint32_t i = s.n; i < ys; i++)
			assert_true(isnan(y[(uint64_t)r * ys + i]));
	}
	canary_check(y, (uint64_t)s.rows * ys);
	mem_free(want);
	canary_free(y);
	mem_free(x);
	weight_free(&w);
}

static void linear_matches_double_precision(void **state)
{
	static const struct shape shapes[] = {{0, 128, 64}, {1, 16, 1}, {1, 128, 4},
		{2, 48, 7}, {3, 128, 9}, {4, 1040, 17}, {65, 128, 33}, {67, 528, 12},
		{1, 1040, 19}};
	static const struct shape odd[] = {
		{1, 1, 1}, {3, 7, 5}, {5, 513, 11}, {1, 517, 9}, {2, 1023, 3}};

	(void)state;
	FOR_EACH_VARIANT(v, OP_linear)
	{
		for (int f = 0; f < WF__COUNT; f++) {
			for (size_t i = 0; i < COUNT(shapes); i++)
				check_linear(v, (enum weight_format)f, shapes[i]);
			for (size_t i = 0; f != WF_NVFP4 && i < COUNT(odd); i++)
				check_linear(v, (enum weight_format)f, odd[i]);
		}
	}
}

/* All codes of both formats come out as the formats' definitions say, exactly: one-hot
 * rows of x pick single weights. */
static void every_code_is_exact(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v, OP_linear)
	{
		for (int f = WF_NVFP4; f <= WF_FP8; f++) {
			struct test_weight w =
				weight_make((enum weight_format)f, 1, 128, 64, false);
			float x[64][64] = {{0}};
			float y[64][128];
			struct op_linear op = {y, x, &w.w, 64, 64, 128};

			for (uint32_t i = 0; i < 128; i++) {
				for (uint32_t k = 0; k < 64; k++) {
					uint32_t code = (i * 64 + k) % 256;

					if (f == WF_FP8)
						((uint8_t *)w.data)[i * 64 + k] =
							(uint8_t)(code % 128 == 127
									  ? 0
									  : code);
				}
			}
			for (uint32_t i = 0; i < 64; i++)
				x[i][i] = 1.0f;
			RUN(linear, v, &op);
			for (uint32_t k = 0; k < 64; k++) {
				for (uint32_t n = 0; n < 128; n++)
					assert_true((double)y[k][n] ==
						    weight_element(&w.w, 0, n, k));
			}
			weight_free(&w);
		}
	}
}

/* The bits of a row do not depend on how many rows are in the pass. */
static void rows_do_not_depend_on_each_other(void **state)
{
	enum { T = 65, K = 560, N = 37 };

	(void)state;
	FOR_EACH_VARIANT(v, OP_linear)
	{
		for (int f = 0; f < WF__COUNT; f++) {
			struct test_weight w =
				weight_make((enum weight_format)f, 1, N, K, false);
			float *x = random_floats(T * K, 1.0f);
			float *whole = canary_floats(T * N);
			float *parts = canary_floats(T * N);
			struct op_linear op = {whole, x, &w.w, T, K, N};

			RUN(linear, v, &op);
			for (uint32_t size = 1; size <= 64;
				size = size < 3 ? size + 1 : size + 61) {
				for (uint32_t t = 0; t < T; t += size) {
					op.y = parts + (uint64_t)t * N;
					op.x = x + (uint64_t)t * K;
					op.n_rows = MIN(size, T - t);
					RUN(linear, v, &op);
				}
				assert_same_bits(whole, parts, T * N);
			}
			canary_free(parts);
			canary_free(whole);
			mem_free(x);
			weight_free(&w);
		}
	}
}

static void nvfp4_equals_its_bf16_bit_for_bit(void **state)
{
	enum { T = 7, K = 1040, N = 21 };

	(void)state;
	FOR_EACH_VARIANT(v, OP_linear)
	{
		for (uint32_t rows = 1; rows <= T; rows += T - 1) {
			struct test_weight a = weight_make(WF_NVFP4, 1, N, K, true);
			struct test_weight b = weight_as_bf16(&a.w);
			float *x = random_floats(T * K, 1.0f);
			float ya[T * N], yb[T * N];
			struct op_linear op = {ya, x, &a.w, rows, K, N};

			RUN(linear, v, &op);
			op.y = yb;
			op.w = &b.w;
			RUN(linear, v, &op);
			assert_same_bits(ya, yb, (uint64_t)rows * N);
			mem_free(x);
			weight_free(&a);
			weight_free(&b);
		}
	}
}

static void what_no_kernel_reads_is_refused(void **state)
{
	static const struct {
		struct weight w;
		const char *text;
	} cases[] = {
		{{.format = WF_BF16, .layout = 3, .count = 1, .n = 1, .k = 16},
			"layout 3"},
		{{.format = WF_NVFP4, .count = 1, .n = 1, .k = 24},
			"24, not a multiple of 16"},
		{{.format = WF_FP8, .count = 1, .n = 1, .k = 16, .block_n = 1}, "1 x 0"},
	};
	float x[24] = {0}, y[1];

	(void)state;
	FOR_EACH_VARIANT(v, OP_linear)
	{
		for (size_t i = 0; i < COUNT(cases); i++) {
			struct op_linear op = {y, x, &cases[i].w, 1, 24, 1};
			struct err err;

			assert_int_equal(run_linear(v, &op, &err), ST_INVALID);
			assert_non_null(strstr(err.text, cases[i].text));
		}
	}
}

static void head_picks_its_rows(void **state)
{
	enum { T = 5, K = 144, N = 203 };
	static const uint32_t out_row[3] = {4, 0, 2};

	(void)state;
	FOR_EACH_VARIANT(v, OP_head)
	{
		for (int f = 0; f < WF__COUNT; f++) {
			for (uint32_t n_out = 0; n_out <= 3; n_out++) {
				struct test_weight w = weight_make(
					(enum weight_format)f, 1, N, K, false);
				float *x = random_floats(T * K, 1.0f);
				float *logits = canary_floats((uint64_t)n_out * N);
				struct op_head op = {logits, x, out_row, &w.w, n_out};

				RUN(head, v, &op);
				for (uint32_t i = 0; i < n_out; i++) {
					double want[N];

					product_double(
						&w.w, 0, x + out_row[i] * K, K, 1, want);
					assert_close(logits + (uint64_t)i * N, N, want, 1,
						N, TOLERANCE);
				}
				canary_check(logits, (uint64_t)n_out * N);
				canary_free(logits);
				mem_free(x);
				weight_free(&w);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(linear_matches_double_precision),
		cmocka_unit_test(every_code_is_exact),
		cmocka_unit_test(rows_do_not_depend_on_each_other),
		cmocka_unit_test(nvfp4_equals_its_bf16_bit_for_bit),
		cmocka_unit_test(what_no_kernel_reads_is_refused),
		cmocka_unit_test(head_picks_its_rows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
