/* embed, add_norm, swiglu and the exponential function that the vector forms share. */
#include "kernel_test.h"

static void embed_copies_rows(void **state)
{
	enum { V = 11, H = 13 };
	static const uint32_t ids[4] = {10, 0, 3, 3};
	float table[V][H], x[4][H];
	uint16_t narrow[V][H];
	struct weight w = {.count = 1, .n = V, .k = H};
	struct err err;

	(void)state;
	for (uint32_t i = 0; i < V * H; i++) {
		table[i / H][i % H] = random_uniform(-1, 1);
		narrow[i / H][i % H] = to_bf16(table[i / H][i % H]);
	}
	FOR_EACH_VARIANT(v, OP_embed)
	{
		struct op_embed op = {x, ids, &w, 4, 0, V};

		w.format = WF_F32;
		w.data = table;
		RUN(embed, v, &op);
		for (int t = 0; t < 4; t++)
			assert_memory_equal(x[t], table[ids[t]], sizeof(x[t]));
		w.format = WF_BF16;
		w.data = narrow;
		RUN(embed, v, &op);
		for (int t = 0; t < 4; t++) {
			for (int i = 0; i < H; i++)
				assert_true(x[t][i] == from_bf16(narrow[ids[t]][i]));
		}
		w.n = op.vocab = 10;
		assert_int_equal(run_embed(v, &op, &err), ST_INVALID);
		assert_non_null(strstr(err.text, "token 10 of a vocabulary of 10"));
		w.n = op.vocab = V;
		w.format = WF_NVFP4;
		assert_int_equal(run_embed(v, &op, &err), ST_INVALID);
		assert_non_null(strstr(err.text, "nvfp4"));
	}
}

/* Rows 3 .. 7 of a vocabulary of 11: other ids give zeros, so that parts add up. */
static void embed_of_a_part_gives_zeros_for_other_ids(void **state)
{
	enum { V = 11, H = 13, FIRST = 3, N = 5 };
	static const uint32_t ids[6] = {2, 3, 7, 8, 0, 10};
	float table[N][H], x[6][H];
	struct weight w = {.format = WF_F32, .count = 1, .n = N, .k = H, .data = table};
	struct err err;

	(void)state;
	for (uint32_t i = 0; i < N * H; i++)
		table[i / H][i % H] = random_uniform(-1, 1);
	FOR_EACH_VARIANT(v, OP_embed)
	{
		struct op_embed op = {x, ids, &w, 6, FIRST, V};

		RUN(embed, v, &op);
		for (int t = 0; t < 6; t++)
			for (int i = 0; i < H; i++)
				assert_true(x[t][i] ==
					    (t == 1 || t == 2 ? table[ids[t] - FIRST][i]
							      : 0.0f));
		op.vocab = 10;
		assert_int_equal(run_embed(v, &op, &err), ST_INVALID);
	}
}

static void check_add_norm(
	const struct variant *v, uint32_t rows, uint32_t width, bool add, bool norm)
{
	uint64_t n = (uint64_t)rows * width;
	float *x = canary_floats(n), *y = canary_floats(n);
	float *old = random_floats(n, 3.0f), *plus = random_floats(n, 1.0f);
	float *gain = random_floats(width, 0.4f);
	double *want = mem_alloc(width, sizeof(*want));
	struct op_add_norm op = {.x = x,
		.add = add ? plus : NULL,
		.y = norm ? y : NULL,
		.gain = gain,
		.n_rows = rows,
		.width = width,
		.eps = 0.25f}; /* large enough to be seen */

	memcpy(x, old, n * sizeof(*x));
	RUN(add_norm, v, &op);
	for (uint32_t t = 0; t < rows; t++) {
		double squares = 0;

		for (uint32_t i = 0; i < width; i++) {
			uint64_t at = (uint64_t)t * width + i;

			assert_true(x[at] == (add ? old[at] + plus[at] : old[at]));
			squares += (double)x[at] * (double)x[at];
		}
		for (uint32_t i = 0; i < width; i++)
			want[i] = (double)x[(uint64_t)t * width + i] /
				  sqrt(squares / width + 0.25) * (1 + (double)gain[i]);
		if (norm)
			assert_close(
				y + (uint64_t)t * width, width, want, 1, width, 1e-6);
	}
	for (uint64_t i = 0; i < n && !norm; i++)
		assert_true(isnan(y[i]));
	canary_check(x, n);
	canary_check(y, n);
	mem_free(want);
	mem_free(gain);
	mem_free(plus);
	mem_free(old);
	canary_free(y);
	canary_free(x);
}

static void add_norm_matches_double_precision(void **state)
{
	static const uint32_t widths[] = {1, 5, 8, 129, 4096};

	(void)state;
	FOR_EACH_VARIANT(v, OP_add_norm)
	{
		for (size_t i = 0; i < COUNT(widths); i++) {
			check_add_norm(v, 3, widths[i], true, true);
			check_add_norm(v, 1, widths[i], false, true);
			check_add_norm(v, 2, widths[i], true, false);
			check_add_norm(v, 0, widths[i], true, true);
		}
	}
}

/* 1e-6 of each value, over the whole range in which SiLU is not the identity or zero. */
static void swiglu_is_accurate_everywhere(void **state)
{
	enum { WIDTH = 4003, GATE = WIDTH + 2, UP = WIDTH + 1 };
	float *gate = mem_alloc(2 * GATE, sizeof(*gate));
	float *up = mem_alloc(2 * UP, sizeof(*up));

	(void)state;
	for (uint32_t i = 0; i < 2 * GATE; i++)
		gate[i] = -87.0f + 174.0f * (float)(i % GATE) / GATE;
	for (uint32_t i = 0; i < 2 * UP; i++)
		up[i] = i % 2 == 0 ? 1.5f : -0.3f;
	FOR_EACH_VARIANT(v, OP_swiglu)
	{
		float *y = canary_floats(2 * WIDTH);
		struct op_swiglu op = {y, gate, up, 2, WIDTH, GATE, UP};

		RUN(swiglu, v, &op);
		for (uint32_t i = 0; i < 2 * WIDTH; i++) {
			double g = (double)gate[i / WIDTH * GATE + i % WIDTH];
			double want = g / (1 + exp(-g)) *
				      (double)up[i / WIDTH * UP + i % WIDTH];

			assert_true(fabs((double)y[i] - want) <= 1e-6 * fabs(want));
		}
		canary_check(y, 2 * WIDTH);
		canary_free(y);
	}
	mem_free(up);
	mem_free(gate);
}

static void swiglu_keeps_nan_and_survives_extremes(void **state)
{
	static const float gate[8] = {
		NAN, 200.0f, -200.0f, 3e38f, -3e38f, 0.0f, -0.0f, 1.0f};
	static const float up[8] = {1, 1, 1, 1, 1, 1, 1, NAN};
	float y[8];

	(void)state;
	FOR_EACH_VARIANT(v, OP_swiglu)
	{
		struct op_swiglu op = {y, gate, up, 1, 8, 8, 8};

		RUN(swiglu, v, &op);
		assert_true(isnan(y[0]) && isnan(y[7]));
		assert_true(y[1] == 200.0f && y[3] == 3e38f);
		assert_true(fabsf(y[2]) < 1e-35f && fabsf(y[4]) < 2.0f);
		assert_true(y[5] == 0.0f && y[6] == 0.0f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(embed_copies_rows),
		cmocka_unit_test(embed_of_a_part_gives_zeros_for_other_ids),
		cmocka_unit_test(add_norm_matches_double_precision),
		cmocka_unit_test(swiglu_is_accurate_everywhere),
		cmocka_unit_test(swiglu_keeps_nan_and_survives_extremes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
