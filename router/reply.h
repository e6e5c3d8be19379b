/* Answers to an HTTP request: error JSON with its headers, and JSON. */
#ifndef ROUTER_REPLY_H
#define ROUTER_REPLY_H
#include "router/router.h"

/* What an HTTP request is busy with: http_user points to it. Either callback may be the
 * last; end must not leave anything behind. */
struct served {
	void (*gone)(struct served *s); /* on_gone of http.h */
	void (*end)(struct served *s);  /* on_end */
	/* The router stops: this is its answer, if it has none yet. */
	void (*cut)(struct served *s, const struct api_error *e);
	void (*half_closed)(struct served *s); /* on_half_closed; NULL: no stream */
};

/* 503 gets Retry-After, from how fast the queue moves; while draining also Connection:
 * close. no_retry: x-should-retry: false. */
void reply_error(struct router *rt, struct http_req *req, const struct api_error *e,
	bool no_retry);
/* The bytes are taken out of body. */
void reply_json(struct http_req *req, unsigned http_code, struct sink *body);

#endif
