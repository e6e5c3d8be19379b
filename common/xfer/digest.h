/* A number that both sides of a hand-over compute from their own memory: xxh3 over the
 * state in one order that does not depend on tensor parallelism (pages; then GDN layers
 * by global head; conv by layer, part and head; aux bytes). */
#ifndef COMMON_XFER_DIGEST_H
#define COMMON_XFER_DIGEST_H
#include "common/xfer/plan.h"
#include "common/xfer/xfer.h"
#include <stdatomic.h>

/* Heads and aux bytes that several ranks hold give several variants, all of which must
 * be equal; variant i reads the i-th replica of each. */
uint32_t digest_variants(const struct layout *l);
/* Any thread. ST_CANCELLED once *cancel is set. */
MUST_CHECK status digest_compute(const struct xfer_side *side,
	const struct plan_refs *refs, uint32_t variant, const atomic_bool *cancel,
	uint64_t *out, struct err *err);

#endif
