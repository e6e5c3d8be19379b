/* What a running worker consists of. One struct, made by worker.c in the order of its
 * members and taken down in the reverse order; roles read it and change the pools and
 * the statistics. Control thread only. */
#ifndef COMMON_WORKER_WORKER_H
#define COMMON_WORKER_WORKER_H
#include "common/base/stats.h"
#include "common/engine/engine.h"
#include "common/loop/loop.h"
#include "common/loop/runtime.h"
#include "common/model/tokenizer.h"
#include "common/state/lease.h"
#include "common/state/pool.h"
#include "common/worker/jobs.h"
#include "common/worker/role.h"
#include "common/worker/routers.h"
#include "common/worker/service.h"
#include "common/worker/tombs.h"
#include "common/worker/worker_conf.h"
#include "common/xfer/xfer.h"

struct worker {
	const struct worker_conf *conf;
	uint64_t incarnation;
	char boot_id[64];
	struct runtime runtime;
	struct tokenizer *tokenizer;
	struct engine *engine;
	const struct layout *layout;
	uint32_t len_max, n_valid;
	struct vocab *vocab; /* NULL: the engine follows no grammar */
	struct loop *loop;
	struct pool *pages, *slots;
	struct leases *leases;
	struct exporter *exporter;
	struct importer *importer;
	struct tombs *tombs;
	const struct role *role;
	struct jobs *jobs;
	void *self; /* the role's */
	struct loop_fd *results;
	struct loop_timer tick;
	uint64_t notify_due_ns;
	uint64_t slept_ns; /* that was said */
	struct bus_net *net;
	struct routers *routers;

	struct service service;
	struct stats stats;
	const char *transport; /* of the last pull; "": none yet */
	uint32_t nan_in_a_row;
	bool device_failed; /* the engine's or a copy's; nothing touches it any more */
	int exit_code;
};

/* Ends the loop; the first code wins. */
void worker_end(struct worker *w, int exit_code);
/* A request ended with NaN logits (bad) or not: a row of bad ones ends the service. */
void worker_note_nan(struct worker *w, bool bad);

#endif
