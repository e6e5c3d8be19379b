/* Norms and rotary embedding of queries and keys, and the store of K and V into pages.
 * A warp per head and row; a lane holds eight consecutive elements, so a partner of the
 * rotation stands in the same place of another lane. Bound by memory: each element is
 * read and written once. */
#include "kernels/cuda/cuda_common.cuh"

enum { HEAD_DIM = 256, VEC = 8, WARPS = 4, BLOCK = WARPS * 32 };

/* v = RoPE(norm(v)), the lane's part of one head. */
static __device__ __forceinline__ void norm_and_turn(
	const struct op_attn_prep &op, const float *gain, uint32_t pos, float *v)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t half = op.rotary / 2;
	uint32_t first = lane * VEC;
	uint32_t partner = first < half ? lane + half / VEC : lane - half / VEC;
	float sum = 0.0f;
	float other[VEC];

#pragma unroll
	for (int i = 0; i < VEC; i++)
		sum += v[i] * v[i];
	sum = rsqrtf(warp_sum(sum) / (float)HEAD_DIM + op.eps);
#pragma unroll
	for (int i = 0; i < VEC; i++) {
		v[i] *= sum * (1.0f + gain[first + i]);
		other[i] = __shfl_sync(FULL_WARP, v[i], (int)partner);
	}
	if (first >= op.rotary)
		return;
#pragma unroll
	for (int i = 0; i < VEC; i++) {
		uint32_t j = first < half ? first + i : first + i - half;
		float c, s;

		/* The angle of a long context is far outside one turn. */
		sincosf((float)pos * op.inv_freq[j], &s, &c);
		v[i] = first < half ? v[i] * c - other[i] * s : v[i] * c + other[i] * s;
	}
}

static __device__ __forceinline__ void store_kv(
	const struct op_kv &kv, uint8_t *page, uint64_t element, const float *v)
{
	if (kv.dtype == DT_BF16) {
		*(uint4 *)((bf16 *)page + element) = pack8(v);
		return;
	}
#pragma unroll
	for (int i = 0; i < VEC; i++)
		((float *)page)[element + i] = v[i];
}

static __global__ void __launch_bounds__(BLOCK)
	attn_prep_kernel(const struct op_attn_prep op)
{
	uint64_t t = blockIdx.x;
	uint32_t head = blockIdx.y * WARPS + threadIdx.x / WARP;
	uint32_t first = threadIdx.x % WARP * VEC;
	uint32_t n_kv = op.kv.n_kv;
	uint32_t pos = op.rows.pos[t];
	uint64_t at, v_offset;
	uint8_t *page;
	float v[VEC];

	if (head >= op.n_q + n_kv)
		return;
	if (head < op.n_q) {
		unpack8(*(const uint4 *)((const bf16 *)op.qg + t * op.qg_stride +
					 (uint64_t)head * 2 * HEAD_DIM + first),
			v);
		norm_and_turn(op, op.q_gain, pos, v);
		*(uint4 *)((bf16 *)op.q + (t * op.n_q + head) * HEAD_DIM + first) =
			pack8(v);
		return;
	}
	head -= op.n_q;
	page = dev_page(op.kv, op.rows, op.rows.seq[t], pos);
	at = ((uint64_t)head * op.kv.page_tokens + pos % op.kv.page_tokens) * HEAD_DIM +
	     first;
	v_offset = (uint64_t)n_kv * op.kv.page_tokens * HEAD_DIM;
	unpack8(*(const uint4 *)((const bf16 *)op.k + t * op.k_stride +
				 (uint64_t)head * HEAD_DIM + first),
		v);
	norm_and_turn(op, op.k_gain, pos, v);
	store_kv(op.kv, page, at, v);
	unpack8(*(const uint4 *)((const bf16 *)op.v + t * op.v_stride +
				 (uint64_t)head * HEAD_DIM + first),
		v);
	store_kv(op.kv, page, at + v_offset, v);
}

CUDA_KERNEL(attn_prep, heads)
{
	dim3 grid(op->rows.n_rows, CEIL_DIV(op->n_q + op->kv.n_kv, (uint32_t)WARPS));

	if (op->kv.head_dim != HEAD_DIM || op->rotary % (2 * VEC) != 0 ||
		op->rotary > HEAD_DIM)
		return err_set(err, ST_LIMIT,
			"attn_prep/heads: head_dim %u (only %d), rotary %u (multiples "
			"of %d)",
			op->kv.head_dim, HEAD_DIM, op->rotary, 2 * VEC);
	if (op->qg_stride % VEC != 0 || op->k_stride % VEC != 0 ||
		op->v_stride % VEC != 0 || op->kv.page_bytes % 16 != 0 ||
		!is_aligned(op->qg, 16) || !is_aligned(op->k, 16) ||
		!is_aligned(op->v, 16) || !is_aligned(op->q, 16) ||
		!is_aligned(op->kv.base, 16))
		return err_set(err, ST_LIMIT,
			"attn_prep/heads: strides %u, %u, %u, pages of %llu bytes: "
			"16-byte alignment is needed",
			op->qg_stride, op->k_stride, op->v_stride,
			(unsigned long long)op->kv.page_bytes);
	if (op->rows.n_rows == 0)
		return ST_OK;
	CUDA_ENTER("attn_prep/heads");
	attn_prep_kernel<<<grid, BLOCK, 0, stream->cuda>>>(*op);
	return cuda_launched("attn_prep/heads", err);
}
