/* The forward pass over kernels/ops.h, once for prefill and decode: the phase chooses
 * between the two forms of an op, never the shape of the batch. Nothing in it depends
 * on what the device computed. */
#ifndef COMMON_ENGINE_FORWARD_H
#define COMMON_ENGINE_FORWARD_H
#include "common/engine/engine_impl.h"

/* Runs the batch on this rank's stream: clears pages and slots, embeds, all layers,
 * logits, and on rank 0 sampling. Every rank calls it; ranks meet inside. */
MUST_CHECK status forward_run(
	struct rank *r, const struct batch *b, enum phase phase, struct err *err);

/* The same from embedding to sampling: nothing is cleared before or waited for after.
 * all: the mirror does not have this batch's rows yet, only ids, pos and how follow
 * otherwise. */
MUST_CHECK status forward_compute(struct rank *r, const struct batch *b, enum phase phase,
	bool all, struct err *err);
/* Copies the batch to its mirror, or what of it changes with each step. */
MUST_CHECK status forward_mirror(struct rank *r, const struct batch *b, uint8_t *mirror,
	bool all, struct err *err);

/* A layer between two norms: from ws.h to ws.y, which is summed over the ranks. */
struct layer_args {
	struct rank *r;
	const struct batch *b;
	enum phase phase;
	uint32_t layer;
};
MUST_CHECK status layer_attn(const struct layer_args *a, struct err *err);
MUST_CHECK status layer_gdn(const struct layer_args *a, struct err *err);
MUST_CHECK status layer_mlp(const struct layer_args *a, struct err *err);

/* y = x w^T for all rows of the batch, dense. */
MUST_CHECK status forward_linear(const struct layer_args *a, void *y, const void *x,
	enum weight_role role, struct err *err);
MUST_CHECK status forward_product(const struct layer_args *a, void *y, const void *x,
	const struct weight *w, struct err *err);
/* Element i of an array of activations. */
static inline void *forward_act(const struct layer_args *a, void *base, uint64_t i)
{
	return (uint8_t *)base + i * dtype_bytes(a->r->b->act);
}

#endif
