/* The gated delta rule token by token, in F32: decode, and the oracle of the chunked
 * prefill. A block owns the state of one head of one sequence, 128 x 128 in its
 * registers: it is read once and written once however many rows there are. With one row
 * the state's traffic bounds it (2 * 64 KB per head); with many the F32 units do, at
 * 128 * 128 * 8 operations per row and head.
 *
 * Eight lanes share a state row. Both dot products are taken with the state before the
 * row: S q after it is exp(g) (S q) + d (k . q). */
#include "kernels/cuda/gdn_common.cuh"

enum {
	WARPS = 8,
	BLOCK = WARPS * 32,
	LANES = 8,                 /* that share a row */
	ROWS = WARPS * 32 / LANES, /* of the state at a time */
	PASSES = GDN_D / ROWS,
	QUADS = GDN_D / (LANES * 4), /* float4 of a row in a lane */
	STEPS_MANY = 16,
};

template <int STEPS> struct smem {
	float q[STEPS][GDN_D], k[STEPS][GDN_D], v[STEPS][GDN_D], o[STEPS][GDN_D];
	float decay[STEPS], beta[STEPS];
};

static __device__ __forceinline__ uint32_t row_of(int pass)
{
	return pass * ROWS + threadIdx.x / LANES;
}

/* Eight BF16 to F32 per thread and turn. */
static __device__ __forceinline__ void stage(
	float (*to)[GDN_D], const bf16 *from, uint64_t stride, uint32_t n)
{
	for (uint32_t i = threadIdx.x; i < n * (GDN_D / 8); i += BLOCK) {
		uint32_t step = i / (GDN_D / 8);
		uint32_t at = i % (GDN_D / 8) * 8;

		unpack8(*(const uint4 *)(from + step * stride + at), &to[step][at]);
	}
}

template <int STEPS>
static __device__ __forceinline__ void stage_steps(const struct op_gdn_prefill &op,
	struct smem<STEPS> *sm, uint64_t t, uint32_t n, uint32_t head)
{
	uint32_t key_head = head / (op.n_v / op.n_k);
	uint64_t keys = (uint64_t)op.n_k * GDN_D;
	uint64_t values = (uint64_t)op.n_v * GDN_D;

	stage(sm->q, (const bf16 *)op.q + t * keys + key_head * GDN_D, keys, n);
	stage(sm->k, (const bf16 *)op.k + t * keys + key_head * GDN_D, keys, n);
	stage(sm->v, (const bf16 *)op.v + t * values + head * GDN_D, values, n);
	if (threadIdx.x < n) {
		uint64_t at = (t + threadIdx.x) * op.n_v + head;

		sm->decay[threadIdx.x] = expf(op.g[at]);
		sm->beta[threadIdx.x] = op.beta[at];
	}
}

static __device__ __forceinline__ float dot4(float4 a, float4 b)
{
	return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

static __device__ __forceinline__ float sum_lanes(float x)
{
#pragma unroll
	for (int step = LANES / 2; step > 0; step >>= 1)
		x += __shfl_xor_sync(FULL_WARP, x, step);
	return x;
}

/* s = decay s + d k */
static __device__ __forceinline__ void update(float4 *s, float decay, float d, float4 k)
{
	s->x = decay * s->x + d * k.x;
	s->y = decay * s->y + d * k.y;
	s->z = decay * s->z + d * k.z;
	s->w = decay * s->w + d * k.w;
}

template <int STEPS>
static __device__ __forceinline__ void run_step(
	struct smem<STEPS> *sm, uint32_t step, float4 (*s)[QUADS])
{
	uint32_t lane = threadIdx.x % LANES;
	float decay = sm->decay[step];
	float beta = sm->beta[step];
	float4 q[QUADS], k[QUADS];
	float kq = 0.0f;

#pragma unroll
	for (int i = 0; i < QUADS; i++) {
		q[i] = *(const float4 *)&sm->q[step][(i * LANES + lane) * 4];
		k[i] = *(const float4 *)&sm->k[step][(i * LANES + lane) * 4];
		kq += dot4(q[i], k[i]);
	}
	kq = sum_lanes(kq);
#pragma unroll
	for (int p = 0; p < PASSES; p++) {
		float memory = 0.0f, out = 0.0f, d;

#pragma unroll
		for (int i = 0; i < QUADS; i++) {
			memory += dot4(s[p][i], k[i]);
			out += dot4(s[p][i], q[i]);
		}
		memory = sum_lanes(memory);
		out = sum_lanes(out);
		d = beta * (sm->v[step][row_of(p)] - decay * memory);
#pragma unroll
		for (int i = 0; i < QUADS; i++)
			update(&s[p][i], decay, d, k[i]);
		if (lane == 0)
			sm->o[step][row_of(p)] = decay * out + d * kq;
	}
}

template <int STEPS>
static __global__ void __launch_bounds__(BLOCK, 2)
	gdn_steps_kernel(const struct op_gdn_prefill op)
{
	__shared__ __align__(16) struct smem<STEPS> sm;
	uint32_t head = blockIdx.x;
	uint32_t seq = blockIdx.y;
	/* In a step row and sequence are one, so nothing has to be asked for first. */
	uint64_t t = STEPS == 1 ? seq : op.rows.first[seq];
	uint64_t end = STEPS == 1 ? seq + 1 : op.rows.first[seq + 1];
	float4 *state = (float4 *)gdn_state(op, seq, head) + threadIdx.x % LANES;
	float4 s[PASSES][QUADS];

	if (t == end)
		return;
#pragma unroll
	for (int p = 0; p < PASSES; p++) {
#pragma unroll
		for (int i = 0; i < QUADS; i++)
			s[p][i] = state[row_of(p) * (GDN_D / 4) + i * LANES];
	}
	for (; t < end; t += STEPS) {
		uint32_t n = (uint32_t)min((uint64_t)STEPS, end - t);

		stage_steps<STEPS>(op, &sm, t, n, head);
		__syncthreads();
		for (uint32_t step = 0; step < n; step++)
			run_step<STEPS>(&sm, step, s);
		__syncthreads();
		for (uint32_t step = threadIdx.x / WARP; step < n; step += WARPS)
			gdn_finish(op, t + step, head, sm.o[step],
				gdn_gate(op, t + step, head));
		/* The next stage writes q, k and v, which nobody reads here; o is
		 * written after its barrier. */
	}
#pragma unroll
	for (int p = 0; p < PASSES; p++) {
#pragma unroll
		for (int i = 0; i < QUADS; i++)
			state[row_of(p) * (GDN_D / 4) + i * LANES] = s[p][i];
	}
}

CUDA_KERNEL(gdn_decode, steps)
{
	status st = gdn_check("gdn_decode/steps", op, err);

	if (st != ST_OK || op->rows.n_rows == 0)
		return st;
	CUDA_ENTER("gdn_decode/steps");
	gdn_steps_kernel<1>
		<<<dim3(op->n_v, op->rows.n_seqs), BLOCK, 0, stream->cuda>>>(*op);
	return cuda_launched("gdn_decode/steps", err);
}

CUDA_KERNEL(gdn_prefill, steps)
{
	status st = gdn_check("gdn_prefill/steps", op, err);

	if (st != ST_OK || op->rows.n_rows == 0)
		return st;
	CUDA_ENTER("gdn_prefill/steps");
	gdn_steps_kernel<STEPS_MANY>
		<<<dim3(op->n_v, op->rows.n_seqs), BLOCK, 0, stream->cuda>>>(*op);
	return cuda_launched("gdn_prefill/steps", err);
}
