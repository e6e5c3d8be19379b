/* Who waits gets a worker: called once per turn, after the messages of the turn. */
#ifndef ROUTER_DISPATCH_H
#define ROUTER_DISPATCH_H
#include "router/router.h"

/* Those that wait, in order; those that waited too long end. */
void dispatch_turn(struct router *rt, uint64_t now_ns);
/* Silent and broken workers are declared lost. */
void dispatch_losses(struct router *rt, uint64_t now_ns);
/* Why n more would not be served in time, or NULL. */
const char *dispatch_crowded(const struct router *rt, uint32_t n);
/* How long n requests take to leave the queue, as far as is known; else 0. */
double dispatch_wait_s(const struct router *rt, uint32_t n);
/* Why a new request would find no worker, or NULL: both roles have a usable one. */
const char *dispatch_missing(const struct router *rt);

#endif
