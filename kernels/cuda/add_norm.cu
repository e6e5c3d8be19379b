/* Residual addition and zero-centred RMSNorm. One block per row, the row stays in
 * registers between the two passes over it: 4 reads or writes of BF16 per element, bound
 * by memory. The norm sees the residual as it is stored, rounded to BF16. */
#include "kernels/cuda/cuda_common.cuh"

enum {
	BLOCK = 256,
	WARPS = BLOCK / 32,
	VEC = 8,
	MAX_WIDTH = 8192,
	SPAN = MAX_WIDTH / (BLOCK * VEC)
};

static __device__ __forceinline__ float square_sum(const float *v)
{
	float sum = 0.0f;

#pragma unroll
	for (int j = 0; j < VEC; j++)
		sum += v[j] * v[j];
	return sum;
}

static __device__ __forceinline__ void load_gain(const float *from, float *to)
{
	float4 a = *(const float4 *)from, b = *(const float4 *)(from + 4);

	to[0] = a.x;
	to[1] = a.y;
	to[2] = a.z;
	to[3] = a.w;
	to[4] = b.x;
	to[5] = b.y;
	to[6] = b.z;
	to[7] = b.w;
}

/* PIECES times VEC elements per thread. Gains are loaded with the row, not when the sum
 * is there: they come from memory, too. */
template <int PIECES>
static __global__ void __launch_bounds__(BLOCK)
	add_norm_kernel(const struct op_add_norm op)
{
	__shared__ float partial[WARPS];
	bf16 *x = (bf16 *)op.x + (uint64_t)blockIdx.x * op.width;
	const bf16 *add = (const bf16 *)op.add + (uint64_t)blockIdx.x * op.width;
	bf16 *y = (bf16 *)op.y + (uint64_t)blockIdx.x * op.width;
	float v[PIECES][VEC], gain[PIECES][VEC];
	float sum = 0.0f;

#pragma unroll
	for (int p = 0; p < PIECES; p++) {
		uint32_t at = (p * BLOCK + threadIdx.x) * VEC;
		uint4 own, other;

		if (at >= op.width)
			continue;
		own = *(const uint4 *)(x + at);
		other = load16_if(add + at, op.add != NULL);
		if (op.y != NULL)
			load_gain(op.gain + at, gain[p]);
		unpack8(own, v[p]);
		if (op.add != NULL) {
			float a[VEC];

			unpack8(other, a);
#pragma unroll
			for (int j = 0; j < VEC; j++)
				a[j] += v[p][j];
			own = pack8(a);
			*(uint4 *)(x + at) = own;
			unpack8(own, v[p]);
		}
		sum += square_sum(v[p]);
	}
	if (op.y == NULL)
		return;
	sum = block_sum<WARPS>(sum, partial);
	sum = rsqrtf(sum / (float)op.width + op.eps);
#pragma unroll
	for (int p = 0; p < PIECES; p++) {
		uint32_t at = (p * BLOCK + threadIdx.x) * VEC;

		if (at >= op.width)
			continue;
#pragma unroll
		for (int j = 0; j < VEC; j++)
			v[p][j] *= sum * (1.0f + gain[p][j]);
		*(uint4 *)(y + at) = pack8(v[p]);
	}
}

CUDA_KERNEL(add_norm, rows)
{
	if (op->width % VEC != 0 || op->width > MAX_WIDTH || op->width == 0)
		return err_set(err, ST_LIMIT,
			"add_norm/rows: width %u, a multiple of %d up to %d is served",
			op->width, VEC, MAX_WIDTH);
	if (!is_aligned(op->x, 16) || !is_aligned(op->add, 16) ||
		!is_aligned(op->y, 16) || !is_aligned(op->gain, 16))
		return err_set(err, ST_LIMIT,
			"add_norm/rows: rows or gains are not 16-byte aligned");
	if (op->n_rows == 0)
		return ST_OK;
	CUDA_ENTER("add_norm/rows");
	if (op->width <= BLOCK * VEC)
		add_norm_kernel<1><<<op->n_rows, BLOCK, 0, stream->cuda>>>(*op);
	else if (op->width <= 2 * BLOCK * VEC)
		add_norm_kernel<2><<<op->n_rows, BLOCK, 0, stream->cuda>>>(*op);
	else
		add_norm_kernel<SPAN><<<op->n_rows, BLOCK, 0, stream->cuda>>>(*op);
	return cuda_launched("add_norm/rows", err);
}
