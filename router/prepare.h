/* From what a client sent to a request that is QUEUED: its ids, its mode, and an answer
 * length that fits; or failed with the client's fault. */
#ifndef ROUTER_PREPARE_H
#define ROUTER_PREPARE_H
#include "router/router.h"

/* Where the prompt comes from; borrowed for the call. */
struct prepare_source {
	struct bytes render; /* JSON for the template; at = NULL: text or ids */
	struct bytes text;
	const uint32_t *ids;
	size_t n_ids;
	char param[32]; /* name of the member, for errors */
	/* Explicit: refused when it does not fit. Else as many as fit, at most this. */
	uint64_t max_tokens;
	bool explicit_max;
};

/* What is known at once fails or queues the request before it returns. */
void prepare_start(struct router *rt, struct request *r, const struct prepare_source *s);
/* What request_ops needs: nothing comes of it any more. */
void prepare_stop(void *router, struct request *r);

#endif
