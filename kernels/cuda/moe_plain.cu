/* The experts, plain: the oracle of moe. One warp per element of the inner rows, then one
 * per element of y, which adds the experts in the order of the router's list. Inner rows
 * stay F32 in the scratch. */
#include "kernels/cuda/moe.cuh"
#include "kernels/cuda/plain.cuh"

enum { BLOCK = 256, WARPS = BLOCK / WARP };

/* h[i][n] of the expert of entry i (ids NULL: matrix 0), whose row of x is i / div. */
static __global__ void __launch_bounds__(BLOCK)
	moe_plain_inner(float *h, const bf16 *x, const uint32_t *ids, uint32_t div,
		const struct weight gate, const struct weight up)
{
	uint32_t n = blockIdx.x * WARPS + threadIdx.x / WARP;
	uint64_t i = blockIdx.y;
	uint32_t expert = ids != NULL ? ids[i] : 0;
	const bf16 *row = x + i / div * gate.k;
	float g, u;

	if (n >= gate.n)
		return;
	g = plain_dot(gate, expert, n, row);
	u = plain_dot(up, expert, n, row);
	if (threadIdx.x % WARP == 0)
		h[i * gate.n + n] = dev_silu(g) * u;
}

struct plain_rows {
	bf16 *y;
	const float *h, *h_shared;
	const uint32_t *ids;
	const float *weights, *shared;
	uint32_t top_k;
};

static __global__ void __launch_bounds__(BLOCK) moe_plain_sum(
	const struct plain_rows r, const struct weight down, const struct weight sh_down)
{
	uint32_t n = blockIdx.x * WARPS + threadIdx.x / WARP;
	uint64_t t = blockIdx.y;
	float sum = 0.0f;

	if (n >= down.n)
		return;
	for (uint64_t i = t * r.top_k; i < (t + 1) * r.top_k; i++)
		sum += r.weights[i] * plain_dot(down, r.ids[i], n, r.h + i * down.k);
	if (r.shared != NULL)
		sum += r.shared[t] * plain_dot(sh_down, 0, n, r.h_shared + t * sh_down.k);
	if (threadIdx.x % WARP == 0)
		r.y[t * down.n + n] = __float2bfloat16(sum);
}

static uint64_t scratch_floats(
	uint32_t rows, uint32_t top_k, uint32_t width, uint32_t shared_width)
{
	return (uint64_t)rows * top_k * width + (uint64_t)rows * shared_width;
}

extern "C" uint64_t moe_cuda_plain_work(const struct kernel_shapes *s)
{
	return sizeof(float) * scratch_floats(MIN(s->rows_max, MOE_SLAB), s->top_k,
				       s->width, s->shared_width);
}

static status run_slab(struct stream *stream, const struct op_moe *op, uint32_t first,
	uint32_t rows, struct err *err)
{
	uint32_t hidden = op->down->n, pairs = rows * op->top_k;
	const bf16 *x = (const bf16 *)op->x + (uint64_t)first * hidden;
	const struct weight none = {};
	struct plain_rows r = {
		.y = (bf16 *)op->y + (uint64_t)first * hidden,
		.h = (const float *)op->work,
		.h_shared = (const float *)op->work + (uint64_t)pairs * op->gate->n,
		.ids = op->ids + (uint64_t)first * op->top_k,
		.weights = op->weights + (uint64_t)first * op->top_k,
		.shared = op->sh_gate != NULL ? op->shared + first : NULL,
		.top_k = op->top_k,
	};

	moe_plain_inner<<<dim3(CEIL_DIV(op->gate->n, (uint32_t)WARPS), pairs), BLOCK, 0,
		stream->cuda>>>((float *)r.h, x, r.ids, op->top_k, *op->gate, *op->up);
	if (op->sh_gate != NULL)
		moe_plain_inner<<<dim3(CEIL_DIV(op->sh_gate->n, (uint32_t)WARPS), rows),
			BLOCK, 0, stream->cuda>>>(
			(float *)r.h_shared, x, NULL, 1, *op->sh_gate, *op->sh_up);
	moe_plain_sum<<<dim3(CEIL_DIV(hidden, (uint32_t)WARPS), rows), BLOCK, 0,
		stream->cuda>>>(r, *op->down, op->sh_gate != NULL ? *op->sh_down : none);
	return cuda_launched("moe/plain", err);
}

CUDA_KERNEL(moe, plain)
{
	const struct weight *all[] = {
		op->gate, op->up, op->down, op->sh_gate, op->sh_up, op->sh_down};
	uint32_t most = MIN(MOE_SLAB, MAX(65535u / MAX(op->top_k, 1u), 1u));
	status st = moe_cuda_check(op, "moe/plain",
		sizeof(float) * scratch_floats(MIN(op->n_rows, most), op->top_k,
					op->gate->n,
					op->sh_gate != NULL ? op->sh_gate->n : 0),
		err);

	for (size_t i = 0; i < COUNT(all) && st == ST_OK; i++)
		st = all[i] != NULL ? plain_check(all[i], "moe/plain", err) : ST_OK;
	if (st != ST_OK || op->n_rows == 0)
		return st;
	CUDA_ENTER("moe/plain");
	for (uint32_t t = 0; t < op->n_rows && st == ST_OK; t += most)
		st = run_slab(stream, op, t, MIN(most, op->n_rows - t), err);
	return st;
}
