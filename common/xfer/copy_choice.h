/* Which way of copying is used from a peer's arena into ours: timed when the two meet,
 * on pieces as the plan of this pair makes them, because it depends on the link (NVLink,
 * PCIe, the same device) and on the size of the pieces. */
#ifndef COMMON_XFER_COPY_CHOICE_H
#define COMMON_XFER_COPY_CHOICE_H
#include "common/xfer/plan.h"
#include "common/xfer/xfer.h"
#include "common/xfer/xfer_transport.h"

/* Most bytes of one timed copy. */
#define COPY_CHOICE_BYTES (UINT64_C(32) << 20)

struct copy_choice {
	struct copy_method how;
	const char *name; /* "gather/16" */
	char text[160];   /* "gather/16: 310 GB/s (engine 12, ...)" */
};

/* The method that costs a running step least among those within a tenth of the fastest:
 * copy engines before kernels, few multiprocessors before many. arena: the peer's, as
 * rank dst_rank's device sees them. Reads live pages of the peer and writes our dead
 * page 0 only. Ranks are parked. */
MUST_CHECK status copy_choose(struct copy_choice *out, const struct xfer_side *side,
	const struct peer_arenas *peer, uint32_t dst_rank, const uint8_t *const *arena,
	struct err *err);

#endif
