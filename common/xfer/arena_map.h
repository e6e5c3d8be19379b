/* A peer's arenas in this process's address space, for transports that read them there.
 */
#ifndef COMMON_XFER_ARENA_MAP_H
#define COMMON_XFER_ARENA_MAP_H
#include "common/xfer/lanes.h"
#include "common/xfer/plan.h"
#include "common/xfer/xfer_transport.h"

struct arena_map {
	const struct xfer_side *side;
	uint32_t n_ours, n_theirs;
	/* By our rank, whose device it is mapped for, and by the peer's. */
	const uint8_t *at[RANKS_MAX][RANKS_MAX];
	uint64_t bytes[RANKS_MAX];
	struct lanes *lanes;
};

/* m is zeroed. n_ours: for how many of our ranks; 1: one mapping serves every rank. Also
 * after a failure it wants arena_map_release. */
MUST_CHECK status arena_map_init(struct arena_map *m, const struct xfer_side *side,
	const struct peer_arenas *peer, uint32_t n_ours, struct err *err);
void arena_map_release(struct arena_map *m);
/* Pool threads. how: by our rank; NULL: each backend's only one. */
MUST_CHECK status arena_map_copy(const struct arena_map *m,
	const struct copy_method *const *how, const struct plan_copy *copies, uint32_t n,
	struct err *err);

#endif
