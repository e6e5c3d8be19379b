/* Products of NVFP4 weights by the block-scaled tensor-core instruction of SM120.
 *
 * A tile is 128 weight rows (64 of gate and the same 64 of up for SwiGLU) by COLS rows of
 * x. Both pass through shared memory in stages of 128 k: weights as they stand in global
 * memory, several stages in flight; rows of x are read as BF16 while a stage is
 * multiplied, and become three NVFP4 terms (fp4_value.h) of the next one after it. Four
 * warps along the weight rows by two along x. What a lane does is fp4_stage.h, whose
 * registers the test on the CPU executes.
 *
 * As many blocks as the device holds at a time, asked of it; each takes tile after tile,
 * and how many groups there are stands on the device. */
#include "kernels/cuda/backend_impl.cuh"
#include "kernels/cuda/fp4_value.h"
#include "kernels/cuda/product_fp4.cuh"

/* The instruction exists in code for sm_120a only. */
#ifdef __CUDA_ARCH_FEAT_SM120_ALL
#define HAS_FP4 1
#else
#define HAS_FP4 0
#endif

enum { BY_MMA, BY_STEPS }; /* way */

enum {
	BLOCK = 256,
	FEW_COLS = 16,
	MANY_COLS = 64,
	PER_ROW = FP4_STAGE_K / FP4_BLOCK, /* lanes that read one row's stage of x */
};

static __device__ __forceinline__ void mma_fp4(float *d, const uint32_t *a,
	const uint32_t *b, uint32_t sa, uint32_t pair, uint32_t sb, uint32_t lane)
{
#if HAS_FP4
	asm volatile("mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale."
		     "scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 "
		     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, "
		     "{%10}, {0,%11}, {%12}, {0,%13};"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),
		     "r"(sa), "h"((uint16_t)pair), "r"(sb), "h"((uint16_t)lane));
#endif
}

static __device__ __forceinline__ void mma_fp4_steps(float *d, const uint32_t *a,
	const uint32_t *b, uint32_t sa, uint32_t pair, uint32_t sb, uint32_t select)
{
	uint32_t lane = threadIdx.x % WARP, rows[2];
	uint32_t column = __shfl_sync(FULL_WARP, sb, fp4_sb_lane(lane, select));

#pragma unroll
	for (uint32_t r = 0; r < 2; r++)
		rows[r] = __shfl_sync(FULL_WARP, sa, fp4_sa_lane(lane, pair, r));
#pragma unroll
	for (uint32_t j = 0; j < 4; j++) {
		float scale[2] = {fp4_step_scale(rows[0], lane, j),
			fp4_step_scale(rows[1], lane, j)};
		uint32_t wide_a[4], wide_b[2];

		fp4_step_a(a, j, scale, wide_a);
		fp4_step_b(b, j, fp4_step_scale(column, lane, j), wide_b);
		mma_bf16(d, wide_a, wide_b[0], wide_b[1]);
	}
}

#define FP4_MMA(way, d, a, b, sa, pair, sb, lane)                                        \
	((way) == BY_MMA ? mma_fp4(d, a, b, sa, pair, sb, lane)                          \
			 : mma_fp4_steps(d, a, b, sa, pair, sb, lane))
#include "kernels/cuda/fp4_stage.h"

/* Shared memory of a block: stages of weights, two of x, and what sums of their columns
 * are multiplied by. Two blocks share a multiprocessor of SM120. */
template <int COLS> struct memory {
	static const uint32_t stages = COLS == FEW_COLS ? 4 : 2;
	static const uint32_t x_words = COLS / FP4_N * FP4_HALVES * FP4_X_WORDS;
	static const uint32_t bytes =
		(stages * FP4_STAGE_WORDS + 2 * x_words + 2 * COLS) * 4;
	static_assert(2 * (bytes + COLS * 12 + 1024) <= CUDA_SMEM_MAX + 1024, "SM120");
	uint32_t *weights, *x;
	float *restore;
};

/* What a block computes, of how many. */
struct tile {
	uint32_t first; /* weight row */
	struct row_group group;
	const uint64_t *offsets; /* of the rows of x, in elements */
};

struct tiles {
	uint32_t rows;   /* along the weights */
	uint32_t parts;  /* of a group */
	uint32_t groups; /* at most */
};

template <int OUT>
static __device__ __forceinline__ uint32_t tile_row(uint32_t tile, uint32_t first)
{
	return first + (OUT == OUT_SWIGLU ? tile / 2 : tile) * FP4_M;
}

/* Starts the copies of a stage's weights, if there is one, as a group of its own. */
template <int OUT>
static __device__ __forceinline__ void fetch_weights(
	const struct product &p, const struct tile &t, uint32_t *to, uint32_t stage)
{
	/* 16 bytes each, of a piece. */
	constexpr uint32_t CODES = FP4_PIECE_CODES / 4, SCALES = FP4_PIECE_SCALES / 4;
	constexpr uint32_t EACH = CODES + SCALES;

	for (uint32_t i = threadIdx.x;
		i < FP4_TILES * FP4_HALVES * EACH && stage * FP4_STAGE_K < p.w.k;
		i += BLOCK) {
		uint32_t piece = i / EACH, j = i % EACH;
		uint32_t tile = piece / FP4_HALVES, half = piece % FP4_HALVES;
		const struct weight &w = OUT == OUT_SWIGLU && tile % 2 == 1 ? p.up : p.w;
		uint32_t row = tile_row<OUT>(tile, t.first);
		uint32_t chunk = stage * FP4_HALVES + half;
		bool valid = row < w.n && chunk * FP4_K < w.k;
		uint64_t from = valid ? ((uint64_t)t.group.expert * w.n + row) / FP4_M *
							(w.k / FP4_K) +
						chunk
				      : 0;

		if (j < CODES)
			copy16_async(to + fp4_stage_codes(tile, half) + j * 4,
				(const uint32_t *)w.data + from * FP4_PIECE_CODES + j * 4,
				valid);
		else
			copy16_async(to + fp4_stage_scales(tile, half) + (j - CODES) * 4,
				(const uint32_t *)w.scale + from * FP4_PIECE_SCALES +
					(j - CODES) * 4,
				valid);
	}
	copy_async_commit();
}

/* A thread's blocks of 16 of a stage of x: of rows threadIdx.x / PER_ROW and so on. */
template <int COLS> struct raw {
	static const uint32_t count = COLS * PER_ROW > BLOCK ? COLS *PER_ROW / BLOCK : 1;
	static const uint32_t threads = COLS * PER_ROW / count;
	uint4 v[count][2];
};

template <int COLS>
static __device__ __forceinline__ void read_x(const struct product &p,
	const struct tile &t, uint32_t stage, struct raw<COLS> *r)
{
	uint32_t k = stage * FP4_STAGE_K + threadIdx.x % PER_ROW * FP4_BLOCK;

#pragma unroll
	for (uint32_t i = 0; i < raw<COLS>::count; i++) {
		uint32_t column = threadIdx.x / PER_ROW + i * (BLOCK / PER_ROW);
		bool valid = column < t.group.count && k < p.w.k;
		const bf16 *from = valid ? p.x + t.offsets[column] + k : p.x;

		r->v[i][0] = load16_if(from, valid);
		r->v[i][1] = load16_if(from + 8, valid);
	}
}

/* Whole warps come here: the eight lanes of a row agree on its largest value. */
template <int COLS>
static __device__ __forceinline__ void put_x(
	const struct raw<COLS> &r, uint32_t *x, float *restore)
{
#pragma unroll
	for (uint32_t i = 0; i < raw<COLS>::count; i++) {
		uint32_t column = threadIdx.x / PER_ROW + i * (BLOCK / PER_ROW);
		uint32_t largest = 0;
		struct fp4_terms terms;
		float v[FP4_BLOCK], shrink;

		unpack8(r.v[i][0], v);
		unpack8(r.v[i][1], v + 8);
#pragma unroll
		for (uint32_t j = 0; j < FP4_BLOCK; j++)
			largest = max(largest, fp4_bits(v[j]) & 0x7FFFFFFFu);
#pragma unroll
		for (uint32_t step = 1; step < PER_ROW; step *= 2)
			largest = max(largest, __shfl_xor_sync(FULL_WARP, largest, step));
		shrink = fp4_shrink(largest);
#pragma unroll
		for (uint32_t j = 0; j < FP4_BLOCK; j++)
			v[j] = largest < 0x7F800000u ? v[j] * shrink : 0.0f;
		fp4_split(v, &terms);
		fp4_put(x, column, threadIdx.x % PER_ROW, &terms);
		if (threadIdx.x % PER_ROW == 0)
			restore[column] = fp4_restore(largest);
	}
}

template <int WAY, int COLS>
static __device__ __forceinline__ void multiply_stage(const uint32_t *weights,
	const uint32_t *x, const float *restore, float (&d)[2][COLS / 16][4])
{
	constexpr uint32_t NT = COLS / 16;
	uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	uint32_t group = warp / 4 * NT;
	float part[2 * NT * 4] = {};

	fp4_multiply(weights, x, warp % 4 * 2, group, NT, lane, WAY, part);
#pragma unroll
	for (uint32_t n = 0; n < NT; n++) {
#pragma unroll
		for (uint32_t i = 0; i < 4; i++) {
			float by = restore[(group + n) * FP4_N + fp4_d_column(lane, i)];

#pragma unroll
			for (uint32_t m = 0; m < 2; m++)
				d[m][n][i] =
					fmaf(part[(m * NT + n) * 4 + i], by, d[m][n][i]);
		}
	}
}

template <int WAY, int COLS, int OUT>
static __device__ __forceinline__ void multiply_tile(const struct product &p,
	const struct tile &t, const struct memory<COLS> &m, float (&d)[2][COLS / 16][4])
{
	constexpr uint32_t STAGES = memory<COLS>::stages;
	bool reads = threadIdx.x < raw<COLS>::threads;
	struct raw<COLS> r;

	for (uint32_t s = 0; s < STAGES - 1; s++)
		fetch_weights<OUT>(p, t, m.weights + s * FP4_STAGE_WORDS, s);
	if (reads) {
		read_x<COLS>(p, t, 0, &r);
		put_x<COLS>(r, m.x, m.restore);
	}
	for (uint32_t s = 0; s * FP4_STAGE_K < p.w.k; s++) {
		uint32_t next = s + STAGES - 1, odd = s % 2;

		copy_async_wait<STAGES - 2>();
		__syncthreads();
		fetch_weights<OUT>(
			p, t, m.weights + next % STAGES * FP4_STAGE_WORDS, next);
		if (reads)
			read_x<COLS>(p, t, s + 1, &r);
		multiply_stage<WAY, COLS>(m.weights + s % STAGES * FP4_STAGE_WORDS,
			m.x + odd * memory<COLS>::x_words, m.restore + odd * COLS, d);
		if (reads)
			put_x<COLS>(r, m.x + (1 - odd) * memory<COLS>::x_words,
				m.restore + (1 - odd) * COLS);
	}
	copy_async_wait<0>();
}

template <int COLS, int OUT>
static __device__ __forceinline__ void store_tile(const struct product &p,
	const struct tile &t, const uint32_t *pairs, const float (&d)[2][COLS / 16][4])
{
	constexpr uint32_t NT = COLS / 16;
	uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	float f0 = p.w.scale2[t.group.expert];
	float f1 = OUT == OUT_SWIGLU ? p.up.scale2[t.group.expert] : f0;

#pragma unroll
	for (uint32_t i = 0; i < NT * 4; i++) {
		uint32_t n = i / 4, e = i % 4;
		uint32_t col = (warp / 4 * NT + n) * FP4_N + fp4_d_column(lane, e);
		uint64_t y = (col < t.group.count ? pairs[col] : 0) * p.y_stride;

#pragma unroll
		for (uint32_t m = 0; m < (OUT == OUT_SWIGLU ? 1 : 2); m++) {
			uint32_t row = tile_row<OUT>(warp % 4 * 2 + m, t.first) +
				       fp4_d_row(lane, e);

			product_put<OUT>(p, y + row, col < t.group.count && row < p.w.n,
				d[m][n][e] * f0, d[1][n][e] * f1);
		}
	}
}

/* Tile number `index`: tiles along the weights follow one another, so that what is read
 * of x stays near. False: its group does not exist, nor do later ones. */
template <int COLS, int OUT>
static __device__ __forceinline__ bool find_tile(
	const struct product &p, const struct tiles &n, uint64_t index, struct tile *t)
{
	uint64_t rest = index / n.rows;
	uint32_t skip = (uint32_t)(rest % n.parts) * COLS;

	t->first = (uint32_t)(index % n.rows) *
		   (OUT == OUT_SWIGLU ? FP4_TILES / 2 : FP4_TILES) * FP4_M;
	if (!product_group(p, (uint32_t)(rest / n.parts), COLS, &t->group))
		return false;
	t->group.first += skip;
	t->group.count =
		t->group.count > skip ? min(t->group.count - skip, (uint32_t)COLS) : 0;
	return true;
}

template <int WAY, int COLS, int OUT>
static __device__ __forceinline__ void run_tiles(
	const struct product &p, const struct tiles &n, uint32_t *base)
{
	static __shared__ uint64_t offsets[COLS];
	static __shared__ uint32_t pairs[COLS];
	struct memory<COLS> m = {
		.weights = base, .x = base + memory<COLS>::stages * FP4_STAGE_WORDS
	};
	struct tile t = {.offsets = offsets};
	uint64_t total = (uint64_t)n.rows * n.parts * n.groups;

	m.restore = (float *)(m.x + 2 * memory<COLS>::x_words);
	for (uint64_t i = blockIdx.x; i < total; i += gridDim.x) {
		float d[2][COLS / 16][4] = {};

		if (!find_tile<COLS, OUT>(p, n, i, &t))
			break;
		if (t.group.count == 0)
			continue;
		if (threadIdx.x < t.group.count) {
			uint32_t pair = product_pair(p, t.group.first + threadIdx.x);

			pairs[threadIdx.x] = pair;
			offsets[threadIdx.x] = (uint64_t)(product_x(p, pair) - p.x);
		}
		__syncthreads();
		multiply_tile<WAY, COLS, OUT>(p, t, m, d);
		store_tile<COLS, OUT>(p, t, pairs, d);
		__syncthreads();
	}
}

template <int WAY, int COLS, int OUT>
static __global__ void __launch_bounds__(BLOCK, WAY == BY_MMA ? 2 : 1)
	fp4_kernel(const __grid_constant__ struct product p, const struct tiles n)
{
	extern __shared__ __align__(128) uint32_t fp4_base[];

	if constexpr (WAY == BY_MMA && !HAS_FP4)
		__trap();
	else
		run_tiles<WAY, COLS, OUT>(p, n, fp4_base);
}

/* Blocks of a kernel that the device holds at a time. */
static status blocks_held(
	uint32_t *out, const void *kernel, uint32_t bytes, int device, struct err *err)
{
	int sms = 0, each = 0;

	CUDA_TRY("multiprocessors",
		cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
	CUDA_TRY("blocks of a multiprocessor",
		cudaOccupancyMaxActiveBlocksPerMultiprocessor(
			&each, kernel, BLOCK, bytes));
	if (sms < 1 || each < 1)
		return err_set(err, ST_LIMIT,
			"%d multiprocessors that hold %d blocks of %u bytes each", sms,
			each, bytes);
	*out = (uint32_t)sms * (uint32_t)each;
	return ST_OK;
}

/* Rows of x of a tile, by how many rows a group has at most. */
static uint32_t columns_for(const struct product *p, uint32_t most)
{
	uint32_t rows = p->groups != NULL ? most : p->ids != NULL ? 1 : p->n_rows;

	return rows <= FEW_COLS ? FEW_COLS : MANY_COLS;
}

template <int WAY, int COLS, int OUT>
static status launch(struct stream *stream, const struct product *p, uint32_t most,
	const char *what, struct err *err)
{
	const void *kernel = (const void *)fp4_kernel<WAY, COLS, OUT>;
	uint32_t bytes = memory<COLS>::bytes, held = 0;
	struct tiles n = {
		.rows = CEIL_DIV(
			p->w.n, (OUT == OUT_SWIGLU ? FP4_TILES / 2 : FP4_TILES) * FP4_M),
		.parts = p->groups != NULL ? CEIL_DIV(most, (uint32_t)COLS) : 1,
		.groups = p->groups != NULL ? p->max_groups
			  : p->ids != NULL  ? p->n_rows
					    : CEIL_DIV(p->n_rows, (uint32_t)COLS),
	};
	uint64_t total = (uint64_t)n.rows * n.parts * n.groups;
	status st;

	if (total == 0)
		return ST_OK;
	CUDA_ALLOW_SMEM(what, kernel, bytes);
	st = blocks_held(&held, kernel, bytes, stream->device, err);
	if (st != ST_OK)
		return err_wrap(err, "%s", what);
	fp4_kernel<WAY, COLS, OUT>
		<<<(uint32_t)MIN(total, held), BLOCK, bytes, stream->cuda>>>(*p, n);
	return cuda_launched(what, err);
}

static status check_weight(const struct weight *w, const char *what, struct err *err)
{
	if (w->format != WF_NVFP4 || w->layout != LAYOUT_FP4 || w->k % FP4_K != 0 ||
		w->n % FP4_M != 0 || !is_aligned(w->data, 16) ||
		!is_aligned(w->scale, 16))
		return err_set(err, ST_LIMIT,
			"%s: %s weights of %u x %u in layout %u; it takes nvfp4 in "
			"layout "
			"%u, of multiples of %d x %d, at addresses of 16 bytes",
			what, format_name(w->format), w->n, w->k, w->layout, LAYOUT_FP4,
			FP4_M, FP4_K);
	return ST_OK;
}

static status check(const struct product *p, const char *what, struct err *err)
{
	status st = check_weight(&p->w, what, err);

	if (st == ST_OK && p->out == OUT_SWIGLU)
		st = check_weight(&p->up, what, err);
	if (st != ST_OK)
		return st;
	if (p->out == OUT_SWIGLU && (p->up.n != p->w.n || p->up.k != p->w.k))
		return err_set(err, ST_LIMIT, "%s: gate of %u x %u, up of %u x %u", what,
			p->w.n, p->w.k, p->up.n, p->up.k);
	if (!is_aligned(p->x, 16) || p->x_stride % 8 != 0)
		return err_set(err, ST_LIMIT,
			"%s: activations with row stride %llu or at an address not of 16 "
			"bytes",
			what, (unsigned long long)p->x_stride);
	return ST_OK;
}

#define BY_OUT(WAY, COLS, ...)                                                           \
	(p->out == OUT_BF16         ? launch<WAY, COLS, OUT_BF16>(__VA_ARGS__)           \
		: p->out == OUT_F32 ? launch<WAY, COLS, OUT_F32>(__VA_ARGS__)            \
				    : launch<WAY, COLS, OUT_SWIGLU>(__VA_ARGS__))

template <int WAY>
static status run(struct stream *stream, const struct product *p, uint32_t most,
	const char *what, struct err *err)
{
	status st;

	if (p->w.format != WF_NVFP4)
		return product_run(stream, p, most, what, err);
	st = check(p, what, err);
	if (st != ST_OK || p->n_rows == 0)
		return st;
	CUDA_ENTER(what);
	return columns_for(p, most) == FEW_COLS
		       ? BY_OUT(WAY, FEW_COLS, stream, p, most, what, err)
		       : BY_OUT(WAY, MANY_COLS, stream, p, most, what, err);
}

static void name(const struct product *p, uint32_t most, const char *prefix,
	char names[KERNEL_NAMES_MAX])
{
	if (p->w.format != WF_NVFP4)
		product_inner(p, most, prefix, names);
	else
		kernel_named(names, "%sfp4 %u", prefix, columns_for(p, most));
}

const struct product_way product_fp4 = {run<BY_MMA>, name};
const struct product_way product_fp4_steps = {run<BY_STEPS>, name};
