/* Who may ask: clients that show a key, and pages of browsers from other origins (CORS).
 * Seen to when the head of a request is there, before its body is read. */
#ifndef ROUTER_ENTRY_H
#define ROUTER_ENTRY_H
#include "router/http_head.h"
#include "router/router.h"

/* The keys of conf->api_key_file, if it names one. */
MUST_CHECK status entry_open(struct router *rt, struct err *err);
/* The same file again: what cannot be read leaves the keys that are. */
void entry_read_again(struct router *rt);
/* Adds headers of CORS. open: the path needs no key. false: *f is the answer. */
bool entry_check(
	struct router *rt, struct http_req *req, bool open, struct http_fault *f);
/* The id of the trace that a traceparent header names (W3C); "": there is none, or the
 * header is not valid. */
#define TRACE_BYTES 33
void entry_trace(const struct http_req *req, char id[TRACE_BYTES]);
/* A browser's question before a request: true, and it was answered. */
bool entry_preflight(struct router *rt, struct http_req *req);

#endif
