/* Numbers of the block-scaled instruction (fp4_layout.h): E2M1 codes, E4M3 scales, and a
 * row of BF16 as a sum of NVFP4 rows.
 *
 * The contract of the products is weights in NVFP4 and rows in BF16 (kernels/ops.h); the
 * scales that a checkpoint may have for its inputs are not used. The instruction takes
 * NVFP4 on both sides, and a row rounded to NVFP4 once is 5 to 12 % off: such a kernel
 * would be refused at start. So 16 values go in as three terms, each the NVFP4 of what
 * the ones before have left, with a scale of its own. A term leaves a tenth of what it
 * was given, at most 0.18 of the largest value; after three it is 1.2e-3 of a row, 2e-3
 * at most, which is about what a rounding to BF16 takes. FP4 products run at four times
 * the rate of BF16, so three are still fewer cycles, and codes of weights are multiplied
 * as they are.
 *
 * Scales E4M3 span 2^-9 .. 448. The values of a stage of one row are first multiplied by
 * a power of two that puts the largest between 2^10 and 2^11; sums are divided by it. */
#ifndef KERNELS_CUDA_FP4_VALUE_H
#define KERNELS_CUDA_FP4_VALUE_H
#include "kernels/cuda/fp4_layout.h"

#include <math.h>
#include <string.h>

FP4_FN uint32_t fp4_bits(float v)
{
#ifdef __CUDACC__
	return __float_as_uint(v);
#else
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	return bits;
#endif
}

FP4_FN float fp4_float(uint32_t bits)
{
#ifdef __CUDACC__
	return __uint_as_float(bits);
#else
	float v;

	memcpy(&v, &bits, sizeof(v));
	return v;
#endif
}

/* A small format's exponent and mantissa stand in those of an F32 that is worth 2^-126
 * (E2M1) or 2^-120 (E4M3) of the value, subnormal numbers included: both ways are a
 * product and a shift, rounded to nearest, ties to even. */
#define FP4_E2M1_ONE 0x1p126f
#define FP4_E4M3_ONE 0x1p120f

/* |v| as a code without its sign; 6 from 5 on. */
FP4_FN uint32_t fp4_e2m1(float v)
{
	uint32_t bits = fp4_bits(v * (1.0f / FP4_E2M1_ONE)) & 0x7FFFFFFFu;
	uint32_t code = (bits + 0x1FFFFFu + ((bits >> 22) & 1u)) >> 22;

	return code < 7 ? code : 7;
}

FP4_FN float fp4_e2m1_value(uint32_t code)
{
	return fp4_float((code & 8u) << 28 | (code & 7u) << 22) * FP4_E2M1_ONE;
}

/* 0 <= v < 464. */
FP4_FN uint32_t fp4_e4m3(float v)
{
	uint32_t bits = fp4_bits(v * (1.0f / FP4_E4M3_ONE));

	return (bits + 0x7FFFFu + ((bits >> 20) & 1u)) >> 20;
}

/* Of a code without a sign; 0x7F is NaN. */
FP4_FN float fp4_e4m3_value(uint32_t code)
{
	return code == 0x7Fu ? fp4_float(0x7FC00000u)
			     : fp4_float(code << 20) * FP4_E4M3_ONE;
}

/* Of a row's largest |x| in a stage, as bits of an F32: what the values are multiplied
 * by, and what their sums are. NaN when one is not finite: its column then is NaN,
 * whatever the instruction makes of it. */
#define FP4_EXPONENT_MIN 11u /* so that both powers are normal numbers */

FP4_FN uint32_t fp4_exponent(uint32_t largest)
{
	uint32_t e = largest >> 23;

	return e > FP4_EXPONENT_MIN ? e : FP4_EXPONENT_MIN;
}

FP4_FN float fp4_shrink(uint32_t largest)
{
	return largest >= 0x7F800000u ? 0.0f
				      : fp4_float((264u - fp4_exponent(largest)) << 23);
}

FP4_FN float fp4_restore(uint32_t largest)
{
	return largest >= 0x7F800000u ? fp4_float(0x7FC00000u)
				      : fp4_float((fp4_exponent(largest) - 10u) << 23);
}

/* 16 values as terms. */
struct fp4_terms {
	uint32_t codes[FP4_TERMS][2];
	uint32_t scale[FP4_TERMS];
};

/* v: finite, below 2^11; what is left of it comes back. */
FP4_FN void fp4_split(float v[FP4_BLOCK], struct fp4_terms *out)
{
	FP4_UNROLL
	for (uint32_t t = 0; t < FP4_TERMS; t++) {
		float largest = 0.0f, scale, inverse;

		FP4_UNROLL
		for (uint32_t i = 0; i < FP4_BLOCK; i++)
			largest = fmaxf(largest, fabsf(v[i]));
		out->scale[t] = fp4_e4m3(largest * (1.0f / 6.0f));
		scale = fp4_e4m3_value(out->scale[t]);
		inverse = out->scale[t] != 0 ? 1.0f / scale : 0.0f;
		out->codes[t][0] = out->codes[t][1] = 0;
		FP4_UNROLL
		for (uint32_t i = 0; i < FP4_BLOCK; i++) {
			uint32_t code = fp4_e2m1(v[i] * inverse) | (fp4_bits(v[i]) >> 31)
									   << 3;

			out->codes[t][i / 8] |= code << (i % 8 * 4);
			v[i] = fmaf(-fp4_e2m1_value(code), scale, v[i]);
		}
	}
}

/* ---- the same product on m16n8k16 with BF16 ----
 *
 * Step j of four takes the four codes 4 (j % 2) .. + 3 of the words of half j / 2. Lane c
 * of a group holds them of k = 32 (j / 2) + 8 c + 4 (j % 2) .. + 3 on both sides, so that
 * the 16 k of a step are the same ones for a and b, in another order. They belong to
 * scale 2 (j / 2) + c / 2. A code times its scale is exact in BF16. */
FP4_FN float fp4_step_scale(uint32_t scales, uint32_t lane, uint32_t j)
{
	return fp4_e4m3_value(scales >> (8 * (j / 2 * 2 + lane % 4 / 2)) & 0xFFu);
}

/* Codes `first` and the next of a word as two BF16. */
FP4_FN uint32_t fp4_step_pair(uint32_t word, uint32_t first, float scale)
{
	uint32_t lo = fp4_bits(fp4_e2m1_value(word >> (4 * first)) * scale);
	uint32_t hi = fp4_bits(fp4_e2m1_value(word >> (4 * first + 4)) * scale);

	return lo >> 16 | (hi & 0xFFFF0000u);
}

/* scale: of rows g and g + 8. */
FP4_FN void fp4_step_a(
	const uint32_t word[4], uint32_t j, const float scale[2], uint32_t a[4])
{
	FP4_UNROLL
	for (uint32_t i = 0; i < 4; i++)
		a[i] = fp4_step_pair(
			word[j / 2 * 2 + i % 2], j % 2 * 4 + i / 2 * 2, scale[i % 2]);
}

FP4_FN void fp4_step_b(const uint32_t word[2], uint32_t j, float scale, uint32_t b[2])
{
	FP4_UNROLL
	for (uint32_t i = 0; i < 2; i++)
		b[i] = fp4_step_pair(word[j / 2], j % 2 * 4 + i * 2, scale);
}

#endif
