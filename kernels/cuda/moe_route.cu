/* Choice of experts: logits of all experts in F32, the K largest, their softmax (which
 * is the softmax over all, renormalised), and the shared expert's gate. A block takes a
 * few rows through the whole router, whose weights come from L2; a warp then chooses for
 * a row. Few rows are bound by one reading of the router, many by F32 arithmetic. */
#include "kernels/cuda/moe_route.cuh"

enum { WARPS = 8, BLOCK = WARPS * 32, ROWS_MANY = 4 };

/* Four neighbouring weights. */
static __device__ __forceinline__ float4 load4(const float *p)
{
	return *(const float4 *)p;
}

static __device__ __forceinline__ float4 load4(const bf16 *p)
{
	uint2 raw = *(const uint2 *)p;

	return make_float4(low2(raw.x), high2(raw.x), low2(raw.y), high2(raw.y));
}

/* x w for ROWS rows and one expert, by a warp; in every lane. */
template <int ROWS, typename T>
static __device__ __forceinline__ void multiply(
	const bf16 *x, const T *w, uint32_t hidden, float *sums)
{
#pragma unroll
	for (int r = 0; r < ROWS; r++)
		sums[r] = 0.0f;
	for (uint32_t i = threadIdx.x % WARP * 4; i < hidden; i += WARP * 4) {
		float4 b = load4(w + i);

#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			float4 a = load4(x + (uint64_t)r * hidden + i);

			sums[r] += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
		}
	}
#pragma unroll
	for (int r = 0; r < ROWS; r++)
		sums[r] = warp_sum(sums[r]);
}

template <int ROWS, typename T>
static __global__ void __launch_bounds__(BLOCK) moe_route_kernel(
	const struct op_moe_route op, const T *router, const T *shared, uint32_t hidden)
{
	extern __shared__ __align__(16) unsigned char raw[];
	bf16 *x = (bf16 *)raw;                                  /* [ROWS][hidden] */
	float *logits = (float *)(x + (uint64_t)ROWS * hidden); /* [ROWS][n_experts] */
	uint64_t t0 = (uint64_t)blockIdx.x * ROWS;
	uint32_t n = (uint32_t)min((uint64_t)ROWS, op.n_rows - t0);
	uint32_t lane = threadIdx.x % WARP;
	uint32_t warp = threadIdx.x / WARP;
	uint32_t n_products = op.n_experts + (op.shared != NULL ? 1 : 0);
	float sums[ROWS];

	for (uint32_t i = threadIdx.x * 8; i < ROWS * hidden; i += BLOCK * 8) {
		uint4 v = make_uint4(0, 0, 0, 0);

		if (i < n * hidden)
			v = *(const uint4 *)((const bf16 *)op.x + t0 * hidden + i);
		*(uint4 *)(x + i) = v;
	}
	__syncthreads();
	for (uint32_t e = warp; e < n_products; e += WARPS) {
		bool gate = e == op.n_experts;

		multiply<ROWS>(
			x, gate ? shared : router + (uint64_t)e * hidden, hidden, sums);
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			if (lane != 0 || r >= n)
				continue;
			if (gate)
				op.shared[t0 + r] = 1.0f / (1.0f + expf(-sums[r]));
			else
				logits[r * op.n_experts + e] =
					isnan(sums[r]) ? -INFINITY : sums[r];
		}
	}
	__syncthreads();
	for (uint32_t r = warp; r < n; r += WARPS)
		route_choose(op, t0 + r, logits + r * op.n_experts);
}

template <int ROWS, typename T>
static status launch(
	struct stream *stream, const struct op_moe_route *op, struct err *err)
{
	uint32_t hidden = op->router->k;
	uint32_t smem = ROWS * (hidden * sizeof(bf16) + op->n_experts * sizeof(float));
	const T *shared = op->shared != NULL ? (const T *)op->shared_router->data : NULL;

	static_assert(ROWS * (ROUTE_HIDDEN_MAX * sizeof(bf16) +
				     ROUTE_EXPERTS_MAX * sizeof(float)) <=
			      CUDA_SMEM_MAX,
		"an SM120 block has 99 KB");
	CUDA_ALLOW_SMEM("moe_route/rows", (moe_route_kernel<ROWS, T>), smem);
	moe_route_kernel<ROWS, T>
		<<<CEIL_DIV(op->n_rows, (uint32_t)ROWS), BLOCK, smem, stream->cuda>>>(
			*op, (const T *)op->router->data, shared, hidden);
	return cuda_launched("moe_route/rows", err);
}

static bool is_many(const struct op_moe_route *op)
{
	return op->n_rows >= 512;
}

extern "C" void route_cuda_rows_inner(const void *op, char names[KERNEL_NAMES_MAX])
{
	bool many = is_many((const struct op_moe_route *)op);

	kernel_named(names, "blocks of %d", many ? ROWS_MANY : 1);
}

CUDA_KERNEL(moe_route, rows)
{
	status st = route_check(op, err);
	bool many = is_many(op);

	if (st != ST_OK || op->n_rows == 0)
		return st;
	CUDA_ENTER("moe_route/rows");
	if (op->router->format == WF_F32)
		return many ? launch<ROWS_MANY, float>(stream, op, err)
			    : launch<1, float>(stream, op, err);
	return many ? launch<ROWS_MANY, bf16>(stream, op, err)
		    : launch<1, bf16>(stream, op, err);
}
