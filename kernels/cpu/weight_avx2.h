/* Weights of every format as exact F32 vectors; private to product_avx2.c. */
#ifndef KERNELS_CPU_WEIGHT_AVX2_H
#define KERNELS_CPU_WEIGHT_AVX2_H
#include "kernels/cpu/avx2.h"

/* Elements of K that are summed before the lanes are added: four rows of it in F32 and
 * as much of three rows of x stay in a 32 KiB first-level cache. A multiple of 16. */
#define WEIGHT_CHUNK 512u
/* Panel rows are 32 bytes apart modulo a page, so that their loads do not collide. */
#define PANEL_STRIDE (WEIGHT_CHUNK + 8u)

struct pair8 {
	__m256 lo, hi;
};

/* Eight E4M3 codes times `times` / 256. As F16 bits with the exponent field in place
 * they are the value times 2^-8, subnormals included, so the product is exact for powers
 * of two. The NaN code, which loading refuses, would read as 480. */
ALWAYS_INLINE __m256 e4m3_values(__m128i codes, float times)
{
	__m128i wide = _mm_cvtepu8_epi16(codes);
	__m128i sign = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x80)), 8);
	__m128i rest = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x7F)), 7);

	return _mm256_mul_ps(
		_mm256_cvtph_ps(_mm_or_si128(sign, rest)), _mm256_set1_ps(times));
}

/* Half of the NVFP4 scales of the chunk that begins at element `at`, nk elements. Half,
 * because nvfp4_block looks up twice the codes' values. */
ALWAYS_INLINE void nvfp4_half_scales(
	const struct weight *w, uint64_t at, uint32_t nk, float out[WEIGHT_CHUNK / 16])
{
	const uint8_t *codes = (const uint8_t *)w->scale + at / 16;
	uint32_t n = nk / 16, i = 0;
	uint8_t rest[8] = {0};

	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps(out + i,
			e4m3_values(_mm_loadl_epi64(
					    (const __m128i *)(const void *)(codes + i)),
				128.0f));
	if (i < n) {
		memcpy(rest, codes + i, n - i);
		_mm256_storeu_ps(out + i,
			e4m3_values(_mm_loadl_epi64((const __m128i *)(const void *)rest),
				128.0f));
	}
}

/* The 16 weights of the scale block that begins at element `at` of the stack: code
 * times scale, exact, then times scale2. */
ALWAYS_INLINE struct pair8 nvfp4_block(
	const struct weight *w, uint64_t at, float half_scale, __m256 scale2)
{
	const __m128i table =
		_mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
	const __m128i nibble = _mm_set1_epi8(15);
	__m128i bytes = _mm_loadl_epi64(
		(const __m128i *)(const void *)((const uint8_t *)w->data + at / 2));
	__m128i low = _mm_and_si128(bytes, nibble);
	__m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), nibble);
	__m128i twice = _mm_shuffle_epi8(table, _mm_unpacklo_epi8(low, high));
	__m256 scale = _mm256_set1_ps(half_scale);
	__m256 lo = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(twice));
	__m256 hi = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(twice, 8)));

	return (struct pair8){_mm256_mul_ps(_mm256_mul_ps(lo, scale), scale2),
		_mm256_mul_ps(_mm256_mul_ps(hi, scale), scale2)};
}

/* n < 8 elements of an F32 or BF16 matrix, zeros behind them. */
ALWAYS_INLINE __m256 weight_tail_avx2(const struct weight *w, uint64_t at, uint32_t n)
{
	uint16_t padded[8] = {0};

	if (w->format == WF_F32)
		return _mm256_maskload_ps((const float *)w->data + at, first_lanes(n));
	memcpy(padded, (const uint16_t *)w->data + at, n * sizeof(uint16_t));
	return load8_bf16(padded);
}

/* Elements k0.. of row n of matrix `index`, at most WEIGHT_CHUNK, into out (aligned to
 * 32 bytes), with zeros behind them up to a multiple of 8. */
void weight_row_avx2(
	const struct weight *w, uint32_t index, uint32_t n, uint32_t k0, float *out);

#endif
