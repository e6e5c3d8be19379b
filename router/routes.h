/* Which path is served by what; the handler of the HTTP server. */
#ifndef ROUTER_ROUTES_H
#define ROUTER_ROUTES_H
#include "router/router.h"

/* ctx is the router. */
struct http_handler routes_handler(struct router *rt);
/* Whatever is worked on is answered with e. */
void routes_cut_all(struct router *rt, const struct api_error *e);

#endif
