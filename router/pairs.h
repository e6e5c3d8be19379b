/* Which decode worker cannot take over from which prefill worker: what was tried lately,
 * so that a pair that keeps failing is left alone, tried again after growing pauses, and
 * shown. Pure; every now_ns is of clock_ran_ns. */
#ifndef ROUTER_PAIRS_H
#define ROUTER_PAIRS_H
#include "common/base/attr.h"
#include "common/base/bytes.h"
#include <stdbool.h>
#include <stdint.h>

/* More are forgotten, the one that is due first before others: it is tried again then. */
#define PAIRS_MAX     64u
/* Failures in a row from which on a pair counts as failed until a hand-over succeeds. */
#define PAIRS_LASTING 3u

struct pair {
	uint64_t p, d; /* worker_view.key */
	uint32_t failures;
	uint64_t until_ns; /* not tried before */
	bool tried;        /* in this pause, by one request */
	char p_id[49], d_id[49];
	char text[320]; /* for the client */
};

/* Zeroed at start; pair[i], i < n, are in use. */
struct pairs {
	struct pair pair[PAIRS_MAX];
	uint32_t n;
};

/* One end of a pair. */
struct pair_end {
	uint64_t key;
	const char *id;
};

/* A pull failed; why: in the decode worker's words. Those that fail together, because
 * they were begun before, count as one. */
void pairs_failed(struct pairs *s, struct pair_end p, struct pair_end d, struct bytes why,
	uint64_t now_ns);
void pairs_worked(struct pairs *s, uint64_t p, uint64_t d);
/* It is tried now: one at a time, until the pause has passed once more. */
void pairs_tried(struct pairs *s, uint64_t p, uint64_t d, uint64_t now_ns);
/* A worker is gone. */
void pairs_forget(struct pairs *s, uint64_t key);
/* NULL: it may be tried. */
const struct pair *pairs_avoided(
	const struct pairs *s, uint64_t p, uint64_t d, uint64_t now_ns);
static inline bool pair_lasting(const struct pair *x)
{
	return x->failures >= PAIRS_LASTING;
}

#endif
