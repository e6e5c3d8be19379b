/* What both roles say to routers about a request. Each request that a worker accepted
 * ends with: rejected; or (prefilled | finished | evicted) and then freed, when nothing
 * of it is held any more. One log line per outcome. */
#ifndef COMMON_WORKER_ANSWER_H
#define COMMON_WORKER_ANSWER_H
#include "common/base/attr.h"
#include "common/wire/wire.h"
#include <stdbool.h>

/* Shown on every log line about a request. */
#define REQ_FMT "req=%016llx.%llu.%u"
#define REQ_ARG(r)                                                                       \
	(unsigned long long)(r).router, (unsigned long long)(r).seq, (r).attempt

/* Of a message struct that names a request. */
#define REQ_MEMBERS(r) .router = (r).router, .seq = (r).seq, .attempt = (r).attempt

struct worker;
/* A line that says which trace of a client the request belongs to. */
void answer_trace(struct wire_request r, struct bytes trace);
/* Leaves no tombstone: the same attempt may be offered again. later: the router should
 * try again, here or elsewhere. */
void answer_rejected(struct worker *w, struct wire_request r, enum wire_reject reason,
	bool later, const char *fmt, ...) PRINTF_LIKE(5, 6);
/* text: of an error, or NULL. */
void answer_finished(struct worker *w, struct wire_request r, enum wire_finish reason,
	uint32_t n_generated, const char *text);
/* The last word about a request; a tombstone remembers it. */
void answer_freed(struct worker *w, struct wire_request r);

#endif
