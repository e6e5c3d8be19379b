/* More than 64 rows of x against a matrix: a block computes 128 weight rows (256 of BF16
 * where that fills the device; half of gate and half of up for SwiGLU) by up to 128 rows
 * of x on the tensor cores. Both pass through shared memory in chunks, several in flight,
 * as they stand in global memory; weights become BF16 in registers.
 *
 * Counted per mma m16n8k16, of which a multiprocessor of an H200 does one in about 1.5
 * cycles, while its shared memory moves 128 bytes a cycle and each of its schedulers has
 * 6 cycles to issue:
 *
 *   a warp's tile                 bytes read + written    instructions that convert
 *   BF16, 64 x 64 of 256 x 128          128 + 48                   0
 *   FP8, 32 x 128                       144 + 48                   1.3
 *   NVFP4, 32 x 128                     137 + 41                   0.9
 *   product_tile.cu, 32 x 32:
 *     BF16, FP8, NVFP4          256 + 96, 192 + 64, 164 + 50       0, 5, 3.5
 *
 * What is written comes from L2. BF16 has square tiles of a warp, since both operands are
 * read as they are. Of the other formats a warp takes all rows of x, so that a weight is
 * converted once, and two blocks of four warps share a multiprocessor: one multiplies
 * while the other converts. The next rows of x are read while these are multiplied, and
 * four to eight sums take turns, because a sum is known some 33 cycles after its mma.
 * Rows of x come in units of 16; those that a group lacks are neither read nor
 * multiplied. */
#include "kernels/cuda/product_large.cuh"

/* Not to be moved to where the value is used. */
static __device__ __forceinline__ uint4 load16_shared(const void *p)
{
	uint4 v;

	asm volatile("ld.volatile.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
		     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
		     : "r"(shared_address(p))
		     : "memory");
	return v;
}

/* A chunk of a tile of weights as a lane holds it: BF16 is the operands. */
template <int FORMAT> struct held {
	struct chunk<FORMAT> c;
};
template <> struct held<WF_BF16> {
	uint32_t a[2][4];
};

/* Row and piece, of the lane's address, of step 0 for ldmatrix4; down: tile 1 is of the
 * rows after tile 0's (operand A), or of the next 8 k (operand B). */
static __device__ __forceinline__ uint32_t matrix_offset(bool down)
{
	uint32_t i = threadIdx.x % WARP / 8;
	uint32_t row = (down ? i % 2 : i / 2) * 8 + threadIdx.x % 8;

	return piece_offset<64>(row, down ? i / 2 : i % 2);
}

/* at: the weights of a stage. */
template <int FORMAT, int WARPS>
static __device__ __forceinline__ void read_tile(
	struct held<FORMAT> *w, const uint8_t *at, uint32_t slot)
{
	using C = cut<FORMAT, WARPS>;
	uint32_t lane = threadIdx.x % WARP;
	const uint8_t *tile_at = at + slot * C::tile_bytes;

	if constexpr (FORMAT == WF_BF16) {
		ldmatrix4(w->a[0], tile_at + matrix_offset(true));
		ldmatrix4(w->a[1], tile_at + (matrix_offset(true) ^ 2 * PIECE));
	} else if constexpr (FORMAT == WF_NVFP4) {
		w->c.codes = load16_shared(tile_at + lane * PIECE);
		w->c.scales = *(const uint16_t *)(at + C::slots * TILE_CODES +
						  slot * TILE_SCALES + lane * 2);
	} else {
		w->c.row[0] = load16_shared(tile_at + lane * PIECE);
		w->c.row[1] = load16_shared(tile_at + C::tile_bytes / 2 + lane * PIECE);
	}
}

/* Operand A of step j. */
template <int FORMAT>
static __device__ __forceinline__ void operand_of(
	const struct held<FORMAT> &w, int j, uint32_t *a)
{
	if constexpr (FORMAT == WF_BF16) {
#pragma unroll
		for (int i = 0; i < 4; i++)
			a[i] = w.a[j][i];
	} else {
		chunk_operand<FORMAT>(w.c, j, a);
	}
}

/* Operands B of 16 rows of x, which begin at `at`. */
template <int STEPS>
static __device__ __forceinline__ void read_unit(
	uint32_t (&x)[STEPS][2][2], const uint8_t *at)
{
	uint32_t g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;

#pragma unroll
	for (uint32_t i = 0; i < STEPS; i++) {
		if constexpr (STEPS == 2) {
			uint32_t r[4];

			ldmatrix4(r, at + (matrix_offset(false) ^ i * 2 * PIECE));
#pragma unroll
			for (int b = 0; b < 4; b++)
				x[i][b / 2][b % 2] = r[b];
		} else {
			uint32_t n = i / 2, h = i % 2;
			uint4 v = load16_shared(
				at + n * 8 * 128 + piece_offset<128>(g, 2 * t + h));

#pragma unroll
			for (int b = 0; b < 4; b++)
				x[h * 2 + b / 2][n][b % 2] = word_of(v, b);
		}
	}
}

/* d += weights times 16 rows of x; scale: FP8, of rows g and g + 8 of each tile. */
template <int FORMAT, int TILES, int STEPS>
static __device__ __forceinline__ void multiply_unit(const uint32_t (&a)[TILES][STEPS][4],
	const uint32_t (&x)[STEPS][2][2], const float (&scale)[TILES][2],
	float (&d)[TILES][2][4])
{
	float part[TILES][2][4] = {};

#pragma unroll
	for (int j = 0; j < STEPS; j++) {
#pragma unroll
		for (int i = 0; i < TILES * 2; i++) {
			int m = i / 2, n = i % 2;

			mma_bf16(FORMAT == WF_FP8 ? part[m][n] : d[m][n], a[m][j],
				x[j][n][0], x[j][n][1]);
		}
	}
#pragma unroll
	for (int i = 0; FORMAT == WF_FP8 && i < TILES * 8; i++) {
		float *to = &d[i / 8][i / 4 % 2][i % 4];

		*to = fmaf(part[i / 8][i / 4 % 2][i % 4], scale[i / 8][i % 4 / 2], *to);
	}
}

/* What a warp multiplies: tiles of weights from slot on; units unit, unit + across, .. of
 * x, of which the group has n_units. */
struct share {
	uint32_t slot, unit, n_units;
};

template <int FORMAT, int WARPS>
static __device__ __forceinline__ struct share share_of(uint32_t warp, uint32_t rows)
{
	using C = cut<FORMAT, WARPS>;
	uint32_t unit = warp % C::across;

	return {warp / C::across * C::tiles, unit,
		((rows + UNIT - 1) / UNIT + C::across - 1 - unit) / C::across};
}

/* FP8: rows of scales of a lane's rows g and g + 8 of each tile of its warp. */
template <int OUT, int TILES>
static __device__ __forceinline__ void find_scales(const struct product &p,
	const struct tile &t, uint32_t slot, uint32_t (&at)[TILES][2])
{
#pragma unroll
	for (int i = 0; i < TILES * 2; i++)
		at[i / 2][i % 2] = fp8_scale_row(p.w, t.group.expert,
			slot_row<OUT>(slot + i / 2, t.first) + threadIdx.x % WARP / 4 +
				i % 2 * 8);
}

template <int OUT, int TILES>
static __device__ __forceinline__ void load_scales(const struct product &p,
	const uint32_t (&at)[TILES][2], uint32_t k, float (&scale)[TILES][2])
{
	uint32_t block = k / p.w.block_k;

#pragma unroll
	for (int i = 0; i < TILES * 2; i++) {
		const struct weight &w = slot_weight<OUT>(p, i / 2);

		scale[i / 2][i % 2] = ((const float *)w.scale)[at[i / 2][i % 2] + block];
	}
}

/* Of a lane's first sum: its row of x in the group, which has `cols`, and its row of
 * weights; and what sums of both matrices are multiplied by. */
struct corner {
	uint32_t col, cols, row;
	float factor, up_factor;
};

template <int OUT, int UNITS, int TILES>
static __device__ __forceinline__ void store_tile(const struct product &p,
	const uint32_t *pairs, struct corner at, uint32_t n_units, uint32_t across,
	const float (&d)[UNITS][TILES][2][4])
{
	constexpr int EACH = OUT == OUT_SWIGLU ? 2 : 1;

#pragma unroll
	for (int u = 0; u < UNITS; u++) {
		if (u >= n_units)
			break;
#pragma unroll
		for (int i = 0; i < 4; i++) {
			uint32_t col = at.col + u * across * UNIT + i / 2 * 8 + i % 2;
			uint64_t y = pairs[col] * p.y_stride + at.row;

#pragma unroll
			for (int j = 0; j < TILES * 2 / EACH; j++) {
				uint32_t more = j / 2 * 16 + j % 2 * 8;
				int m = j / 2 * EACH, e = j % 2 * 2 + i % 2;

				product_put<OUT>(p, y + more,
					col < at.cols && at.row + more < p.w.n,
					d[u][m][i / 2][e] * at.factor,
					d[u][m + EACH - 1][i / 2][e] * at.up_factor);
			}
		}
	}
}

/* A warp's share of the chunk that stands at `at`. Its first unit is multiplied even if
 * the group lacks it, since it is never stored then: so the copies of a later chunk stand
 * without a branch among the first products, and are issued while these are computed. */
template <int FORMAT, int WARPS, class FETCH>
static __device__ __forceinline__ void multiply_stage(const uint8_t *at,
	const struct share &my, const float (&scale)[cut<FORMAT, WARPS>::tiles][2],
	float (&d)[cut<FORMAT, WARPS>::units][cut<FORMAT, WARPS>::tiles][2][4],
	FETCH fetch)
{
	using C = cut<FORMAT, WARPS>;
	const uint8_t *x_at = at + C::w_bytes + my.unit * UNIT * C::x_row;
	struct held<FORMAT> w[C::tiles];
	uint32_t x[2][C::steps][2][2];
	uint32_t a[C::tiles][C::steps][4];

#pragma unroll
	for (uint32_t m = 0; m < C::tiles; m++)
		read_tile<FORMAT, WARPS>(&w[m], at, my.slot + m);
	read_unit(x[0], x_at);
#pragma unroll
	for (uint32_t i = 0; i < C::tiles * C::steps; i++)
		operand_of<FORMAT>(
			w[i / C::steps], i % C::steps, a[i / C::steps][i % C::steps]);
#pragma unroll
	for (uint32_t u = 0; u < C::units; u++) {
		if (u > 0 && u >= my.n_units)
			break;
		if (u + 1 < C::units)
			read_unit(x[(u + 1) % 2],
				x_at + (u + 1) * C::across * UNIT * C::x_row);
		multiply_unit<FORMAT>(a, x[u % 2], scale, d[u]);
		if (u == 0)
			fetch();
	}
}

template <int FORMAT, int WARPS, int OUT>
static __global__ void __launch_bounds__(cut<FORMAT, WARPS>::threads,
	cut<FORMAT, WARPS>::blocks) large_kernel(const struct product p)
{
	using C = cut<FORMAT, WARPS>;
	extern __shared__ __align__(128) uint8_t ring[];
	static __shared__ uint64_t offsets[LARGE_ROWS];
	static __shared__ uint32_t pairs[LARGE_ROWS];
	static_assert(C::stages >= 4 && sizeof(pairs) + sizeof(offsets) == STATIC_BYTES &&
			      C::stages * C::bytes + STATIC_BYTES <= CUDA_SMEM_MAX,
		"SM120");
	/* So that the compiler knows it to be the same in all lanes. */
	uint32_t warp = __shfl_sync(FULL_WARP, threadIdx.x / WARP, 0);
	struct tile t = {
		.first = blockIdx.x * C::slots * 16 / (OUT == OUT_SWIGLU ? 2 : 1)};
	struct share my;
	struct w_source ws;
	struct x_source<FORMAT, WARPS> xs;
	float d[C::units][C::tiles][2][4] = {}, scale[C::tiles][2] = {};
	uint32_t scales_at[C::tiles][2];

	if (!product_group(p, blockIdx.y, LARGE_ROWS, &t.group))
		return;
	/* Weights need not wait for the list of rows; all are of chunk 0's group. */
	ws = find_weights<FORMAT, WARPS, OUT>(p, t);
	for (uint32_t c = 0; c < C::stages - 1; c++)
		fetch_weights<FORMAT, WARPS, OUT>(p, t, ws, ring, c);
	for (uint32_t i = threadIdx.x; i < LARGE_ROWS; i += C::threads) {
		bool valid = i < t.group.count;
		uint32_t pair = valid ? product_pair(p, t.group.first + i) : 0;

		pairs[i] = pair;
		offsets[i] = valid ? (uint64_t)(product_x(p, pair) - p.x) : 0;
	}
	my = share_of<FORMAT, WARPS>(warp, t.group.count);
	if (FORMAT == WF_FP8)
		find_scales<OUT>(p, t, my.slot, scales_at);
	__syncthreads();
	find_x<FORMAT, WARPS>(p, offsets, &xs);
	for (uint32_t c = 0; c < C::stages - 1; c++) {
		fetch_x<FORMAT, WARPS>(p, t.group.count, xs, ring, c);
		copy_async_commit();
	}
	for (uint32_t c = 0; c * C::k < p.w.k; c++) {
		const uint8_t *at = ring + c % C::stages * C::bytes;
		uint32_t ahead = c + C::stages - 1;

		copy_async_wait<C::stages - 2>();
		__syncthreads();
		if (FORMAT == WF_FP8)
			load_scales<OUT>(p, scales_at, c * C::k, scale);
		multiply_stage<FORMAT, WARPS>(at, my, scale, d, [&] {
			fetch_weights<FORMAT, WARPS, OUT>(p, t, ws, ring, ahead);
			fetch_x<FORMAT, WARPS>(p, t.group.count, xs, ring, ahead);
			copy_async_commit();
		});
	}
	copy_async_wait<0>();
	store_tile<OUT>(p, pairs,
		{.col = my.unit * UNIT + threadIdx.x % 4 * 2,
			.cols = t.group.count,
			.row = slot_row<OUT>(my.slot, t.first) + threadIdx.x % WARP / 4,
			.factor = matrix_factor<FORMAT>(p.w, t.group.expert),
			.up_factor = matrix_factor<FORMAT>(
				OUT == OUT_SWIGLU ? p.up : p.w, t.group.expert)},
		my.n_units, C::across, d);
}

template <int FORMAT, int WARPS, int OUT>
static status launch_cut(struct stream *stream, const struct product *p, uint32_t groups,
	const char *what, struct err *err)
{
	using C = cut<FORMAT, WARPS>;
	uint32_t rows = C::slots * 16 / (OUT == OUT_SWIGLU ? 2 : 1);
	uint32_t bytes = C::stages * C::bytes;
	dim3 grid(CEIL_DIV(p->w.n, rows), groups);

	CUDA_ALLOW_SMEM(what, (large_kernel<FORMAT, WARPS, OUT>), bytes);
	/* Room for C::blocks of them. */
	CUDA_TRY(what,
		cudaFuncSetAttribute((const void *)(large_kernel<FORMAT, WARPS, OUT>),
			cudaFuncAttributePreferredSharedMemoryCarveout,
			cudaSharedmemCarveoutMaxShared));
	large_kernel<FORMAT, WARPS, OUT><<<grid, C::threads, bytes, stream->cuda>>>(*p);
	return cuda_launched(what, err);
}

/* A block of 256 rows of BF16 reads less of L2 for an operation, and has a
 * multiprocessor for itself: only where such blocks leave few of them idle. */
static bool is_wide(const struct product *p, uint32_t groups)
{
	uint32_t rows = p->out == OUT_SWIGLU ? 128 : 256;

	return p->w.format == WF_BF16 &&
	       (uint64_t)CEIL_DIV(p->w.n, rows) * groups >= MANY_BLOCKS;
}

template <int FORMAT, int OUT>
static status launch(struct stream *stream, const struct product *p, uint32_t groups,
	const char *what, struct err *err)
{
	if constexpr (FORMAT == WF_BF16) {
		if (is_wide(p, groups))
			return launch_cut<FORMAT, 8, OUT>(stream, p, groups, what, err);
	}
	return launch_cut<FORMAT, 4, OUT>(stream, p, groups, what, err);
}

static uint32_t groups_of(const struct product *p)
{
	return p->groups != NULL ? p->max_groups : CEIL_DIV(p->n_rows, LARGE_ROWS);
}

void product_large_inner(
	const struct product *p, const char *prefix, char names[KERNEL_NAMES_MAX])
{
	kernel_named(names, "%slarge %u%s", prefix, LARGE_ROWS,
		is_wide(p, groups_of(p)) ? " wide" : "");
}

status product_large(struct stream *stream, const struct product *p, uint32_t most,
	const char *what, struct err *err)
{
	uint32_t groups = groups_of(p);
	status st = product_check(p, what, err);

	if (st != ST_OK)
		return st;
	if (p->ids != NULL || most > LARGE_ROWS || groups > 65535)
		return err_set(err, ST_LIMIT,
			"%s: %u groups of %u rows; the kernel for many takes 65535 of %u",
			what, groups, most, LARGE_ROWS);
	if (groups == 0)
		return ST_OK;
	CUDA_ENTER(what);
	return PRODUCT_BY_FORMAT(p, launch, stream, p, groups, what, err);
}
