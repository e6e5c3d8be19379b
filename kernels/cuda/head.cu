/* Logits of the chosen rows, in F32: the oracle, one warp per logit, and the tensor-core
 * kernels of product.cuh. Bound by reading [V][H] weights. */
#include "kernels/cuda/plain.cuh"
#include "kernels/cuda/product.cuh"

enum { BLOCK = 256, WARPS = BLOCK / WARP };

static __global__ void __launch_bounds__(BLOCK)
	head_plain_kernel(const struct op_head op, const struct weight w)
{
	uint32_t n = blockIdx.x * WARPS + threadIdx.x / WARP;

	for (uint64_t i = blockIdx.y; i < op.n_out && n < w.n; i += gridDim.y) {
		const bf16 *x = (const bf16 *)op.x + (uint64_t)op.out_row[i] * w.k;
		float y = plain_dot(w, 0, n, x);

		if (threadIdx.x % WARP == 0)
			op.logits[i * w.n + n] = y;
	}
}

CUDA_KERNEL(head, plain)
{
	dim3 grid(CEIL_DIV(op->w->n, (uint32_t)WARPS), MIN(op->n_out, 65535u));
	status st = plain_check(op->w, "head/plain", err);

	if (st != ST_OK || op->n_out == 0 || op->w->n == 0)
		return st;
	CUDA_ENTER("head/plain");
	head_plain_kernel<<<grid, BLOCK, 0, stream->cuda>>>(*op, *op->w);
	return cuda_launched("head/plain", err);
}

static struct product product_of(const struct op_head *op)
{
	struct product p = {
		.y = op->logits,
		.x = (const bf16 *)op->x,
		.x_stride = op->w->k,
		.y_stride = op->w->n,
		.w = *op->w,
		.out = OUT_F32,
		.n_rows = op->n_out,
		.x_div = 1,
		.x_rows = op->out_row,
	};

	return p;
}

extern "C" void head_cuda_mma_inner(const void *op, char names[KERNEL_NAMES_MAX])
{
	struct product p = product_of((const struct op_head *)op);

	product_inner(&p, 0, "", names);
}

CUDA_KERNEL(head, mma)
{
	struct product p = product_of(op);

	return product_run(stream, &p, 0, "head/mma", err);
}
