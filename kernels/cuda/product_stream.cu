/* Rows of x, 16 at a time, against a matrix: every weight is read once for them, from
 * global memory to registers, so bytes of weights bound it. Weight rows are the 16 rows
 * of the tensor-core instruction, rows of x its 8 columns.
 *
 * A block of 8 warps is split into K_WARPS parts of k by 8 / K_WARPS tiles of 16 weight
 * rows; the parts meet in shared memory and are added in a fixed order. A lane has the
 * loads of DEPTH chunks in flight. */
#include "kernels/cuda/matrix.cuh"

enum { BLOCK = 256, WARPS = BLOCK / WARP };

/* 128 bytes per lane, or 72 and 144; more spills. */
template <int FORMAT, int MATS> struct depth {
	static const int value = FORMAT == WF_NVFP4  ? 4
				 : FORMAT == WF_BF16 ? 2 / MATS
						     : 4 / MATS;
};

/* A lane's 16 k of one row of x, from k on; zeros from `end` on. */
template <int FORMAT>
static __device__ __forceinline__ void load_x(
	uint32_t *x, const bf16 *row, uint32_t k, uint32_t end)
{
#pragma unroll
	for (int i = 0; i < 2; i++, k += halves<FORMAT>::second) {
		uint4 v = k < end ? *(const uint4 *)(row + k) : make_uint4(0, 0, 0, 0);

		x[4 * i] = v.x;
		x[4 * i + 1] = v.y;
		x[4 * i + 2] = v.z;
		x[4 * i + 3] = v.w;
	}
}

/* Sums of one warp over its part of k: d of MATS matrices. */
template <int FORMAT, int MATS, int NT>
static __device__ __forceinline__ void sum_part(const struct product &p,
	const struct row_group &group, uint32_t row, uint32_t part, uint32_t parts,
	float (&d)[MATS][NT][4])
{
	constexpr int DEPTH = depth<FORMAT, MATS>::value;
	uint32_t lane = threadIdx.x % WARP, k_lane = lane % 4 * halves<FORMAT>::lane;
	uint32_t chunks = (p.w.k + CHUNK_K - 1) / CHUNK_K;
	struct lane_rows rows[MATS];
	const bf16 *x_row[NT];
	uint32_t x_end[NT]; /* 0: no such row */

	rows[0] = lane_rows_of<FORMAT>(p.w, group.expert, row, lane);
	if (MATS == 2)
		rows[MATS - 1] = lane_rows_of<FORMAT>(p.up, group.expert, row, lane);
#pragma unroll
	for (int n = 0; n < NT; n++) {
		uint32_t i = n * 8 + lane / 4;
		bool has = i < group.count;

		x_end[n] = has ? p.w.k : 0;
		x_row[n] = has ? product_x(p, product_pair(p, group.first + i)) : p.x;
	}
	for (uint32_t from = part; from < chunks; from += parts * DEPTH) {
		struct chunk<FORMAT> w[DEPTH][MATS];

#pragma unroll
		for (int u = 0; u < DEPTH * MATS; u++) {
			uint32_t c = from + u / MATS * parts;

			chunk_load<FORMAT>(&w[u / MATS][u % MATS], rows[u % MATS], c,
				c * CHUNK_K + k_lane, p.w.k);
		}
		/* The same for the whole warp. */
#pragma unroll
		for (int u = 0; u < DEPTH && from + u * parts < chunks; u++) {
			uint32_t k = (from + u * parts) * CHUNK_K;
			uint32_t x[NT][8];

#pragma unroll
			for (int n = 0; n < NT; n++)
				load_x<FORMAT>(x[n], x_row[n], k + k_lane, x_end[n]);
#pragma unroll
			for (int m = 0; m < MATS; m++) {
				float s[2] = {1.0f, 1.0f};

				for (int i = 0; FORMAT == WF_FP8 && i < 2; i++)
					s[i] = rows[m].scale[i][k / p.w.block_k];
				chunk_multiply<FORMAT, NT>(w[u][m], x, d[m], s[0], s[1]);
			}
		}
	}
}

/* sums: [tile][part][matrix][NT * 8 columns][16 rows] of the block. */
template <int FORMAT, int OUT, int NT>
static __global__ void __launch_bounds__(BLOCK, 2)
	stream_kernel(const struct product p, uint32_t parts)
{
	constexpr int MATS = OUT == OUT_SWIGLU ? 2 : 1;
	constexpr uint32_t COLS = NT * 8, TILE = MATS * COLS * 16;
	static __shared__ float sums[WARPS * TILE];
	static_assert(sizeof(sums) <= CUDA_SMEM_MAX, "SM120");
	uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	uint32_t tiles = WARPS / parts, first = blockIdx.x * tiles * 16;
	uint32_t row = first + warp / parts * 16;
	float d[MATS][NT][4] = {};
	struct row_group group;

	if (!product_group(p, blockIdx.y, COLS, &group))
		return;
	if (row < p.w.n)
		sum_part<FORMAT, MATS, NT>(p, group, row, warp % parts, parts, d);
#pragma unroll
	for (int m = 0; m < MATS; m++) {
#pragma unroll
		for (int i = 0; i < NT * 4; i++) {
			uint32_t col = i / 4 * 8 + lane % 4 * 2 + i % 2;
			uint32_t at = lane / 4 + i % 4 / 2 * 8;

			sums[warp * TILE + (m * COLS + col) * 16 + at] =
				d[m][i / 4][i % 4];
		}
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < tiles * COLS * 16; i += BLOCK) {
		uint32_t tile = i / 16 % tiles, col = i / 16 / tiles;
		uint32_t n = first + tile * 16 + i % 16;
		float v[2] = {0, 0};

		if (n >= p.w.n || col >= group.count)
			continue;
		for (uint32_t k = 0; k < parts; k++) {
#pragma unroll
			for (int m = 0; m < MATS; m++)
				v[m] += sums[(tile * parts + k) * TILE +
					     (m * COLS + col) * 16 + i % 16];
		}
		v[0] *= matrix_factor<FORMAT>(p.w, group.expert);
		if (MATS == 2)
			v[1] *= matrix_factor<FORMAT>(p.up, group.expert);
		product_store<OUT>(p, product_pair(p, group.first + col), n, v[0], v[1]);
	}
}

/* Parts of k: at least four chunks each, unless the device, of up to 188
 * multiprocessors with 24 or more warps, would stay empty. */
static uint32_t parts_of(const struct product *p, uint32_t groups)
{
	uint32_t chunks = CEIL_DIV(p->w.k, CHUNK_K);
	uint64_t tiles = (uint64_t)CEIL_DIV(p->w.n, 16u) * groups;
	uint32_t parts = WARPS;

	while (parts > 1 && chunks < 4 * parts && tiles * parts > 8192)
		parts /= 2;
	return parts;
}

template <int FORMAT, int OUT>
static void launch(
	struct stream *stream, const struct product *p, uint32_t groups, uint32_t rows)
{
	uint32_t parts = parts_of(p, groups);
	dim3 grid(CEIL_DIV(p->w.n, 16u * (WARPS / parts)), groups);

	if (rows <= 8)
		stream_kernel<FORMAT, OUT, 1>
			<<<grid, BLOCK, 0, stream->cuda>>>(*p, parts);
	else
		stream_kernel<FORMAT, OUT, 2>
			<<<grid, BLOCK, 0, stream->cuda>>>(*p, parts);
}

status product_stream(struct stream *stream, const struct product *p, uint32_t most,
	const char *what, struct err *err)
{
	uint32_t groups = p->groups != NULL ? p->max_groups
			  : p->ids != NULL  ? p->n_rows
					    : CEIL_DIV(p->n_rows, STREAM_ROWS_MAX);
	uint32_t rows = p->groups != NULL ? most
			: p->ids != NULL  ? 1
					  : MIN(p->n_rows, STREAM_ROWS_MAX);
	status st = product_check(p, what, err);

	if (st != ST_OK)
		return st;
	if (rows > STREAM_ROWS_MAX || groups > 65535)
		return err_set(err, ST_LIMIT,
			"%s: %u groups of %u rows; the streaming kernel takes 65535 of "
			"%u",
			what, groups, rows, STREAM_ROWS_MAX);
	if (groups == 0 || rows == 0)
		return ST_OK;
	CUDA_ENTER(what);
	PRODUCT_BY_FORMAT(p, launch, stream, p, groups, rows);
	return cuda_launched(what, err);
}
