/* The choice of experts from their logits by a warp, and what the launchers of moe_route
 * refuse. */
#ifndef KERNELS_CUDA_MOE_ROUTE_CUH
#define KERNELS_CUDA_MOE_ROUTE_CUH
#include "kernels/cuda/cuda_common.cuh"

enum { ROUTE_EXPERTS_MAX = 1024, ROUTE_HIDDEN_MAX = 8192 };
#define NOBODY 0xFFFFFFFFu

/* An expert and its place in the order of logits: floats as integers that compare alike;
 * 0 is below all of them. */
struct route_best {
	uint32_t key, expert;
};

static __device__ __forceinline__ uint32_t order_of(float logit)
{
	uint32_t u = __float_as_uint(logit + 0.0f); /* -0 is 0 */

	return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

/* The lane's best expert that is not taken, the lowest of equals; taken: a bit for each
 * of the lane's. */
static __device__ __forceinline__ struct route_best best_of_lane(
	const float *logits, uint32_t n, uint32_t taken)
{
	struct route_best best = {0, NOBODY};

	for (uint32_t i = 0, e = threadIdx.x % WARP; e < n; i++, e += WARP) {
		uint32_t key = order_of(logits[e]);

		if ((taken >> i & 1u) == 0 && key > best.key)
			best = {key, e};
	}
	return best;
}

/* One warp, one row. NaN logits are -inf already, so K different experts come out
 * whatever the input is. */
static __device__ __forceinline__ void route_choose(
	const struct op_moe_route &op, uint64_t t, const float *logits)
{
	uint32_t lane = threadIdx.x % WARP;
	struct route_best best = best_of_lane(logits, op.n_experts, 0);
	uint32_t taken = 0, mine = 0;
	float logit = -INFINITY, weight, most;

	for (uint32_t j = 0; j < op.top_k; j++) {
		uint32_t key = __reduce_max_sync(FULL_WARP, best.key);
		uint32_t e = __reduce_min_sync(
			FULL_WARP, best.key == key ? best.expert : NOBODY);

		if (e % WARP == lane) {
			taken |= 1u << (e / WARP);
			best = best_of_lane(logits, op.n_experts, taken);
		}
		if (op.forced != NULL)
			e = op.forced[t * op.top_k + j];
		if (j == lane) {
			mine = e;
			logit = e < op.n_experts ? logits[e] : -INFINITY;
		}
	}
	most = warp_max(logit);
	weight = lane < op.top_k ? expf(logit - most) : 0.0f;
	weight /= warp_sum(weight);
	if (lane < op.top_k) {
		op.ids[t * op.top_k + lane] = mine;
		op.weights[t * op.top_k + lane] = weight;
	}
}

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
