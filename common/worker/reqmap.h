/* From a request (router, number, attempt) to the index of a job: a fixed number of
 * indices, given out and taken back. The jobs themselves are the role's. */
#ifndef COMMON_WORKER_REQMAP_H
#define COMMON_WORKER_REQMAP_H
#include "common/base/attr.h"
#include "common/wire/wire.h"
#include <stdbool.h>
#include <stdint.h>

/* Shown on every log line about a request. */
#define REQ_FMT "req=%016llx.%llu.%u"
#define REQ_ARG(r)                                                                       \
	(unsigned long long)(r).router, (unsigned long long)(r).seq, (r).attempt

bool request_eq(struct wire_request a, struct wire_request b);
/* Never 0. */
uint64_t request_key(struct wire_request r);

struct reqmap;
/* Start-up memory. */
struct reqmap *reqmap_create(uint32_t capacity);
void reqmap_destroy(struct reqmap *m);
/* false: all indices are taken, or the request has one already. */
MUST_CHECK bool reqmap_add(struct reqmap *m, struct wire_request r, uint32_t *index);
bool reqmap_find(const struct reqmap *m, struct wire_request r, uint32_t *index);
void reqmap_del(struct reqmap *m, struct wire_request r);
uint32_t reqmap_count(const struct reqmap *m);

#endif
