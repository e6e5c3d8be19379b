/* Vector pieces of the AVX2 kernels (8 lanes of F32). Only for files that are compiled
 * with AVX2, FMA and F16C.
 *
 * Rule of every sum here: lane i adds the elements whose index is i modulo 8, in
 * ascending order; then the lanes are added in the one order of sum4. The bits of an
 * output therefore depend on its own inputs alone. */
#ifndef KERNELS_CPU_AVX2_H
#define KERNELS_CPU_AVX2_H
#include "kernels/cpu/cpu.h"

#include <immintrin.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE __m256 load8_bf16(const uint16_t *p)
{
	__m128i bits = _mm_loadu_si128((const __m128i *)(const void *)p);

	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/* Round to BF16, to nearest even, keeping the value in F32. NaN stays NaN. */
ALWAYS_INLINE __m256 round8_bf16(__m256 x)
{
	__m256i u = _mm256_castps_si256(x);
	__m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
	__m256i up = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
	__m256i sum = _mm256_add_epi32(u, up);
	__m256 r = _mm256_castsi256_ps(
		_mm256_and_si256(sum, _mm256_set1_epi32((int)0xFFFF0000u)));

	return _mm256_blendv_ps(r, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

ALWAYS_INLINE __m256 load8(enum dtype dtype, const void *base, uint64_t i)
{
	return dtype == DT_F32 ? _mm256_loadu_ps((const float *)base + i)
			       : load8_bf16((const uint16_t *)base + i);
}

ALWAYS_INLINE void store8(enum dtype dtype, void *base, uint64_t i, __m256 x)
{
	if (dtype == DT_F32) {
		_mm256_storeu_ps((float *)base + i, x);
	} else {
		__m256i u = _mm256_srli_epi32(_mm256_castps_si256(round8_bf16(x)), 16);
		__m128i packed = _mm_packus_epi32(
			_mm256_castsi256_si128(u), _mm256_extracti128_si256(u, 1));

		_mm_storeu_si128((__m128i *)(void *)((uint16_t *)base + i), packed);
	}
}

/* A mask of the first n lanes, n <= 8. */
ALWAYS_INLINE __m256i first_lanes(uint32_t n)
{
	return _mm256_cmpgt_epi32(
		_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* Sums of four vectors: ((l0 + l1) + (l2 + l3)) + ((l4 + l5) + (l6 + l7)) each. */
ALWAYS_INLINE __m128 sum4(__m256 a, __m256 b, __m256 c, __m256 d)
{
	__m256 t = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));

	return _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
}

ALWAYS_INLINE float sum1(__m256 a)
{
	return _mm_cvtss_f32(sum4(a, a, a, a));
}

ALWAYS_INLINE float max1(__m256 a)
{
	__m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

	m = _mm_max_ps(m, _mm_movehl_ps(m, m));
	return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

/* exp with a relative error below 2e-7 for -87.3 <= x <= 88.3; 0 below, 2.3e38 above,
 * NaN for NaN. Range reduction to |r| <= ln 2 / 2 with ln 2 in two parts, then a
 * polynomial; coefficients of expf in S. Moshier's Cephes library. */
ALWAYS_INLINE __m256 exp8(__m256 x)
{
	const __m256 low = _mm256_set1_ps(-87.33654f);
	__m256 in = _mm256_max_ps(low, _mm256_min_ps(_mm256_set1_ps(88.37626f), x));
	__m256 n = _mm256_round_ps(_mm256_mul_ps(in, _mm256_set1_ps(1.44269504f)),
		_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
	__m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), in);
	__m256 p = _mm256_set1_ps(1.9875691500e-4f);
	__m256i power;

	r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
	p = _mm256_fmadd_ps(
		p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0f)));
	power = _mm256_slli_epi32(
		_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
	p = _mm256_mul_ps(p, _mm256_castsi256_ps(power));
	return _mm256_andnot_ps(_mm256_cmp_ps(x, low, _CMP_LT_OQ), p);
}

ALWAYS_INLINE __m256 sigmoid8(__m256 x)
{
	const __m256 one = _mm256_set1_ps(1.0f);
	__m256 e = exp8(_mm256_sub_ps(_mm256_setzero_ps(), x));

	return _mm256_div_ps(one, _mm256_add_ps(one, e));
}

ALWAYS_INLINE __m256 silu8(__m256 x)
{
	const __m256 one = _mm256_set1_ps(1.0f);
	__m256 e = exp8(_mm256_sub_ps(_mm256_setzero_ps(), x));

	return _mm256_div_ps(x, _mm256_add_ps(one, e));
}

/* Sum of squares of n elements; n is any number. */
ALWAYS_INLINE float squares_of(const float *x, uint32_t n)
{
	__m256 sum = _mm256_setzero_ps();
	uint32_t i = 0;

	for (; i + 8 <= n; i += 8) {
		__m256 v = _mm256_loadu_ps(x + i);

		sum = _mm256_fmadd_ps(v, v, sum);
	}
	if (i < n) {
		__m256 v = _mm256_maskload_ps(x + i, first_lanes(n - i));

		sum = _mm256_fmadd_ps(v, v, sum);
	}
	return sum1(sum);
}

#endif
