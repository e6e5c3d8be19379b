/* The decode role: adopts become jobs; each turn grows, admits and joins. */
#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/worker/answer.h"
#include "decode-worker/decode.h"

#include <string.h>

static const struct role_handler handlers[] = {
	{MSG_adopt, dw_on_adopt},
	{MSG_release, dw_on_release},
};

static status start(struct worker *w, void **self, struct err *err)
{
	uint32_t seqs = (uint32_t)w->conf->max_num_seqs;
	struct dw *d = mem_alloc(1, sizeof(*d));

	(void)err;
	d->w = w;
	d->jobs = w->jobs;
	d->ends = mem_alloc(seqs, sizeof(*d->ends));
	for (uint32_t i = 0; i < ROUTERS_MAX; i++) {
		d->out[i].records = mem_alloc(seqs, sizeof(*d->out[i].records));
		d->out[i].tops =
			mem_alloc((size_t)seqs * SAMPLE_TOP_MAX, sizeof(*d->out[i].tops));
	}
	leases_on_freed(w->leases, dw_on_lease_freed, d);
	*self = d;
	return ST_OK;
}

static void stop(void *self)
{
	struct dw *d = self;

	leases_on_freed(d->w->leases, NULL, NULL);
	for (uint32_t i = 0; i < ROUTERS_MAX; i++) {
		mem_free(d->out[i].records);
		mem_free(d->out[i].tops);
	}
	mem_free(d->ends);
	mem_free(d);
}

static void on_left(struct dw *d, uint64_t tag)
{
	struct job *job = jobs_of_tag(d->jobs, tag);

	if (job != NULL && job->state == DW_LEAVING)
		jobs_move(d->jobs, job, DW_LEFT);
	else if (job != NULL && job->state == DW_OFFERING)
		dw_offer(d, dw_of(job));
}

static void on_result(void *self, const struct eng_result *r)
{
	if (r->kind == ENG_STEP)
		dw_step(self, r);
	else if (r->kind == ENG_LEFT)
		on_left(self, r->tokens[0].tag);
}

static void turn(void *self)
{
	struct dw *d = self;

	if (service_migrates(d->w) && !fault_paused(FAULT_offer))
		dw_offer_all(d);
	dw_leave_again(d);
	dw_grow(d);
	dw_admit(d);
	dw_join(d);
}

/* Pulls that are under way end through the importer. */
static void peer_down(void *self, struct bytes id, uint64_t incarnation)
{
	struct dw *d = self;

	list_each (j, &d->jobs->order, struct dw_job, job.node) {
		if (j->job.state == DW_QUEUED && j->source_incarnation == incarnation &&
			bytes_eq(id, bytes_of_str(j->source_id)))
			dw_reject(d, j, REJECT_SOURCE, "the prefill worker is gone");
	}
}

const struct role role_decode = {
	.name = "decode",
	.party = WIRE_DECODE,
	.handlers = handlers,
	.n_handlers = COUNT(handlers),
	.jobs = &dw_jobs,
	.start = start,
	.on_result = on_result,
	.turn = turn,
	.peer_down = peer_down,
	.stop = stop,
};
