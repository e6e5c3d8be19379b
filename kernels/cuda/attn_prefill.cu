/* Attention of many rows: 64 rows of one sequence and one query head per block, 16 per
 * warp, over the keys before them in tiles of 32, with a running softmax (flash
 * attention). Bound by the tensor cores: 4 * D operations per row, head and key; a key
 * is read from L2 once per 64 rows and query head.
 *
 * Queries stay in shared memory as they are read once per tile; a warp's accumulators
 * are 128 registers. K and V tiles have two stages. */
#include "kernels/cuda/attn_tile.cuh"

enum { ROWS = 64, STAGES = 2, STEPS = ATTN_D / 16, COLUMN_TILES = ATTN_D / 8 };

struct smem {
	bf16 q[(uint32_t)ROWS * ATTN_D];
	bf16 k[STAGES][ATTN_KEYS * ATTN_D];
	bf16 v[STAGES][ATTN_KEYS * ATTN_D];
};
static_assert(sizeof(struct smem) <= CUDA_SMEM_MAX, "an SM120 block has 99 KB");

/* The rows row_0..row_0 + n - 1 of the pass, the first at position pos_0. */
struct task {
	uint64_t row_0;
	uint32_t n, pos_0, len; /* len: keys that any of them sees */
	uint32_t head, kv_head, seq;
};

static __device__ __forceinline__ void load_queries(
	const struct op_attn_prefill &op, const struct task &k, bf16 *tile)
{
	uint32_t lane = threadIdx.x % WARP;

#pragma unroll
	for (uint32_t i = 0; i < ROWS / ATTN_WARPS; i++) {
		uint32_t r = i * ATTN_WARPS + threadIdx.x / WARP;
		uint64_t row = k.row_0 + min(r, k.n - 1);
		const bf16 *from =
			(const bf16 *)op.q + (row * op.n_q + k.head) * ATTN_D + lane * 8;

		copy16_async(&tile[tile_at(r, lane)], from, r < k.n);
	}
}

/* s[key tile][4]: the scores of the warp's 16 rows and 32 keys, scaled. */
static __device__ __forceinline__ void score(
	const bf16 *q_tile, const bf16 *k_tile, float (*s)[4])
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t q_row = threadIdx.x / WARP * 16 + lane % 16;

#pragma unroll
	for (uint32_t step = 0; step < STEPS; step++) {
		uint32_t a[4];

		ldmatrix4(a, &q_tile[tile_at(q_row, step * 2 + lane / 16)]);
#pragma unroll
		for (uint32_t n = 0; n < ATTN_KEYS / 8; n += 2) {
			uint32_t b[4];
			uint32_t key = n * 8 + lane / 16 * 8 + lane % 8;

			ldmatrix4(b, &k_tile[tile_at(key, step * 2 + lane / 8 % 2)]);
			mma_bf16(s[n], a, b[0], b[1]);
			mma_bf16(s[n + 1], a, b[2], b[3]);
		}
	}
}

/* Scale; scores of keys after a row become -inf. first: position of row g of the warp;
 * from: position of key 0. */
static __device__ __forceinline__ void mask(float (*s)[4], uint32_t first, uint32_t from)
{
	uint32_t c = threadIdx.x % 4 * 2;

#pragma unroll
	for (uint32_t n = 0; n < ATTN_KEYS / 8; n++) {
#pragma unroll
		for (uint32_t i = 0; i < 4; i++) {
			uint32_t key = from + n * 8 + c + i % 2;

			s[n][i] = key <= first + i / 2 * 8 ? s[n][i] * ATTN_SCALE
							   : -INFINITY;
		}
	}
}

struct running {
	float max[2], sum[2]; /* rows g and g + 8; sums of this lane's keys only */
};

/* Scores become weights, packed as the left factor of the next product. */
static __device__ __forceinline__ void weigh(
	float (*s)[4], struct running *run, uint32_t (*p)[4], float (*o)[4])
{
#pragma unroll
	for (uint32_t h = 0; h < 2; h++) {
		float most = run->max[h];
		float decay;

#pragma unroll
		for (uint32_t n = 0; n < ATTN_KEYS / 8; n++)
			most = fmaxf(most, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
		most = fmaxf(most, __shfl_xor_sync(FULL_WARP, most, 1));
		most = fmaxf(most, __shfl_xor_sync(FULL_WARP, most, 2));
		decay = exp2f(run->max[h] - most);
		run->max[h] = most;
		run->sum[h] *= decay;
#pragma unroll
		for (uint32_t n = 0; n < ATTN_KEYS / 8; n++) {
			float lo = exp2f(s[n][2 * h] - most);
			float hi = exp2f(s[n][2 * h + 1] - most);

			run->sum[h] += lo + hi;
			p[n / 2][n % 2 * 2 + h] = pack2(lo, hi);
		}
#pragma unroll
		for (uint32_t n = 0; n < COLUMN_TILES; n++) {
			o[n][2 * h] *= decay;
			o[n][2 * h + 1] *= decay;
		}
	}
}

static __device__ __forceinline__ void add_values(
	const bf16 *tile, const uint32_t (*p)[4], float (*o)[4])
{
	uint32_t lane = threadIdx.x % WARP;

#pragma unroll
	for (uint32_t s = 0; s < ATTN_KEYS / 16; s++) {
#pragma unroll
		for (uint32_t n = 0; n < COLUMN_TILES; n += 2) {
			uint32_t b[4];

			ldmatrix4_trans(
				b, &tile[tile_at(s * 16 + lane % 16, n + lane / 16)]);
			mma_bf16(o[n], p[s], b[0], b[1]);
			mma_bf16(o[n + 1], p[s], b[2], b[3]);
		}
	}
}

static __device__ __forceinline__ void finish(const struct op_attn_prefill &op,
	const struct task &k, const struct running &run, const float (*o)[4])
{
	uint32_t lane = threadIdx.x % WARP;

#pragma unroll
	for (uint32_t h = 0; h < 2; h++) {
		uint32_t r = threadIdx.x / WARP * 16 + lane / 4 + h * 8;
		uint64_t row = k.row_0 + r;
		float sum = run.sum[h];
		const bf16 *gate = (const bf16 *)op.qg + row * op.qg_stride +
				   (uint64_t)k.head * 2 * ATTN_D + ATTN_D + lane % 4 * 2;
		bf16 *to = (bf16 *)op.o + (row * op.n_q + k.head) * ATTN_D + lane % 4 * 2;

		sum += __shfl_xor_sync(FULL_WARP, sum, 1);
		sum += __shfl_xor_sync(FULL_WARP, sum, 2);
		if (r >= k.n)
			continue;
		sum = 1.0f / sum;
#pragma unroll
		for (uint32_t n = 0; n < COLUMN_TILES; n++) {
			uint32_t g = *(const uint32_t *)(gate + n * 8);

			*(uint32_t *)(to + n * 8) =
				pack2(o[n][2 * h] * sum * dev_sigmoid(low2(g)),
					o[n][2 * h + 1] * sum * dev_sigmoid(high2(g)));
		}
	}
}

static __device__ __forceinline__ void run_tiles(const struct op_attn_prefill &op,
	const struct task &k, struct smem *sm, struct running *run, float (*o)[4])
{
	struct page_window w = window_open(op.rows, op.kv, k.seq, 0, k.len);
	uint32_t n_tiles = (k.len + ATTN_KEYS - 1) / ATTN_KEYS;
	uint32_t first = k.pos_0 + threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4;

	load_queries(op, k, sm->q);
	load_tile(op.kv, &w, k.kv_head, 0, k.len, sm->k[0], sm->v[0]);
	copy_async_commit();
	for (uint32_t i = 0; i < n_tiles; i++) {
		uint32_t stage = i % STAGES;
		float s[ATTN_KEYS / 8][4] = {};
		uint32_t p[ATTN_KEYS / 16][4];

		if (i + 1 < n_tiles)
			load_tile(op.kv, &w, k.kv_head, (i + 1) * ATTN_KEYS, k.len,
				sm->k[1 - stage], sm->v[1 - stage]);
		copy_async_commit();
		copy_async_wait<1>();
		__syncthreads();
		score(sm->q, sm->k[stage], s);
		mask(s, first, i * ATTN_KEYS);
		weigh(s, run, p, o);
		add_values(sm->v[stage], p, o);
		__syncthreads(); /* before the stage is loaded again */
	}
}

/* The last rows see the most keys, so they begin first. */
static __global__ void __launch_bounds__(ATTN_BLOCK)
	attn_tiles_kernel(const struct op_attn_prefill op)
{
	extern __shared__ __align__(16) unsigned char raw[];
	struct running run = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
	float o[COLUMN_TILES][4] = {};
	struct task k;
	uint32_t begin, n_rows, skipped;

	k.head = blockIdx.x;
	k.kv_head = k.head / (op.n_q / op.kv.n_kv);
	k.seq = blockIdx.z;
	begin = op.rows.first[k.seq];
	n_rows = op.rows.first[k.seq + 1] - begin;
	skipped = (gridDim.y - 1 - blockIdx.y) * ROWS;
	if (skipped >= n_rows)
		return;
	k.row_0 = begin + skipped;
	k.n = min((uint32_t)ROWS, n_rows - skipped);
	k.pos_0 = op.rows.pos[k.row_0];
	k.len = k.pos_0 + k.n;
	run_tiles(op, k, (struct smem *)raw, &run, o);
	finish(op, k, run, o);
}

CUDA_KERNEL(attn_prefill, tiles)
{
	const char *what = "attn_prefill/tiles";
	uint32_t tiles = CEIL_DIV(op->rows.max_seq_rows, (uint32_t)ROWS);
	status st = attn_check(what, op, err);

	if (st != ST_OK || op->rows.n_rows == 0)
		return st;
	if (tiles > 65535 || op->rows.n_seqs > 65535)
		return err_set(err, ST_LIMIT, "%s: %u rows of %u sequences", what,
			op->rows.max_seq_rows, op->rows.n_seqs);
	CUDA_ENTER(what);
	CUDA_ALLOW_SMEM(what, attn_tiles_kernel, sizeof(struct smem));
	attn_tiles_kernel<<<dim3(op->n_q, tiles, op->rows.n_seqs), ATTN_BLOCK,
		sizeof(struct smem), stream->cuda>>>(*op);
	return cuda_launched(what, err);
}

/* Few rows make few blocks of 64, each with all the keys to go through, while single rows
 * fill the GPU by cutting the keys into ranges. On an H200 64 blocks take 0.6 of the time
 * that their rows take singly, so below about 40 the rows are done sooner. */
#define BLOCKS_MIN 40u

static bool is_for_rows(const struct op_attn_prefill *op)
{
	return (uint64_t)op->rows.n_rows * op->n_q < (uint64_t)BLOCKS_MIN * ROWS;
}

extern "C" void attn_cuda_mixed_inner(const void *op, char names[KERNEL_NAMES_MAX])
{
	if (is_for_rows((const struct op_attn_prefill *)op))
		attn_cuda_rows_inner(op, names);
	else
		kernel_named(names, "tiles");
}

CUDA_KERNEL(attn_prefill, mixed)
{
	if (is_for_rows(op))
		return k_attn_prefill_cuda_rows(stream, op, err);
	return k_attn_prefill_cuda_tiles(stream, op, err);
}
