/* How fast requests leave the queue, and so how long one more would wait. Pure but for
 * what it keeps; only time in which somebody waited counts. */
#ifndef ROUTER_PACE_H
#define ROUTER_PACE_H
#include <stdint.h>

struct pace {
	/* Requests that left, and the seconds in which somebody waited; old ones count
	 * less. */
	double left, waited_s;
	uint64_t n_left, at_ns; /* at the last call */
	uint32_t n_waiting;
};

/* Now n_waiting wait, and n_left have been taken by workers since start. now_ns: of
 * clock_ran_ns; called often (each time counts as n_waiting were before). */
void pace_note(struct pace *p, uint32_t n_waiting, uint64_t n_left, uint64_t now_ns);
/* Until n requests have left; 0 when nobody has waited yet. With none that left, what was
 * waited so far is taken for the time of one. */
double pace_wait_s(const struct pace *p, uint32_t n);

#endif
