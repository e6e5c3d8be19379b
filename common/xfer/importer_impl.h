/* The importer's own structures, shared by its files: importer.c (the API), peer.c (one
 * exporter incarnation: its link and its mapped arenas), import_pull.c (one pull from
 * claim to done), import_copy.c (the work that a pull has on the pool). */
#ifndef COMMON_XFER_IMPORTER_IMPL_H
#define COMMON_XFER_IMPORTER_IMPL_H
#include "common/base/list.h"
#include "common/loop/runtime.h"
#include "common/xfer/link.h"
#include "common/xfer/task.h"
#include "common/xfer/xfer.h"
#include "common/xfer/xfer_transport.h"

#define IMPORTER_PEERS_MAX 64u
#define IMPORTER_PULLS_MAX 256u
/* The tables of what may follow a state hold a bit for each. */
/* How often a paused fault point, a full listener queue are looked at again. */
#define RETRY_MS           10

/*   CONNECTING --connected--> OPENING --all tickets, mapped--> READY
 *       |                        |                               |
 *       +------------------------+--- failure, end of link, ----+--> ENDED --no copy
 *                                     peer_down                       runs--> UNUSED
 *
 * Only peer.c writes the state. ENDED peers are found by nobody. */
enum peer_state {
	PEER_UNUSED,
	PEER_CONNECTING,
	PEER_OPENING,
	PEER_READY,
	PEER_ENDED,
	PEER__STATES
};

struct stage; /* import_stage.c */

struct peer {
	struct importer *importer;
	enum peer_state state;
	char id[49];
	uint64_t incarnation;
	char path[RUNTIME_PATH_BYTES];
	struct link *link; /* OPENING, READY */
	struct loop_timer retry, deadline;
	struct err denied; /* the exporter's last word; code ST_OK: none */
	struct err waits;  /* CONNECTING: why it is tried again */
	struct peer_arenas arenas;
	uint32_t tickets; /* bit per rank that arrived */
	const struct transport_ops *transport;
	struct xfer_map *map; /* READY, and ENDED while copies run */
	struct stage *stage;  /* READY, and the transport is a staged one */
	uint32_t n_copies;    /* tasks that read the map */
};

/*   WAITING --peer ready--> HELD --fault point passed--> CLAIMING --claimed--> COPYING
 *      |                      |                             |        |           |
 *      |                      |                             |        |   [digest]|
 *      |                      |                             |        |       VERIFYING
 *      +----------------------+-----------------------------+        +-----------+
 *                             | cancel, failure, end of link, success            |
 *                             +--> ENDED --done() called--> UNUSED, or RETURNING <+
 *                                  while a claim is unanswered
 *
 * Only import_pull.c writes the state. */
enum pull_state {
	PULL_UNUSED,
	PULL_WAITING,
	PULL_HELD,
	PULL_CLAIMING,
	PULL_COPYING,
	PULL_VERIFYING,
	PULL_ENDED,
	PULL_RETURNING,
	PULL__STATES
};

struct import_task; /* import_copy.c */

struct import_pull {
	struct importer *importer;
	struct peer *peer; /* NULL once its link has ended */
	enum pull_state state;
	uint64_t handle;
	struct pull what; /* pages point into own memory; strings are not kept */
	uint32_t *pages;  /* source's, then ours */
	bool claim_unanswered, claim_held;
	bool stopping;   /* result.err says why; waits for the task */
	uint64_t digest; /* the exporter's */
	struct plan_copy *copies;
	uint64_t n_copies, at; /* copies[at..) are left, the first from at_bytes on */
	uint64_t at_bytes;
	/* Staged: what has not been asked for yet, likewise. */
	uint64_t fetch, fetch_bytes;
	struct import_task *task;
	bool task_runs;
	struct loop_timer timer;
	struct pull_result result;
	void (*done)(void *ctx, const struct pull_result *r);
	void *ctx;
};

struct peer_down {
	struct list_node node; /* of importer.downs */
	char id[49];
	uint64_t incarnation;
	void (*gone)(void *ctx, const char *worker_id, uint64_t incarnation);
	void *ctx;
};

struct importer {
	struct xfer_side side;
	uint64_t compat_hash;
	struct peer peers[IMPORTER_PEERS_MAX];
	struct import_pull pulls[IMPORTER_PULLS_MAX];
	struct list downs;
	uint64_t last_handle;
	uint32_t n_ended; /* pulls whose done is due */
	bool closing;
};

/* peer.c. peer_find never gives one that has ended. */
struct peer *peer_find(struct importer *m, const char *id, uint64_t incarnation);
/* Begins to connect; what comes of it is told to the pulls. ST_LIMIT: no entry. */
MUST_CHECK status peer_start(
	struct importer *m, const struct pull *p, struct peer **out, struct err *err);
/* Its pulls are told; the map is closed when no copy runs. */
void peer_end(struct peer *peer, const struct err *why);
/* A task of one of its pulls is over. */
void peer_copy_over(struct peer *peer);
/* The importer is destroyed: no task runs any more. */
void peer_close(struct peer *peer);

/* import_pull.c */
void pull_begin(struct import_pull *p, struct peer *peer);
void pull_peer_ready(struct import_pull *p);
void pull_peer_ended(struct import_pull *p, const struct err *why);
void pull_claimed(struct import_pull *p, const struct msg_claimed *m);
/* Ends it with this result as soon as its task does not run. */
void pull_stop(struct import_pull *p, const struct err *why);
/* Calls done of a pull in ENDED. */
void pull_deliver(struct import_pull *p);
/* The importer is destroyed: done is called with ST_CANCELLED, the task is left. */
void pull_abandon(struct import_pull *p);
/* It may have waited for a buffer; nothing happens if it did not. */
void pull_resume(struct import_pull *p);
/* From import_copy.c: the task is over; *err is copied. */
void pull_task_over(struct import_pull *p, status st, const struct err *err);

/* import_copy.c */
bool copy_all_done(const struct import_pull *p);
/* The next work item of copies. */
MUST_CHECK status copy_next(struct import_pull *p, struct err *err);
/* The comparison with p->digest. */
MUST_CHECK status copy_verify(struct import_pull *p, struct err *err);
void copy_cancel(struct import_pull *p);
void copy_release(struct import_pull *p);

/* import_stage.c. Tells the exporter of the room; its descriptor stays the map's. */
MUST_CHECK status stage_open(struct peer *peer, struct stage_room room, struct err *err);
void stage_close(struct peer *peer);
/* Asks for what comes next and gives the pieces of the pull's oldest buffer when it is
 * full; 0: wait, pull_resume follows. The buffer is the task's until stage_copied. */
uint32_t stage_next(struct import_pull *p, struct plan_copy *pieces, uint32_t *buffer);
void stage_copied(struct peer *peer, uint32_t buffer);
/* No task of it runs. */
void stage_pull_ended(struct import_pull *p);
MUST_CHECK status stage_fetched(
	struct peer *peer, const struct msg_fetched *m, struct err *err);

#endif
