/* Before the gated delta rule: causal convolution over four taps with its state, SiLU,
 * norms of queries and keys, decay and write strength. A warp takes one head (128
 * channels) through a few rows with the last three inputs in registers, so an input is
 * read about once; bound by memory.
 *
 * Rows near the start of a sequence read the slot's conv state while its last rows make
 * the next one, so the state advances in a second kernel; a sequence of one row, which
 * the same warp reads and writes, is done in the first. */
#include "kernels/cuda/cuda_common.cuh"

enum {
	HEAD = 128,
	PER_LANE = 4,
	TAPS = 4,
	KEPT = TAPS - 1,
	WARPS = 8,
	BLOCK = WARPS * 32,
	ROWS_MAX = 32,
	STATE_BLOCK = 256,
	AHEAD = 2 /* rows whose inputs are on the way */
};

static __device__ __forceinline__ float load_state(
	const struct op_slot &state, const void *conv, uint64_t i)
{
	return state.conv_dtype == DT_F32 ? ((const float *)conv)[i]
					  : __bfloat162float(((const bf16 *)conv)[i]);
}

static __device__ __forceinline__ void store_state(
	const struct op_slot &state, void *conv, uint64_t i, float x)
{
	if (state.conv_dtype == DT_F32)
		((float *)conv)[i] = x;
	else
		((bf16 *)conv)[i] = __float2bfloat16(x);
}

/* The kept inputs of four neighbouring channels, which stand together. */
static __device__ __forceinline__ void load_kept(
	const struct op_slot &state, const void *conv, uint32_t channel, float *kept)
{
	if (state.conv_dtype == DT_F32) {
		const float4 *at = (const float4 *)((const float *)conv + channel * KEPT);

#pragma unroll
		for (uint32_t i = 0; i < KEPT; i++) {
			float4 four = at[i];

			kept[4 * i] = four.x;
			kept[4 * i + 1] = four.y;
			kept[4 * i + 2] = four.z;
			kept[4 * i + 3] = four.w;
		}
	} else {
		const uint2 *at = (const uint2 *)((const bf16 *)conv + channel * KEPT);

#pragma unroll
		for (uint32_t i = 0; i < KEPT; i++) {
			uint2 four = at[i];

			kept[4 * i] = low2(four.x);
			kept[4 * i + 1] = high2(four.x);
			kept[4 * i + 2] = low2(four.y);
			kept[4 * i + 3] = high2(four.y);
		}
	}
}

static __device__ __forceinline__ void store_kept(const struct op_slot &state, void *conv,
	uint32_t channel, const float (*past)[PER_LANE])
{
	float kept[PER_LANE * KEPT];

#pragma unroll
	for (uint32_t i = 0; i < PER_LANE * KEPT; i++)
		kept[i] = past[i % KEPT][i / KEPT];
#pragma unroll
	for (uint32_t i = 0; i < KEPT; i++) {
		const float *four = kept + 4 * i;

		if (state.conv_dtype == DT_F32)
			((float4 *)((float *)conv + channel * KEPT))[i] =
				make_float4(four[0], four[1], four[2], four[3]);
		else
			((uint2 *)((bf16 *)conv + channel * KEPT))[i] = make_uint2(
				pack2(four[0], four[1]), pack2(four[2], four[3]));
	}
}

static __device__ __forceinline__ void *conv_of(
	const struct op_gdn_prep &op, uint32_t seq)
{
	return (uint8_t *)op.state.conv + op.rows.slot[seq] * op.state.slot_bytes;
}

/* Inputs of four neighbouring channels. */
static __device__ __forceinline__ void load_inputs(
	const struct op_gdn_prep &op, uint64_t t, uint32_t channel, float *x)
{
	uint2 raw = *(const uint2 *)((const bf16 *)op.qkv + t * op.qkv_stride + channel);

	x[0] = low2(raw.x);
	x[1] = high2(raw.x);
	x[2] = low2(raw.y);
	x[3] = high2(raw.y);
}

/* The three inputs before row t, oldest first; `before` rows of the sequence precede it
 * in this pass. */
static __device__ __forceinline__ void load_past(const struct op_gdn_prep &op, uint64_t t,
	uint32_t seq, uint32_t before, uint32_t channel, float (*past)[PER_LANE])
{
	float kept[PER_LANE * KEPT];

	if (before < KEPT)
		load_kept(op.state, conv_of(op, seq), channel, kept);
#pragma unroll
	for (uint32_t j = 0; j < KEPT; j++) {
		uint32_t back = KEPT - j;

		if (back <= before) {
			load_inputs(op, t - back, channel, past[j]);
			continue;
		}
		/* Kept input j + before of each channel, with fixed indices. */
#pragma unroll
		for (uint32_t i = 0; i < PER_LANE; i++)
			past[j][i] = before == 0   ? kept[i * KEPT + j]
				     : before == 1 ? kept[i * KEPT + (j < 1 ? j + 1 : 2)]
						   : kept[i * KEPT + 2];
	}
}

/* Where the head's channels of row t go, and what scales them after the norm; 0: values,
 * which have no norm. */
static __device__ __forceinline__ bf16 *target(
	const struct op_gdn_prep &op, uint64_t t, uint32_t head, float *scale)
{
	if (head < op.n_k) {
		*scale = 0.08838834764831845f; /* 128^-0.5 */
		return (bf16 *)op.q + (t * op.n_k + head) * HEAD;
	}
	if (head < 2 * op.n_k) {
		*scale = 1.0f;
		return (bf16 *)op.k + (t * op.n_k + head - op.n_k) * HEAD;
	}
	*scale = 0.0f;
	return (bf16 *)op.v + (t * op.n_v + head - 2 * op.n_k) * HEAD;
}

static __device__ __forceinline__ void finish_row(const struct op_gdn_prep &op,
	uint64_t t, uint32_t head, const float (*w)[TAPS], const float (*past)[PER_LANE],
	const float *now)
{
	float u[PER_LANE], scale;
	float squares = 0.0f;
	bf16 *to = target(op, t, head, &scale);

#pragma unroll
	for (uint32_t i = 0; i < PER_LANE; i++) {
		float sum = w[i][0] * past[0][i] + w[i][1] * past[1][i] +
			    w[i][2] * past[2][i] + w[i][3] * now[i];

		u[i] = dev_silu(sum);
		squares += u[i] * u[i];
	}
	squares = warp_sum(squares);
	scale = scale == 0.0f ? 1.0f : scale * rsqrtf(squares + 1e-6f);
	*(uint2 *)(to + threadIdx.x % WARP * PER_LANE) = make_uint2(
		pack2(u[0] * scale, u[1] * scale), pack2(u[2] * scale, u[3] * scale));
}

/* Decay and write strength of n rows from t0 on. */
static __device__ __forceinline__ void gates(
	const struct op_gdn_prep &op, uint64_t t0, uint32_t n)
{
	for (uint32_t i = threadIdx.x; i < n * op.n_v; i += BLOCK) {
		uint32_t h = i % op.n_v;
		uint64_t t = t0 + i / op.n_v;
		float a = __bfloat162float(((const bf16 *)op.a)[t * op.ab_stride + h]);
		float b = __bfloat162float(((const bf16 *)op.b)[t * op.ab_stride + h]);
		float x = a + op.dt_bias[h];

		op.g[t * op.n_v + h] =
			-expf(op.a_log[h]) * (x > 20.0f ? x : log1pf(expf(x)));
		op.beta[t * op.n_v + h] = 1.0f / (1.0f + expf(-b));
	}
}

/* One row: its result, and its inputs become the latest past ones. */
static __device__ __forceinline__ void run_row(const struct op_gdn_prep &op, uint64_t t,
	uint32_t head, const float (*w)[TAPS], float (*past)[PER_LANE], const float *now)
{
	finish_row(op, t, head, w, past, now);
#pragma unroll
	for (uint32_t i = 0; i < PER_LANE; i++) {
		past[0][i] = past[1][i];
		past[1][i] = past[2][i];
		past[2][i] = now[i];
	}
}

static __device__ __forceinline__ void load_taps(
	const struct op_gdn_prep &op, uint32_t channel, float (*w)[TAPS])
{
#pragma unroll
	for (uint32_t i = 0; i < PER_LANE; i++) {
		float4 four = *(const float4 *)(op.conv_w + (channel + i) * TAPS);

		w[i][0] = four.x;
		w[i][1] = four.y;
		w[i][2] = four.z;
		w[i][3] = four.w;
	}
}

/* Rows blockIdx.x * rows .. of the pass; heads blockIdx.y * WARPS ... */
static __global__ void __launch_bounds__(BLOCK, 3)
	gdn_prep_kernel(const struct op_gdn_prep op, uint32_t rows)
{
	__shared__ uint32_t seqs[ROWS_MAX], befores[ROWS_MAX], singles[ROWS_MAX];
	uint64_t t0 = (uint64_t)blockIdx.x * rows;
	uint32_t n = (uint32_t)min((uint64_t)rows, op.rows.n_rows - t0);
	uint32_t head = blockIdx.y * WARPS + threadIdx.x / WARP;
	uint32_t channel = head * HEAD + threadIdx.x % WARP * PER_LANE;
	float w[PER_LANE][TAPS], past[KEPT][PER_LANE], now[AHEAD][PER_LANE];

	if (threadIdx.x < n) {
		uint32_t seq = op.rows.seq[t0 + threadIdx.x];
		uint32_t first = op.rows.first[seq];

		seqs[threadIdx.x] = seq;
		befores[threadIdx.x] = (uint32_t)(t0 + threadIdx.x - first);
		singles[threadIdx.x] = op.rows.first[seq + 1] - first == 1;
	}
	__syncthreads();
	if (blockIdx.y == 0)
		gates(op, t0, n);
	if (head >= 2 * op.n_k + op.n_v)
		return;
	load_taps(op, channel, w);
	for (uint32_t r0 = 0; r0 < n; r0 += AHEAD) {
#pragma unroll
		for (uint32_t i = 0; i < AHEAD; i++) {
			if (r0 + i < n)
				load_inputs(op, t0 + r0 + i, channel, now[i]);
		}
#pragma unroll
		for (uint32_t i = 0; i < AHEAD; i++) {
			uint32_t r = r0 + i;

			if (r >= n)
				break;
			if (r == 0 || befores[r] == 0)
				load_past(op, t0 + r, seqs[r], befores[r], channel, past);
			run_row(op, t0 + r, head, w, past, now[i]);
			if (singles[r] != 0)
				store_kept(op.state, conv_of(op, seqs[r]), channel, past);
		}
	}
}

/* A thread per channel of a sequence; sequences of one row are done. */
static __global__ void __launch_bounds__(STATE_BLOCK)
	gdn_conv_state_kernel(const struct op_gdn_prep op, uint32_t channels)
{
	uint32_t seq = blockIdx.y;
	uint32_t channel = blockIdx.x * STATE_BLOCK + threadIdx.x;
	uint32_t first = op.rows.first[seq];
	uint32_t n = op.rows.first[seq + 1] - first;
	void *conv = conv_of(op, seq);
	float next[KEPT];

	if (n <= 1 || channel >= channels)
		return;
#pragma unroll
	for (uint32_t j = 0; j < KEPT; j++) {
		uint32_t back = KEPT - j;

		next[j] = back <= n
				  ? __bfloat162float((
					    (const bf16 *)
						    op.qkv)[(uint64_t)(first + n - back) *
								    op.qkv_stride +
							    channel])
				  : load_state(op.state, conv,
					    (uint64_t)channel * KEPT + j + n);
	}
#pragma unroll
	for (uint32_t j = 0; j < KEPT; j++)
		store_state(op.state, conv, (uint64_t)channel * KEPT + j, next[j]);
}

static status check(const struct op_gdn_prep *op, struct err *err)
{
	if (op->dk != HEAD || op->dv != HEAD || op->taps != TAPS)
		return err_set(err, ST_LIMIT,
			"gdn_prep/rows: heads of %u and %u, %u taps; only %d, %d and %d "
			"are served",
			op->dk, op->dv, op->taps, HEAD, HEAD, TAPS);
	if (op->qkv_stride % PER_LANE != 0 || !is_aligned(op->qkv, 8) ||
		!is_aligned(op->q, 8) || !is_aligned(op->k, 8) || !is_aligned(op->v, 8) ||
		!is_aligned(op->conv_w, 16) || !is_aligned(op->state.conv, 16) ||
		op->state.slot_bytes % 16 != 0)
		return err_set(err, ST_LIMIT,
			"gdn_prep/rows: row stride %u, slots of %llu bytes: 8-byte and "
			"16-byte alignment is needed",
			op->qkv_stride, (unsigned long long)op->state.slot_bytes);
	if (op->rows.n_seqs > 65535)
		return err_set(
			err, ST_LIMIT, "gdn_prep/rows: %u sequences", op->rows.n_seqs);
	return ST_OK;
}

/* Rows of a block. Few rows: one each, so that they run side by side. */
static uint32_t block_rows(const struct op_gdn_prep *op)
{
	return op->rows.n_rows <= 512 ? 1 : ROWS_MAX;
}

extern "C" void gdn_cuda_prep_inner(const void *arg, char names[KERNEL_NAMES_MAX])
{
	const struct op_gdn_prep *op = (const struct op_gdn_prep *)arg;

	kernel_named(names, "blocks of %u", block_rows(op));
	if (op->rows.max_seq_rows > 1)
		kernel_named(names, "conv state");
}

CUDA_KERNEL(gdn_prep, rows)
{
	uint32_t heads = 2 * op->n_k + op->n_v;
	uint32_t rows = block_rows(op);
	dim3 grid(CEIL_DIV(op->rows.n_rows, rows), CEIL_DIV(heads, (uint32_t)WARPS));
	status st = check(op, err);

	if (st != ST_OK || op->rows.n_rows == 0)
		return st;
	CUDA_ENTER("gdn_prep/rows");
	gdn_prep_kernel<<<grid, BLOCK, 0, stream->cuda>>>(*op, rows);
	st = cuda_launched("gdn_prep/rows", err);
	if (st != ST_OK || op->rows.max_seq_rows <= 1)
		return st;
	grid = dim3(CEIL_DIV(heads * HEAD, (uint32_t)STATE_BLOCK), op->rows.n_seqs);
	gdn_conv_state_kernel<<<grid, STATE_BLOCK, 0, stream->cuda>>>(*op, heads * HEAD);
	return cuda_launched("gdn_prep/rows", err);
}
