/* Choice of experts for a few rows with a BF16 router, on the tensor cores: bound by the
 * time to read the router once from memory. A cluster of up to 16 blocks takes 16 rows; a
 * block multiplies them with 16 experts at a time, and of 2048 values of the hidden
 * dimension all loads are in flight at once. Its warps share the hidden dimension; each
 * logit goes to the block that chooses for the row, through the cluster's shared memory.
 * One more warp does the shared expert's gate meanwhile.
 *
 * A logit is summed as in moe_route/cluster, which takes more rows, so a row's choice
 * does not depend on how many others are in the pass. */
#include "kernels/cuda/moe_route.cuh"

enum {
	WARPS = 8, /* that multiply */
	THREADS = WARPS * 32,
	BLOCK = THREADS + 32,
	ROWS = 16,
	EXPERTS = 16,
	LANE_K = 8,
	STEP_K = 4 * LANE_K,
	GAP_K = WARPS * STEP_K, /* between the steps of a warp */
	STEPS = 8,              /* in flight */
	SPREAD_ROWS_MAX = 64,
	CLUSTER_MAX = 16, /* where more than 8 can be had */
	CLUSTER_MIN = 8,
};
static_assert(ROWS * EXPERTS == THREADS, "a thread adds the parts of one logit");
static_assert(WARPS * ROWS * EXPERTS * sizeof(float) +
			      ROWS / CLUSTER_MIN * ROUTE_EXPERTS_MAX * sizeof(float) <=
		      48 * 1024,
	"what a block has without asking");

/* Between the warps that multiply. */
static __device__ __forceinline__ void meet(void)
{
	asm volatile("barrier.sync.aligned 1, %0;" ::"n"((int)THREADS) : "memory");
}

/* acc[expert tile][4]: this warp's part of k. Rows and experts that are not there are
 * read as the last one; nobody sends their sums. */
static __device__ __forceinline__ void multiply(
	const struct route_task &k, uint32_t expert_0, float (*acc)[4])
{
	uint32_t g = threadIdx.x % WARP / 4, k_lane = threadIdx.x % 4 * LANE_K;
	const bf16 *x[2], *w[2];

#pragma unroll
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t row = min(i * 8 + g, k.n - 1);
		uint32_t expert = min(expert_0 + i * 8 + g, k.n_experts - 1);

		x[i] = k.x + (uint64_t)row * k.hidden + k_lane;
		w[i] = k.router + (uint64_t)expert * k.hidden + k_lane;
	}
	for (uint32_t first = threadIdx.x / WARP * STEP_K; first < k.hidden;
		first += STEPS * GAP_K) {
		const bf16 *x0 = x[0] + first, *x1 = x[1] + first;
		const bf16 *w0 = w[0] + first, *w1 = w[1] + first;
		uint4 a[STEPS][2], b[STEPS][2];

#pragma unroll
		for (int s = 0; s < STEPS; s++) {
			bool inside = first + s * GAP_K + k_lane < k.hidden;

			b[s][0] = load16_if(w0 + s * GAP_K, inside);
			b[s][1] = load16_if(w1 + s * GAP_K, inside);
			a[s][0] = load16_if(x0 + s * GAP_K, inside);
			a[s][1] = load16_if(x1 + s * GAP_K, inside && k.n > 8);
		}
		__syncwarp(); /* no product between the loads: it would wait */
#pragma unroll
		for (uint32_t s = 0; s < STEPS; s++) {
			uint4 up = a[s][0], down = a[s][1];
			uint32_t one[4] = {up.x, down.x, up.y, down.y};
			uint32_t two[4] = {up.z, down.z, up.w, down.w};

#pragma unroll
			for (uint32_t n = 0; n < 2; n++) {
				mma_bf16(acc[n], one, b[s][n].x, b[s][n].y);
				mma_bf16(acc[n], two, b[s][n].z, b[s][n].w);
			}
		}
	}
}

/* The warps' sums together, each to the block that wants it; OWN: rows per block. */
template <uint32_t OWN>
static __device__ __forceinline__ void send(const struct route_task &k, uint32_t expert_0,
	const float *partial, float *logits)
{
	uint32_t i = threadIdx.x, lane = i % WARP, n = i / 128, e = i / WARP % 4;
	uint32_t row = e / 2 * 8 + lane / 4;
	uint32_t expert = expert_0 + n * 8 + lane % 4 * 2 + e % 2;
	float sum = 0.0f;

#pragma unroll
	for (uint32_t w = 0; w < WARPS; w++)
		sum += partial[w * ROWS * EXPERTS + i];
	if (row < k.n && expert < k.n_experts)
		store_remote(&logits[row % OWN * k.n_experts + expert], row / OWN,
			isnan(sum) ? -INFINITY : sum);
}

/* By the warps that multiply: every logit to its block. */
template <uint32_t BLOCKS>
static __device__ __forceinline__ void spread_logits(
	const struct route_task &k, uint32_t rank, float *partial, float *logits)
{
	uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	bool started = false;

	for (uint32_t e = rank * EXPERTS; e < k.n_experts; e += BLOCKS * EXPERTS) {
		float acc[2][4] = {};

		multiply(k, e, acc);
#pragma unroll
		for (uint32_t i = 0; i < 8; i++)
			partial[warp * ROWS * EXPERTS + i * WARP + lane] =
				acc[i / 4][i % 4];
		meet();
		if (!started)
			cluster_wait(); /* every block of the cluster runs */
		started = true;
		send<ROWS / BLOCKS>(k, e, partial, logits);
		meet();
	}
	if (!started)
		cluster_wait();
	cluster_arrive();
}

/* BLOCKS: of a cluster. */
template <uint32_t BLOCKS>
static __global__ void __launch_bounds__(BLOCK, 1)
	moe_route_spread_kernel(const struct op_moe_route op, const bf16 *router,
		const bf16 *gate, uint32_t hidden)
{
	constexpr uint32_t OWN = ROWS / BLOCKS;
	extern __shared__ __align__(16) float logits[]; /* [OWN][n_experts] */
	__shared__ float partial[WARPS * ROWS * EXPERTS];
	uint32_t rank = blockIdx.x % BLOCKS;
	uint64_t t0 = (uint64_t)blockIdx.x / BLOCKS * ROWS;
	struct route_task k = {(const bf16 *)op.x + t0 * hidden, router,
		(uint32_t)min((uint64_t)ROWS, op.n_rows - t0), op.n_experts, hidden};
	uint32_t warp = threadIdx.x / WARP, row = rank * OWN + warp;

	cluster_arrive_relaxed();
	if (warp < WARPS) {
		spread_logits<BLOCKS>(k, rank, partial, logits);
	} else {
		cluster_wait();
		cluster_arrive();
		for (uint32_t r = rank * OWN; r < min(k.n, (rank + 1) * OWN); r++) {
			if (gate != NULL)
				route_gate(k.x + (uint64_t)r * hidden, gate, hidden,
					op.shared + t0 + r);
		}
	}
	cluster_wait();
	if (warp < OWN && row < k.n)
		route_choose(op, t0 + row, logits + warp * op.n_experts);
}

template <uint32_t BLOCKS>
static status launch(
	struct stream *stream, const struct op_moe_route *op, struct err *err)
{
	uint32_t clusters = CEIL_DIV(op->n_rows, (uint32_t)ROWS);
	const bf16 *gate =
		op->shared != NULL ? (const bf16 *)op->shared_router->data : NULL;
	cudaLaunchAttribute shape = {};
	cudaLaunchConfig_t config = {};

	shape.id = cudaLaunchAttributeClusterDimension;
	shape.val.clusterDim.x = BLOCKS;
	shape.val.clusterDim.y = 1;
	shape.val.clusterDim.z = 1;
	config.gridDim = dim3(clusters * BLOCKS);
	config.blockDim = dim3(BLOCK);
	config.dynamicSmemBytes = ROWS / BLOCKS * op->n_experts * sizeof(float);
	config.stream = stream->cuda;
	config.attrs = &shape;
	config.numAttrs = 1;
	CUDA_ENTER("moe_route/spread");
	CUDA_TRY("moe_route/spread: large clusters",
		cudaFuncSetAttribute((const void *)moe_route_spread_kernel<BLOCKS>,
			cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
	CUDA_TRY("moe_route/spread",
		cudaLaunchKernelEx(&config, moe_route_spread_kernel<BLOCKS>, *op,
			(const bf16 *)op->router->data, gate, op->router->k));
	return cuda_launched("moe_route/spread", err);
}

static bool is_for_spread(const struct op_moe_route *op)
{
	return op->router->format == WF_BF16 && op->n_rows <= SPREAD_ROWS_MAX;
}

extern "C" void route_cuda_spread_inner(const void *op, char names[KERNEL_NAMES_MAX])
{
	if (is_for_spread((const struct op_moe_route *)op))
		kernel_named(names, "spread %u", (uint32_t)ROWS);
	else
		route_cuda_cluster_inner(op, names);
}

CUDA_KERNEL(moe_route, spread)
{
	status st = route_check(op, err);

	if (st != ST_OK || op->n_rows == 0)
		return st;
	if (!is_for_spread(op))
		return k_moe_route_cuda_cluster(stream, op, err);
	/* Sixteen are not portable; GPUs with HBM have them. */
	return stream->backend->arch < 120 ? launch<CLUSTER_MAX>(stream, op, err)
					   : launch<CLUSTER_MIN>(stream, op, err);
}
