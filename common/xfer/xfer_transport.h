/* How bytes of a plan get from a peer's arenas into ours: one small vtable per
 * transport, picked once per pair (xfer_transport.c). */
#ifndef COMMON_XFER_XFER_TRANSPORT_H
#define COMMON_XFER_XFER_TRANSPORT_H
#include "common/xfer/plan.h"
#include "common/xfer/xfer.h"

/* What the exporter said about its arenas; checked before a transport sees it. */
struct peer_arenas {
	struct layout layout;
	uint64_t pages, slots;
	uint32_t n_ranks;
	struct arena_ticket ticket[RANKS_MAX];
	char device_uuid[RANKS_MAX][65];
};

struct xfer_map; /* a peer's arenas, open */

struct transport_ops {
	enum transport id;
	enum ticket_kind ticket;
	const char *backend; /* name of the backends that it serves */
	/* Bytes of one work item: long enough to be worth a turn of the loop, short
	 * enough that pulls share the link and a cancel is seen soon. */
	uint64_t item_bytes;
	/* NULL when the pair can use it, otherwise the reason why not. */
	const char *(*obstacle)(
		const struct xfer_side *side, const struct peer_arenas *peer);
	/* Loop thread. side lives as long as the map; the tickets' descriptors are closed
	 * by the caller after open. */
	status (*open)(struct xfer_map **out, const struct xfer_side *side,
		const struct peer_arenas *peer, struct err *err);
	/* Pool threads, several at once. The bytes are in place at return. */
	status (*copy)(struct xfer_map *map, const struct plan_copy *copies, uint32_t n,
		struct err *err);
	/* Loop thread, when no copy runs. */
	void (*close)(struct xfer_map *map);
};

extern const struct transport_ops transport_shm;

/* The first of the table that fits the tickets and both sides' devices, or the one that
 * side->transport names; refused with the reason, never replaced by another. */
MUST_CHECK status transport_pick(const struct transport_ops **out,
	const struct xfer_side *side, const struct peer_arenas *peer, struct err *err);
/* Whether this is a name in the table, or no choice at all (NULL, "" and "auto"). */
MUST_CHECK status transport_check_name(const char *name, struct err *err);

#endif
