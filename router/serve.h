/* The whole program: parts are made in one order, served by one loop, and taken down in
 * the reverse order. */
#ifndef ROUTER_SERVE_H
#define ROUTER_SERVE_H
#include "router/router.h"

/* Returns the exit code. */
int serve(const struct router_conf *conf);

/* serve_end.c: how it ends. count: signals so far; 1 drains, more end it now. */
void serve_signal(void *router, unsigned count);
/* Once per turn. */
void serve_end_turn(struct router *rt, uint64_t now_ns);

#endif
