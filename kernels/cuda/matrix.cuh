/* Weights as operand A of mma m16n8k16: 16 rows of W by a chunk of 64 k, in four steps.
 *
 * k is permuted inside a chunk: lane (g = lane / 4, t = lane % 4) owns k = 16 t .. 16 t +
 * 15 of rows g and g + 8, and step j multiplies k = 16 t + 4 j .. + 3, for weights and
 * rows of x alike. So a lane's 16 k are exactly one scale block of NVFP4. Where BF16
 * comes from global memory the lane owns k = 8 t .. + 7 and 32 + 8 t .. + 7 instead: four
 * lanes then read 64 bytes of a row in one piece.
 *
 * LAYOUT_TILES of NVFP4, in place of [n][k / 2] codes and [n][k / 16] scales: per 16 rows
 * and 64 k a block of 512 bytes of codes, 16 per lane, and one of 64 bytes of scales, 2
 * per lane (rows g, g + 8), blocks in order of k, then of n. A 32-bit word holds the
 * eight codes of one step, their bits placed so that a few integer instructions turn two
 * of them into BF16 of value code * 2^-126. Scales are stored with 5 bits of exponent and
 * 3 of mantissa, exactly; times 16 plus 0x7000 such a byte is the BF16 of scale * 2^107.
 * Products of both are exact in BF16; sums are multiplied by 2^19 at the end. */
#ifndef KERNELS_CUDA_MATRIX_CUH
#define KERNELS_CUDA_MATRIX_CUH
#include "kernels/cuda/product.cuh"

#define CHUNK_K         64u
#define TILE_CODES      512u /* bytes of a block */
#define TILE_SCALES     64u
#define TILES_UNSCALE   524288.0f   /* 2^19 */
#define TILES_ALL       0x81C081C0u /* sign and magnitude bits of two BF16 */
#define TILES_HIGH      0x81808180u /* the fourth pair is split in two */
#define TILES_LOW       0x00400040u
#define TILES_SCALE_ONE 80u

/* One chunk as a lane holds it. */
template <int FORMAT> struct chunk;
template <> struct chunk<WF_BF16> {
	uint4 row[2][2];
};
template <> struct chunk<WF_FP8> {
	uint4 row[2];
};
template <> struct chunk<WF_NVFP4> {
	uint4 codes;
	uint32_t scales;
};

/* First k of a lane's two halves of 8, when a chunk comes from global memory. */
template <int FORMAT> struct halves {
	static const uint32_t lane = FORMAT == WF_BF16 ? 8 : 16; /* times t */
	static const uint32_t second = FORMAT == WF_BF16 ? 32 : 8;
};

/* Where a lane finds its part of one matrix; row: first of the 16. Rows past the end of
 * the matrix are read as its last one and never stored. */
struct lane_rows {
	const uint8_t *at[2];  /* BF16, FP8: rows g and g + 8 at the lane's first k;
				* NVFP4: codes and scales */
	const float *scale[2]; /* FP8 */
};

/* First scale of a row, in elements; rows past the end share the last one's. gate and up
 * are cut alike. */
static __device__ __forceinline__ uint32_t fp8_scale_row(
	const struct weight &w, uint32_t expert, uint32_t n)
{
	uint32_t rows = (w.n + w.block_n - 1) / w.block_n;
	uint32_t cols = (w.k + w.block_k - 1) / w.block_k;

	return (expert * rows + min(n, w.n - 1) / w.block_n) * cols;
}

template <int FORMAT>
static __device__ __forceinline__ struct lane_rows lane_rows_of(
	const struct weight &w, uint32_t expert, uint32_t row, uint32_t lane)
{
	struct lane_rows r = {};
	uint64_t matrix = (uint64_t)expert * w.n;

	if constexpr (FORMAT == WF_NVFP4) {
		uint64_t block = (matrix + row) / 16 * (w.k / CHUNK_K);

		r.at[0] = (const uint8_t *)w.data + block * TILE_CODES + lane * 16;
		r.at[1] = (const uint8_t *)w.scale + block * TILE_SCALES + lane * 2;
	} else {
#pragma unroll
		for (int i = 0; i < 2; i++) {
			uint64_t n = min(row + lane / 4 + 8 * i, w.n - 1);
			uint64_t bytes = FORMAT == WF_BF16 ? 2 : 1;

			r.at[i] = (const uint8_t *)w.data +
				  ((matrix + n) * w.k + lane % 4 * halves<FORMAT>::lane) *
					  bytes;
			if constexpr (FORMAT == WF_FP8)
				r.scale[i] = (const float *)w.scale +
					     fp8_scale_row(w, expert, (uint32_t)n);
		}
	}
	return r;
}

/* Read once: past L1, and out of L2 first; zeros without a read if !valid. */
static __device__ __forceinline__ uint4 load16_stream_if(const void *p, bool valid)
{
	uint4 v = make_uint4(0, 0, 0, 0);

	asm volatile("{\n\t.reg .pred valid;\n\t"
		     "setp.ne.u32 valid, %5, 0;\n\t"
		     "@valid ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, "
		     "[%4];\n\t}"
		     : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
		     : "l"(p), "r"((uint32_t)valid));
	return v;
}

/* A chunk from global memory, of which this lane's part begins at k; zeros from `end` on.
 * ROWS 1: rows g + 8 are not wanted and become zeros (BF16, FP8). */
template <int FORMAT, int ROWS = 2>
static __device__ __forceinline__ void chunk_load(struct chunk<FORMAT> *c,
	const struct lane_rows &r, uint32_t number, uint32_t k, uint32_t end)
{
	const uint4 zero = make_uint4(0, 0, 0, 0);

	if constexpr (FORMAT == WF_NVFP4) {
		const uint8_t *scales = r.at[1] + (uint64_t)number * TILE_SCALES;

		c->codes = load16_stream_if(
			r.at[0] + (uint64_t)number * TILE_CODES, k < end);
		c->scales = k < end ? __ldg((const uint16_t *)scales) : 0;
	} else if constexpr (FORMAT == WF_FP8) {
		uint64_t at = (uint64_t)number * CHUNK_K;

#pragma unroll
		for (int i = 0; i < 2; i++)
			c->row[i] =
				i < ROWS ? load16_stream_if(r.at[i] + at, k < end) : zero;
	} else {
		uint64_t at = (uint64_t)number * CHUNK_K * 2;

#pragma unroll
		for (int i = 0; i < 4; i++)
			c->row[i / 2][i % 2] =
				i / 2 < ROWS
					? load16_stream_if(r.at[i / 2] + at + i % 2 * 64,
						  k + i % 2 * 32 < end)
					: zero;
	}
}

static __device__ __forceinline__ uint32_t mul_bf16x2(uint32_t a, uint32_t b)
{
	uint32_t d;

	asm("mul.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
	return d;
}

/* Bytes 2 i and 2 i + 1 of four E4M3 codes as two BF16. A code shifted into BF16's
 * exponent and mantissa is worth 2^-120 of itself, subnormal codes included. */
static __device__ __forceinline__ uint32_t e4m3_pair(uint32_t codes, int i)
{
	uint32_t v = __byte_perm(codes, 0, i == 0 ? 0x1404 : 0x3424);
	uint32_t placed = (v & 0x80008000u) | ((v >> 4) & 0x07F007F0u);

	return mul_bf16x2(placed, 0x7B807B80u); /* 2^120 twice */
}

static __device__ __forceinline__ uint32_t word_of(const uint4 &v, int i)
{
	return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

static __device__ __forceinline__ uint32_t tiles_scale(uint32_t scales, int row)
{
	return __byte_perm(scales, 0, row == 0 ? 0x4040 : 0x4141) * 16 + 0x70007000u;
}

/* Operand A of step j. */
template <int FORMAT>
static __device__ __forceinline__ void chunk_operand(
	const struct chunk<FORMAT> &c, int j, uint32_t *a)
{
	if constexpr (FORMAT == WF_NVFP4) {
		uint32_t w = word_of(c.codes, j);
		uint32_t s0 = tiles_scale(c.scales, 0);
		uint32_t s1 = tiles_scale(c.scales, 1);

		a[0] = mul_bf16x2(w & TILES_ALL, s0);
		a[1] = mul_bf16x2((w << 6) & TILES_ALL, s1);
		a[2] = mul_bf16x2(__funnelshift_l(w, w, 12) & TILES_ALL, s0);
		a[3] = mul_bf16x2(
			(__funnelshift_l(w, w, 10) & TILES_HIGH) | ((w << 2) & TILES_LOW),
			s1);
	} else if constexpr (FORMAT == WF_FP8) {
#pragma unroll
		for (int i = 0; i < 4; i++)
			a[i] = e4m3_pair(word_of(c.row[i & 1], j), i / 2);
	} else {
#pragma unroll
		for (int i = 0; i < 4; i++)
			a[i] = word_of(c.row[i & 1][j / 2], j % 2 * 2 + i / 2);
	}
}

/* d += W x over one chunk; x: a lane's 16 k of NT columns of 8 rows each. FP8 sums of a
 * chunk are scaled by s0 (row g) and s1 (row g + 8). */
template <int FORMAT, int NT>
static __device__ __forceinline__ void chunk_multiply(const struct chunk<FORMAT> &c,
	const uint32_t (&x)[NT][8], float (&d)[NT][4], float s0, float s1)
{
	float part[NT][4] = {};

#pragma unroll
	for (int j = 0; j < 4; j++) {
		uint32_t a[4];

		chunk_operand<FORMAT>(c, j, a);
#pragma unroll
		for (int n = 0; n < NT; n++)
			mma_bf16(FORMAT == WF_FP8 ? part[n] : d[n], a, x[n][2 * j],
				x[n][2 * j + 1]);
	}
#pragma unroll
	for (int i = 0; FORMAT == WF_FP8 && i < NT * 4; i++)
		d[i / 4][i % 4] =
			fmaf(part[i / 4][i % 4], i % 4 < 2 ? s0 : s1, d[i / 4][i % 4]);
}

/* What sums are multiplied by at the end. */
template <int FORMAT>
static __device__ __forceinline__ float matrix_factor(
	const struct weight &w, uint32_t expert)
{
	return FORMAT == WF_NVFP4 ? w.scale2[expert] * TILES_UNSCALE : 1.0f;
}

/* Instantiates LAUNCH<format, out> for a weight that product_check let through. */
#define PRODUCT_BY_FORMAT(p, LAUNCH, ...)                                                \
	((p)->w.format == WF_BF16 ? PRODUCT_BY_OUT(p, WF_BF16, LAUNCH, __VA_ARGS__)      \
		: (p)->w.format == WF_FP8                                                \
			? PRODUCT_BY_OUT(p, WF_FP8, LAUNCH, __VA_ARGS__)                 \
			: PRODUCT_BY_OUT(p, WF_NVFP4, LAUNCH, __VA_ARGS__))
#define PRODUCT_BY_OUT(p, F, LAUNCH, ...)                                                \
	((p)->out == OUT_BF16         ? LAUNCH<F, OUT_BF16>(__VA_ARGS__)                 \
		: (p)->out == OUT_F32 ? LAUNCH<F, OUT_F32>(__VA_ARGS__)                  \
				      : LAUNCH<F, OUT_SWIGLU>(__VA_ARGS__))

#endif
