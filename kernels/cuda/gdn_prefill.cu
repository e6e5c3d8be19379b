/* The gated delta rule in chunks of 64 rows. With G the running sum of g in a chunk and
 * S the state before it (rows v, columns k):
 *   A[i][j] = beta_i (k_i . k_j) exp(G_i - G_j), j < i      T = (I + A)^-1
 *   N = T diag(beta) (V - diag(exp(G)) K S^T)               new values
 *   O = diag(exp(G)) Q S^T + ((q_i . k_j) exp(G_i - G_j), j <= i) N
 *   S = exp(G_last) S + N^T diag(exp(G_last - G)) K
 * Only exponents of non-positive numbers occur. Rows past the end have k, q, v, g and
 * beta zero, which leaves the state alone.
 *
 * What depends on one chunk only (T, the weights, the decays) is found for all of them
 * by gdn_pairs.cu. Then a block owns the state of one head of one sequence, in F32 in
 * registers: each warp 16 rows of it, for which it does every product (their results are
 * laid out as the left factors of the next ones, so only K, Q, V, T and the weights pass
 * through shared memory). Factors are BF16, sums F32. Bound by the chain of chunks, 4
 * million products each on one SM, whose rows are loaded while the chunk before them is
 * computed. */
#include "kernels/cuda/gdn_chunk.cuh"

enum {
	ROWS = 16, /* of the state, in a warp */
	KEY_TILES = 128 / 8,
	ROW_TILES = CHUNK / 8,
	OUT_STRIDE = 128 + 4,
	OWN_ROWS = CHUNK / CHUNK_WARPS, /* that a warp finishes */
};
static_assert(CHUNK_WARPS * ROWS == GDN_D, "the warps have all rows of the state");

struct smem {
	bf16 k[CHUNK * 128], q[CHUNK * 128], v[CHUNK * 128];
	struct chunk_record r;
	float out[CHUNK * OUT_STRIDE];
};
static_assert(sizeof(struct smem) <= CUDA_SMEM_MAX, "an SM120 block has 99 KB");

/* Queries and values: read by the first half of a chunk's work. */
static __device__ __forceinline__ void load_first(
	const struct op_gdn_prefill &op, const struct chunk &k, struct smem *sm)
{
	uint32_t key_head = k.head / (op.n_v / op.n_k);
	uint64_t keys = (uint64_t)op.n_k * GDN_D;
	uint64_t values = (uint64_t)op.n_v * GDN_D;

	load_rows(sm->q, (const bf16 *)op.q + k.t * keys + key_head * GDN_D, keys, k.n);
	load_rows(sm->v, (const bf16 *)op.v + k.t * values + k.head * GDN_D, values, k.n);
}

/* Keys and the record: read to its end. */
static __device__ __forceinline__ void load_last(const struct op_gdn_prefill &op,
	const struct chunk &k, const struct chunk_record *record, struct smem *sm)
{
	uint32_t key_head = k.head / (op.n_v / op.n_k);
	uint64_t keys = (uint64_t)op.n_k * GDN_D;
	const uint4 *from = (const uint4 *)record;
	uint4 *to = (uint4 *)&sm->r;

	load_rows(sm->k, (const bf16 *)op.k + k.t * keys + key_head * GDN_D, keys, k.n);
	for (uint32_t i = threadIdx.x; i < sizeof(sm->r) / 16; i += CHUNK_BLOCK)
		copy16_async(&to[i], &from[i], true);
}

/* Tiles 2s and 2s + 1 of an accumulator as the left factor of the next product. */
static __device__ __forceinline__ void as_factor(
	const float (*acc)[4], uint32_t s, uint32_t *a)
{
	a[0] = pack2(acc[2 * s][0], acc[2 * s][1]);
	a[1] = pack2(acc[2 * s][2], acc[2 * s][3]);
	a[2] = pack2(acc[2 * s + 1][0], acc[2 * s + 1][1]);
	a[3] = pack2(acc[2 * s + 1][2], acc[2 * s + 1][3]);
}

/* old = S K^T, out = S Q^T for the warp's rows of the state and the 64 rows. */
static __device__ __forceinline__ void recall(
	const struct smem *sm, const float (*state)[4], float (*old)[4], float (*out)[4])
{
	uint32_t lane = threadIdx.x % WARP;

#pragma unroll
	for (uint32_t s = 0; s < KEY_TILES / 2; s++) {
		uint32_t a[4];

		as_factor(state, s, a);
#pragma unroll
		for (uint32_t n = 0; n < ROW_TILES; n += 2) {
			uint32_t b[4];
			uint32_t at = at128(
				n * 8 + lane / 16 * 8 + lane % 8, s * 2 + lane / 8 % 2);

			ldmatrix4(b, &sm->k[at]);
			mma_bf16(old[n], a, b[0], b[1]);
			mma_bf16(old[n + 1], a, b[2], b[3]);
			ldmatrix4(b, &sm->q[at]);
			mma_bf16(out[n], a, b[0], b[1]);
			mma_bf16(out[n + 1], a, b[2], b[3]);
		}
	}
}

/* old becomes beta (V - exp(G) old), out becomes exp(G) out. */
static __device__ __forceinline__ void compare_values(
	const struct smem *sm, float (*old)[4], float (*out)[4])
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t warp = threadIdx.x / WARP;

#pragma unroll
	for (uint32_t n = 0; n < ROW_TILES; n += 2) {
		uint32_t v[4];

		/* v[0], v[1]: the warp's values 0-7 and 8-15 of tile n. */
		ldmatrix4_trans(v, &sm->v[at128(n * 8 + lane / 16 * 8 + lane % 8,
					   warp * 2 + lane / 8 % 2)]);
#pragma unroll
		for (uint32_t e = 0; e < 8; e++) {
			uint32_t tile = n + e / 4;
			uint32_t row = tile * 8 + lane % 4 * 2 + e % 2;
			uint32_t two = v[e / 2];
			float value = e % 2 == 0 ? low2(two) : high2(two);
			float past = sm->r.past[row];

			old[tile][e % 4] =
				sm->r.beta[row] * (value - past * old[tile][e % 4]);
			out[tile][e % 4] *= past;
		}
	}
}

/* acc += left right^T, left: the warp's 16 rows over the 64 rows, right [64][64]. */
static __device__ __forceinline__ void multiply_rows(
	float (*acc)[4], const float (*left)[4], const bf16 *right)
{
	uint32_t lane = threadIdx.x % WARP;

#pragma unroll
	for (uint32_t s = 0; s < ROW_TILES / 2; s++) {
		uint32_t a[4];

		as_factor(left, s, a);
#pragma unroll
		for (uint32_t n = 0; n < ROW_TILES; n += 2) {
			uint32_t b[4];

			/* Both matrices are zero above the diagonal. */
			if (n * 8 + 15 < s * 16)
				continue;
			ldmatrix4(b, &right[at64(n * 8 + lane / 16 * 8 + lane % 8,
					     s * 2 + lane / 8 % 2)]);
			mma_bf16(acc[n], a, b[0], b[1]);
			mma_bf16(acc[n + 1], a, b[2], b[3]);
		}
	}
}

/* S = exp(G_last) S + N^T diag(exp(G_last - G)) K; n is scaled in place. */
static __device__ __forceinline__ void advance(
	const struct smem *sm, float (*state)[4], float (*fresh)[4])
{
	uint32_t lane = threadIdx.x % WARP;
	float decay = sm->r.past[CHUNK - 1];

#pragma unroll
	for (uint32_t n = 0; n < KEY_TILES; n++) {
#pragma unroll
		for (uint32_t e = 0; e < 4; e++)
			state[n][e] *= decay;
	}
#pragma unroll
	for (uint32_t n = 0; n < ROW_TILES; n++) {
#pragma unroll
		for (uint32_t e = 0; e < 4; e++)
			fresh[n][e] *= sm->r.left[n * 8 + lane % 4 * 2 + e % 2];
	}
#pragma unroll
	for (uint32_t s = 0; s < ROW_TILES / 2; s++) {
		uint32_t a[4];

		as_factor(fresh, s, a);
#pragma unroll
		for (uint32_t n = 0; n < KEY_TILES; n += 2) {
			uint32_t b[4];

			ldmatrix4_trans(
				b, &sm->k[at128(s * 16 + lane % 16, n + lane / 16)]);
			mma_bf16(state[n], a, b[0], b[1]);
			mma_bf16(state[n + 1], a, b[2], b[3]);
		}
	}
}

static __device__ __forceinline__ void store_out(struct smem *sm, const float (*out)[4])
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t value = threadIdx.x / WARP * ROWS + lane / 4;

#pragma unroll
	for (uint32_t n = 0; n < ROW_TILES; n++) {
#pragma unroll
		for (uint32_t e = 0; e < 4; e++)
			sm->out[(n * 8 + lane % 4 * 2 + e % 2) * OUT_STRIDE + value +
				e / 2 * 8] = out[n][e];
	}
}

/* One chunk, whose rows are there or on the way; the next one's follow as places become
 * free. Ends with a barrier, after which only `out` is still to be read. */
static __device__ __forceinline__ void run_chunk(const struct op_gdn_prefill &op,
	const struct chunk &next, const struct chunk_record *record, struct smem *sm,
	float (*state)[4])
{
	float old[ROW_TILES][4] = {}, out[ROW_TILES][4] = {};
	float fresh[ROW_TILES][4] = {};

	copy_async_wait<0>();
	__syncthreads();
	recall(sm, state, old, out);
	compare_values(sm, old, out);
	__syncthreads();
	if (next.n > 0)
		load_first(op, next, sm);
	multiply_rows(fresh, old, sm->r.inverse);
	multiply_rows(out, fresh, sm->r.weights);
	store_out(sm, out);
	advance(sm, state, fresh);
	__syncthreads();
	if (next.n > 0)
		load_last(op, next, record, sm);
	copy_async_commit();
}

/* The warp's rows of the state, from or to memory. */
template <bool STORE>
static __device__ __forceinline__ void move_state(float *memory, float (*state)[4])
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t row = threadIdx.x / WARP * ROWS + lane / 4;

#pragma unroll
	for (uint32_t n = 0; n < KEY_TILES; n++) {
#pragma unroll
		for (uint32_t h = 0; h < 2; h++) {
			float2 *at = (float2 *)(memory + (row + h * 8) * GDN_D + n * 8 +
						lane % 4 * 2);

			if (STORE) {
				*at = make_float2(state[n][2 * h], state[n][2 * h + 1]);
			} else {
				float2 two = *at;

				state[n][2 * h] = two.x;
				state[n][2 * h + 1] = two.y;
			}
		}
	}
}

/* Of the rows that the warp will finish: asked for before the chunk's products, since
 * nothing else is left to do while they come. */
static __device__ __forceinline__ void load_gates(
	const struct op_gdn_prefill &op, const struct chunk &k, uint2 (&gate)[OWN_ROWS])
{
#pragma unroll
	for (uint32_t i = 0; i < OWN_ROWS; i++) {
		uint32_t r = threadIdx.x / WARP + i * CHUNK_WARPS;

		gate[i] = r < k.n ? gdn_gate(op, k.t + r, k.head) : make_uint2(0, 0);
	}
}

static __device__ __forceinline__ void finish_rows(const struct op_gdn_prefill &op,
	const struct chunk &k, const struct smem *sm, const uint2 (&gate)[OWN_ROWS])
{
#pragma unroll
	for (uint32_t i = 0; i < OWN_ROWS; i++) {
		uint32_t r = threadIdx.x / WARP + i * CHUNK_WARPS;

		if (r < k.n)
			gdn_finish(
				op, k.t + r, k.head, &sm->out[r * OUT_STRIDE], gate[i]);
	}
}

static __global__ void __launch_bounds__(CHUNK_BLOCK, 1)
	gdn_chunks_kernel(const struct op_gdn_prefill op)
{
	extern __shared__ __align__(16) unsigned char raw[];
	struct smem *sm = (struct smem *)raw;
	uint32_t seq = blockIdx.y;
	uint64_t first = op.rows.first[seq];
	uint64_t end = op.rows.first[seq + 1];
	struct chunk k = {first, 0, blockIdx.x};
	float *memory = gdn_state(op, seq, k.head);
	float state[KEY_TILES][4];

	if (k.t == end)
		return;
	k.n = (uint32_t)min((uint64_t)CHUNK, end - k.t);
	load_first(op, k, sm);
	load_last(op, k, record_of(op, seq, first, 0, k.head), sm);
	copy_async_commit();
	move_state<false>(memory, state);
	for (uint32_t i = 1; k.t < end; i++) {
		struct chunk next = {k.t + k.n, 0, k.head};
		uint2 gate[OWN_ROWS];

		next.n = (uint32_t)min((uint64_t)CHUNK, end - next.t);
		load_gates(op, k, gate);
		run_chunk(op, next, record_of(op, seq, first, i, k.head), sm, state);
		finish_rows(op, k, sm, gate);
		/* out is written again only after two barriers of the next chunk. */
		k = next;
	}
	move_state<true>(memory, state);
}

uint64_t gdn_cuda_chunks_work(const struct kernel_shapes *shapes)
{
	return records_bytes(shapes->rows_max, shapes->seqs_max, shapes->n_v);
}

CUDA_KERNEL(gdn_prefill, chunks)
{
	const char *what = "gdn_prefill/chunks";
	uint64_t need = records_bytes(op->rows.n_rows, op->rows.n_seqs, op->n_v);
	status st = gdn_check(what, op, err);

	if (st != ST_OK || op->rows.n_rows == 0)
		return st;
	if (need > op->work_bytes || !is_aligned(op->work, 16) ||
		op->rows.max_seq_rows > 65535u * CHUNK)
		return err_set(err, ST_LIMIT,
			"%s: %llu bytes of scratch, %llu are needed for %u rows", what,
			(unsigned long long)op->work_bytes, (unsigned long long)need,
			op->rows.n_rows);
	CUDA_ENTER(what);
	st = gdn_pairs_launch(stream, op, err);
	if (st != ST_OK)
		return st;
	CUDA_ALLOW_SMEM(what, gdn_chunks_kernel, sizeof(struct smem));
	gdn_chunks_kernel<<<dim3(op->n_v, op->rows.n_seqs), CHUNK_BLOCK,
		sizeof(struct smem), stream->cuda>>>(*op);
	return cuda_launched(what, err);
}
