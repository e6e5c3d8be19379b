/* What the files of a generation share. Private to router/request*.c. */
#ifndef ROUTER_REQUEST_IMPL_H
#define ROUTER_REQUEST_IMPL_H
#include "router/requests.h"

/* request.c: an event that is ours, so its pair is in the table. */
void request_fire(struct request *r, enum request_event ev, const void *what);

/* false: it is no token, or there is no memory to remember it; the request failed. */
bool request_append(struct request *r, uint32_t token);
/* Tells the client's side; the token is among the ids already. */
enum request_finish request_add_token(struct request *r, const struct request_token *t);

/* request_prefill.c: rows of the table */
void request_prefilled(struct request *r, const void *what);
void request_shared(struct request *r, const void *what);
void request_offered(struct request *r, const void *what);

/* request_claim.c */
void request_claim(
	struct request *r, struct worker_view *w, const struct fleet_hold *hold);
/* w is told of this attempt now. */
void request_claim_told(struct request *r, struct worker_view *w);
/* The prompt is computed: it waits for nothing at p any more. */
void request_lighten_prefill(struct request *r);
/* d is none; what was reserved there without its knowledge is given back. */
void request_unreserve(struct request *r);
/* Whoever holds something for this attempt is told that nobody wants it any more. The
 * claims stay until they answer. */
void request_let_go(struct request *r);

/* request_end.c: rows of the table; what is as for request_move */
void request_end(struct request *r, enum request_finish finish);
void request_end_failed(struct request *r, const void *what);
void request_end_cancelled(struct request *r, const void *what);
/* The same in PREPARE, where work may be under way. */
void request_end_unprepared(struct request *r, const void *what);
void request_end_unwanted(struct request *r, const void *what);
/* A worker said what it cannot have meant. */
void request_end_breach(struct request *r, const void *what);
void request_end_p_rejected(struct request *r, const void *what);
void request_end_d_rejected(struct request *r, const void *what);
void request_end_p_finished(struct request *r, const void *what);
void request_end_d_finished(struct request *r, const void *what);

#endif
