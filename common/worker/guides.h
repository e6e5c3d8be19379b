/* The grammar of a request, as the engine follows it. */
#ifndef COMMON_WORKER_GUIDES_H
#define COMMON_WORKER_GUIDES_H
#include "common/grammar/guide.h"
#include "common/wire/wire.h"
#include "common/worker/worker.h"

/* The vocabulary that grammars are followed with, where the engine takes them. Control
 * thread, at start. */
void guides_start(struct worker *w);
void guides_stop(struct worker *w);
/* Whether this worker could follow a request's grammar, were it understood: its device's
 * sampler takes masks, and its vocabulary can write every text. */
MUST_CHECK bool guides_can(const struct worker *w, struct err *err);
/* *out is NULL when the request has no grammar; else it stands behind the generated
 * tokens (uint32_t each). ST_INVALID: the grammar is not understood, or the
 * tokens do not follow it. guides_can, where there is one. ST_LIMIT: no request memory.
 */
MUST_CHECK status guides_make(struct guide **out, const struct worker *w,
	const struct wire_sampling *s, struct bytes generated, struct err *err);

#endif
