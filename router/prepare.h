/* From what a client sent to a request that is QUEUED: its ids, its mode, and an answer
 * length that fits; or failed with the client's fault. */
#ifndef ROUTER_PREPARE_H
#define ROUTER_PREPARE_H
#include "router/router.h"

/* Where the prompt comes from: one of the three, from mem_take, taken in any case. */
struct prepare_source {
	char *render, *text; /* JSON for the template; text; len bytes */
	size_t len;
	uint32_t *ids; /* below the size of the vocabulary */
	size_t n_ids;
	char param[32]; /* name of the member, for errors */
	/* Explicit: refused when it does not fit. Else as many as fit, at most this. */
	uint64_t max_tokens;
	bool explicit_max;
	int64_t truncate; /* as gen_request says */
};

/* What is known at once fails or queues the request before it returns. */
void prepare_start(struct router *rt, struct request *r, const struct prepare_source *s);
/* What request_ops needs: nothing comes of it any more. */
void prepare_stop(void *router, struct request *r);

#endif
