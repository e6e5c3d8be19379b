/* y = SiLU(gate) * up over rows with strides: two reads and a write of BF16 per element,
 * bound by memory. Eight elements per thread where rows allow 16-byte accesses. */
#include "kernels/cuda/cuda_common.cuh"

enum { BLOCK = 256, VEC = 8 };

template <int N>
static __global__ void __launch_bounds__(BLOCK) swiglu_kernel(const struct op_swiglu op)
{
	uint64_t row = blockIdx.x;
	const bf16 *gate = (const bf16 *)op.gate + row * op.gate_stride;
	const bf16 *up = (const bf16 *)op.up + row * op.up_stride;
	bf16 *y = (bf16 *)op.y + row * op.width;

	for (uint32_t i = (blockIdx.y * BLOCK + threadIdx.x) * N; i < op.width;
		i += gridDim.y * BLOCK * N) {
		if (N == VEC) {
			float g[VEC], u[VEC];

			unpack8(*(const uint4 *)(gate + i), g);
			unpack8(*(const uint4 *)(up + i), u);
#pragma unroll
			for (int j = 0; j < VEC; j++)
				g[j] = dev_silu(g[j]) * u[j];
			*(uint4 *)(y + i) = pack8(g);
		} else {
			y[i] = __float2bfloat16(dev_silu(__bfloat162float(gate[i])) *
						__bfloat162float(up[i]));
		}
	}
}

CUDA_KERNEL(swiglu, flat)
{
	bool wide = op->width % VEC == 0 && op->gate_stride % VEC == 0 &&
		    op->up_stride % VEC == 0 && is_aligned(op->y, 16) &&
		    is_aligned(op->gate, 16) && is_aligned(op->up, 16);
	uint32_t per_block = BLOCK * (wide ? VEC : 1);
	dim3 grid(op->n_rows, MIN(CEIL_DIV(op->width, per_block), 65535u));

	if (op->gate_stride < op->width || op->up_stride < op->width)
		return err_set(err, ST_LIMIT, "swiglu/flat: width %u, strides %u and %u",
			op->width, op->gate_stride, op->up_stride);
	if (op->n_rows == 0 || op->width == 0)
		return ST_OK;
	CUDA_ENTER("swiglu/flat");
	if (wide)
		swiglu_kernel<VEC><<<grid, BLOCK, 0, stream->cuda>>>(*op);
	else
		swiglu_kernel<1><<<grid, BLOCK, 0, stream->cuda>>>(*op);
	return cuda_launched("swiglu/flat", err);
}
