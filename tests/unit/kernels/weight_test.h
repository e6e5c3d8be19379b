/* Random matrices in every format, and their elements in double precision, decoded here
 * by other means than the kernels use: from tables and powers of two. */
#ifndef TESTS_UNIT_KERNELS_WEIGHT_TEST_H
#define TESTS_UNIT_KERNELS_WEIGHT_TEST_H
#include "kernel_test.h"

struct test_weight {
	struct weight w;
	void *data, *scale;
	float *scale2;
};

static inline double e4m3_double(uint8_t code)
{
	int exponent = code >> 3 & 15;
	double m = exponent == 0 ? ldexp(code & 7, -9)
				 : ldexp(8 + (code & 7), exponent - 10);

	return (code & 0x80) != 0 ? -m : m;
}

static inline double e2m1_double(uint32_t code)
{
	static const double table[16] = {
		0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6};

	return table[code];
}

/* scale2_exact: scale2 is a power of two, so that every weight is exact in BF16. */
static inline struct test_weight weight_make(enum weight_format format, uint32_t count,
	uint32_t n, uint32_t k, bool scale2_exact)
{
	struct test_weight t = {.w = {.format = format, .count = count, .n = n, .k = k}};
	uint64_t all = (uint64_t)count * n * k;

	t.scale2 = mem_alloc(count, sizeof(float));
	if (format == WF_F32) {
		t.data = random_floats(all, 1.0f / sqrtf((float)k));
	} else if (format == WF_BF16) {
		t.data = mem_alloc(all, 2);
		for (uint64_t i = 0; i < all; i++)
			((uint16_t *)t.data)[i] =
				to_bf16(random_uniform(-1.7f, 1.7f) / sqrtf((float)k));
	} else if (format == WF_NVFP4) {
		t.data = mem_alloc(all / 2, 1);
		t.scale = mem_alloc(all / 16, 1);
		for (uint64_t i = 0; i < all / 2; i++)
			((uint8_t *)t.data)[i] = (uint8_t)random_u64();
		/* Every non-negative code but NaN, zero and subnormals included. */
		for (uint64_t i = 0; i < all / 16; i++)
			((uint8_t *)t.scale)[i] = (uint8_t)random_below(0x7F);
		for (uint32_t e = 0; e < count; e++)
			t.scale2[e] = scale2_exact ? ldexpf(1.0f, -9 - (int)(e % 3))
						   : random_uniform(0.001f, 0.003f);
	} else {
		t.w.block_n = 32;
		t.w.block_k = 20;
		uint64_t blocks = (uint64_t)count * CEIL_DIV(n, t.w.block_n) *
				  CEIL_DIV(k, t.w.block_k);

		t.data = mem_alloc(all, 1);
		t.scale = random_floats(blocks, 0.01f);
		for (uint64_t i = 0; i < all; i++) {
			uint8_t code = (uint8_t)random_u64();

			((uint8_t *)t.data)[i] = (code & 0x7F) == 0x7F ? 0 : code;
		}
	}
	t.w.data = t.data;
	t.w.scale = t.scale;
	t.w.scale2 = format == WF_NVFP4 ? t.scale2 : NULL;
	return t;
}

static inline void weight_free(struct test_weight *t)
{
	mem_free(t->data);
	mem_free(t->scale);
	mem_free(t->scale2);
}

/* The scales multiply left to right, each product rounded to F32. */
static inline double weight_element(
	const struct weight *w, uint32_t e, uint32_t n, uint32_t k)
{
	uint64_t at = ((uint64_t)e * w->n + n) * w->k + k;

	if (w->format == WF_F32)
		return (double)((const float *)w->data)[at];
	if (w->format == WF_BF16)
		return (double)from_bf16(((const uint16_t *)w->data)[at]);
	if (w->format == WF_NVFP4) {
		uint32_t byte = ((const uint8_t *)w->data)[at / 2];
		double code = e2m1_double(at % 2 == 0 ? byte & 15 : byte >> 4);

		code *= e4m3_double(((const uint8_t *)w->scale)[at / 16]);
		return (double)(float)(code * (double)w->scale2[e]);
	}
	uint64_t rows = CEIL_DIV(w->n, w->block_n), cols = CEIL_DIV(w->k, w->block_k);
	uint64_t block = (e * rows + n / w->block_n) * cols + k / w->block_k;

	return (double)(float)(e4m3_double(((const uint8_t *)w->data)[at]) *
			       (double)((const float *)w->scale)[block]);
}

/* The same values as BF16; asserts that they are exact. */
static inline struct test_weight weight_as_bf16(const struct weight *w)
{
	struct test_weight t = {
		.w = {.format = WF_BF16, .count = w->count, .n = w->n, .k = w->k}};
	uint16_t *to = mem_alloc((uint64_t)w->count * w->n * w->k, 2);
	uint64_t i = 0;

	for (uint32_t e = 0; e < w->count; e++) {
		for (uint32_t n = 0; n < w->n; n++) {
			for (uint32_t k = 0; k < w->k; k++) {
				double v = weight_element(w, e, n, k);

				to[i] = to_bf16((float)v);
				assert_true((double)from_bf16(to[i]) == v);
				i++;
			}
		}
	}
	t.data = to;
	t.w.data = to;
	return t;
}

/* want[r][n] = x[r] . w_e[n] in double precision. */
static inline void product_double(const struct weight *w, uint32_t e, const float *x,
	uint64_t x_stride, uint32_t rows, double *want)
{
	for (uint32_t r = 0; r < rows; r++) {
		for (uint32_t n = 0; n < w->n; n++) {
			double sum = 0;

			for (uint32_t k = 0; k < w->k; k++)
				sum += (double)x[r * x_stride + k] *
				       weight_element(w, e, n, k);
			want[(uint64_t)r * w->n + n] = sum;
		}
	}
}

#endif
