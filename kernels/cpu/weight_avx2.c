/* One row of weights in F32, for the panels of product_avx2.c. */
#include "kernels/cpu/weight_avx2.h"

static void row_nvfp4(
	const struct weight *w, uint32_t index, uint64_t at, uint32_t nk, float *out)
{
	__m256 scale2 = _mm256_set1_ps(w->scale2[index]);
	float scales[WEIGHT_CHUNK / 16] = {0};

	nvfp4_half_scales(w, at, nk, scales);
	for (uint32_t k = 0; k < nk; k += 16) {
		struct pair8 v = nvfp4_block(w, at + k, scales[k / 16], scale2);

		_mm256_store_ps(out + k, v.lo);
		_mm256_store_ps(out + k + 8, v.hi);
	}
}

/* Codes at `data`, at most to the end of the scale block, times its scale. */
static uint32_t fp8_block(const uint8_t *data, uint32_t n, float scale, float *out)
{
	uint32_t k = 0;

	for (; k + 8 <= n; k += 8) {
		__m128i codes =
			_mm_loadl_epi64((const __m128i *)(const void *)(data + k));

		_mm256_storeu_ps(out + k,
			_mm256_mul_ps(e4m3_values(codes, 256.0f), _mm256_set1_ps(scale)));
	}
	for (; k < n; k++)
		out[k] = e4m3_value(data[k]) * scale;
	return n;
}

static void row_fp8(
	const struct weight *w, uint32_t index, uint32_t n, uint32_t k0, float *out)
{
	uint64_t rows = CEIL_DIV(w->n, w->block_n);
	uint64_t cols = CEIL_DIV(w->k, w->block_k);
	const float *scales =
		(const float *)w->scale + (index * rows + n / w->block_n) * cols;
	const uint8_t *data =
		(const uint8_t *)w->data + ((uint64_t)index * w->n + n) * w->k + k0;
	uint32_t nk = MIN(WEIGHT_CHUNK, w->k - k0);
	uint32_t k = 0;

	while (k < nk) {
		uint32_t block = (k0 + k) / w->block_k;
		uint64_t end = ((uint64_t)block + 1) * w->block_k - k0;

		k += fp8_block(
			data + k, (uint32_t)MIN(end, nk) - k, scales[block], out + k);
	}
	for (; k % 8 != 0; k++)
		out[k] = 0.0f;
}

void weight_row_avx2(
	const struct weight *w, uint32_t index, uint32_t n, uint32_t k0, float *out)
{
	uint32_t nk = MIN(WEIGHT_CHUNK, w->k - k0);
	uint64_t at = ((uint64_t)index * w->n + n) * w->k + k0;
	uint32_t k = 0;

	if (w->format == WF_NVFP4) {
		row_nvfp4(w, index, at, nk, out);
		return;
	}
	if (w->format == WF_FP8) {
		row_fp8(w, index, n, k0, out);
		return;
	}
	for (; k + 8 <= nk; k += 8)
		_mm256_store_ps(out + k,
			w->format == WF_F32
				? _mm256_loadu_ps((const float *)w->data + at + k)
				: load8_bf16((const uint16_t *)w->data + at + k));
	if (k < nk)
		_mm256_store_ps(out + k, weight_tail_avx2(w, at + k, nk - k));
}
