/* Running sequences that go on at another decode worker: a row leaves the engine between
 * two steps, its state becomes a lease as after a prefill, and the router has another
 * worker adopt it. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/worker/answer.h"
#include "decode-worker/decode.h"

#include <assert.h>
#include <inttypes.h>

void dw_offer_all(struct dw *d)
{
	list_each (j, &d->jobs->order, struct dw_job, job.node) {
		if (j->job.state == DW_RUNNING)
			jobs_move(d->jobs, &j->job, DW_OFFERS);
		else if (j->job.state == DW_QUEUED)
			dw_reject(d, j, REJECT_DRAINING, "this worker is draining");
	}
}

/* Pages of tokens to come are no part of the state. */
static void give_growth(struct dw *d, struct dw_job *j)
{
	uint32_t n = CEIL_DIV(j->n_tokens, PAGE_TOKENS);

	pool_give(d->w->pages, j->pages + n, j->n_pages - n);
	j->n_pages = n;
}

void dw_offer(struct dw *d, struct dw_job *j)
{
	struct lease terms = {.owner = j->job.req.router,
		.seq = j->job.req.seq,
		.attempt = j->job.req.attempt,
		.n_tokens = j->n_tokens,
		.pages = j->pages,
		.slot = j->slot};
	status st;

	give_growth(d, j);
	terms.n_pages = j->n_pages;
	st = lease_grant(
		d->w->leases, &terms, d->w->conf->lease_ms * NS_PER_MS, 1, &j->offer);
	assert(st == ST_OK); /* as many leases as slots, and this one has a slot */
	j->n_told = 0;
	j->leave_sent = false;
	jobs_move(d->jobs, &j->job, DW_LEFT);
}

void dw_say_offered(void *self, struct job *job)
{
	struct dw *d = self;
	const struct dw_job *j = dw_of(job);
	struct msg_offered m = {REQ_MEMBERS(job->req), .lease = j->offer,
		.pages = {(const uint8_t *)j->pages, j->n_pages * sizeof(*j->pages)},
		.slot = j->slot, .n_tokens = j->n_tokens};

	log_info("offered " REQ_FMT " generated=%u lease=%" PRIu64, REQ_ARG(job->req),
		job->n_generated, j->offer);
	routers_send(d->w->routers, job->req.router, MSG_offered, &m);
}

/* An unclaimed lease ends inside this call, and with it the job; of a claimed one the
 * claimer is told and gives it back soon. */
void dw_withdraw(void *self, struct job *job)
{
	struct dw *d = self;
	uint64_t offer = dw_of(job)->offer;

	exporter_revoke(d->w->exporter, offer);
	lease_release(d->w->leases, offer);
}

/* An importer may be reading, or about to: the lease runs out by time. */
void dw_disown(void *self, struct job *job)
{
	struct dw *d = self;

	lease_disown(d->w->leases, dw_of(job)->offer);
}

void dw_on_lease_freed(void *ctx, const struct lease *lease)
{
	struct dw *d = ctx;
	struct wire_request r = {
		.router = lease->owner, .seq = lease->seq, .attempt = lease->attempt};
	struct job *job = jobs_find(d->jobs, r);

	assert(job != NULL && dw_of(job)->offer == lease->generation);
	dw_of(job)->offer = 0;
	jobs_move(d->jobs, job, DW_LEASE_ENDED);
}

status dw_on_release(void *self, const void *msg, struct err *err)
{
	struct dw *d = self;
	const struct msg_release *m = msg;
	struct wire_request r = wire_request_of(m);
	struct job *job = jobs_find(d->jobs, r);

	if (job == NULL) {
		answer_freed(d->w, r);
		return ST_OK;
	}
	if (job->state != DW_OFFERED || m->lease != dw_of(job)->offer)
		return err_set(err, ST_INVALID,
			REQ_FMT " has lease %" PRIu64 ", not %" PRIu64, REQ_ARG(r),
			dw_of(job)->offer, m->lease);
	lease_release(d->w->leases, m->lease);
	return ST_OK;
}
