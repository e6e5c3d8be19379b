/* Control messages out: to workers, to batonctl; and the socket they share. */
#ifndef ROUTER_LINK_H
#define ROUTER_LINK_H
#include "router/router.h"

/* Binds RUNTIME/routers/ID.sock. */
MUST_CHECK status link_open(struct router *rt, struct err *err);
void link_close(struct router *rt);
/* Looks once per second whether workers can still find the socket; if not, says so and
 * binds it anew. */
void link_check(struct router *rt, uint64_t now_ns);

/* Encodes and queues; false, counted and logged: it did not go out. */
bool link_send(struct router *rt, struct bytes peer, uint8_t type, const void *msg);
/* A failure marks the worker broken: it is declared lost in the same turn. */
void link_send_worker(
	struct router *rt, struct worker_view *w, uint8_t type, const void *msg);
void link_refuse(struct router *rt, struct bytes peer, enum wire_refusal code,
	const char *fmt, ...) PRINTF_LIKE(4, 5);
void link_hello(struct router *rt, struct worker_view *w);
/* What this router holds there. */
void link_beat(struct router *rt, struct worker_view *w);
/* To every worker that lives. */
void link_beat_all(struct router *rt);

/* Nobody here knows the attempt that w speaks of. */
void link_end_unknown(struct router *rt, struct worker_view *w, struct wire_request id);

/* What request_ops needs of it. */
void link_send_prefill(void *router, struct request *r);
void link_send_adopt(void *router, struct request *r);
void link_send_cancel(void *router, struct request *r, struct worker_view *w);
void link_send_release(void *router, struct request *r, struct worker_view *w);

/* A worker is lost: its requests move, the others are told, the entry is buried. */
void link_lost(struct router *rt, struct worker_view *w, const char *why);

/* handlers.c */
void handlers_message(
	void *router, struct bytes peer, uint8_t type, struct bytes body, int conn);

#endif
