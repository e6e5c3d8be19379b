/* batonctl's questions and orders. */
#ifndef ROUTER_CONTROL_H
#define ROUTER_CONTROL_H
#include "router/router.h"

/* `status` without a worker's id is answered here; what names a worker is passed to it
 * and its answer is passed back. */
void control_ask(struct router *rt, struct bytes peer, const struct msg_ask *m);
void control_answer(struct router *rt, const struct msg_answer *m);
/* `drain` (with `force` also the last worker of its role) and `undrain` are passed to the
 * worker of the id. Answered at once: what becomes of it shows in `status`. */
void control_order(struct router *rt, struct bytes peer, const struct msg_order *m);
/* Questions whose worker did not answer are answered with an error. */
void control_turn(struct router *rt, uint64_t now_ns);

/* api_status.c: the state of the router and its workers as one JSON object. */
void api_status(const struct router *rt, uint64_t now_ns, struct sink *out);
/* {"error": TEXT, "code": CODE} */
void api_status_error(struct sink *out, enum wire_ordered code, const char *text);

#endif
