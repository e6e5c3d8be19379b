/* Hand-over between two workers of one host. The exporter (a worker that granted
 * leases) serves a link, a Unix SEQPACKET socket at RUNTIME/ID.INCARNATION.link; the
 * importer opens it once per exporter incarnation, maps the arenas once, and then per
 * lease: claim, pull (plan executed by the transport of the pair), done. The end of
 * the socket is the death of the peer. Same user only (SO_PEERCRED). Messages and
 * guard are common/wire's (open, arena, claim, claimed, done, revoke).
 *
 * Both ends run on the control thread's loop; the copying itself runs on the loop's
 * work pool (CPU) or on a stream of its own (GPU), never on the control thread. */
#ifndef COMMON_XFER_XFER_H
#define COMMON_XFER_XFER_H
#include "common/loop/loop.h"
#include "common/state/layout.h"
#include "common/state/lease.h"
#include "kernels/backend.h"

#include <inttypes.h>

/* Transports (xfer_transport.h) are chosen once per pair by what both sides can do,
 * printed, and shown as a metric. A forced one that is not possible is refused.
 *
 * Whether name is one that serves this backend (NULL: any), or no choice at all (NULL, ""
 * and "auto"). */
MUST_CHECK status transport_check(const char *name, const char *backend, struct err *err);

#define XFER_TIMEOUT_MS 5000u

struct transport_ops; /* xfer_transport.h */

/* In the runtime directory: id and incarnation of a worker. */
#define XFER_LINK_NAME "%s.%016" PRIx64 ".link"

/* The local side of every link of a worker. It is copied; what it points to must live as
 * long as the exporter or importer. */
struct xfer_side {
	struct loop *loop;
	const char *id; /* worker id */
	uint64_t incarnation;
	const char *runtime_dir;
	struct layout layout;
	uint64_t arena_pages, arena_slots;
	uint32_t n_ranks;
	struct backend *backend[RANKS_MAX];
	void *arena[RANKS_MAX];
	uint64_t arena_bytes; /* of each rank */
	/* The importer's choice: a name of a transport, or NULL, "" or "auto". */
	const char *transport;
	/* Around calls that map, pin or release memory of a GPU: these wait for every
	 * device that has peers, so no rank may be inside a step. park returns when all
	 * ranks stand at a step boundary; false: a device did not get there in time, and
	 * nothing was parked. NULL: there is nothing to park. */
	bool (*park)(void *ctx);
	void (*unpark)(void *ctx);
	void *park_ctx;
	/* A device of this side failed outside the engine: in a copy, or around a map.
	 * Control thread; may come more than once. NULL: nobody wants to know. */
	void (*failed)(void *ctx, const struct err *why);
	void *failed_ctx;
	/* Counts links that are closed because of what the peer sent or did not send.
	 * NULL: nobody wants to know. */
	uint64_t *malformed;
	/* Tests: this transport for every pair, instead of one of the table. */
	const struct transport_ops *given;
	/* Every wait for a peer: connect and open, claim. 0: XFER_TIMEOUT_MS. */
	uint32_t timeout_ms;
};

struct exporter;
/* Listens; leases belongs to the caller. The path is exporter_path(). */
MUST_CHECK status exporter_create(struct exporter **out, const struct xfer_side *side,
	struct leases *leases, uint64_t lease_ns, struct err *err);
void exporter_destroy(struct exporter *x); /* unlinks the socket */
const char *exporter_path(const struct exporter *x);
uint32_t exporter_links(const struct exporter *x); /* importers connected */
/* Tell the claimer, if there is one, that the request was withdrawn. */
void exporter_revoke(struct exporter *x, uint64_t generation);

struct importer;
MUST_CHECK status importer_create(
	struct importer **out, const struct xfer_side *side, struct err *err);
void importer_destroy(struct importer *m);

struct pull {
	const char *link_path, *worker_id;
	uint64_t incarnation; /* of the exporter */
	uint64_t lease;       /* generation */
	uint32_t n_tokens;
	const uint32_t *src_pages, *dst_pages;
	uint32_t n_pages;
	uint32_t n_before; /* pages of the state before these, which are here already */
	uint32_t src_slot, dst_slot;
	bool digest; /* of the whole state (n_before = 0): compare xxh3 of the moved bytes
			on both sides */
};

struct pull_result {
	status code;
	uint64_t bytes; /* counted where they are copied */
	uint64_t copy_ns;
	const char *transport; /* NULL: it never came to one */
	const char *copy;      /* method of the pair; NULL: the transport has one only */
	bool refused; /* this lease, by its worker: another one may be given out */
	struct err err;
};

/* Starts a pull; everything in *p is copied. done is called exactly once, on the loop,
 * never from inside this call; after it the destination pages are no longer touched.
 * ST_OK: the state is complete and verified, and the lease is done on the exporter's
 * side. handle identifies the pull for importer_cancel. ST_LIMIT: too many pulls. */
MUST_CHECK status importer_pull(struct importer *m, const struct pull *p,
	void (*done)(void *ctx, const struct pull_result *r), void *ctx, uint64_t *handle,
	struct err *err);
/* The pull ends soon with ST_CANCELLED (done is still called; a claim is given back). */
void importer_cancel(struct importer *m, uint64_t handle);
/* Protocol peer_down: pulls from that incarnation end with ST_PEER, its arenas are
 * unmapped, then gone is called once, on the loop, never from inside this call. */
void importer_peer_down(struct importer *m, const char *worker_id, uint64_t incarnation,
	void (*gone)(void *ctx, const char *worker_id, uint64_t incarnation), void *ctx);
uint32_t importer_peers(const struct importer *m);
uint32_t importer_pulls(const struct importer *m);

#endif
