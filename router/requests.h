/* All generations of this router: found by number, listed by what they wait for. */
#ifndef ROUTER_REQUESTS_H
#define ROUTER_REQUESTS_H
#include "common/base/idmap.h"
#include "router/request.h"
#include "router/sched_round.h"

struct requests {
	const struct request_ops *ops;
	void *self;
	uint32_t max_replays;
	uint32_t n_vocab; /* ids at and above it are no tokens */
	uint64_t salt;    /* differs between routers */
	uint32_t capacity, n, n_free;
	struct request **slot; /* [capacity]; NULL: free */
	uint32_t *free_slot;   /* [capacity] */
	struct idmap *by_seq;  /* seq -> slot */
	uint64_t last_seq;
	uint64_t beat; /* number of the last beat to any worker */
	uint32_t count[RQ__STATES];
	struct list queued[SCHED_CLASSES], placing, done;
	uint64_t rounds;  /* over the queue so far */
	uint64_t taken;   /* by workers, out of the queue */
	uint64_t replays; /* counters, for metrics */
	uint64_t breaches;
};

/* Start-up memory. */
void requests_init(
	struct requests *s, uint32_t capacity, const struct request_ops *ops, void *self);
/* Frees records too; no callback comes. */
void requests_release(struct requests *s);

/* A new request in PREPARE with the next number; NULL: every place is taken, or no
 * memory. */
struct request *requests_add(struct requests *s);
struct request *requests_find(const struct requests *s, uint64_t seq);
/* Called by request_move: lists and counts follow the state. */
void requests_moved(struct requests *s, struct request *r, enum request_state from);
/* What w was told of and has not given back, as struct wire_held, and how much of it is
 * promised to requests that w does not know yet. */
void requests_held(const struct requests *s, const struct worker_view *w,
	struct sink *held, uint32_t *n_placed);
/* Frees those that are DONE, detached and without claims. */
void requests_reap(struct requests *s);
/* Those that wait for workers or will. */
uint32_t requests_waiting(const struct requests *s);
/* Not DONE. */
uint32_t requests_live(const struct requests *s);

#endif
