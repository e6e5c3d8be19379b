/* First kernel of gdn_prefill/chunks (gdn_prefill.cu has the formulas): for each chunk
 * and head the products of its rows with one another, T = (I + A)^-1 and the decays.
 * Chunks do not depend on each other, so all SMs work; bound by latency in shared memory.
 * T is found in F32: bands of 16 rows directly, then band by band away from the diagonal.
 */
#include "kernels/cuda/gdn_chunk.cuh"

enum {
	BAND = 16, /* block of T that is inverted directly */
	BANDS = CHUNK / BAND,
	FACTOR_STRIDE = CHUNK + 4,
};

struct smem {
	bf16 k[CHUNK * 128], q[CHUNK * 128];
	float a[CHUNK * FACTOR_STRIDE], t[CHUNK * FACTOR_STRIDE];
	float sum[CHUNK]; /* G */
	struct chunk_record out;
};
static_assert(sizeof(struct smem) <= CUDA_SMEM_MAX, "an SM120 block has 99 KB");

/* By one warp: the running sum of g, two rows in a lane, and what follows from it. */
static __device__ __forceinline__ void load_gates(
	const struct op_gdn_prefill &op, const struct chunk &k, struct smem *sm)
{
	uint32_t lane = threadIdx.x % WARP;
	float g[2], sum, last;

#pragma unroll
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t row = lane * 2 + i;
		uint64_t at = (k.t + row) * op.n_v + k.head;

		g[i] = row < k.n ? op.g[at] : 0.0f;
		sm->out.beta[row] = row < k.n ? op.beta[at] : 0.0f;
	}
	sum = g[0] + g[1];
#pragma unroll
	for (int step = 1; step < 32; step <<= 1) {
		float before = __shfl_up_sync(FULL_WARP, sum, step);

		sum += lane >= step ? before : 0.0f;
	}
	last = __shfl_sync(FULL_WARP, sum, 31);
#pragma unroll
	for (uint32_t i = 0; i < 2; i++) {
		float upto = i == 0 ? sum - g[1] : sum;

		sm->sum[lane * 2 + i] = upto;
		sm->out.past[lane * 2 + i] = expf(upto);
		sm->out.left[lane * 2 + i] = expf(last - upto);
	}
}

/* A and the weights of the output: a warp does 16 rows and 32 columns of both. */
static __device__ __forceinline__ void pair_rows(struct smem *sm)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t row_0 = threadIdx.x / WARP % 4 * 16;
	uint32_t column_0 = threadIdx.x / WARP / 4 * 32;
	float kk[4][4] = {}, qk[4][4] = {};

	if (column_0 > row_0 + 15) {
		/* Above the diagonal: zeros, which the stores below give. */
	} else {
#pragma unroll
		for (uint32_t s = 0; s < 8; s++) {
			uint32_t a[4], q[4];
			uint32_t at = at128(row_0 + lane % 16, s * 2 + lane / 16);

			ldmatrix4(a, &sm->k[at]);
			ldmatrix4(q, &sm->q[at]);
#pragma unroll
			for (uint32_t n = 0; n < 4; n += 2) {
				uint32_t b[4];

				ldmatrix4(
					b, &sm->k[at128(column_0 + n * 8 + lane / 16 * 8 +
								lane % 8,
						   s * 2 + lane / 8 % 2)]);
				mma_bf16(kk[n], a, b[0], b[1]);
				mma_bf16(kk[n + 1], a, b[2], b[3]);
				mma_bf16(qk[n], q, b[0], b[1]);
				mma_bf16(qk[n + 1], q, b[2], b[3]);
			}
		}
	}
#pragma unroll
	for (uint32_t n = 0; n < 4; n++) {
#pragma unroll
		for (uint32_t h = 0; h < 2; h++) {
			uint32_t i = row_0 + lane / 4 + h * 8;
			uint32_t j = column_0 + n * 8 + lane % 4 * 2;
			float w[2];

#pragma unroll
			for (uint32_t e = 0; e < 2; e++) {
				float fade = j + e <= i
						     ? expf(sm->sum[i] - sm->sum[j + e])
						     : 0.0f;

				w[e] = qk[n][2 * h + e] * fade;
				sm->a[i * FACTOR_STRIDE + j + e] =
					j + e < i ? sm->out.beta[i] * kk[n][2 * h + e] *
							    fade
						  : 0.0f;
			}
			*(uint32_t *)&sm->out.weights[at64(i, j / 8) + j % 8] =
				pack2(w[0], w[1]);
		}
	}
}

/* The diagonal bands of T, a column in each of 64 threads. */
static __device__ __forceinline__ void invert_bands(struct smem *sm)
{
	uint32_t band = threadIdx.x / BAND * BAND;
	uint32_t column = threadIdx.x % BAND;
	float x[BAND];

#pragma unroll
	for (uint32_t r = 0; r < BAND; r++) {
		x[r] = r == column ? 1.0f : 0.0f;
#pragma unroll
		for (uint32_t i = 0; i < r; i++)
			x[r] -= sm->a[(band + r) * FACTOR_STRIDE + band + i] * x[i];
		sm->t[(band + r) * FACTOR_STRIDE + band + column] = x[r];
	}
}

/* T[i][j] = -T[i][i] (sum over j <= m < i of A[i][m] T[m][j]) for the bands i - j =
 * apart; a thread has one element of each. All threads call it. */
static __device__ __forceinline__ void extend(struct smem *sm, uint32_t apart)
{
	uint32_t r = threadIdx.x / BAND;
	uint32_t c = threadIdx.x % BAND;
	float *t = sm->t;
	float y[BANDS - 1];

#pragma unroll
	for (uint32_t i = 0; i < BANDS - 1; i++) {
		uint32_t row = (i + apart) * BAND + r;
		float x = 0.0f;

		if (i + apart >= BANDS)
			break;
		for (uint32_t m = i * BAND; m < (i + apart) * BAND; m++)
			x += sm->a[row * FACTOR_STRIDE + m] *
			     t[m * FACTOR_STRIDE + i * BAND + c];
		t[row * FACTOR_STRIDE + i * BAND + c] = x;
	}
	__syncthreads();
#pragma unroll
	for (uint32_t i = 0; i < BANDS - 1; i++) {
		uint32_t row = (i + apart) * BAND;

		y[i] = 0.0f;
		if (i + apart >= BANDS)
			break;
#pragma unroll
		for (uint32_t m = 0; m < BAND; m++)
			y[i] -= t[(row + r) * FACTOR_STRIDE + row + m] *
				t[(row + m) * FACTOR_STRIDE + i * BAND + c];
	}
	__syncthreads();
#pragma unroll
	for (uint32_t i = 0; i < BANDS - 1; i++) {
		if (i + apart < BANDS)
			t[((i + apart) * BAND + r) * FACTOR_STRIDE + i * BAND + c] = y[i];
	}
	__syncthreads();
}

/* T to BF16. All threads call it; a barrier must follow. */
static __device__ __forceinline__ void invert(struct smem *sm)
{
	if (threadIdx.x < CHUNK)
		invert_bands(sm);
	__syncthreads();
	for (uint32_t apart = 1; apart < BANDS; apart++)
		extend(sm, apart);
#pragma unroll
	for (uint32_t i = 0; i < CHUNK * CHUNK / 2 / CHUNK_BLOCK; i++) {
		uint32_t row = (i * CHUNK_BLOCK + threadIdx.x) / (CHUNK / 2);
		uint32_t column = threadIdx.x % (CHUNK / 2) * 2;
		const float *t = &sm->t[row * FACTOR_STRIDE + column];
		bool inside = column / BAND <= row / BAND;

		*(uint32_t *)&sm->out.inverse[at64(row, column / 8) + column % 8] =
			inside ? pack2(t[0], t[1]) : 0;
	}
}

static __global__ void __launch_bounds__(CHUNK_BLOCK, 2)
	gdn_pairs_kernel(const struct op_gdn_prefill op)
{
	extern __shared__ __align__(16) unsigned char raw[];
	struct smem *sm = (struct smem *)raw;
	uint32_t key_head = blockIdx.x / (op.n_v / op.n_k);
	uint32_t seq = blockIdx.z;
	uint64_t first = op.rows.first[seq];
	uint64_t end = op.rows.first[seq + 1];
	struct chunk k = {first + (uint64_t)blockIdx.y * CHUNK, 0, blockIdx.x};
	uint64_t at = k.t * op.n_k + key_head;
	const uint4 *from = (const uint4 *)&sm->out;
	uint4 *to = (uint4 *)record_of(op, seq, first, blockIdx.y, k.head);

	if (k.t >= end)
		return;
	k.n = (uint32_t)min((uint64_t)CHUNK, end - k.t);
	load_rows(sm->k, (const bf16 *)op.k + at * GDN_D, (uint64_t)op.n_k * GDN_D, k.n);
	load_rows(sm->q, (const bf16 *)op.q + at * GDN_D, (uint64_t)op.n_k * GDN_D, k.n);
	copy_async_commit();
	if (threadIdx.x < WARP)
		load_gates(op, k, sm);
	copy_async_wait<0>();
	__syncthreads();
	pair_rows(sm);
	__syncthreads();
	invert(sm);
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < sizeof(sm->out) / 16; i += CHUNK_BLOCK)
		to[i] = from[i];
}

status gdn_pairs_launch(
	struct stream *stream, const struct op_gdn_prefill *op, struct err *err)
{
	uint32_t chunks = CEIL_DIV(op->rows.max_seq_rows, (uint32_t)CHUNK);

	CUDA_ALLOW_SMEM("gdn_prefill/chunks", gdn_pairs_kernel, sizeof(struct smem));
	gdn_pairs_kernel<<<dim3(op->n_v, chunks, op->rows.n_seqs), CHUNK_BLOCK,
		sizeof(struct smem), stream->cuda>>>(*op);
	return cuda_launched("gdn_prefill/chunks", err);
}
