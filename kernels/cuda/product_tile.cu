/* 17 to 64 rows of x against a matrix, or groups of so many: a block computes 128 weight
 * rows (64 of gate and the same 64 of up for SwiGLU) by 64 rows of x on the tensor cores.
 * Both pass through shared memory in chunks of 64 k, several in flight, as they stand in
 * global memory; weights become BF16 in registers. Four warps along the weight rows by
 * two along x, 32 by 32 each. */
#include "kernels/cuda/matrix.cuh"

enum {
	BLOCK = 256,
	SLOTS = 8,   /* tiles of 16 weight rows */
	X_ROW = 144, /* bytes: 64 BF16, and 16 so that rows start in other banks */
	NT = 4,      /* columns of a warp, in units of 8 */
	X_BYTES = TILE_ROWS * X_ROW,
};

/* Bytes of one tile of weights in shared memory. */
template <int FORMAT> struct slot {
	static const uint32_t bytes = FORMAT == WF_BF16  ? 16 * X_ROW
				      : FORMAT == WF_FP8 ? 16 * CHUNK_K
							 : TILE_CODES + TILE_SCALES;
};

/* One chunk of weights and x, and how many are in flight: what fits in a block of SM120
 * and, twice, in a multiprocessor of SM90. */
template <int FORMAT> struct stage {
	static const uint32_t bytes = SLOTS * slot<FORMAT>::bytes + X_BYTES;
	static const uint32_t count = FORMAT == WF_BF16 ? 3 : FORMAT == WF_FP8 ? 5 : 6;
};

/* Matrix and first row of a slot. */
template <int OUT>
static __device__ __forceinline__ uint32_t slot_row(uint32_t slot, uint32_t first)
{
	return first + (OUT == OUT_SWIGLU ? slot / 2 : slot) * 16;
}

/* Starts the copies of chunk c of the weights. */
template <int FORMAT, int OUT>
static __device__ __forceinline__ void fetch_weights(
	const struct product &p, uint8_t *to, uint32_t expert, uint32_t first, uint32_t c)
{
	/* 16-byte pieces: of a slot and of a row. */
	constexpr uint32_t ROW = FORMAT == WF_BF16 ? 8 : 4;
	constexpr uint32_t STRIDE = FORMAT == WF_BF16 ? X_ROW : CHUNK_K;
	constexpr uint32_t EACH = FORMAT == WF_BF16 ? 2 : 1;
	constexpr uint32_t PIECES = FORMAT == WF_NVFP4 ? 36 : 16 * ROW;

	for (uint32_t i = threadIdx.x; i < SLOTS * PIECES; i += BLOCK) {
		uint32_t s = i / PIECES, j = i % PIECES;
		uint32_t row = slot_row<OUT>(s, first);
		const struct weight &w = OUT == OUT_SWIGLU && s % 2 == 1 ? p.up : p.w;
		uint8_t *at = to + s * slot<FORMAT>::bytes;
		uint64_t matrix = (uint64_t)expert * w.n;

		if (FORMAT == WF_NVFP4) {
			bool valid = row < w.n;
			uint64_t block =
				valid ? (matrix + row) / 16 * (w.k / CHUNK_K) + c : 0;
			const uint8_t *from = j < 32 ? (const uint8_t *)w.data +
							       block * TILE_CODES + j * 16
						     : (const uint8_t *)w.scale +
							       block * TILE_SCALES +
							       (j - 32) * 16;

			copy16_async(at + j * 16, from, valid);
		} else {
			uint32_t r = row + j / ROW, k = c * CHUNK_K + j % ROW * 16 / EACH;
			bool valid = r < w.n && k < w.k;
			uint64_t from = valid ? ((matrix + r) * w.k + k) * EACH : 0;

			copy16_async(at + j / ROW * STRIDE + j % ROW * 16,
				(const uint8_t *)w.data + from, valid);
		}
	}
}

static __device__ __forceinline__ void fetch_x(const struct product &p, uint8_t *to,
	const uint64_t *offsets, uint32_t count, uint32_t c)
{
#pragma unroll
	for (uint32_t i = threadIdx.x; i < TILE_ROWS * 8; i += BLOCK) {
		uint32_t r = i / 8, k = c * CHUNK_K + i % 8 * 8;
		bool valid = r < count && k < p.w.k;

		copy16_async(to + r * X_ROW + i % 8 * 16,
			valid ? p.x + offsets[r] + k : p.x, valid);
	}
}

/* A lane's chunk of a slot. */
template <int FORMAT>
static __device__ __forceinline__ void chunk_read(
	struct chunk<FORMAT> *c, const uint8_t *at, uint32_t lane)
{
	if constexpr (FORMAT == WF_NVFP4) {
		c->codes = *(const uint4 *)(at + lane * 16);
		c->scales = *(const uint16_t *)(at + TILE_CODES + lane * 2);
	} else {
#pragma unroll
		for (int i = 0; i < 2; i++) {
			uint32_t row = lane / 4 + 8 * i;

			if constexpr (FORMAT == WF_FP8) {
				c->row[i] = *(const uint4 *)(at + row * CHUNK_K +
							     lane % 4 * 16);
			} else {
				const uint4 *from =
					(const uint4 *)(at + row * X_ROW + lane % 4 * 32);

				c->row[i][0] = from[0];
				c->row[i][1] = from[1];
			}
		}
	}
}

/* d += the chunk in shared memory, for a warp: slots 2 wm and 2 wm + 1, columns wn * 32
 * and on. scale: FP8, of rows g and g + 8 of both slots. */
template <int FORMAT>
static __device__ __forceinline__ void multiply_stage(
	const uint8_t *stage_at, const float (&scale)[2][2], float (&d)[2][NT][4])
{
	uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	const uint8_t *x_at = stage_at + SLOTS * slot<FORMAT>::bytes +
			      (warp / 4 * 32 + lane / 4) * X_ROW + lane % 4 * 32;
	uint32_t a[2][4][4];

#pragma unroll
	for (int m = 0; m < 2; m++) {
		struct chunk<FORMAT> w;

		chunk_read<FORMAT>(
			&w, stage_at + (warp % 4 * 2 + m) * slot<FORMAT>::bytes, lane);
#pragma unroll
		for (int j = 0; j < 4; j++)
			chunk_operand<FORMAT>(w, j, a[m][j]);
	}
#pragma unroll
	for (int n = 0; n < NT; n++) {
		const uint4 x[2] = {*(const uint4 *)(x_at + n * 8 * X_ROW),
			*(const uint4 *)(x_at + n * 8 * X_ROW + 16)};

#pragma unroll
		for (int m = 0; m < 2; m++) {
			float part[4] = {};
			float *to = FORMAT == WF_FP8 ? part : d[m][n];

#pragma unroll
			for (int j = 0; j < 4; j++)
				mma_bf16(to, a[m][j], word_of(x[j / 2], j % 2 * 2),
					word_of(x[j / 2], j % 2 * 2 + 1));
#pragma unroll
			for (int i = 0; FORMAT == WF_FP8 && i < 4; i++)
				d[m][n][i] = fmaf(part[i], scale[m][i / 2], d[m][n][i]);
		}
	}
}

template <int FORMAT, int OUT>
static __device__ __forceinline__ void store_tile(const struct product &p,
	const struct row_group &group, const uint32_t *pairs, uint32_t first,
	const float (&d)[2][NT][4])
{
	uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	uint32_t row = slot_row<OUT>(warp % 4 * 2, first) + lane / 4;
	float f0 = matrix_factor<FORMAT>(p.w, group.expert);
	float f1 = OUT == OUT_SWIGLU ? matrix_factor<FORMAT>(p.up, group.expert) : f0;

#pragma unroll
	for (int i = 0; i < NT * 2; i++) {
		uint32_t col = warp / 4 * 32 + i / 2 * 8 + lane % 4 * 2 + i % 2;
		uint64_t y = (col < group.count ? pairs[col] : 0) * p.y_stride + row;

#pragma unroll
		for (int j = 0; j < (OUT == OUT_SWIGLU ? 2 : 4); j++) {
			uint32_t more = j / 2 * 16 + j % 2 * 8;
			int e = j % 2 * 2 + i % 2;

			product_put<OUT>(p, y + more,
				col < group.count && row + more < p.w.n,
				d[j / 2][i / 2][e] * f0, d[1][i / 2][e] * f1);
		}
	}
}

/* What a block computes. */
struct tile {
	uint32_t first; /* weight row */
	struct row_group group;
	const uint64_t *offsets; /* of the rows of x, in elements */
};

/* Starts the copies of chunk c, if there is one, as a group of its own. */
template <int FORMAT, int OUT>
static __device__ __forceinline__ void fetch_chunk(
	const struct product &p, const struct tile &t, uint8_t *ring, uint32_t c)
{
	uint8_t *to = ring + c % stage<FORMAT>::count * stage<FORMAT>::bytes;

	if (c * CHUNK_K < p.w.k) {
		fetch_weights<FORMAT, OUT>(p, to, t.group.expert, t.first, c);
		fetch_x(p, to + SLOTS * slot<FORMAT>::bytes, t.offsets, t.group.count, c);
	}
	copy_async_commit();
}

/* FP8: rows of scales of a lane's rows g and g + 8 of both slots of its warp. */
template <int OUT>
static __device__ __forceinline__ void find_scales(
	const struct product &p, const struct tile &t, uint32_t (&at)[2][2])
{
	uint32_t slot = threadIdx.x / WARP % 4 * 2, g = threadIdx.x % WARP / 4;

#pragma unroll
	for (int i = 0; i < 4; i++)
		at[i / 2][i % 2] = fp8_scale_row(p.w, t.group.expert,
			slot_row<OUT>(slot + i / 2, t.first) + g + i % 2 * 8);
}

template <int OUT>
static __device__ __forceinline__ void load_scales(const struct product &p,
	const uint32_t (&at)[2][2], uint32_t c, float (&scale)[2][2])
{
	uint32_t block = c * CHUNK_K / p.w.block_k;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		const struct weight &w = OUT == OUT_SWIGLU && i / 2 == 1 ? p.up : p.w;

		scale[i / 2][i % 2] = ((const float *)w.scale)[at[i / 2][i % 2] + block];
	}
}

template <int FORMAT, int OUT>
static __global__ void __launch_bounds__(BLOCK, 2) tile_kernel(const struct product p)
{
	extern __shared__ __align__(128) uint8_t ring[];
	static __shared__ uint64_t offsets[TILE_ROWS];
	static __shared__ uint32_t pairs[TILE_ROWS];
	constexpr uint32_t STAGE = stage<FORMAT>::bytes, STAGES = stage<FORMAT>::count;
	static_assert(STAGES * STAGE + sizeof(offsets) + sizeof(pairs) <= CUDA_SMEM_MAX,
		"SM120");
	struct tile t = {
		.first = blockIdx.x * 16 * (OUT == OUT_SWIGLU ? SLOTS / 2 : SLOTS),
		.offsets = offsets};
	float d[2][NT][4] = {};
	uint32_t scales_at[2][2];
	float scale[2][2] = {};

	if (!product_group(p, blockIdx.y, TILE_ROWS, &t.group))
		return;
	if (threadIdx.x < t.group.count) {
		uint32_t pair = product_pair(p, t.group.first + threadIdx.x);

		pairs[threadIdx.x] = pair;
		offsets[threadIdx.x] = (uint64_t)(product_x(p, pair) - p.x);
	}
	if (FORMAT == WF_FP8)
		find_scales<OUT>(p, t, scales_at);
	__syncthreads();
	for (uint32_t c = 0; c < STAGES - 1; c++)
		fetch_chunk<FORMAT, OUT>(p, t, ring, c);
	for (uint32_t c = 0; c * CHUNK_K < p.w.k; c++) {
		copy_async_wait<STAGES - 2>();
		__syncthreads();
		fetch_chunk<FORMAT, OUT>(p, t, ring, c + STAGES - 1);
		if (FORMAT == WF_FP8)
			load_scales<OUT>(p, scales_at, c, scale);
		multiply_stage<FORMAT>(ring + c % STAGES * STAGE, scale, d);
	}
	store_tile<FORMAT, OUT>(p, t.group, pairs, t.first, d);
}

template <int FORMAT, int OUT>
static status launch(struct stream *stream, const struct product *p, uint32_t groups,
	const char *what, struct err *err)
{
	uint32_t rows = OUT == OUT_SWIGLU ? SLOTS * 8 : SLOTS * 16;
	uint32_t bytes = stage<FORMAT>::count * stage<FORMAT>::bytes;
	dim3 grid(CEIL_DIV(p->w.n, rows), groups);

	CUDA_ALLOW_SMEM(what, (tile_kernel<FORMAT, OUT>), bytes);
	tile_kernel<FORMAT, OUT><<<grid, BLOCK, bytes, stream->cuda>>>(*p);
	return cuda_launched(what, err);
}

status product_tile(struct stream *stream, const struct product *p, uint32_t most,
	const char *what, struct err *err)
{
	uint32_t groups =
		p->groups != NULL ? p->max_groups : CEIL_DIV(p->n_rows, TILE_ROWS);
	status st = product_check(p, what, err);

	if (st != ST_OK)
		return st;
	if (p->ids != NULL || most > TILE_ROWS || groups > 65535)
		return err_set(err, ST_LIMIT,
			"%s: %u groups of %u rows; the tile kernel takes 65535 of %u",
			what, groups, most, TILE_ROWS);
	if (groups == 0)
		return ST_OK;
	CUDA_ENTER(what);
	return PRODUCT_BY_FORMAT(p, launch, stream, p, groups, what, err);
}
