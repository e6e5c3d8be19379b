/* What one lane does with a stage (fp4_layout.h): puts 16 values of x into it, and
 * multiplies. Who includes this defines
 *
 *   FP4_MMA(way, d, a, b, sa, pair, sb, lane)
 *
 * before: d[4] += the product of the instruction's operands. The kernel has the
 * instruction there (`way`: or four of m16n8k16), the test on the CPU notes the operands
 * of the 32 lanes and executes them together. C and CUDA C++. */
#ifndef KERNELS_CUDA_FP4_STAGE_H
#define KERNELS_CUDA_FP4_STAGE_H
#include "kernels/cuda/fp4_value.h"

/* n words that begin at an address of 4 n bytes. */
FP4_FN void fp4_load4(uint32_t *to, const uint32_t *from)
{
#ifdef __CUDACC__
	uint4 v = *(const uint4 *)from;

	to[0] = v.x;
	to[1] = v.y;
	to[2] = v.z;
	to[3] = v.w;
#else
	memcpy(to, from, 4 * sizeof(*to));
#endif
}

FP4_FN void fp4_load2(uint32_t *to, const uint32_t *from)
{
#ifdef __CUDACC__
	uint2 v = *(const uint2 *)from;

	to[0] = v.x;
	to[1] = v.y;
#else
	memcpy(to, from, 2 * sizeof(*to));
#endif
}

/* Values k = 16 block .. + 15 of the stage, of a column, into x. */
FP4_FN void fp4_put(
	uint32_t *x, uint32_t column, uint32_t block, const struct fp4_terms *v)
{
	uint32_t half = block / 4, j = block % 4;
	uint32_t *to = x + fp4_x_at(column / 8, half);

	FP4_UNROLL
	for (uint32_t t = 0; t < FP4_TERMS; t++) {
		FP4_UNROLL
		for (uint32_t i = 0; i < 2; i++)
			to[fp4_x_word(column % 8, t, 2 * j + i)] = v->codes[t][i];
		((uint8_t *)to)[fp4_x_scale(column % 8, t, j)] = (uint8_t)v->scale[t];
	}
}

/* d[m][n][4] += the product of weight tiles `tile` and the next by 8 nt columns from
 * group `group` on. */
FP4_FN void fp4_multiply(const uint32_t *weights, const uint32_t *x, uint32_t tile,
	uint32_t group, uint32_t nt, uint32_t lane, int way, float *d)
{
	uint32_t sa[2];

	FP4_UNROLL
	for (uint32_t m = 0; m < 2; m++)
		sa[m] = weights[fp4_stage_scales(tile + m, fp4_sa_pair(lane)) +
				fp4_sa_row(lane)];
	FP4_UNROLL
	for (uint32_t half = 0; half < FP4_HALVES; half++) {
		uint32_t a[2][4];

		FP4_UNROLL
		for (uint32_t m = 0; m < 2; m++)
			fp4_load4(a[m],
				weights + fp4_stage_codes(tile + m, half) + 4 * lane);
		FP4_UNROLL
		for (uint32_t n = 0; n < nt; n++) {
			const uint32_t *at = x + fp4_x_at(group + n, half);
			uint32_t last = FP4_TERMS - 1, c = lane % 4;
			/* Lanes without a term are never asked. */
			uint32_t sb = at[FP4_X_CODES + lane - (c > last ? c - last : 0)];

			FP4_UNROLL
			for (uint32_t t = 0; t < FP4_TERMS; t++) {
				uint32_t b[2];

				fp4_load2(b, at + (t * FP4_LANES + lane) * 2);
				FP4_UNROLL
				for (uint32_t m = 0; m < 2; m++)
					FP4_MMA(way, d + (m * nt + n) * 4, a[m], b, sa[m],
						half, sb, t);
			}
		}
	}
}

#endif
