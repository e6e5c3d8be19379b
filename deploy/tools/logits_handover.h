/* A hand-over through the real transport, for tools: a second process of this program
 * prefills and grants a lease, this one pulls the state. The two talk over a pair of
 * sockets: an order per sequence there, an offer back. */
#ifndef DEPLOY_TOOLS_LOGITS_HANDOVER_H
#define DEPLOY_TOOLS_LOGITS_HANDOVER_H
#include "common/engine/engine.h"
#include "deploy/tools/logits_run.h"

/* The other process's side, in its own process. */
struct exporter_options {
	int order_fd;  /* socket: orders in, offers out; its end is the end */
	int logits_fd; /* memory shared with the other side: logits of the prefilled ids
			*/
	const char *runtime_dir;
	const char *flip; /* "", "slot" or "page:I": a byte to damage before the offer */
	uint32_t chunk;
};
MUST_CHECK status handover_export(
	struct engine *e, const struct exporter_options *o, struct err *err);

struct handover;
/* Starts the other process; argv is completed with the flags that it needs. Before the
 * engine is created, since a process with threads should not fork. */
MUST_CHECK status handover_start(struct handover **out, const char *const *argv,
	uint32_t n_args, uint64_t logits_bytes, struct err *err);
/* e: where the state goes; transport: as xfer_side.transport. */
MUST_CHECK status handover_attach(
	struct handover *h, struct engine *e, const char *transport, struct err *err);
/* ids[0..n) are prefilled there and their state is pulled into place; logits [n][V].
 * *bytes: moved. */
MUST_CHECK status handover_run(struct handover *h, const uint32_t *ids, uint32_t n,
	const struct place *place, float *logits, uint64_t *bytes, struct err *err);
void handover_end(struct handover *h);

#endif
