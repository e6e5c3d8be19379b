/* The workers that this router knows: who they are, what they can hold, what of it is
 * promised to requests, and whether they live. Loop thread only.
 *
 * A worker is known by id and incarnation. It is KNOWN from a hello that was accepted,
 * SILENT (no new work) when nothing was heard for silent_ms, and LOST after lost_ms, at
 * the end of its connection or when a message to it could not be sent. LOST lasts until
 * everybody was told; then its key is kept as a grave for a while, so that its late
 * messages can be answered. What a request holds of a worker is returned only by that
 * worker's word or by its loss.
 *
 *   UNUSED --hello--> KNOWN <--word, silence--> SILENT
 *      ^                |                         |
 *      +----bury---- LOST <-----------------------+
 *
 * Only fleet.c writes the state.
 *
 * Every now_ns is of clock_ran_ns: while this process did not run it could hear nobody.
 */
#ifndef ROUTER_FLEET_H
#define ROUTER_FLEET_H
#include "common/base/stats.h"
#include "common/loop/bus.h"
#include "common/wire/wire.h"
#include "router/sched.h"
#include <stdbool.h>

#define FLEET_WORKERS_MAX 64u
#define FLEET_ID_MAX      48u
#define FLEET_GRAVES_MAX  256u

enum worker_state {
	WORKER_UNUSED,
	WORKER_KNOWN,
	WORKER_SILENT,
	WORKER_LOST,
	WORKER__STATES
};

/* What is shown of a worker. */
#define FLEET_SHOWN_MAP(X)                                                               \
	X(up)                                                                            \
	X(draining)                                                                      \
	X(drained)                                                                       \
	X(silent)                                                                        \
	X(lost)
enum fleet_shown {
#define X(name) SHOWN_##name,
	FLEET_SHOWN_MAP(X)
#undef X
		SHOWN__COUNT
};

struct worker_view {
	char id[FLEET_ID_MAX + 1];
	uint64_t incarnation;
	char peer[BUS_PEER_ID_MAX]; /* routing id, n_peer bytes */
	uint32_t n_peer;
	int conn;     /* connection of its last message */
	uint8_t role; /* WIRE_PREFILL or WIRE_DECODE */
	enum worker_state state;
	bool draining; /* nothing is placed there */
	bool told;     /* to drain, and it has not said yet that it does */
	/* its own words, from hello and beats */
	bool says_draining, drained, ends;
	bool full;   /* it refused for want of room, and has not said anything since */
	bool broken; /* a message to it could not be sent: lost at the next tick */
	uint64_t heard_ns, moved_ns; /* clock_ran_ns: last message; last sign that it
					could take something */
	uint64_t worked_ns; /* clock_ran_ns: the last beat in which passes or steps had
			       ended; 0: none */
	uint64_t hello_ns;
	uint64_t beat; /* number of its last one */
	uint64_t key;  /* of id and incarnation, for rendezvous */
	/* from hello */
	uint32_t slots, pages, len_max, pid;
	uint64_t compat_hash, model_hash;
	char link_path[108];
	char gpus[129];
	char transport[65];
	char build[65];
	/* from beats */
	uint64_t step, oldest_ms, queued_tokens, n_routers;
	uint32_t slots_free, pages_free, running, queued;
	struct stats stats;
	/* promised to requests of this router */
	uint32_t held_slots, held_queue;
	uint64_t held_pages, held_tokens;
	uint64_t old_pages, old_round; /* held since that round or longer */
	uint64_t requests;             /* assigned since hello */
};

struct fleet_options {
	uint64_t silent_ns, lost_ns;
	uint64_t tokenizer_hash;
	uint32_t queue_max; /* requests of this router that may wait at one worker */
};

struct fleet;
struct fleet *fleet_create(const struct fleet_options *options);
void fleet_destroy(struct fleet *f);

/* A hello. ST_OK: *out is the entry (new, or the same incarnation saying it again). Else
 * *code and err say what to answer. */
MUST_CHECK status fleet_hello(struct fleet *f, struct bytes peer, int conn,
	const struct msg_hello *m, uint64_t now_ns, struct worker_view **out,
	enum wire_refusal *code, struct err *err);
/* Any message of a known worker counts as life. NULL: unknown, or lost. */
struct worker_view *fleet_heard(
	struct fleet *f, struct bytes peer, int conn, uint64_t now_ns);
void fleet_beat(struct worker_view *w, const struct msg_beat *m, uint64_t now_ns);
struct worker_view *fleet_find(struct fleet *f, struct bytes id); /* NULL: none */
/* It was told to drain: nothing is placed there from now on, whatever a beat says that
 * was sent before it knew. */
void fleet_told_to_drain(struct worker_view *w);
enum fleet_shown fleet_shown(const struct worker_view *w);
const char *fleet_shown_name(enum fleet_shown shown);

/* Advance states. Returns a worker that was just lost by silence, or because it is
 * broken, or NULL; call until NULL. The entry is valid until fleet_bury. */
struct worker_view *fleet_tick(struct fleet *f, uint64_t now_ns);
/* It said itself that it is at its end. */
void fleet_failed(struct worker_view *w);
/* The worker whose connection ended, marked lost; NULL: none. */
struct worker_view *fleet_disconnected(struct fleet *f, int conn);
/* After everybody was told, so that nobody holds anything of it: the entry is free. */
void fleet_bury(struct fleet *f, struct worker_view *w);

uint32_t fleet_count(const struct fleet *f);
struct worker_view *fleet_at(
	struct fleet *f, uint32_t i); /* i < fleet_count; hello order */
/* Workers of a role that may get new work. */
uint32_t fleet_usable(const struct fleet *f, uint8_t role);

/* The scheduler's view of all workers of a role; index[i] is the fleet_at index. */
uint32_t fleet_snapshot(const struct fleet *f, uint8_t role, uint64_t now_ns,
	struct sched_worker out[FLEET_WORKERS_MAX], uint32_t index[FLEET_WORKERS_MAX]);

/* What one request holds of one worker. */
struct fleet_hold {
	uint32_t slots, queue;
	uint64_t pages, tokens;
	uint64_t round; /* of the queue, in which it was given */
};
void fleet_hold(struct worker_view *w, const struct fleet_hold *h);
/* What is held now is old. */
void fleet_age(struct worker_view *w, uint64_t round);
void fleet_unhold(struct worker_view *w, const struct fleet_hold *h);

/* "p0#00c0ffee..." into out[80]. */
void fleet_name(const struct worker_view *w, char out[80]);

#endif
