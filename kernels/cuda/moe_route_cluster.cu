/* Choice of experts with a BF16 router on the tensor cores. A cluster of eight blocks
 * takes 32 rows; a block multiplies them with 32 experts at a time, its warps sharing the
 * hidden dimension, and sends each logit to the block that chooses for the row, through
 * the cluster's shared memory. Few rows are bound by latency (eight SMs read the router),
 * many by reading it from L2 once per 32 rows.
 *
 * A lane loads eight neighbouring values of a row for both factors and uses them as four
 * pairs of two steps: a product does not mind in which order k is taken. */
#include "kernels/cuda/moe_route.cuh"

enum {
	CLUSTER = 8,
	WARPS = 8,
	BLOCK = WARPS * 32,
	ROWS = 32,
	EXPERTS = 32,
	OWN_ROWS = ROWS / CLUSTER, /* for which a block chooses */
	LANE_K = 8,
	STEP_K = 4 * LANE_K,
	SUMS = ROWS * EXPERTS / 32, /* of a lane */
};
static_assert(WARPS >= 2 * OWN_ROWS, "some warps choose, others do the shared gate");
static_assert(WARPS * ROWS * EXPERTS * sizeof(float) +
			      OWN_ROWS * ROUTE_EXPERTS_MAX * sizeof(float) <=
		      48 * 1024,
	"what a block has without asking");

/* acc[row tile][expert tile][4]: this warp's part of k. */
static __device__ __forceinline__ void multiply(
	const struct route_task &k, uint32_t expert_0, float (*acc)[4][4])
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t g = lane / 4;
	uint32_t first = threadIdx.x / WARP * STEP_K + lane % 4 * LANE_K;

#pragma unroll 4
	for (uint32_t at = first; at - lane % 4 * LANE_K < k.hidden;
		at += WARPS * STEP_K) {
		bool inside = at < k.hidden;
		uint4 a[4], b[4];

#pragma unroll
		for (uint32_t i = 0; i < 4; i++) {
			uint32_t row = i * 8 + g;
			uint32_t expert = expert_0 + i * 8 + g;

			a[i] = load16_if(
				k.x + (uint64_t)row * k.hidden + at, inside && row < k.n);
			b[i] = load16_if(k.router + (uint64_t)expert * k.hidden + at,
				inside && expert < k.n_experts);
		}
#pragma unroll
		for (uint32_t m = 0; m < 2; m++) {
			uint4 up = a[2 * m], down = a[2 * m + 1];
			uint32_t one[4] = {up.x, down.x, up.y, down.y};
			uint32_t two[4] = {up.z, down.z, up.w, down.w};

#pragma unroll
			for (uint32_t n = 0; n < 4; n++) {
				mma_bf16(acc[m][n], one, b[n].x, b[n].y);
				mma_bf16(acc[m][n], two, b[n].z, b[n].w);
			}
		}
	}
}

/* The warps' sums together, each to the block that wants it. */
static __device__ __forceinline__ void send(const struct route_task &k, uint32_t expert_0,
	const float *partial, float *logits)
{
#pragma unroll
	for (uint32_t i = threadIdx.x; i < ROWS * EXPERTS; i += BLOCK) {
		uint32_t lane = i % WARP, m = i / 512, n = i / 128 % 4, e = i / WARP % 4;
		uint32_t row = m * 16 + e / 2 * 8 + lane / 4;
		uint32_t expert = expert_0 + n * 8 + lane % 4 * 2 + e % 2;
		float sum = 0.0f;

#pragma unroll
		for (uint32_t w = 0; w < WARPS; w++)
			sum += partial[w * ROWS * EXPERTS + i];
		if (expert < k.n_experts)
			store_remote(&logits[row % OWN_ROWS * k.n_experts + expert],
				row / OWN_ROWS, isnan(sum) ? -INFINITY : sum);
	}
}

static __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(BLOCK, 1)
	moe_route_cluster_kernel(const struct op_moe_route op, const bf16 *router,
		const bf16 *gate, uint32_t hidden)
{
	extern __shared__ __align__(16) float logits[]; /* [OWN_ROWS][n_experts] */
	__shared__ float partial[WARPS * ROWS * EXPERTS];
	uint32_t rank = blockIdx.x % CLUSTER;
	uint64_t t0 = (uint64_t)blockIdx.x / CLUSTER * ROWS;
	uint32_t lane = threadIdx.x % WARP;
	uint32_t warp = threadIdx.x / WARP;
	struct route_task k = {(const bf16 *)op.x + t0 * hidden, router,
		(uint32_t)min((uint64_t)ROWS, op.n_rows - t0), op.n_experts, hidden};
	uint32_t own = rank * OWN_ROWS + warp % OWN_ROWS; /* of the 32 rows */
	bool started = false;

	cluster_arrive_relaxed();
	for (uint32_t e = rank * EXPERTS; e < op.n_experts; e += CLUSTER * EXPERTS) {
		float acc[2][4][4] = {};

		multiply(k, e, acc);
#pragma unroll
		for (uint32_t i = 0; i < SUMS; i++)
			partial[warp * ROWS * EXPERTS + i * WARP + lane] =
				acc[i / 16][i / 4 % 4][i % 4];
		__syncthreads();
		if (!started)
			cluster_wait(); /* every block of the cluster runs */
		started = true;
		send(k, e, partial, logits);
		__syncthreads();
	}
	if (!started)
		cluster_wait();
	cluster_arrive();
	cluster_wait();
	if (own >= k.n)
		return;
	if (warp < OWN_ROWS)
		route_choose(op, t0 + own, logits + warp * op.n_experts);
	else if (warp < 2 * OWN_ROWS && gate != NULL)
		route_gate(
			k.x + (uint64_t)own * hidden, gate, hidden, op.shared + t0 + own);
}

extern "C" void route_cuda_cluster_inner(const void *op, char names[KERNEL_NAMES_MAX])
{
	if (((const struct op_moe_route *)op)->router->format != WF_BF16)
		route_cuda_rows_inner(op, names);
	else
		kernel_named(names, "cluster %u", (uint32_t)ROWS);
}

/* F32 routers, which no tensor core multiplies exactly, take the plain kernel. */
CUDA_KERNEL(moe_route, cluster)
{
	status st = route_check(op, err);
	uint32_t clusters = CEIL_DIV(op->n_rows, (uint32_t)ROWS);
	const bf16 *gate =
		op->shared != NULL ? (const bf16 *)op->shared_router->data : NULL;

	if (st != ST_OK || op->n_rows == 0)
		return st;
	if (op->router->format != WF_BF16)
		return k_moe_route_cuda_rows(stream, op, err);
	CUDA_ENTER("moe_route/cluster");
	moe_route_cluster_kernel<<<clusters * CLUSTER, BLOCK,
		OWN_ROWS * op->n_experts * sizeof(float), stream->cuda>>>(
		*op, (const bf16 *)op->router->data, gate, op->router->k);
	return cuda_launched("moe_route/cluster", err);
}
