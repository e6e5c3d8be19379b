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
	uint64_t pid_ns; /* inode of its PID namespace; 0: it did not say */
};

struct xfer_map; /* a peer's arenas, open */

/* Host memory of both processes, for transports whose copies start there. */
struct stage_room {
	int fd; /* memfd, the map's */
	uint32_t buffers;
	uint64_t buffer_bytes;
};
#define STAGE_BUFFERS_MAX 16u
#define STAGE_PIECES_MAX  128u
/* As fetch carries them; both processes run on one host. */
struct stage_piece {
	uint64_t offset;
	uint32_t rank, bytes;
};

struct transport_ops {
	enum transport id;
	enum ticket_kind ticket;
	const char *backend; /* name of the backends that it serves */
	/* Bytes of one work item: long enough to be worth a turn of the loop, short
	 * enough that pulls share the link and a cancel is seen soon. */
	uint64_t item_bytes;
	/* Mapping and releasing wait for devices: ranks are parked around them. */
	bool parks;
	/* Whether the pair can use it, ST_INVALID with the reason if not. NULL: always.
	 */
	status (*check)(const struct xfer_side *side, const struct peer_arenas *peer,
		struct err *err);
	/* Loop thread. ST_PEER: what check could not see. side lives as long as the map;
	 * the tickets' descriptors are closed by the caller after open. */
	status (*open)(struct xfer_map **out, const struct xfer_side *side,
		const struct peer_arenas *peer, struct err *err);
	/* NULL: copies read the peer's arenas. Otherwise the exporter puts bytes into
	 * these buffers first (import_stage.c), and the source of a copy is (buffer,
	 * offset in it). */
	struct stage_room (*room)(const struct xfer_map *map);
	/* Pool threads, several at once. The bytes are in place at return. */
	status (*copy)(struct xfer_map *map, const struct plan_copy *copies, uint32_t n,
		struct err *err);
	/* The copy method that was chosen for this pair. NULL: there is one only. */
	const char *(*method)(const struct xfer_map *map);
	/* Loop thread, when no copy runs. */
	void (*close)(struct xfer_map *map);
};

extern const struct transport_ops transport_shm, transport_cuda_ipc, transport_cuda_host;

/* Opens the peer by the first transport of the table that fits the tickets and both
 * sides' devices, or by the one that side->transport names; refused with the reason.
 * What "auto" passes over is logged with its reason. */
MUST_CHECK status transport_open(const struct transport_ops **ops, struct xfer_map **map,
	const struct xfer_side *side, const struct peer_arenas *peer, struct err *err);
void transport_close(const struct transport_ops *ops, const struct xfer_side *side,
	struct xfer_map *map);
/* Whether this is a name in the table, or no choice at all (NULL, "" and "auto"). */
MUST_CHECK status transport_check_name(const char *name, struct err *err);

/* side->park and unpark, if there are any; ST_DEVICE: there is nothing to unpark. */
MUST_CHECK status xfer_park(const struct xfer_side *side, struct err *err);
void xfer_unpark(const struct xfer_side *side);
/* Tells the side's owner when `why` is ST_DEVICE. Every status of a call that touched
 * this side's devices comes by here. */
void xfer_failed(const struct xfer_side *side, const struct err *why);
/* Inode of this process's PID namespace, 0 when the system does not say. */
uint64_t xfer_pid_ns(void);

#endif
