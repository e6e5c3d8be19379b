/* The gated norm that ends every form of the gated delta rule, and what their launchers
 * refuse. */
#ifndef KERNELS_CUDA_GDN_COMMON_CUH
#define KERNELS_CUDA_GDN_COMMON_CUH
#include "kernels/cuda/cuda_common.cuh"

enum { GDN_D = 128 }; /* DK and DV */

static __device__ __forceinline__ float *gdn_state(
	const struct op_gdn_prefill &op, uint32_t seq, uint32_t head)
{
	return (float *)((uint8_t *)op.state.rec +
			 op.rows.slot[seq] * op.state.slot_bytes) +
	       (uint64_t)head * GDN_D * GDN_D;
}

/* A lane's four gates of a row and head. */
static __device__ __forceinline__ uint2 gdn_gate(
	const struct op_gdn_prefill &op, uint64_t t, uint32_t head)
{
	return *(const uint2 *)((const bf16 *)op.z + t * op.z_stride +
				(uint64_t)head * GDN_D + threadIdx.x % WARP * 4);
}

/* One warp: y = norm(o) * gain * act(z) of one row and head; o: 128 floats, which all
 * threads may read; z: gdn_gate of it. */
static __device__ __forceinline__ void gdn_finish(const struct op_gdn_prefill &op,
	uint64_t t, uint32_t head, const float *o, uint2 z)
{
	uint32_t at = threadIdx.x % WARP * 4;
	float4 v = *(const float4 *)(o + at);
	float4 gain = *(const float4 *)(op.gain + at);
	const float gates[4] = {low2(z.x), high2(z.x), low2(z.y), high2(z.y)};
	float scale = warp_sum(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w);
	float out[4] = {v.x * gain.x, v.y * gain.y, v.z * gain.z, v.w * gain.w};

	scale = rsqrtf(scale / (float)GDN_D + op.eps);
#pragma unroll
	for (int i = 0; i < 4; i++)
		out[i] *= scale *
			  (op.sigmoid_gate ? dev_sigmoid(gates[i]) : dev_silu(gates[i]));
	*(uint2 *)((bf16 *)op.y + (t * op.n_v + head) * GDN_D + at) =
		make_uint2(pack2(out[0], out[1]), pack2(out[2], out[3]));
}

static inline status gdn_check(
	const char *what, const struct op_gdn_prefill *op, struct err *err)
{
	if (op->dk != GDN_D || op->dv != GDN_D)
		return err_set(err, ST_LIMIT, "%s: heads of %u and %u, only %d is served",
			what, op->dk, op->dv, GDN_D);
	if (op->n_k == 0 || op->n_v % op->n_k != 0)
		return err_set(err, ST_LIMIT, "%s: %u value heads over %u key heads",
			what, op->n_v, op->n_k);
	if (op->z_stride % 8 != 0 || !is_aligned(op->z, 16) || !is_aligned(op->y, 16) ||
		!is_aligned(op->q, 16) || !is_aligned(op->k, 16) ||
		!is_aligned(op->v, 16) || !is_aligned(op->gain, 16) ||
		!is_aligned(op->state.rec, 16) || op->state.slot_bytes % 16 != 0)
		return err_set(err, ST_LIMIT,
			"%s: row stride %u, slots of %llu bytes: 16-byte alignment is "
			"needed",
			what, op->z_stride, (unsigned long long)op->state.slot_bytes);
	if (op->rows.n_seqs > 65535)
		return err_set(err, ST_LIMIT, "%s: %u sequences", what, op->rows.n_seqs);
	return ST_OK;
}

#endif
