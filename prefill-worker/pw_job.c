/* The states of a prefill job, and what happens between them. */
#include "common/base/clock.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/grammar/guide.h"
#include "common/worker/answer.h"
#include "prefill-worker/prefill.h"

#include <assert.h>

struct pw_job *pw_of(struct job *job)
{
	return container_of(job, struct pw_job, job);
}

static void release(struct job *job)
{
	struct pw_job *j = pw_of(job);

	mem_give(j->ids);
	mem_give(j->pages);
	mem_give(j->firsts);
	mem_give(j->tops);
	sampling_release(&j->draw);
	guide_destroy(j->guide);
	j->guide = NULL;
	j->ids = j->pages = NULL;
	j->firsts = NULL;
	j->tops = NULL;
}

static void give_back(void *self, struct job *job)
{
	struct pw *p = self;
	struct pw_job *j = pw_of(job);

	assert(j->in_flight == 0);
	pool_give(p->w->pages, j->pages, j->n_pages);
	pool_give(p->w->slots, &j->slot, 1);
}

static void end_nan(void *self, struct job *job)
{
	struct pw *p = self;

	answer_finished(
		p->w, job->req, FINISH_NAN, 0, "the prompt gave NaN or infinite logits");
	give_back(p, job);
}

static void leave_if_quiet(void *self, struct job *job)
{
	struct pw *p = self;

	if (pw_of(job)->in_flight == 0)
		jobs_move(p->jobs, job, PW_QUIET);
}

static void note_filled(void *self, struct job *job)
{
	struct pw *p = self;
	struct pw_job *j = pw_of(job);

	pool_fill_done(p->w->pages, j->pages, j->n_pages);
	pool_fill_done(p->w->slots, &j->slot, 1);
	j->computed_ns = clock_ns();
}

static void say_prefilled(void *self, struct job *job)
{
	struct pw *p = self;
	const struct pw_job *j = pw_of(job);
	struct msg_prefilled m = {REQ_MEMBERS(job->req), .lease = j->lease,
		.pages = {(const uint8_t *)j->pages, j->n_pages * sizeof(*j->pages)},
		.slot = j->slot, .n_tokens = j->n_ids,
		.first = {(const uint8_t *)j->firsts, j->n_choices * sizeof(*j->firsts)},
		.compute_ns = j->computed_ns - j->started_ns, .has_tops = j->tops != NULL,
		.tops = {(const uint8_t *)j->tops,
			(size_t)j->n_choices * j->draw.how.n_top * sizeof(*j->tops)}};

	log_info("prefilled " REQ_FMT
		 " tokens=%u lease=%llu queue_ms=%llu compute_ms=%llu",
		REQ_ARG(job->req), j->n_ids, (unsigned long long)j->lease,
		(unsigned long long)((j->started_ns - j->arrived_ns) / NS_PER_MS),
		(unsigned long long)(m.compute_ns / NS_PER_MS));
	routers_send(p->w->routers, job->req.router, MSG_prefilled, &m);
}

/* An unclaimed lease ends inside this call, and with the last one the job; of a claimed
 * one the claimer is told and gives it back soon. */
static void withdraw(void *self, struct job *job)
{
	struct pw *p = self;
	const struct pw_job *j = pw_of(job);

	for (uint32_t i = 0; i < j->n_choices; i++) {
		exporter_revoke(p->w->exporter, j->lease + i);
		lease_release(p->w->leases, j->lease + i);
	}
}

/* An importer may be reading, or about to: leases run out by time. */
static void disown(void *self, struct job *job)
{
	struct pw *p = self;
	const struct pw_job *j = pw_of(job);

	for (uint32_t i = 0; i < j->n_choices; i++)
		lease_disown(p->w->leases, j->lease + i);
}

static const struct job_move moves[PW__STATES][JOB_EVENTS_MAX] = {
	[PW_QUEUED] =
		{
			[PW_ADMITTED] = {PW_FILLING, jobs_no_act},
			[PW_ENDED] = {PW_GONE, jobs_no_act},
		},
	[PW_FILLING] =
		{
			[PW_SAMPLED] = {PW_COMPUTED, note_filled},
			[PW_NAN] = {PW_GONE, end_nan},
			[PW_ENDED] = {PW_LEAVING, leave_if_quiet},
		},
	[PW_COMPUTED] =
		{
			[PW_GRANTED] = {PW_EXPORTED, say_prefilled},
			[PW_ENDED] = {PW_GONE, give_back},
		},
	[PW_EXPORTED] =
		{
			[PW_ENDED] = {PW_EXPORTED, withdraw},
			[PW_LEASE_ENDED] = {PW_GONE, jobs_no_act},
		},
	[PW_LEAVING] =
		{
			[PW_ENDED] = {PW_LEAVING, jobs_no_act},
			[PW_QUIET] = {PW_GONE, give_back},
		},
};

/* What the header promises of each state. */
static void check(const void *self, const struct job *job)
{
	const struct pw_job *j = container_of(job, const struct pw_job, job);

	(void)self;
	assert(j->done <= j->next && j->next <= j->n_ids);
	assert((j->n_leases > 0) == (job->state == PW_EXPORTED));
	switch (job->state) {
	case PW_QUEUED:
		assert(j->next == 0 && j->in_flight == 0);
		break;
	case PW_FILLING:
		assert(j->done < j->n_ids && (j->in_flight > 0) == (j->done < j->next));
		break;
	case PW_COMPUTED:
	case PW_EXPORTED:
		assert(j->done == j->n_ids && j->in_flight == 0);
		break;
	case PW_LEAVING:
		assert(j->in_flight > 0);
		break;
	default:
		assert(job->state != PW_GONE && job->state < PW__STATES);
	}
}

static uint32_t waits(const struct job *job)
{
	const struct pw_job *j = container_of(job, const struct pw_job, job);

	return job->state == PW_QUEUED || job->state == PW_FILLING ? j->n_ids - j->done
								   : 0;
}

const struct job_kind pw_jobs = {
	.bytes = sizeof(struct pw_job),
	.n_states = PW__STATES,
	.moves = moves,
	.said = MAY(PW_EXPORTED) | MAY(PW_LEAVING),
	.lasting = MAY(PW_EXPORTED),
	.check = check,
	.release = release,
	.disown = disown,
	.waits = waits,
};

static void take_room(struct pw *p, struct pw_job *j)
{
	status pages = pool_take(p->w->pages, j->pages, j->n_pages);
	status slot = pool_take(p->w->slots, &j->slot, 1);

	assert(pages == ST_OK && slot == ST_OK); /* jobs_room */
}

void pw_admit(struct pw *p)
{
	if (p->jobs->count[PW_QUEUED] == 0 || fault_paused(FAULT_queued))
		return;
	list_each (j, &p->jobs->order, struct pw_job, job.node) {
		if (j->job.state != PW_QUEUED)
			continue;
		/* In order of arrival: a large prompt is not passed for ever by small
		 * ones. */
		if (!jobs_room(p->jobs, j->n_pages))
			return;
		take_room(p, j);
		jobs_move(p->jobs, &j->job, PW_ADMITTED);
	}
}

static bool grant(struct pw *p, struct pw_job *j)
{
	struct lease terms = {.owner = j->job.req.router,
		.seq = j->job.req.seq,
		.attempt = j->job.req.attempt,
		.n_tokens = j->n_ids,
		.pages = j->pages,
		.n_pages = j->n_pages,
		.slot = j->slot};

	if (lease_grant(p->w->leases, &terms, p->w->conf->lease_ms * NS_PER_MS,
		    j->n_choices, &j->lease) != ST_OK)
		return false; /* every lease is taken: at the next turn */
	j->n_leases = j->n_choices;
	jobs_move(p->jobs, &j->job, PW_GRANTED);
	return true;
}

void pw_grant(struct pw *p)
{
	if (p->jobs->count[PW_COMPUTED] == 0 || fault_paused(FAULT_prefilled))
		return;
	list_each (j, &p->jobs->order, struct pw_job, job.node) {
		if (j->job.state == PW_COMPUTED && !grant(p, j))
			return;
	}
}

void pw_on_lease_freed(void *ctx, const struct lease *lease)
{
	struct pw *p = ctx;
	struct wire_request r = {
		.router = lease->owner, .seq = lease->seq, .attempt = lease->attempt};
	struct job *job = jobs_find(p->jobs, r);
	struct pw_job *j;

	assert(job != NULL);
	j = pw_of(job);
	assert(lease->generation - j->lease < j->n_choices);
	if (--j->n_leases == 0)
		jobs_move(p->jobs, job, PW_LEASE_ENDED);
}
