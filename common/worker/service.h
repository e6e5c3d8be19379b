/* Whether this worker takes new work, and how it ends.
 *
 *   SERVING --drain--> DRAINING --nothing held or placed--> DRAINED --(signal) exit
 *      ^------undrain-----+------------------------------------+
 *
 * What a router placed here, for instance a decode worker reserved for a prompt that is
 * in prefill elsewhere, is work of this worker: a drain waits until every router that is
 * connected has said, after it heard of the drain, that nothing more will come.
 *
 * A drain by message stops at DRAINED, so that it can be undone; one by signal exits.
 * When a drain runs out of time, what is left is cut (FINISH_DRAINED) and the exit code
 * says so. */
#ifndef COMMON_WORKER_SERVICE_H
#define COMMON_WORKER_SERVICE_H
#include "common/base/attr.h"
#include <stdbool.h>
#include <stdint.h>

enum worker_exit {
	EXIT_DRAINED = 0,
	EXIT_INTERNAL = 1,
	EXIT_USAGE = 2,
	EXIT_MODEL = 3,
	EXIT_DEVICE = 4,
	EXIT_PEER = 5,
	EXIT_CUT = 6,
};

enum service_state { SERVING, DRAINING, DRAINED };

struct service {
	enum service_state state;
	bool exits;           /* at DRAINED the process ends */
	bool migrates;        /* what can go on elsewhere goes there */
	bool cut;             /* work was ended by us */
	int exit_code;        /* of a clean end */
	uint64_t deadline_ns; /* when what is left is cut; 0: never */
	uint64_t give_up_ns;  /* after a cut: when to end even so */
	char reason[160];
};

struct worker;
/* New work from anybody; what beats and hello say. */
bool service_accepts(const struct worker *w);
/* What this router sends: while it drains, only what was placed here before. */
bool service_takes(const struct worker *w, uint64_t router);
/* By message; again while draining: a new deadline. timeout_ms 0: no deadline. migrate: a
 * decode worker offers its sequences to others instead of finishing them. */
void service_drain(
	struct worker *w, uint64_t timeout_ms, bool migrate, const char *reason);
/* A drain in which sequences are offered to others. */
bool service_migrates(const struct worker *w);
void service_undrain(struct worker *w);
/* By signal: count 1 drains and exits, 2 and more cuts and exits. */
void service_signal(void *worker, unsigned count);
/* This process does not trust itself any more (NaN after NaN): drain, then exit. */
void service_condemn(struct worker *w, int exit_code, const char *reason);
void service_turn(struct worker *w, uint64_t now_ns);

#endif
