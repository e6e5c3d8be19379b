/* Which path is served by what; the handler of the HTTP server. */
#ifndef ROUTER_ROUTES_H
#define ROUTER_ROUTES_H
#include "router/router.h"

/* ctx is the router. */
struct http_handler routes_handler(struct router *rt);

#endif
