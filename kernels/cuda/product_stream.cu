/* Rows of x, 16 at a time, against a matrix: every weight is read once for them, from
 * global memory to registers, so bytes of weights bound it. Weight rows are the 16 rows
 * of the tensor-core instruction, rows of x its 8 columns.
 *
 * A block of 8 warps is split into `parts` parts of k by 8 / parts tiles of 16 weight
 * rows; the parts meet in shared memory and are added in a fixed order, which the shape
 * of the matrix alone decides where all rows meet the same one. A lane has the loads of
 * several chunks in flight. Of a narrow matrix a tile has 8 or 4 rows, so that more
 * multiprocessors read it. */
#include "kernels/cuda/matrix.cuh"

enum {
	BLOCK = 256,
	WARPS = BLOCK / WARP,
	SPLIT_MAX = 3,    /* log2 of WARPS */
	FEW_BLOCKS = 132, /* one per multiprocessor of an H200 */
};

/* Of a block. SHALLOW: it shares its multiprocessor with another. LOW: so too, but its
 * tile has at most 8 rows. DEEP: it is alone and has more in flight instead. */
enum form { SHALLOW, LOW, DEEP };

/* Chunks of the weights in flight. More spills, or takes a block from the
 * multiprocessor. */
static __host__ __device__ constexpr int depth_of(int format, int out, int nt, int form)
{
	if (form == DEEP)
		return 8;
	if (format == WF_NVFP4 || form == LOW)
		return 4;
	if (out == OUT_SWIGLU)
		return format == WF_FP8 && nt == 2 ? 1 : 2;
	return format == WF_BF16 && (nt == 2 || out == OUT_F32) ? 2 : 4;
}

/* Chunks of x loaded at a time. */
static __host__ __device__ constexpr int x_depth_of(int format, int out, int nt, int form)
{
	int most = form == DEEP         ? 8 / nt
		   : format == WF_NVFP4 ? 1
					: 4 / (out == OUT_SWIGLU ? 2 * nt : nt);
	int depth = depth_of(format, out, nt, form);

	return most < depth ? most : depth;
}

/* Blocks of a multiprocessor. */
static __host__ __device__ constexpr int blocks_of(int format, int out, int nt, int form)
{
	if (form == DEEP)
		return 1;
	if (format == WF_NVFP4 && out != OUT_SWIGLU)
		return 5 - nt;
	return format == WF_BF16 && out == OUT_F32 && nt == 1 ? 3 : 2;
}

/* One of `parts` parts of k: chunks at, at + parts, ... of so many. */
struct cut {
	uint32_t at, parts, chunks;
};

/* A lane's 16 k of one row of x, from k on; zeros from `end` on, or for no row. */
template <int FORMAT>
static __device__ __forceinline__ void load_x(
	uint32_t *x, const bf16 *row, uint32_t k, uint32_t end)
{
#pragma unroll
	for (int i = 0; i < 2; i++, k += halves<FORMAT>::second) {
		uint4 v = load16_if(row + k, row != NULL && k < end);

		x[4 * i] = v.x;
		x[4 * i + 1] = v.y;
		x[4 * i + 2] = v.z;
		x[4 * i + 3] = v.w;
	}
}

/* The next chunks of the weights; k_end: 0 in lanes without a row. */
template <int ROWS, int FORMAT, int MATS, int DEPTH>
static __device__ __forceinline__ void load_weights(
	struct chunk<FORMAT> (&w)[DEPTH][MATS], const struct lane_rows *rows,
	const struct cut &cut, uint32_t k_end)
{
	uint32_t k_lane = threadIdx.x % 4 * halves<FORMAT>::lane;

#pragma unroll
	for (int u = 0; u < DEPTH * MATS; u++) {
		uint32_t c = cut.at + u / MATS * cut.parts;

		chunk_load<FORMAT, ROWS>(&w[u / MATS][u % MATS], rows[u % MATS], c,
			c * CHUNK_K + k_lane, k_end);
	}
}

/* FP8: the scales of COUNT chunks, rows g and g + 8. */
template <int FORMAT, int COUNT, int MATS>
static __device__ __forceinline__ void load_scales(float (&scale)[COUNT][MATS][2],
	const struct lane_rows *rows, const struct cut &cut, uint32_t block_k)
{
#pragma unroll
	for (int i = 0; FORMAT == WF_FP8 && i < COUNT; i++) {
		uint32_t c = min(cut.at + i * cut.parts, cut.chunks - 1);
		uint32_t block = c * CHUNK_K / block_k;

#pragma unroll
		for (int j = 0; j < MATS * 2; j++)
			scale[i][j / 2][j % 2] = rows[j / 2].scale[j % 2][block];
	}
}

/* d += the weights in flight times the same chunks of x, COUNT of them at a time. */
template <int COUNT, int FORMAT, int MATS, int DEPTH, int NT>
static __device__ __forceinline__ void multiply(const struct product &p,
	const struct chunk<FORMAT> (&w)[DEPTH][MATS], const struct lane_rows *rows,
	struct cut cut, const bf16 *const (&x_row)[NT], float (&d)[MATS][NT][4])
{
	uint32_t k_lane = threadIdx.x % 4 * halves<FORMAT>::lane;

#pragma unroll
	for (int u = 0; u < DEPTH; u += COUNT, cut.at += COUNT * cut.parts) {
		uint32_t x[COUNT][NT][8];
		float scale[COUNT][MATS][2] = {};

#pragma unroll
		for (int i = 0; i < COUNT * NT; i++) {
			uint32_t c = cut.at + i / NT * cut.parts;

			load_x<FORMAT>(x[i / NT][i % NT], x_row[i % NT],
				c * CHUNK_K + k_lane, p.w.k);
		}
		load_scales<FORMAT>(scale, rows, cut, p.w.block_k);
		if (COUNT > 1 || FORMAT != WF_NVFP4)
			__syncwarp(); /* no product between the loads: it would wait */
#pragma unroll
		for (int i = 0; i < COUNT; i++) {
			/* The same for the whole warp. */
			if (cut.at + i * cut.parts >= cut.chunks)
				break;
#pragma unroll
			for (int m = 0; m < MATS; m++)
				chunk_multiply<FORMAT, NT>(w[u + i][m], x[i], d[m],
					scale[i][m][0], scale[i][m][1]);
		}
	}
}

/* Sums of one warp over its part of k: d of MATS matrices. The first weights are on
 * their way before it is known which rows of x meet them. */
template <int FORMAT, int OUT, int MATS, int NT, int FORM>
static __device__ __forceinline__ void sum_part(const struct product &p,
	const struct row_group &group, uint32_t row, uint32_t height, struct cut cut,
	float (&d)[MATS][NT][4])
{
	constexpr int DEPTH = depth_of(FORMAT, OUT, NT, FORM);
	constexpr int COUNT = x_depth_of(FORMAT, OUT, NT, FORM);
	constexpr int ROWS = FORM == LOW ? 1 : 2;
	uint32_t lane = threadIdx.x % WARP;
	uint32_t k_end = lane / 4 < height ? p.w.k : 0;
	struct chunk<FORMAT> w[DEPTH][MATS];
	struct lane_rows rows[MATS];
	const bf16 *x_row[NT];

	if (cut.at >= cut.chunks)
		return;
	rows[0] = lane_rows_of<FORMAT>(p.w, group.expert, row, lane);
	if (MATS == 2)
		rows[MATS - 1] = lane_rows_of<FORMAT>(p.up, group.expert, row, lane);
	load_weights<ROWS>(w, rows, cut, k_end);
#pragma unroll
	for (int n = 0; n < NT; n++) {
		uint32_t i = n * 8 + lane / 4;

		x_row[n] = NULL;
		if (i < group.count)
			x_row[n] = product_x(p, product_pair(p, group.first + i));
	}
	for (;;) {
		multiply<COUNT>(p, w, rows, cut, x_row, d);
		cut.at += cut.parts * DEPTH;
		if (cut.at >= cut.chunks)
			break;
		load_weights<ROWS>(w, rows, cut, k_end);
	}
}

/* The block's sums, [tile][part][matrix][NT * 8 columns][16 rows], added and stored;
 * first: row of weights of the first tile. */
template <int FORMAT, int OUT, int NT>
static __device__ __forceinline__ void store_sums(const struct product &p,
	const struct row_group &group, const float *sums, uint32_t first, uint32_t height,
	uint32_t split)
{
	constexpr int MATS = OUT == OUT_SWIGLU ? 2 : 1;
	constexpr uint32_t COLS = NT * 8, TILE = MATS * COLS * 16;
	uint32_t log_tiles = SPLIT_MAX - split;

	for (uint32_t i = threadIdx.x; i < COLS * 16 << log_tiles; i += BLOCK) {
		uint32_t tile = i / 16 & ((1u << log_tiles) - 1);
		uint32_t col = i / 16 >> log_tiles, n = first + tile * 16 + i % 16;
		float v[2] = {0, 0};

		if (i % 16 >= height || n >= p.w.n || col >= group.count)
			continue;
		for (uint32_t k = 0; k < 1u << split; k++) {
#pragma unroll
			for (int m = 0; m < MATS; m++)
				v[m] += sums[((tile << split) + k) * TILE +
					     (m * COLS + col) * 16 + i % 16];
		}
		v[0] *= matrix_factor<FORMAT>(p.w, group.expert);
		if (MATS == 2)
			v[1] *= matrix_factor<FORMAT>(p.up, group.expert);
		product_store<OUT>(p, product_pair(p, group.first + col), n, v[0], v[1]);
	}
}

/* split: log2 of the parts of k. height: rows of a tile, 16; if LOW at most 8, and k has
 * 8 parts. */
template <int FORMAT, int OUT, int NT, int FORM>
static __global__ void __launch_bounds__(BLOCK, blocks_of(FORMAT, OUT, NT, FORM))
	stream_kernel(const struct product p, uint32_t split, uint32_t height)
{
	constexpr int MATS = OUT == OUT_SWIGLU ? 2 : 1;
	constexpr uint32_t COLS = NT * 8, TILE = MATS * COLS * 16;
	static __shared__ float sums[WARPS * TILE];
	static_assert(sizeof(sums) <= CUDA_SMEM_MAX, "SM120");
	uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	uint32_t first = (blockIdx.x << (SPLIT_MAX - split)) * height;
	uint32_t row = first + (warp >> split) * 16;
	struct cut cut = {
		warp & ((1u << split) - 1), 1u << split, (p.w.k + CHUNK_K - 1) / CHUNK_K};
	float d[MATS][NT][4] = {};
	struct row_group group;

	if (!product_group(p, blockIdx.y, COLS, &group))
		return;
	if (row < p.w.n)
		sum_part<FORMAT, OUT, MATS, NT, FORM>(p, group, row, height, cut, d);
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
	store_sums<FORMAT, OUT, NT>(p, group, sums, first, height, split);
}

/* log2 of the parts of k: at least four chunks each, unless the device, of up to 188
 * multiprocessors with 24 or more warps, would stay empty. How many rows meet one matrix
 * makes no difference to their sums. */
static uint32_t split_of(const struct product *p, uint32_t groups)
{
	bool same = p->groups == NULL && p->ids == NULL;
	uint64_t tiles = (uint64_t)CEIL_DIV(p->w.n, 16u) * (same ? 1 : groups);
	uint32_t split = SPLIT_MAX;

	while (split > 0 && CEIL_DIV(p->w.k, CHUNK_K) < 4u << split &&
		tiles << split > 8192)
		split--;
	return split;
}

struct shape {
	dim3 grid;
	uint32_t split, height, rows;
	enum form form;
};

template <int FORMAT, int OUT, int FORM>
static void start(
	struct stream *stream, const struct product *p, const struct shape &shape)
{
	if (shape.rows <= 8)
		stream_kernel<FORMAT, OUT, 1, FORM>
			<<<shape.grid, BLOCK, 0, stream->cuda>>>(
				*p, shape.split, shape.height);
	else
		stream_kernel<FORMAT, OUT, 2, FORM>
			<<<shape.grid, BLOCK, 0, stream->cuda>>>(
				*p, shape.split, shape.height);
}

/* Rows of a tile: fewer than 16 as long as every multiprocessor has at most one tile. The
 * order of NVFP4 weights has tiles of 16. */
static uint32_t height_of(const struct product *p, uint32_t groups, uint32_t split)
{
	uint32_t height = 16;

	if (p->w.format == WF_NVFP4 || split < SPLIT_MAX)
		return height;
	while (height > 4 &&
		(uint64_t)CEIL_DIV(p->w.n, height / 2) * groups <= FEW_BLOCKS)
		height /= 2;
	return height;
}

/* Is a warp's part of k more than SHALLOW has in flight? */
static bool is_long(const struct product *p, const struct shape &shape)
{
	uint32_t depth =
		depth_of(p->w.format, OUT_BF16, shape.rows <= 8 ? 1 : 2, SHALLOW);

	return CEIL_DIV(p->w.k, CHUNK_K) > depth << shape.split;
}

static struct shape shape_of(const struct product *p, uint32_t groups, uint32_t rows)
{
	struct shape shape = {dim3(1, groups), split_of(p, groups), 16, rows, SHALLOW};

	shape.grid.x = CEIL_DIV(p->w.n, 16u << (SPLIT_MAX - shape.split));
	if (p->out != OUT_BF16)
		return shape;
	shape.height = height_of(p, groups, shape.split);
	if (shape.height < 16) {
		shape.grid.x = CEIL_DIV(p->w.n, shape.height);
		shape.form = LOW;
	} else if ((uint64_t)shape.grid.x * groups <= FEW_BLOCKS && is_long(p, shape)) {
		shape.form = DEEP;
	}
	return shape;
}

template <int FORMAT, int OUT>
static void launch(
	struct stream *stream, const struct product *p, uint32_t groups, uint32_t rows)
{
	struct shape shape = shape_of(p, groups, rows);

	if constexpr (OUT == OUT_BF16 && FORMAT != WF_NVFP4) {
		if (shape.form == LOW) {
			start<FORMAT, OUT, LOW>(stream, p, shape);
			return;
		}
	}
	if constexpr (OUT == OUT_BF16) {
		if (shape.form == DEEP) {
			start<FORMAT, OUT, DEEP>(stream, p, shape);
			return;
		}
	}
	start<FORMAT, OUT, SHALLOW>(stream, p, shape);
}

static uint32_t groups_of(const struct product *p)
{
	return p->groups != NULL ? p->max_groups
	       : p->ids != NULL  ? p->n_rows
				 : CEIL_DIV(p->n_rows, STREAM_ROWS_MAX);
}

/* Most rows of a group. */
static uint32_t rows_of(const struct product *p, uint32_t most)
{
	return p->groups != NULL ? most
	       : p->ids != NULL  ? 1
				 : MIN(p->n_rows, STREAM_ROWS_MAX);
}

void product_stream_inner(const struct product *p, uint32_t most, const char *prefix,
	char names[KERNEL_NAMES_MAX])
{
	static const char *const forms[] = {"", " low", " deep"};
	struct shape shape = shape_of(p, groups_of(p), rows_of(p, most));

	kernel_named(names, "%sstream %u%s", prefix, shape.rows <= 8 ? 8 : 16,
		forms[shape.form]);
}

status product_stream(struct stream *stream, const struct product *p, uint32_t most,
	const char *what, struct err *err)
{
	uint32_t groups = groups_of(p);
	uint32_t rows = rows_of(p, most);
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
