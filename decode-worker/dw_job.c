/* The states of a decode job, and what happens between them. */
#include "common/base/log.h"
#include "common/worker/answer.h"
#include "decode-worker/decode.h"

#include <assert.h>

struct dw_job *dw_of(struct job *job)
{
	return container_of(job, struct dw_job, job);
}

static void give_back(void *self, struct job *job)
{
	struct dw *d = self;
	struct dw_job *j = dw_of(job);

	pool_give(d->w->pages, j->pages, j->n_pages);
	pool_give(d->w->slots, &j->slot, 1);
}

static void cancel_pull(void *self, struct job *job)
{
	struct dw *d = self;

	importer_cancel(d->w->importer, dw_of(job)->pull);
}

static void note_pulled(void *self, struct job *job)
{
	struct dw *d = self;
	struct dw_job *j = dw_of(job);
	struct stats *s = &d->w->stats;

	pool_fill_done(d->w->pages, j->pages, j->n_pages);
	pool_fill_done(d->w->slots, &j->slot, 1);
	s->v[STAT_handover_count]++;
	s->v[STAT_handover_bytes] += j->pulled.bytes;
	s->v[STAT_handover_ns] += j->pulled.copy_ns;
	d->w->transport = j->pulled.transport;
}

/* ST_AGAIN: the engine's queue is full; dw_leave_again comes back to it. */
static void leave(void *self, struct job *job)
{
	struct dw *d = self;

	dw_of(job)->leave_sent = engine_leave(d->w->engine, job->tag) == ST_OK;
}

static const struct job_move moves[DW__STATES][JOB_EVENTS_MAX] = {
	[DW_QUEUED] =
		{
			[DW_STARTED] = {DW_PULLING, jobs_no_act},
			[DW_ENDED] = {DW_GONE, jobs_no_act},
		},
	[DW_PULLING] =
		{
			[DW_PULLED] = {DW_READY, note_pulled},
			[DW_PULL_FAILED] = {DW_GONE, give_back},
			[DW_ENDED] = {DW_ABORTING, cancel_pull},
		},
	[DW_ABORTING] =
		{
			[DW_PULLED] = {DW_GONE, give_back}, /* the copy was faster */
			[DW_PULL_FAILED] = {DW_GONE, give_back},
			[DW_ENDED] = {DW_ABORTING, jobs_no_act},
		},
	[DW_READY] =
		{
			[DW_JOINED] = {DW_RUNNING, jobs_no_act},
			[DW_ENDED] = {DW_GONE, give_back},
		},
	[DW_RUNNING] =
		{
			[DW_OFFERS] = {DW_OFFERING, leave},
			[DW_ENDED] = {DW_LEAVING, leave},
		},
	[DW_LEAVING] =
		{
			[DW_ENDED] = {DW_LEAVING, jobs_no_act},
			[DW_LEFT] = {DW_GONE, give_back},
		},
	[DW_OFFERING] =
		{
			[DW_LEFT] = {DW_OFFERED, dw_say_offered},
			[DW_ENDED] = {DW_LEAVING, jobs_no_act}, /* it leaves already */
		},
	[DW_OFFERED] =
		{
			[DW_LEASE_ENDED] = {DW_GONE, jobs_no_act},
			[DW_ENDED] = {DW_OFFERED, dw_withdraw},
		},
};

/* What the header promises of each state. */
static void check(const void *self, const struct job *job)
{
	const struct dw_job *j = container_of(job, const struct dw_job, job);
	bool row = job->state == DW_RUNNING || job->state == DW_LEAVING ||
		   job->state == DW_OFFERING;

	(void)self;
	assert(j->n_tokens + 1 == j->n_prompt + job->n_generated);
	assert(j->n_shared <= j->n_state_pages && j->n_pages <= j->pages_max);
	assert(!job->rejected && (!j->leave_sent || (row && job->state != DW_RUNNING)));
	assert((j->offer != 0) == (job->state == DW_OFFERED));
	if (job->state == DW_OFFERED) {
		assert(j->n_pages == CEIL_DIV(j->n_tokens, PAGE_TOKENS) &&
			j->n_told == 0);
		return;
	}
	assert(row ? j->adopted && j->n_told >= j->n_state_pages : j->n_told == 0);
	switch (job->state) {
	case DW_QUEUED:
		assert(j->n_pages == 0 && !j->adopted);
		break;
	case DW_PULLING:
	case DW_ABORTING:
		assert(j->n_pages == dw_pages_needed(j->n_tokens) && !j->adopted);
		break;
	case DW_READY:
		assert(j->pulled.code == ST_OK);
		assert(j->n_pages == dw_pages_needed(j->n_tokens));
		break;
	case DW_RUNNING:
	case DW_LEAVING:
	case DW_OFFERING:
		assert(j->n_told <= j->n_pages);
		break;
	default:
		assert(job->state != DW_GONE && job->state < DW__STATES);
	}
}

static uint32_t waits(const struct job *job)
{
	return job->state == DW_QUEUED
		       ? container_of(job, const struct dw_job, job)->n_tokens
		       : 0;
}

const struct job_kind dw_jobs = {
	.bytes = sizeof(struct dw_job),
	.n_states = DW__STATES,
	.moves = moves,
	.said = MAY(DW_ABORTING) | MAY(DW_LEAVING) | MAY(DW_OFFERED),
	.lasting = MAY(DW_OFFERED),
	.check = check,
	.release = dw_release,
	.disown = dw_disown,
	.waits = waits,
};

void dw_evict(struct dw *d, struct dw_job *j)
{
	struct msg_evicted m = {REQ_MEMBERS(j->job.req)};

	d->w->stats.v[STAT_evicted]++;
	log_info("evicted " REQ_FMT " generated=%u: no free page", REQ_ARG(j->job.req),
		j->job.n_generated);
	routers_send(d->w->routers, j->job.req.router, MSG_evicted, &m);
	jobs_move(d->jobs, &j->job, DW_ENDED);
}

void dw_reject(struct dw *d, struct dw_job *j, enum wire_reject reason, const char *text)
{
	j->job.rejected = true;
	answer_rejected(d->w, j->job.req, reason, true, "%s", text);
	jobs_move(
		d->jobs, &j->job, j->job.state == DW_PULLING ? DW_PULL_FAILED : DW_ENDED);
}

void dw_leave_again(struct dw *d)
{
	if (d->jobs->count[DW_LEAVING] + d->jobs->count[DW_OFFERING] == 0)
		return;
	list_each (j, &d->jobs->order, struct dw_job, job.node) {
		if ((j->job.state == DW_LEAVING || j->job.state == DW_OFFERING) &&
			!j->leave_sent)
			leave(d, &j->job);
	}
}
