/* How a block of product_large.cu is cut, and the copies of weights and x to its shared
 * memory. */
#ifndef KERNELS_CUDA_PRODUCT_LARGE_CUH
#define KERNELS_CUDA_PRODUCT_LARGE_CUH
#include "kernels/cuda/matrix.cuh"

enum {
	UNIT = 16,           /* rows of x */
	PIECE = 16,          /* bytes of an asynchronous copy */
	STATIC_BYTES = 1536, /* of shared memory */
	MANY_BLOCKS = 120    /* of 132 multiprocessors */
};

/* How a block is cut. A chunk is 64 k, permuted as matrix.cuh says; where weights are
 * BF16 it is 32 k in their order, which ldmatrix takes apart, so that rows of weights
 * fill 64 bytes in either of the two formats that have rows. */
template <int FORMAT, int WARPS> struct cut {
	static const uint32_t threads = WARPS * WARP;
	static const uint32_t blocks = WARPS == 4 ? 2 : 1; /* of a multiprocessor */
	static const uint32_t k = FORMAT == WF_BF16 ? 32 : CHUNK_K;
	static const uint32_t steps = k / 16;
	static const uint32_t across = FORMAT == WF_BF16 ? 2 : 1; /* warps along x */
	static const uint32_t units = LARGE_ROWS / UNIT / across; /* of a warp */
	static const uint32_t tiles = FORMAT == WF_BF16 ? 4 : 2;  /* 16 weight rows */
	static const uint32_t slots = WARPS / across * tiles;     /* tiles of a block */
	/* Of a tile: bytes in a chunk, without NVFP4's scales, and pieces. */
	static const uint32_t tile_bytes = FORMAT == WF_NVFP4 ? TILE_CODES : 1024;
	static const uint32_t tile_pieces = tile_bytes / PIECE;
	static const uint32_t x_row = k * 2, x_pieces = x_row / PIECE;
	static const uint32_t w_bytes =
		slots * (tile_bytes + (FORMAT == WF_NVFP4 ? TILE_SCALES : 0));
	static const uint32_t bytes = w_bytes + LARGE_ROWS * x_row;
	static const uint32_t stages = (CUDA_SMEM_MAX - STATIC_BYTES) / bytes;
	/* Copies of a thread per chunk, and rows of one matrix or of x between two. */
	static const uint32_t w_passes = slots * tile_pieces / threads;
	static const uint32_t w_rows = threads / tile_pieces * 16;
	static const uint32_t x_rows = threads / x_pieces;
	static const uint32_t x_passes = LARGE_ROWS / x_rows;
};

/* What a thread copies of every chunk of the weights. Addresses past the end of a matrix
 * are computed, and not read. */
struct w_source {
	const uint8_t *at, *scales; /* in chunk 0; scales: NVFP4 */
	uint32_t row;               /* in the first pass */
};

/* And of x. Past the last row it is row 0, which is not read. */
template <int FORMAT, int WARPS> struct x_source {
	const uint8_t *at[cut<FORMAT, WARPS>::x_passes];
};

/* What a block computes. */
struct tile {
	uint32_t first; /* weight row */
	struct row_group group;
};

/* First row of a slot in its matrix. */
template <int OUT>
static __device__ __forceinline__ uint32_t slot_row(uint32_t slot, uint32_t first)
{
	return first + (OUT == OUT_SWIGLU ? slot / 2 : slot) * 16;
}

template <int OUT>
static __device__ __forceinline__ const struct weight &slot_weight(
	const struct product &p, uint32_t slot)
{
	return OUT == OUT_SWIGLU && slot % 2 == 1 ? p.up : p.w;
}

/* A thread's slots are all even or all odd. */
template <int FORMAT, int WARPS, int OUT>
static __device__ __forceinline__ struct w_source find_weights(
	const struct product &p, const struct tile &t)
{
	using C = cut<FORMAT, WARPS>;
	uint32_t i = threadIdx.x, slot = i / C::tile_pieces, j = i % C::tile_pieces;
	uint64_t matrix = (uint64_t)t.group.expert * p.w.n;

	struct w_source s = {.at = (const uint8_t *)slot_weight<OUT>(p, slot).data,
		.row = slot_row<OUT>(slot, t.first) + (FORMAT == WF_NVFP4 ? 0 : j / 4)};

	if (FORMAT == WF_NVFP4) {
		uint32_t row = slot_row<OUT>(i / 4, t.first);
		uint64_t chunks = p.w.k / CHUNK_K;

		s.at += (matrix + s.row) / 16 * chunks * TILE_CODES + j * PIECE;
		s.scales = (const uint8_t *)slot_weight<OUT>(p, i / 4).scale +
			   (matrix + row) / 16 * chunks * TILE_SCALES + i % 4 * PIECE;
	} else {
		s.at += (matrix + s.row) * p.w.k * (FORMAT == WF_BF16 ? 2 : 1) +
			j % 4 * PIECE;
	}
	return s;
}

template <int FORMAT, int WARPS>
static __device__ __forceinline__ void find_x(const struct product &p,
	const uint64_t *offsets, struct x_source<FORMAT, WARPS> *s)
{
	using C = cut<FORMAT, WARPS>;
	uint32_t row = threadIdx.x / C::x_pieces, j = threadIdx.x % C::x_pieces;

#pragma unroll
	for (uint32_t pass = 0; pass < C::x_passes; pass++)
		s->at[pass] = (const uint8_t *)(p.x + offsets[row + pass * C::x_rows]) +
			      j * PIECE;
}

/* Where piece j of a row stands, so that neither eight rows' pieces j nor what a quarter
 * of a warp reads of two rows of 128 bytes fall on the same banks. */
template <uint32_t ROW_BYTES>
static __device__ __forceinline__ uint32_t piece_offset(uint32_t row, uint32_t j)
{
	return row * ROW_BYTES + (j ^ (ROW_BYTES == 128 ? row : row / 2 % 4) % 8) * PIECE;
}

/* As copy16_async, from a shared address; L2 reads the whole 128 bytes, of which the next
 * chunk may want the rest. */
static __device__ __forceinline__ void copy16_ahead(
	uint32_t shared, const void *global, bool valid)
{
	asm volatile(
		"cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared),
		"l"(global), "r"(valid ? 16 : 0)
		: "memory");
}

/* Computed here, and not again for every copy. */
static __device__ __forceinline__ uint32_t compute_once(const void *shared)
{
	uint32_t at = shared_address(shared);

	asm volatile("" : "+r"(at));
	return at;
}

/* Starts the copies of chunk c of the weights; there is none from k on, it becomes zeros.
 */
template <int FORMAT, int WARPS, int OUT>
static __device__ __forceinline__ void fetch_weights(const struct product &p,
	const struct tile &t, const struct w_source &s, uint8_t *ring, uint32_t c)
{
	using C = cut<FORMAT, WARPS>;
	constexpr uint32_t ROWS = C::w_rows / (OUT == OUT_SWIGLU ? 2 : 1);
	constexpr uint32_t CHUNK = FORMAT == WF_NVFP4 ? TILE_CODES : 64;
	uint32_t i = threadIdx.x;
	uint64_t row_bytes = FORMAT == WF_BF16  ? p.w.k * UINT64_C(2)
			     : FORMAT == WF_FP8 ? p.w.k
						: p.w.k / 2;
	uint32_t to = compute_once(
		ring + c % C::stages * C::bytes +
		(FORMAT == WF_BF16 ? piece_offset<64>(i / 4, i % 4) : i * PIECE));
	bool inside = FORMAT == WF_NVFP4 ? c * CHUNK_K < p.w.k
					 : c * CHUNK + i % 4 * PIECE < row_bytes;

#pragma unroll
	for (uint32_t pass = 0; pass < C::w_passes; pass++)
		copy16_ahead(to + pass * C::threads * PIECE,
			s.at + (pass * ROWS * row_bytes + (uint64_t)c * CHUNK),
			inside && s.row + pass * ROWS < p.w.n);
	if (FORMAT == WF_NVFP4 && i < C::slots * 4)
		copy16_ahead(to + C::slots * TILE_CODES,
			s.scales + (uint64_t)c * TILE_SCALES,
			inside && slot_row<OUT>(i / 4, t.first) < p.w.n);
}

template <int FORMAT, int WARPS>
static __device__ __forceinline__ void fetch_x(const struct product &p, uint32_t count,
	const struct x_source<FORMAT, WARPS> &s, uint8_t *ring, uint32_t c)
{
	using C = cut<FORMAT, WARPS>;
	uint32_t row = threadIdx.x / C::x_pieces, j = threadIdx.x % C::x_pieces;
	bool inside = c * C::k + (FORMAT == WF_NVFP4 ? 0 : j * 8) < p.w.k;
	uint32_t to = compute_once(ring + c % C::stages * C::bytes + C::w_bytes +
				   piece_offset<C::x_row>(row, j));

#pragma unroll
	for (uint32_t pass = 0; pass < C::x_passes; pass++) {
		uint32_t r = row + pass * C::x_rows;

		if (r / UNIT * UNIT < count)
			copy16_ahead(to + pass * C::x_rows * C::x_row,
				s.at[pass] + (uint64_t)c * C::x_row, inside && r < count);
	}
}

#endif
