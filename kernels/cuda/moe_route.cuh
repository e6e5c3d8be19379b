/* The choice of experts from their logits by a warp, the shared expert's gate, what
 * kernels with clusters share, and what the launchers of moe_route refuse. */
#ifndef KERNELS_CUDA_MOE_ROUTE_CUH
#define KERNELS_CUDA_MOE_ROUTE_CUH
#include "kernels/cuda/cuda_common.cuh"

enum { ROUTE_EXPERTS_MAX = 1024, ROUTE_HIDDEN_MAX = 8192 };
#define NOBODY 0xFFFFFFFFu

/* Floats as integers that compare alike; 0 is below all of them. */
static __device__ __forceinline__ uint32_t order_of(float logit)
{
	uint32_t u = __float_as_uint(logit + 0.0f); /* -0 is 0 */

	return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

/* By one warp, whose lanes hold N experts each: lane j gets the j-th best, the lowest of
 * equals. */
template <int N>
static __device__ __forceinline__ uint32_t best_experts(
	const float *logits, uint32_t n_experts, uint32_t top_k)
{
	uint32_t lane = threadIdx.x % WARP, mine = NOBODY;
	uint32_t keys[N]; /* of expert lane + 32 i; 0: taken, or none */

#pragma unroll
	for (uint32_t i = 0; i < N; i++) {
		uint32_t e = lane + i * WARP;

		keys[i] = e < n_experts ? order_of(logits[e]) : 0;
	}
	for (uint32_t j = 0; j < top_k; j++) {
		uint32_t key = 0, expert = NOBODY;

#pragma unroll
		for (uint32_t i = 0; i < N; i++)
			key = max(key, keys[i]);
		key = __reduce_max_sync(FULL_WARP, key);
#pragma unroll
		for (uint32_t i = 0; i < N; i++)
			expert = keys[i] == key ? min(expert, lane + i * WARP) : expert;
		expert = __reduce_min_sync(FULL_WARP, expert);
#pragma unroll
		for (uint32_t i = 0; i < N; i++)
			keys[i] = expert == lane + i * WARP ? 0 : keys[i];
		if (j == lane)
			mine = expert;
	}
	return mine;
}

/* One warp, one row. NaN logits are -inf already, so K different experts come out
 * whatever the input is. */
static __device__ __forceinline__ void route_choose(
	const struct op_moe_route &op, uint64_t t, const float *logits)
{
	uint32_t lane = threadIdx.x % WARP, n = op.n_experts, mine = NOBODY;
	float logit, most, weight;

	if (op.forced != NULL)
		mine = lane < op.top_k ? op.forced[t * op.top_k + lane] : NOBODY;
	else if (n <= 8 * WARP)
		mine = best_experts<8>(logits, n, op.top_k);
	else if (n <= 16 * WARP)
		mine = best_experts<16>(logits, n, op.top_k);
	else
		mine = best_experts<ROUTE_EXPERTS_MAX / WARP>(logits, n, op.top_k);
	logit = mine < n ? logits[mine] : -INFINITY;
	most = warp_max(logit);
	weight = lane < op.top_k ? expf(logit - most) : 0.0f;
	weight /= warp_sum(weight);
	if (lane < op.top_k) {
		op.ids[t * op.top_k + lane] = mine;
		op.weights[t * op.top_k + lane] = weight;
	}
}

/* The gate of the shared expert for row x, by one warp. */
static __device__ __forceinline__ void route_gate(
	const bf16 *x, const bf16 *gate, uint32_t hidden, float *out)
{
	constexpr int STEPS = 8, STEP = WARP * 8;
	uint32_t k_lane = threadIdx.x % WARP * 8;
	float sum = 0.0f;

	for (uint32_t first = 0; first < hidden; first += STEPS * STEP) {
		uint4 a[STEPS], b[STEPS];

#pragma unroll
		for (int s = 0; s < STEPS; s++) {
			bool inside = first + s * STEP + k_lane < hidden;

			b[s] = load16_if(gate + first + k_lane + s * STEP, inside);
			a[s] = load16_if(x + first + k_lane + s * STEP, inside);
		}
#pragma unroll
		for (int s = 0; s < STEPS; s++) {
			float u[8], v[8];

			unpack8(a[s], u);
			unpack8(b[s], v);
#pragma unroll
			for (uint32_t j = 0; j < 8; j++)
				sum += u[j] * v[j];
		}
	}
	sum = warp_sum(sum);
	if (threadIdx.x % WARP == 0)
		*out = 1.0f / (1.0f + expf(-sum));
}

static __device__ __forceinline__ void cluster_arrive(void)
{
	asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

/* Without order of memory: only to know that all blocks of the cluster run. */
static __device__ __forceinline__ void cluster_arrive_relaxed(void)
{
	asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

static __device__ __forceinline__ void cluster_wait(void)
{
	asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Store to where `local` stands in the shared memory of block `rank` of the cluster. */
static __device__ __forceinline__ void store_remote(
	float *local, uint32_t rank, float value)
{
	asm volatile("{\n\t.reg .u32 at;\n\t"
		     "mapa.shared::cluster.u32 at, %0, %1;\n\t"
		     "st.shared::cluster.f32 [at], %2;\n\t}"
		     :
		     : "r"(shared_address(local)), "r"(rank), "f"(value)
		     : "memory");
}

/* What the kernels with clusters multiply. */
struct route_task {
	const bf16 *x, *router; /* first row of the cluster's, of all experts */
	uint32_t n, n_experts, hidden;
};

static inline status route_check_matrix(const struct op_moe_route *op, const char *name,
	const struct weight *w, uint32_t rows, struct err *err)
{
	if (w->layout != 0 || (w->format != WF_F32 && w->format != WF_BF16))
		return err_set(err, ST_LIMIT, "moe_route: %s in %s, layout %u", name,
			format_name(w->format), w->layout);
	if (w->n != rows || w->k != op->router->k || w->format != op->router->format)
		return err_set(err, ST_LIMIT,
			"moe_route: %s is %s %u x %u, not %s "
			"%u x %u",
			name, format_name(w->format), w->n, w->k,
			format_name(op->router->format), rows, op->router->k);
	if (!is_aligned(w->data, 16))
		return err_set(err, ST_LIMIT, "moe_route: %s is not aligned", name);
	return ST_OK;
}

static inline status route_check(const struct op_moe_route *op, struct err *err)
{
	status st = route_check_matrix(op, "the router", op->router, op->n_experts, err);

	if (st == ST_OK && op->shared != NULL)
		st = route_check_matrix(op, "the shared gate", op->shared_router, 1, err);
	if (st != ST_OK)
		return st;
	if (op->n_experts > ROUTE_EXPERTS_MAX || op->top_k > op->n_experts ||
		op->top_k > WARP || op->top_k == 0)
		return err_set(err, ST_LIMIT,
			"moe_route: %u of %u experts, at most %u of %d are served",
			op->top_k, op->n_experts, WARP, ROUTE_EXPERTS_MAX);
	if (op->router->k % 8 != 0 || op->router->k > ROUTE_HIDDEN_MAX ||
		!is_aligned(op->x, 16))
		return err_set(err, ST_LIMIT,
			"moe_route: hidden %u, a multiple of 8 up to %d is served",
			op->router->k, ROUTE_HIDDEN_MAX);
	return ST_OK;
}

#endif
