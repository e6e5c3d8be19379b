/* Which path is served by what; the handler of the HTTP server. */
#ifndef ROUTER_ROUTES_H
#define ROUTER_ROUTES_H
#include "router/router.h"

enum route_method { ROUTE_GET, ROUTE_POST };

/* A path that is no dialect's: those stand in their rows (format.h). */
struct route {
	const char *path; /* "/" at the end of more: all that begins so */
	enum route_method method;
	void (*fn)(struct router *rt, struct http_req *req);
	bool open;          /* no key is wanted */
	const char *about;  /* for /openapi.json, like the schemas of openapi.c */
	const char *body;   /* ROUTE_POST */
	const char *answer; /* "": text */
};
const struct route *routes_all(size_t *n);

/* ctx is the router. */
struct http_handler routes_handler(struct router *rt);
/* Whatever is worked on is answered with e. */
void routes_cut_all(struct router *rt, const struct api_error *e);

#endif
