/* Choice of experts: softmax over all, the K largest, renormalised; plain. */
#include "kernels/cpu/cpu.h"

static void softmax(float *p, uint32_t n)
{
	float largest = -INFINITY;
	float sum = 0.0f;

	for (uint32_t i = 0; i < n; i++)
		largest = fmaxf(largest, p[i]);
	for (uint32_t i = 0; i < n; i++) {
		p[i] = expf(p[i] - largest);
		sum += p[i];
	}
	for (uint32_t i = 0; i < n; i++)
		p[i] /= sum;
}

/* The largest not yet taken, the lowest index of equals. NaN compares as smaller than
 * everything, so that K different experts come out whatever the input is. */
static uint32_t take_largest(const float *p, bool *taken, uint32_t n)
{
	uint32_t best = n;

	for (uint32_t i = 0; i < n; i++) {
		if (!taken[i] && (best == n || p[i] > p[best] || isnan(p[best])))
			best = i;
	}
	taken[best] = true;
	return best;
}

void route_choose(const struct op_moe_route *op, const float *p, uint32_t t)
{
	uint32_t *ids = op->ids + (uint64_t)t * op->top_k;
	float *weights = op->weights + (uint64_t)t * op->top_k;
	bool taken[CPU_EXPERTS_MAX] = {false};
	float sum = 0.0f;

	for (uint32_t j = 0; j < op->top_k; j++) {
		ids[j] = op->forced != NULL ? op->forced[(uint64_t)t * op->top_k + j]
					    : take_largest(p, taken, op->n_experts);
		weights[j] = p[ids[j]];
		sum += weights[j];
	}
	for (uint32_t j = 0; j < op->top_k; j++)
		weights[j] /= sum;
}

status route_check(const struct op_moe_route *op, const char *what, struct err *err)
{
	status st = product_check(op->router, what, err);

	if (st == ST_OK && op->shared != NULL)
		st = product_check(op->shared_router, what, err);
	if (st != ST_OK)
		return st;
	if (op->n_experts > CPU_EXPERTS_MAX || op->top_k > op->n_experts)
		return err_set(err, ST_LIMIT, "%s: %u of %u experts, limit %u", what,
			op->top_k, op->n_experts, CPU_EXPERTS_MAX);
	for (uint64_t i = 0; op->forced != NULL && i < (uint64_t)op->n_rows * op->top_k;
		i++) {
		if (op->forced[i] >= op->n_experts)
			return err_set(err, ST_INVALID, "%s: expert %u of %u", what,
				op->forced[i], op->n_experts);
	}
	return ST_OK;
}

CPU_KERNEL(moe_route, plain)
{
	float p[CPU_EXPERTS_MAX];
	status st = route_check(op, "moe_route/plain", err);

	if (st != ST_OK)
		return st;
	for (uint32_t t = 0; t < op->n_rows; t++) {
		struct product product = {.y = p,
			.x = (const float *)op->x + (uint64_t)t * op->router->k,
			.n_rows = 1,
			.w = op->router};

		product_plain(&product);
		softmax(p, op->n_experts);
		route_choose(op, p, t);
		if (op->shared == NULL)
			continue;
		product.w = op->shared_router;
		product.y = &op->shared[t];
		product_plain(&product);
		op->shared[t] = sigmoid(op->shared[t]);
	}
	return ST_OK;
}
