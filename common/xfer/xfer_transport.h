/* How bytes of a plan get from a peer's arenas into ours: one small vtable per
 * transport, with every fact that the rest of the hand-over needs of it. One is picked
 * per pair, once (xfer_transport.c). */
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
	const char *name;    /* in --transport, logs, metrics */
	const char *backend; /* name of the backends that it serves */
	/* The arenas of a peer that it can open, and what their tickets carry: a
	 * descriptor (which only a Unix socket can), or the blob. A number of
	 * enum ticket_kind, or from 16 on one of its own, with an offer that makes it. */
	uint32_t ticket;
	bool ticket_fd;
	/* Bytes of one work item: long enough to be worth a turn of the loop, short
	 * enough that pulls share the link and a cancel is seen soon. */
	uint64_t item_bytes;
	/* Mapping and releasing wait for devices: ranks are parked around them. */
	bool parks;
	/* open tries the pair with data. When that fails (ST_PEER), "auto" looks further;
	 * another transport's ST_PEER is the end of the link. */
	bool tries;
	/* Exporter, once at start: out[rank] for each of our arenas. NULL: it opens what
	 * another one offers. */
	status (*offer)(
		const struct xfer_side *side, struct arena_ticket *out, struct err *err);
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

/* In order of preference; a line each. */
#define TRANSPORTS(X)                                                                    \
	X(shm)                                                                           \
	X(cuda_ipc)                                                                      \
	X(cuda_host)
#define X(name) extern const struct transport_ops transport_##name;
TRANSPORTS(X)
#undef X

/* Opens the peer by the first transport of the table that fits the tickets and both
 * sides' devices, or by the one that side->transport names; refused with the reason.
 * What "auto" passes over is logged with its reason. */
MUST_CHECK status transport_open(const struct transport_ops **ops, struct xfer_map **map,
	const struct xfer_side *side, const struct peer_arenas *peer, struct err *err);
void transport_close(const struct transport_ops *ops, const struct xfer_side *side,
	struct xfer_map *map);
/* The exporter's tickets: of the first transport that makes some for its backend, or of
 * the one that side->transport names. */
MUST_CHECK status transport_offer(
	const struct xfer_side *side, struct arena_ticket *out, struct err *err);
/* ST_INVALID: no transport knows this kind, or it carries something else. fd: -1, none.
 */
MUST_CHECK status transport_check_ticket(
	uint64_t kind, int fd, struct bytes blob, struct err *err);
/* An offer: what the backends export. */
MUST_CHECK status transport_export_arenas(
	const struct xfer_side *side, struct arena_ticket *out, struct err *err);

/* side->park and unpark, if there are any; ST_DEVICE: there is nothing to unpark. */
MUST_CHECK status xfer_park(const struct xfer_side *side, struct err *err);
void xfer_unpark(const struct xfer_side *side);
/* Tells the side's owner when `why` is ST_DEVICE. Every status of a call that touched
 * this side's devices comes by here. */
void xfer_failed(const struct xfer_side *side, const struct err *why);
/* Counts the end of a link when `why` is ST_INVALID. */
void xfer_malformed(const struct xfer_side *side, const struct err *why);
/* Inode of this process's PID namespace, 0 when the system does not say. */
uint64_t xfer_pid_ns(void);

#endif
