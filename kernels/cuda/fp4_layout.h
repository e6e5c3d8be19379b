/* Where the operands of the block-scaled tensor-core instruction of SM120 stand,
 *
 *   mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X
 *       .f32.e2m1.e2m1.f32.ue4m3 d, a, b, c, sa, {0, pair}, sb, {0, lane}
 *
 * a 16 x 64 times a 64 x 8 product of E2M1 codes, every 16 of which along k share a UE4M3
 * scale. Source: PTX ISA, "Matrix Fragments for mma.m16n8k64" (.e2m1) and "Block Scaling
 * for mma.sync" (scale_vec::4X). With g = lane / 4 and c = lane % 4:
 *
 *   a[i]  eight codes of row g + 8 (i % 2), k = 32 (i / 2) + 8 c .. + 7, lowest k in the
 *         lowest four bits
 *   b[i]  eight codes of column g, k = 32 i + 8 c .. + 7
 *   d[i]  row g + 8 (i / 2), column 2 c + i % 2
 *   sa    four scales, byte j of k = 16 j .. + 15, of row g + 8 (c % 2). Only lanes with
 *         c / 2 == pair are read: `pair` is 0 or 1.
 *   sb    the same of column g; only lanes with c == lane are read: `lane` is 0 to 3
 *
 * The first selector of a scale is 0: of a 4X word all bytes are used, and ptxas refuses
 * any other. Lanes that are not read are free to hold other scales, and do here.
 *
 * This header is the one place that says so; the repacking of weights, the kernel, its
 * form on m16n8k16 and the test on the CPU take it from here. It also says how what the
 * lanes read is ordered in memory. C and CUDA C++. */
#ifndef KERNELS_CUDA_FP4_LAYOUT_H
#define KERNELS_CUDA_FP4_LAYOUT_H
#include <stdint.h>

#ifdef __CUDACC__
#define FP4_FN     static __device__ __forceinline__
#define FP4_UNROLL _Pragma("unroll")
#else
#define FP4_FN static inline
#define FP4_UNROLL
#endif

enum {
	FP4_M = 16,
	FP4_N = 8,
	FP4_K = 64,
	FP4_BLOCK = 16, /* k that share a scale */
	FP4_LANES = 32,
};

/* ---- registers ---- */

FP4_FN uint32_t fp4_a_row(uint32_t lane, uint32_t i)
{
	return lane / 4 + 8 * (i % 2);
}

/* First k of the eight. */
FP4_FN uint32_t fp4_a_k(uint32_t lane, uint32_t i)
{
	return 32 * (i / 2) + 8 * (lane % 4);
}

FP4_FN uint32_t fp4_b_column(uint32_t lane)
{
	return lane / 4;
}

FP4_FN uint32_t fp4_b_k(uint32_t lane, uint32_t i)
{
	return 32 * i + 8 * (lane % 4);
}

FP4_FN uint32_t fp4_d_row(uint32_t lane, uint32_t i)
{
	return lane / 4 + 8 * (i / 2);
}

FP4_FN uint32_t fp4_d_column(uint32_t lane, uint32_t i)
{
	return 2 * (lane % 4) + i % 2;
}

/* Row whose scales a lane supplies, and the selector under which it is asked. */
FP4_FN uint32_t fp4_sa_row(uint32_t lane)
{
	return lane / 4 + 8 * (lane % 2);
}

FP4_FN uint32_t fp4_sa_pair(uint32_t lane)
{
	return lane % 4 / 2;
}

/* The lane that supplies row g + 8 r to the lanes of group g, and the one that supplies
 * their column. */
FP4_FN uint32_t fp4_sa_lane(uint32_t lane, uint32_t pair, uint32_t r)
{
	return lane / 4 * 4 + 2 * pair + r;
}

FP4_FN uint32_t fp4_sb_lane(uint32_t lane, uint32_t select)
{
	return lane / 4 * 4 + select;
}

/* ---- weights in memory: operand a ----
 *
 * Per 16 rows and 64 k one piece: 128 words of codes, a lane's a[0] .. a[3] one after
 * another, and 16 words of scales, one per row. Codes and scales stand in arrays of their
 * own, pieces in order of k, then of rows: the same bytes as the checkpoint's order,
 * whose words only change places. */
#define FP4_PIECE_CODES  128u /* words */
#define FP4_PIECE_SCALES 16u

/* Word i of the codes of 16 rows of k, from plain rows of codes (k / 8 words) and scales
 * (k / 64 words). The instruction's scales have no sign: a negative one's goes to its 16
 * codes. */
FP4_FN uint32_t fp4_packed_codes(
	const uint32_t *codes, const uint32_t *scales, uint32_t k, uint32_t i)
{
	uint32_t piece = i / FP4_PIECE_CODES, lane = i / 4 % FP4_LANES;
	uint32_t row = fp4_a_row(lane, i % 4), at = fp4_a_k(lane, i % 4);
	uint32_t word = codes[(row * k + piece * FP4_K + at) / 8];
	uint32_t scale = scales[row * k / FP4_K + piece] >> (at / FP4_BLOCK * 8);

	return (scale & 0x80u) != 0 ? word ^ 0x88888888u : word;
}

FP4_FN uint32_t fp4_packed_scales(const uint32_t *scales, uint32_t k, uint32_t i)
{
	return scales[i % FP4_M * (k / FP4_K) + i / FP4_PIECE_SCALES] & 0x7F7F7F7Fu;
}

/* ---- a stage in shared memory: 128 k ----
 *
 * Weights: FP4_TILES pieces of 16 rows by two of k: codes [tile][half], then scales. A
 * lane reads the scales of both halves of its rows at once: half c / 2, so that `pair` is
 * the half.
 *
 * Rows of x are columns: per eight of them and half of k, FP4_TERMS times 32 lanes times
 * b[0], b[1], then one word of scales per lane, in which lane c of a group holds term c
 * (x is a sum of terms, see fp4_value.h): `lane` is the term. */
#define FP4_STAGE_K 128u
#define FP4_HALVES  2u
#define FP4_TILES   8u
#define FP4_TERMS   3u

#define FP4_STAGE_CODES  (FP4_TILES * FP4_HALVES * FP4_PIECE_CODES) /* words */
#define FP4_STAGE_SCALES (FP4_TILES * FP4_HALVES * FP4_PIECE_SCALES)
#define FP4_STAGE_WORDS  (FP4_STAGE_CODES + FP4_STAGE_SCALES)
#define FP4_X_CODES      (FP4_TERMS * FP4_LANES * 2u) /* of eight columns and a half */
#define FP4_X_WORDS      (FP4_X_CODES + FP4_LANES)

FP4_FN uint32_t fp4_stage_codes(uint32_t tile, uint32_t half)
{
	return (tile * FP4_HALVES + half) * FP4_PIECE_CODES;
}

FP4_FN uint32_t fp4_stage_scales(uint32_t tile, uint32_t half)
{
	return FP4_STAGE_CODES + (tile * FP4_HALVES + half) * FP4_PIECE_SCALES;
}

/* First word of eight columns, `group`, and a half. */
FP4_FN uint32_t fp4_x_at(uint32_t group, uint32_t half)
{
	return (group * FP4_HALVES + half) * FP4_X_WORDS;
}

/* From there: word of a term for k = 8 e .. + 7 of the half, of a column of the eight;
 * the inverse of fp4_b_k. */
FP4_FN uint32_t fp4_x_word(uint32_t column, uint32_t term, uint32_t e)
{
	return (term * FP4_LANES + column * 4 + e % 4) * 2 + e / 4;
}

/* From there, in bytes: the scale of a term for k = 16 j .. + 15. */
FP4_FN uint32_t fp4_x_scale(uint32_t column, uint32_t term, uint32_t j)
{
	return (FP4_X_CODES + column * 4 + term) * 4 + j;
}

#endif
