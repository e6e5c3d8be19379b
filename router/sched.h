/* Which worker takes a request: pure functions over a snapshot of the fleet, so that a
 * table and a simulation can test them. */
#ifndef ROUTER_SCHED_H
#define ROUTER_SCHED_H
#include <stdbool.h>
#include <stdint.h>

/* One worker as the scheduler sees it. */
struct sched_worker {
	uint64_t key; /* hash of id and incarnation, for ties */
	bool alive;   /* said hello, heard of lately */
	bool draining;
	bool stuck;     /* nothing is free there and nothing moves */
	bool untouched; /* this router holds nothing there */
	/* State slots and KV pages: this router's share of what is free, what the worker
	 * last said is free, and all there are. */
	uint32_t slots, slots_free, slots_all;
	uint64_t pages, pages_free, pages_all;
	/* Of them, room that only the request of this key may take; 0: none. */
	uint64_t kept_for, kept_pages;
	uint32_t kept_slots;
	uint64_t pages_old;   /* held by those that ran when room began to be kept */
	uint64_t outstanding; /* prefill: tokens waiting or running there */
	uint32_t queue;       /* usable queue places */
	uint32_t len_max;     /* tokens of one sequence */
	uint64_t apart; /* prefill: bit i: decode worker i is no partner of it now */
};

struct sched_demand {
	uint64_t key;    /* hash of the request, for ties */
	uint32_t tokens; /* that the sequence will need at most (prefill: ids; decode:
			    all) */
	uint64_t pages;
	bool late;      /* it has waited long */
	uint64_t apart; /* bit i: worker i is not for it, and as good as busy */
};

/* Why nobody was chosen; the largest one seen wins, so BUSY hides a draining worker. */
enum sched_why {
	SCHED_OK,
	SCHED_NO_WORKER, /* none of this role is known and alive */
	SCHED_DRAINING,  /* all that live are draining */
	SCHED_TOO_LONG,  /* none serves sequences of this length */
	SCHED_STUCK,     /* some could, if they came to life again */
	SCHED_BUSY,      /* some could, later */
};

/* Least outstanding tokens; needs a slot, the pages and a queue place. Index or -1. */
int sched_prefill(const struct sched_worker *w, uint32_t n, const struct sched_demand *d,
	enum sched_why *why);
/* Most free slots (they bound concurrency for short sequences), then most free pages. */
int sched_decode(const struct sched_worker *w, uint32_t n, const struct sched_demand *d,
	enum sched_why *why);
/* The worker where room is kept for a late request: one that could hold it when idle and
 * has most of its pages free. Index or -1. */
int sched_keep(const struct sched_worker *w, uint32_t n, const struct sched_demand *d);

#endif
