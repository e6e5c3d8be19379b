/* y = x W^T: the oracle, one warp per element of y, and the tensor-core kernels of
 * product.cuh and product_fp4.cuh. */
#include "kernels/cuda/plain.cuh"
#include "kernels/cuda/product_fp4.cuh"

enum { BLOCK = 256, WARPS = BLOCK / WARP };

static __global__ void __launch_bounds__(BLOCK)
	linear_plain_kernel(const struct op_linear op, const struct weight w)
{
	uint32_t n = blockIdx.x * WARPS + threadIdx.x / WARP;

	for (uint64_t t = blockIdx.y; t < op.n_rows && n < w.n; t += gridDim.y) {
		float y = plain_dot(w, 0, n, (const bf16 *)op.x + t * op.x_stride);

		if (threadIdx.x % WARP == 0)
			((bf16 *)op.y)[t * op.y_stride + n] = __float2bfloat16(y);
	}
}

static status check_strides(const struct op_linear *op, const char *what, struct err *err)
{
	if (op->x_stride < op->w->k || op->y_stride < op->w->n || op->w->count != 1)
		return err_set(err, ST_LIMIT,
			"%s: %u matrices of %u x %u with row strides %u and %u", what,
			op->w->count, op->w->n, op->w->k, op->y_stride, op->x_stride);
	return ST_OK;
}

CUDA_KERNEL(linear, plain)
{
	dim3 grid(CEIL_DIV(op->w->n, (uint32_t)WARPS), MIN(op->n_rows, 65535u));
	status st = plain_check(op->w, "linear/plain", err);

	if (st == ST_OK)
		st = check_strides(op, "linear/plain", err);
	if (st != ST_OK || op->n_rows == 0 || op->w->n == 0)
		return st;
	CUDA_ENTER("linear/plain");
	linear_plain_kernel<<<grid, BLOCK, 0, stream->cuda>>>(*op, *op->w);
	return cuda_launched("linear/plain", err);
}

static struct product product_of(const struct op_linear *op)
{
	struct product p = {
		.y = op->y,
		.x = (const bf16 *)op->x,
		.x_stride = op->x_stride,
		.y_stride = op->y_stride,
		.w = *op->w,
		.out = OUT_BF16,
		.n_rows = op->n_rows,
		.x_div = 1,
	};

	return p;
}

extern "C" void linear_cuda_mma_inner(const void *op, char names[KERNEL_NAMES_MAX])
{
	struct product p = product_of((const struct op_linear *)op);

	product_inner(&p, 0, "", names);
}

extern "C" void linear_cuda_fp4_inner(const void *op, char names[KERNEL_NAMES_MAX])
{
	struct product p = product_of((const struct op_linear *)op);

	product_fp4.inner(&p, 0, "", names);
}

static status run_by(const struct product_way *by, struct stream *stream,
	const struct op_linear *op, const char *what, struct err *err)
{
	struct product p = product_of(op);
	status st = check_strides(op, what, err);

	return st == ST_OK ? by->run(stream, &p, 0, what, err) : st;
}

CUDA_KERNEL(linear, mma)
{
	return run_by(&product_by_rows, stream, op, "linear/mma", err);
}

CUDA_KERNEL(linear, fp4)
{
	return run_by(&product_fp4, stream, op, "linear/fp4", err);
}

CUDA_KERNEL(linear, fp4_steps)
{
	return run_by(&product_fp4_steps, stream, op, "linear/fp4_steps", err);
}
