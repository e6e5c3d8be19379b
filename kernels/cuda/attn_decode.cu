/* Attention of single rows: all query heads of a KV head are the 16 rows of one tensor
 * core product (fewer are padded), the keys are cut into ranges so that few sequences
 * fill the GPU, and a second kernel joins the ranges. Bound by reading K and V once:
 * 2 * D BF16 per key and KV head.
 *
 * A block takes one range: 32 keys at a time through three stages of asynchronous copies.
 * Scores: each warp does 8 of the 32 keys; values: each warp does 64 of the 256 columns,
 * so the accumulators are 32 registers. attn_prefill/rows is the same kernel with a row
 * of its own for every token; it is the oracle of attn_prefill/tiles. */
#include "kernels/cuda/attn_tile.cuh"

enum {
	HEADS = 16, /* rows of the product */
	STAGES = 3,
	SCORE_STRIDE = ATTN_KEYS + 4,
	COLUMNS = ATTN_D / ATTN_WARPS, /* of a warp */
	BLOCKS_WANTED = 528,           /* two rounds of two blocks on each of 132 SMs */
	SPLIT_KEYS_MIN = 128,
	SPLITS_MAX = 128,
	MERGE_BLOCK = ATTN_D,
	MERGE_AHEAD = 8, /* parts on their way */
};

struct smem {
	bf16 k[STAGES][ATTN_KEYS * ATTN_D];
	bf16 v[STAGES][ATTN_KEYS * ATTN_D];
	float scores[HEADS * SCORE_STRIDE];
};
static_assert(sizeof(struct smem) <= CUDA_SMEM_MAX, "an SM120 block has 99 KB");

/* One block's share, and where its result goes. */
struct task {
	uint32_t head_0, n_heads; /* query heads */
	uint32_t kv_head;
	uint32_t from, to, len; /* keys */
	uint32_t split, n_splits;
	uint64_t t;
};

/* Partial results in op.work: for each (row, query head, split) D sums, then for each a
 * maximum and a sum of weights. */
static __device__ __forceinline__ float *part_sums(
	const struct op_attn_prefill &op, const struct task &k, uint32_t head)
{
	return (float *)op.work + ((k.t * op.n_q + head) * k.n_splits + k.split) * ATTN_D;
}

static __device__ __forceinline__ float2 *part_weights(
	const struct op_attn_prefill &op, uint32_t n_splits)
{
	return (float2 *)((float *)op.work +
			  (uint64_t)op.rows.n_rows * op.n_q * n_splits * ATTN_D);
}

/* a[k-step][4]: the queries as fragments; heads that do not exist are zero. */
static __device__ __forceinline__ void load_queries(
	const struct op_attn_prefill &op, const struct task &k, uint32_t (*a)[4])
{
	uint32_t g = threadIdx.x % WARP / 4;
	uint32_t c = threadIdx.x % 4 * 2;
	const bf16 *q = (const bf16 *)op.q + (k.t * op.n_q + k.head_0) * ATTN_D;

#pragma unroll
	for (uint32_t s = 0; s < ATTN_D / 16; s++) {
#pragma unroll
		for (uint32_t i = 0; i < 4; i++) {
			uint32_t row = g + i % 2 * 8;
			uint32_t at = row * ATTN_D + s * 16 + i / 2 * 8 + c;

			a[s][i] = row < k.n_heads ? *(const uint32_t *)(q + at) : 0;
		}
	}
}

/* Scores of this warp's 8 keys to shared memory. */
static __device__ __forceinline__ void score(const struct task &k, const bf16 *tile,
	const uint32_t (*q)[4], uint32_t from, float *scores)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t warp = threadIdx.x / WARP;
	uint32_t key = warp * 8 + lane % 4 * 2;
	float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};

#pragma unroll
	for (uint32_t s = 0; s < ATTN_D / 16; s += 2) {
		uint32_t b[4];

		ldmatrix4(b, &tile[tile_at(warp * 8 + lane % 8, s * 2 + lane / 8)]);
		mma_bf16(acc, q[s], b[0], b[1]);
		mma_bf16(acc, q[s + 1], b[2], b[3]);
	}
#pragma unroll
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t at = key + i % 2;

		scores[(lane / 4 + i / 2 * 8) * SCORE_STRIDE + at] =
			from + at < k.to ? acc[i] * ATTN_SCALE : -INFINITY;
	}
}

/* Running softmax of rows g (0) and g + 8 (1); sums are of this lane's keys only. */
struct running {
	float max[2], sum[2];
};

/* p: weights of the tile as fragments; o is brought to the new maxima. */
static __device__ __forceinline__ void weigh(
	const float *scores, struct running *run, uint32_t (*p)[4], float (*o)[4])
{
	uint32_t g = threadIdx.x % WARP / 4;
	uint32_t c = threadIdx.x % 4 * 2;

#pragma unroll
	for (uint32_t h = 0; h < 2; h++) {
		const float *row = scores + (g + h * 8) * SCORE_STRIDE + c;
		float most = run->max[h];
		float decay, v[8];

#pragma unroll
		for (uint32_t i = 0; i < 4; i++) {
			float2 two = *(const float2 *)(row + i * 8);

			v[2 * i] = two.x;
			v[2 * i + 1] = two.y;
			most = fmaxf(most, fmaxf(two.x, two.y));
		}
		most = fmaxf(most, __shfl_xor_sync(FULL_WARP, most, 1));
		most = fmaxf(most, __shfl_xor_sync(FULL_WARP, most, 2));
		decay = exp2f(run->max[h] - most);
		run->max[h] = most;
		run->sum[h] *= decay;
#pragma unroll
		for (uint32_t i = 0; i < 8; i++) {
			v[i] = exp2f(v[i] - most);
			run->sum[h] += v[i];
		}
#pragma unroll
		for (uint32_t s = 0; s < 2; s++) {
			p[s][h] = pack2(v[4 * s], v[4 * s + 1]);
			p[s][2 + h] = pack2(v[4 * s + 2], v[4 * s + 3]);
		}
#pragma unroll
		for (uint32_t n = 0; n < COLUMNS / 8; n++) {
			o[n][2 * h] *= decay;
			o[n][2 * h + 1] *= decay;
		}
	}
}

/* o += p V for this warp's columns. */
static __device__ __forceinline__ void add_values(
	const bf16 *tile, const uint32_t (*p)[4], float (*o)[4])
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t piece = threadIdx.x / WARP * (COLUMNS / 8) + lane / 16;

#pragma unroll
	for (uint32_t s = 0; s < 2; s++) {
#pragma unroll
		for (uint32_t n = 0; n < COLUMNS / 8; n += 2) {
			uint32_t b[4];

			ldmatrix4_trans(b, &tile[tile_at(s * 16 + lane % 16, piece + n)]);
			mma_bf16(o[n], p[s], b[0], b[1]);
			mma_bf16(o[n + 1], p[s], b[2], b[3]);
		}
	}
}

static __device__ __forceinline__ void run_range(const struct op_attn_prefill &op,
	const struct task &k, struct smem *sm, struct running *run, float (*o)[4])
{
	uint32_t q[ATTN_D / 16][4];
	struct page_window w =
		window_open(op.rows, op.kv, op.rows.seq[k.t], k.from, k.len);

	for (uint32_t i = 0; i < STAGES - 1; i++) {
		if (k.from + i * ATTN_KEYS < k.to)
			load_tile(op.kv, &w, k.kv_head, k.from + i * ATTN_KEYS, k.to,
				sm->k[i], sm->v[i]);
		copy_async_commit();
	}
	load_queries(op, k, q);
	for (uint32_t i = 0; k.from + i * ATTN_KEYS < k.to; i++) {
		uint32_t from = k.from + i * ATTN_KEYS;
		uint32_t ahead = from + (STAGES - 1) * ATTN_KEYS;
		uint32_t stage = (i + STAGES - 1) % STAGES;
		uint32_t p[2][4];

		/* Tile i is there, and nobody reads tile i - 1 any more. */
		copy_async_wait<STAGES - 2>();
		__syncthreads();
		if (ahead < k.to)
			load_tile(op.kv, &w, k.kv_head, ahead, k.to, sm->k[stage],
				sm->v[stage]);
		copy_async_commit();
		score(k, sm->k[i % STAGES], q, from, sm->scores);
		__syncthreads();
		weigh(sm->scores, run, p, o);
		add_values(sm->v[i % STAGES], p, o);
	}
}

/* Two columns of a query head, gated. */
static __device__ __forceinline__ void store_gated(const struct op_attn_prefill &op,
	uint64_t t, uint32_t head, uint32_t column, float lo, float hi)
{
	uint32_t gate =
		*(const uint32_t *)((const bf16 *)op.qg + t * op.qg_stride +
				    (uint64_t)head * 2 * ATTN_D + ATTN_D + column);
	uint32_t *to = (uint32_t *)((bf16 *)op.o + (t * op.n_q + head) * ATTN_D + column);

	*to = pack2(lo * dev_sigmoid(low2(gate)), hi * dev_sigmoid(high2(gate)));
}

static __device__ __forceinline__ void finish(const struct op_attn_prefill &op,
	const struct task &k, const struct running &run, const float (*o)[4])
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t warp = threadIdx.x / WARP;

#pragma unroll
	for (uint32_t h = 0; h < 2; h++) {
		uint32_t row = lane / 4 + h * 8;
		uint32_t head = k.head_0 + row;
		float sum = run.sum[h];

		sum += __shfl_xor_sync(FULL_WARP, sum, 1);
		sum += __shfl_xor_sync(FULL_WARP, sum, 2);
		if (row >= k.n_heads)
			continue;
		if (k.n_splits > 1 && warp == 0 && lane % 4 == 0)
			part_weights(op, k.n_splits)[(k.t * op.n_q + head) * k.n_splits +
						     k.split] =
				make_float2(run.max[h], sum);
		if (k.n_splits > 1 && k.from >= k.to)
			continue; /* its weight is 0 and its sums are not read */
#pragma unroll
		for (uint32_t n = 0; n < COLUMNS / 8; n++) {
			uint32_t column = warp * COLUMNS + n * 8 + lane % 4 * 2;

			if (k.n_splits > 1)
				*(float2 *)(part_sums(op, k, head) + column) =
					make_float2(o[n][2 * h], o[n][2 * h + 1]);
			else
				store_gated(op, k.t, head, column, o[n][2 * h] / sum,
					o[n][2 * h + 1] / sum);
		}
	}
}

static __global__ void __launch_bounds__(ATTN_BLOCK, 2)
	attn_rows_kernel(const struct op_attn_prefill op, uint32_t n_splits)
{
	extern __shared__ __align__(16) unsigned char raw[];
	struct smem *sm = (struct smem *)raw;
	uint32_t group = op.n_q / op.kv.n_kv;
	uint32_t parts = (group + HEADS - 1) / HEADS; /* products per KV head */
	struct running run = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
	float o[COLUMNS / 8][4] = {};
	struct task k;
	uint32_t keys;

	k.t = blockIdx.x;
	k.kv_head = blockIdx.y / parts;
	k.head_0 = k.kv_head * group + blockIdx.y % parts * HEADS;
	k.n_heads = min((uint32_t)HEADS, (k.kv_head + 1) * group - k.head_0);
	k.split = blockIdx.z;
	k.n_splits = n_splits;
	k.len = op.rows.pos[k.t] + 1;
	/* Whole tiles, as even as can be; the last ranges of a short row are empty. */
	keys = (k.len + ATTN_KEYS * n_splits - 1) / (ATTN_KEYS * n_splits) * ATTN_KEYS;
	k.from = min(k.split * keys, k.len);
	k.to = min(k.from + keys, k.len);
	if (k.from < k.to)
		run_range(op, k, sm, &run, o);
	finish(op, k, run, o);
}

/* What the parts of a row are multiplied by, to scale; returns the sum of their weights.
 * 0: the part is empty, and nothing was written for it. */
static __device__ __forceinline__ float merge_scales(
	const float2 *weights, uint32_t n_splits, float *scale, float *partial)
{
	static_assert((int)SPLITS_MAX <= (int)MERGE_BLOCK, "a thread per part");
	uint32_t i = threadIdx.x, warp = threadIdx.x / WARP;
	float2 mine = i < n_splits ? weights[i] : make_float2(-INFINITY, 0.0f);
	float most = warp_max(mine.x);

	if (i % WARP == 0)
		partial[warp] = most;
	__syncthreads();
	for (uint32_t w = 0; w < MERGE_BLOCK / WARP; w++)
		most = fmaxf(most, partial[w]);
	__syncthreads();
	scale[i] = mine.y == 0.0f ? 0.0f : exp2f(mine.x - most);
	return block_sum<MERGE_BLOCK / WARP>(scale[i] * mine.y, partial);
}

/* A block per row and query head, a thread per column. */
static __global__ void __launch_bounds__(MERGE_BLOCK)
	attn_merge_kernel(const struct op_attn_prefill op, uint32_t n_splits)
{
	uint64_t t = blockIdx.x;
	uint32_t head = blockIdx.y;
	uint32_t column = threadIdx.x;
	uint64_t row = (t * op.n_q + head) * n_splits;
	const float2 *weights = part_weights(op, n_splits) + row;
	const float *sums = (const float *)op.work + row * ATTN_D + column;
	const bf16 *gate = (const bf16 *)op.qg + t * op.qg_stride +
			   (uint64_t)head * 2 * ATTN_D + ATTN_D + column;
	static __shared__ float scale[MERGE_BLOCK], partial[MERGE_BLOCK / WARP];
	float total = merge_scales(weights, n_splits, scale, partial), value = 0.0f;

	for (uint32_t i = 0; i < n_splits; i += MERGE_AHEAD) {
		float part[MERGE_AHEAD];

#pragma unroll
		for (uint32_t j = 0; j < MERGE_AHEAD; j++) {
			bool there = i + j < n_splits && scale[i + j] != 0.0f;

			part[j] = there ? sums[(uint64_t)(i + j) * ATTN_D] : 0.0f;
		}
#pragma unroll
		for (uint32_t j = 0; j < MERGE_AHEAD; j++)
			value += part[j] * scale[min(i + j, (uint32_t)MERGE_BLOCK - 1)];
	}
	((bf16 *)op.o)[(t * op.n_q + head) * ATTN_D + column] =
		__float2bfloat16(value / total * dev_sigmoid(__bfloat162float(*gate)));
}

static uint32_t products(uint32_t n_q, uint32_t n_kv)
{
	return n_kv * CEIL_DIV(n_q / n_kv, (uint32_t)HEADS);
}

/* More than one only while rows * products < BLOCKS_WANTED. */
static uint32_t choose_splits(uint64_t blocks, uint32_t max_len)
{
	uint64_t wanted = CEIL_DIV((uint64_t)BLOCKS_WANTED, blocks);

	return (uint32_t)MAX(1, MIN(MIN(wanted, (uint64_t)SPLITS_MAX),
					CEIL_DIV(max_len, (uint32_t)SPLIT_KEYS_MIN)));
}

static uint64_t part_bytes(uint64_t rows, uint32_t n_q, uint32_t n_splits)
{
	return n_splits > 1 ? rows * n_q * n_splits * (ATTN_D + 2) * sizeof(float) : 0;
}

/* Ranges there are fewer than wanted + rows * products, each of at most HEADS heads. */
uint64_t attn_cuda_rows_work(const struct kernel_shapes *shapes)
{
	uint32_t group = shapes->n_kv > 0 ? shapes->n_q / shapes->n_kv : 0;

	return 2 * (uint64_t)BLOCKS_WANTED * MIN(group, (uint32_t)HEADS) * (ATTN_D + 2) *
	       sizeof(float);
}

static uint32_t splits_of(const struct op_attn_prefill *op)
{
	return choose_splits((uint64_t)op->rows.n_rows * products(op->n_q, op->kv.n_kv),
		op->rows.max_len);
}

extern "C" void attn_cuda_rows_inner(const void *op, char names[KERNEL_NAMES_MAX])
{
	bool split = splits_of((const struct op_attn_prefill *)op) > 1;

	kernel_named(names, split ? "rows, ranges merged" : "rows");
}

static status launch(const char *what, struct stream *stream,
	const struct op_attn_prefill *op, struct err *err)
{
	status st = attn_check(what, op, err);
	uint32_t blocks, splits;

	if (st != ST_OK || op->rows.n_rows == 0)
		return st;
	blocks = products(op->n_q, op->kv.n_kv);
	splits = splits_of(op);
	if (part_bytes(op->rows.n_rows, op->n_q, splits) > op->work_bytes)
		return err_set(err, ST_LIMIT,
			"%s: %llu bytes of scratch, %llu are needed", what,
			(unsigned long long)op->work_bytes,
			(unsigned long long)part_bytes(op->rows.n_rows, op->n_q, splits));
	CUDA_ENTER(what);
	CUDA_ALLOW_SMEM(what, attn_rows_kernel, sizeof(struct smem));
	attn_rows_kernel<<<dim3(op->rows.n_rows, blocks, splits), ATTN_BLOCK,
		sizeof(struct smem), stream->cuda>>>(*op, splits);
	st = cuda_launched(what, err);
	if (st != ST_OK || splits == 1)
		return st;
	attn_merge_kernel<<<dim3(op->rows.n_rows, op->n_q), MERGE_BLOCK, 0,
		stream->cuda>>>(*op, splits);
	return cuda_launched(what, err);
}

CUDA_KERNEL(attn_decode, rows)
{
	return launch("attn_decode/rows", stream, op, err);
}

CUDA_KERNEL(attn_prefill, rows)
{
	return launch("attn_prefill/rows", stream, op, err);
}
