/* Who of those that wait goes next, and for whom room is kept: pure functions over a
 * snapshot of the fleet and what this policy keeps between rounds.
 *
 * Requests are in classes by size: class c needs 4^c to 4^(c + 1) - 1 KV pages, the last
 * one more. A round hands out what is free:
 * 1. The class that was given the fewest pages goes first, in it whoever came first.
 * 2. What fits nowhere is passed by what does.
 * 3. The oldest one that waited long and fits nowhere has a worker: of the pages that are
 *    free there, and of those that come free there, every other one is kept for it; all
 *    others, of any class, share the rest. As long as it has to wait for some of those
 *    that ran before, no more is kept than half of what these do not hold.
 *
 * The bounds. Of two classes that both wait, neither is given more pages than the other
 * by more than the largest request of the two, so a small request waits for one large
 * one, and then the small ones together get as many pages as that one had. While room is
 * kept, half of what comes free stays open to the others. The request that it is kept
 * for is served at the latest when twice its pages have come free there after those that
 * ran before have ended: on a worker of P pages, where nothing runs longer than D, within
 * D + 2 D (ln P + 1). */
#ifndef ROUTER_SCHED_ROUND_H
#define ROUTER_SCHED_ROUND_H
#include "router/sched.h"

#define SCHED_CLASSES 8u

enum sched_role { SCHED_PREFILL, SCHED_DECODE, SCHED__ROLES };

/* Room that is kept. */
struct sched_keep {
	uint64_t request; /* sched_demand.key; 0: none */
	uint64_t worker;  /* sched_worker.key */
	uint64_t need, freed, free_before;
};

/* What is known between rounds. Zeroed at start. */
struct sched_fair {
	uint64_t given[SCHED_CLASSES]; /* pages, plus what was given before it waited */
	uint64_t at;                   /* given[] of the class that was chosen last */
	bool waited[SCHED_CLASSES];
	struct sched_keep keep[SCHED__ROLES];
};

/* What one request asks of both roles. */
struct sched_ask {
	struct sched_demand demand[SCHED__ROLES];
	uint64_t since_ns;
	unsigned size_class;
};

struct sched_round {
	struct sched_fair *fair;
	struct sched_worker *w[SCHED__ROLES];
	uint32_t n[SCHED__ROLES];
	uint32_t len_min[SCHED__ROLES]; /* every worker serves so many tokens */
	/* [late] the least pages that found no worker in this round; UINT64_MAX: all
	 * did. */
	uint64_t edge[SCHED__ROLES][2];
	/* The oldest late one that found no worker, per role. */
	struct sched_demand oldest[SCHED__ROLES];
	uint64_t oldest_ns[SCHED__ROLES];
};

unsigned sched_class(uint64_t pages);

/* waits: the classes in which somebody waits. The snapshots are changed by the round, and
 * outlive it. */
void sched_round_begin(struct sched_round *round, struct sched_fair *fair,
	const bool waits[SCHED_CLASSES]);
/* The next class of those in tries, or -1: none is. */
int sched_round_class(struct sched_round *round, const bool tries[SCHED_CLASSES]);
/* false: nothing of this class or a larger one can find a worker in this round. */
bool sched_round_open(const struct sched_round *round, unsigned size_class);
/* SCHED_OK: at[] are the workers' indices, and the snapshots know it. Else at[] is not
 * written. */
enum sched_why sched_round_try(
	struct sched_round *round, const struct sched_ask *ask, int at[SCHED__ROLES]);
void sched_round_end(struct sched_round *round);
/* The request does not wait any more. */
void sched_forget(struct sched_fair *fair, uint64_t request);

#endif
