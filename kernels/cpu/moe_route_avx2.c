/* Choice of experts with AVX2: logits of a few rows at a time, softmax in vectors. */
#include "kernels/cpu/avx2.h"

#define BLOCK 16u

/* exp(p - largest), then divided by their sum; n is any number. */
static void softmax(float *p, uint32_t n)
{
	__m256 largest = _mm256_set1_ps(-INFINITY);
	__m256 sum = _mm256_setzero_ps();
	__m256 top, total;

	for (uint32_t i = 0; i < n; i += 8) {
		__m256i mask = first_lanes(MIN(8, n - i));
		__m256 v = _mm256_maskload_ps(p + i, mask);

		largest = _mm256_max_ps(
			largest, _mm256_blendv_ps(largest, v, _mm256_castsi256_ps(mask)));
	}
	top = _mm256_set1_ps(max1(largest));
	for (uint32_t i = 0; i < n; i += 8) {
		__m256i mask = first_lanes(MIN(8, n - i));
		__m256 v = exp8(_mm256_sub_ps(_mm256_maskload_ps(p + i, mask), top));

		sum = _mm256_add_ps(sum, _mm256_and_ps(v, _mm256_castsi256_ps(mask)));
		_mm256_maskstore_ps(p + i, mask, v);
	}
	total = _mm256_set1_ps(sum1(sum));
	for (uint32_t i = 0; i < n; i += 8) {
		__m256i mask = first_lanes(MIN(8, n - i));

		_mm256_maskstore_ps(p + i, mask,
			_mm256_div_ps(_mm256_maskload_ps(p + i, mask), total));
	}
}

CPU_KERNEL(moe_route, avx2)
{
	float p[BLOCK * CPU_EXPERTS_MAX];
	float shared[BLOCK];
	status st = route_check(op, "moe_route/avx2", err);

	if (st != ST_OK)
		return st;
	for (uint32_t t0 = 0; t0 < op->n_rows; t0 += BLOCK) {
		struct product product = {.y = p,
			.y_stride = op->n_experts,
			.x = (const float *)op->x + (uint64_t)t0 * op->router->k,
			.x_stride = op->router->k,
			.n_rows = MIN(BLOCK, op->n_rows - t0),
			.w = op->router};
		uint32_t rows = product.n_rows;

		product_avx2(&product);
		for (uint32_t t = 0; t < rows; t++) {
			float *row = p + (uint64_t)t * op->n_experts;

			softmax(row, op->n_experts);
			route_choose(op, row, t0 + t);
		}
		if (op->shared == NULL)
			continue;
		product.w = op->shared_router;
		product.y = shared;
		product.y_stride = 1;
		product_avx2(&product);
		for (uint32_t t = 0; t < rows; t++)
			op->shared[t0 + t] = sigmoid(shared[t]);
	}
	return ST_OK;
}

void route_inner_avx2(const void *op, char names[KERNEL_NAMES_MAX])
{
	const struct op_moe_route *a = op;

	product_inner_avx2(a->router, a->n_rows, names);
}
