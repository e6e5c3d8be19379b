/* Two tensor-core instructions, executed for a warp as the PTX ISA defines them: operands
 * of 32 lanes in, accumulators out. Written from the ISA's numbering of fragment
 * elements, apart from the header that the kernels use (kernels/cuda/fp4_layout.h), so
 * that a fault there is not a fault here, too.
 *
 * Sums are exact: products of two codes and two scales have 12 significant bits between
 * 2^-20 and 2^23, and some hundred of them fit a double. In what precision a tensor core
 * adds is not defined. */
#ifndef TESTS_UNIT_KERNELS_FP4_EMULATOR_H
#define TESTS_UNIT_KERNELS_FP4_EMULATOR_H
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define PTX_LANES 32

/* What one lane gives to an instruction. */
struct ptx_operands {
	uint32_t a[4], b[2], scale_a, scale_b;
};

/* {byte-id, thread-id} of both scales: the same in all lanes. */
struct ptx_selectors {
	uint32_t byte_a, thread_a, byte_b, thread_b;
};

static inline double ptx_e2m1(uint32_t code)
{
	double exponent = (code >> 1) & 3u, mantissa = code & 1u;
	double v = exponent > 0 ? ldexp(1.0 + mantissa / 2, (int)exponent - 1)
				: mantissa / 2;

	return (code & 8u) != 0 ? -v : v;
}

/* An unsigned E4M3: the top bit is not one of it. */
static inline double ptx_ue4m3(uint32_t byte)
{
	uint32_t exponent = (byte >> 3) & 15u, mantissa = byte & 7u;

	if (exponent == 15 && mantissa == 7)
		return NAN;
	return exponent > 0 ? ldexp(8 + mantissa, (int)exponent - 10)
			    : ldexp(mantissa, -9);
}

/* "Block Scaling for mma.sync", scale_vec::4X: scale_A is 16 x 4, scale_B 4 x 8. Of each
 * quad of lanes the pair `thread-id` (A) or the one lane `thread-id` (B) contributes, the
 * pair's second lane the row eight further down; byte-id can only be 0. */
static inline bool ptx_scales(const struct ptx_operands lanes[PTX_LANES],
	const struct ptx_selectors *s, double scale_a[16][4], double scale_b[4][8])
{
	if (s->byte_a != 0 || s->byte_b != 0 || s->thread_a > 1 || s->thread_b > 3)
		return false;
	for (uint32_t quad = 0; quad < 8; quad++) {
		for (uint32_t j = 0; j < 4; j++) {
			const struct ptx_operands *pair =
				&lanes[4 * quad + 2 * s->thread_a];

			scale_a[quad][j] = ptx_ue4m3(pair[0].scale_a >> (8 * j) & 0xFFu);
			scale_a[quad + 8][j] =
				ptx_ue4m3(pair[1].scale_a >> (8 * j) & 0xFFu);
			scale_b[j][quad] = ptx_ue4m3(
				lanes[4 * quad + s->thread_b].scale_b >> (8 * j) & 0xFFu);
		}
	}
	return true;
}

/* d of each lane += the product of 16 x depth and depth x 8. */
static inline void ptx_accumulate(double d[PTX_LANES][4], uint32_t depth,
	const double a[16][64], const double b[8][64])
{
	for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
		for (uint32_t i = 0; i < 4; i++) {
			const double *row = a[lane / 4 + (i < 2 ? 0 : 8)];
			const double *column = b[lane % 4 * 2 + (i & 1u)];
			double sum = d[lane][i];

			for (uint32_t k = 0; k < depth; k++)
				sum += row[k] * column[k];
			d[lane][i] = sum;
		}
	}
}

/* mma.sync.m16n8k64 kind::mxf4nvf4.block_scale.scale_vec::4X, e2m1 by e2m1, ue4m3. False:
 * no such instruction. Elements i of a lane's fragments, four bits each: of A 32, row
 * groupID for i < 8 and 16 <= i < 24 and groupID + 8 otherwise, column
 * 8 threadID_in_group + i % 8, and 32 more from i = 16 on; of B 16, row
 * 8 threadID_in_group + i % 8, and 32 more from i = 8 on, column groupID. */
static inline bool ptx_mma_m16n8k64(double d[PTX_LANES][4],
	const struct ptx_operands lanes[PTX_LANES], const struct ptx_selectors *s)
{
	double a[16][64], b[8][64], scale_a[16][4], scale_b[4][8];

	if (!ptx_scales(lanes, s, scale_a, scale_b))
		return false;
	for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
		uint32_t group = lane >> 2, thread = lane & 3u;

		for (uint32_t i = 0; i < 32; i++) {
			uint32_t code = lanes[lane].a[i / 8] >> (4 * (i % 8)) & 15u;
			uint32_t row = i < 8 || (i >= 16 && i < 24) ? group : group + 8;
			uint32_t k = thread * 8 + (i & 7u) + (i < 16 ? 0 : 32);

			a[row][k] = ptx_e2m1(code) * scale_a[row][k / 16];
		}
		for (uint32_t i = 0; i < 16; i++) {
			uint32_t code = lanes[lane].b[i / 8] >> (4 * (i % 8)) & 15u;
			uint32_t k = thread * 8 + (i & 7u) + (i < 8 ? 0 : 32);

			b[group][k] = ptx_e2m1(code) * scale_b[k / 16][group];
		}
	}
	ptx_accumulate(d, 64, (const double(*)[64])a, (const double(*)[64])b);
	return true;
}

static inline double ptx_bf16(uint32_t word, uint32_t half)
{
	uint32_t bits = half == 0 ? word << 16 : word & 0xFFFF0000u;
	float v;

	memcpy(&v, &bits, sizeof(v));
	return (double)v;
}

/* mma.sync.m16n8k16, bf16 by bf16: eight elements of A, row groupID for i = 0, 1, 4, 5,
 * column 2 threadID_in_group + i % 2, and 8 more from i = 4 on; four of B alike. */
static inline void ptx_mma_m16n8k16(
	double d[PTX_LANES][4], const struct ptx_operands lanes[PTX_LANES])
{
	double a[16][64], b[8][64];

	for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
		uint32_t group = lane >> 2, thread = lane & 3u;

		for (uint32_t i = 0; i < 8; i++)
			a[(i & 2u) == 0 ? group : group + 8]
			 [thread * 2 + (i & 1u) + (i < 4 ? 0 : 8)] =
				 ptx_bf16(lanes[lane].a[i / 2], i & 1u);
		for (uint32_t i = 0; i < 4; i++)
			b[group][thread * 2 + (i & 1u) + (i < 2 ? 0 : 8)] =
				ptx_bf16(lanes[lane].b[i / 2], i & 1u);
	}
	ptx_accumulate(d, 16, (const double(*)[64])a, (const double(*)[64])b);
}

#endif
