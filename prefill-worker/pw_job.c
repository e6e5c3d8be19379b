/* The states of a prefill job, and what happens between them. */
#include "common/base/clock.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/worker/answer.h"
#include "prefill-worker/prefill.h"

#include <assert.h>
#include <string.h>

typedef void pw_action(struct pw *p, struct pw_job *j);

struct pw_row {
	enum pw_state next;
	pw_action *act; /* NULL: this pair cannot happen */
};

static void nothing(struct pw *p, struct pw_job *j)
{
	(void)p;
	(void)j;
}

void pw_release(struct pw_job *j)
{
	mem_give(j->ids);
	mem_give(j->pages);
	mem_give(j->firsts);
	mem_give(j->tops);
	sampling_release(&j->draw);
	j->ids = j->pages = NULL;
	j->firsts = NULL;
	j->tops = NULL;
}

/* The last action of every job: nothing is held any more. */
static void forget(struct pw *p, struct pw_job *j)
{
	uint32_t index = (uint32_t)(j - p->jobs);
	uint32_t at = 0;

	while (p->order[at] != index)
		at++;
	p->n_order--;
	memmove(&p->order[at], &p->order[at + 1], (p->n_order - at) * sizeof(*p->order));
	reqmap_del(p->requests, j->req);
	pw_release(j);
	answer_freed(p->w, j->req);
}

static void give_back(struct pw *p, struct pw_job *j)
{
	assert(j->in_flight == 0);
	pool_give(p->w->pages, j->pages, j->n_pages);
	pool_give(p->w->slots, &j->slot, 1);
	forget(p, j);
}

static void end_nan(struct pw *p, struct pw_job *j)
{
	answer_finished(
		p->w, j->req, FINISH_NAN, 0, "the prompt gave NaN or infinite logits");
	give_back(p, j);
}

static void note_filled(struct pw *p, struct pw_job *j)
{
	pool_fill_done(p->w->pages, j->pages, j->n_pages);
	pool_fill_done(p->w->slots, &j->slot, 1);
	j->computed_ns = clock_ns();
}

static void say_prefilled(struct pw *p, struct pw_job *j)
{
	struct msg_prefilled m = {.router = j->req.router,
		.seq = j->req.seq,
		.attempt = j->req.attempt,
		.lease = j->lease,
		.pages = {(const uint8_t *)j->pages, j->n_pages * sizeof(*j->pages)},
		.slot = j->slot,
		.n_tokens = j->n_ids,
		.first = {(const uint8_t *)j->firsts, j->n_choices * sizeof(*j->firsts)},
		.compute_ns = j->computed_ns - j->started_ns,
		.has_tops = j->tops != NULL,
		.tops = {(const uint8_t *)j->tops,
			(size_t)j->n_choices * j->draw.how.n_top * sizeof(*j->tops)}};

	log_info("prefilled " REQ_FMT
		 " tokens=%u lease=%llu queue_ms=%llu compute_ms=%llu",
		REQ_ARG(j->req), j->n_ids, (unsigned long long)j->lease,
		(unsigned long long)((j->started_ns - j->arrived_ns) / NS_PER_MS),
		(unsigned long long)(m.compute_ns / NS_PER_MS));
	routers_send(p->w->routers, j->req.router, MSG_prefilled, &m);
}

/* An unclaimed lease ends inside this call, and with the last one the job; of a claimed
 * one the claimer is told and gives it back soon. */
static void withdraw(struct pw *p, struct pw_job *j)
{
	uint64_t lease = j->lease, end = lease + j->n_choices;

	for (; lease < end; lease++) {
		exporter_revoke(p->w->exporter, lease);
		lease_release(p->w->leases, lease);
	}
}

static const struct pw_row rows[PW__STATES][PW__EVENTS] = {
	[PW_QUEUED] =
		{
			[PW_ADMITTED] = {PW_FILLING, nothing},
			[PW_ENDED] = {PW_GONE, forget},
		},
	[PW_FILLING] =
		{
			[PW_SAMPLED] = {PW_COMPUTED, note_filled},
			[PW_NAN] = {PW_GONE, end_nan},
			[PW_ENDED] = {PW_LEAVING, nothing},
		},
	[PW_COMPUTED] =
		{
			[PW_GRANTED] = {PW_EXPORTED, say_prefilled},
			[PW_ENDED] = {PW_GONE, give_back},
		},
	[PW_EXPORTED] =
		{
			[PW_ENDED] = {PW_EXPORTED, withdraw},
			[PW_LEASE_ENDED] = {PW_GONE, forget},
		},
	[PW_LEAVING] =
		{
			[PW_ENDED] = {PW_LEAVING, nothing},
			[PW_QUIET] = {PW_GONE, give_back},
		},
};

bool pw_move_known(enum pw_state state, enum pw_event ev)
{
	return rows[state][ev].act != NULL;
}

void pw_move(struct pw *p, struct pw_job *j, enum pw_event ev)
{
	const struct pw_row *row = &rows[j->state][ev];

	assert(row->act != NULL);
	p->count[j->state]--;
	p->count[row->next]++;
	j->state = row->next;
	row->act(p, j);
}

void pw_end(struct pw *p, struct pw_job *j, enum wire_finish reason, const char *text)
{
	if (j->state != PW_EXPORTED && j->state != PW_LEAVING)
		answer_finished(p->w, j->req, reason, 0, text);
	pw_move(p, j, PW_ENDED);
	if (j->state == PW_LEAVING && j->in_flight == 0)
		pw_move(p, j, PW_QUIET);
}

struct pw_job *pw_find(struct pw *p, struct wire_request r)
{
	uint32_t i;

	return reqmap_find(p->requests, r, &i) ? &p->jobs[i] : NULL;
}

bool pw_has_room(const struct pw *p, uint32_t n_ids)
{
	return pool_count(p->w->slots, POOL_FREE) > 0 &&
	       pool_count(p->w->pages, POOL_FREE) >= CEIL_DIV(n_ids, PAGE_TOKENS);
}

static void take_room(struct pw *p, struct pw_job *j)
{
	status pages = pool_take(p->w->pages, j->pages, j->n_pages);
	status slot = pool_take(p->w->slots, &j->slot, 1);

	assert(pages == ST_OK && slot == ST_OK); /* pw_has_room */
}

void pw_admit(struct pw *p)
{
	if (p->count[PW_QUEUED] == 0 || fault_paused(FAULT_queued))
		return;
	for (uint32_t i = 0; i < p->n_order; i++) {
		struct pw_job *j = &p->jobs[p->order[i]];

		if (j->state != PW_QUEUED)
			continue;
		/* In order of arrival: a large prompt is not passed for ever by small
		 * ones. */
		if (!pw_has_room(p, j->n_ids))
			return;
		take_room(p, j);
		pw_move(p, j, PW_ADMITTED);
	}
}

static bool grant(struct pw *p, struct pw_job *j)
{
	struct lease terms = {.owner = j->req.router,
		.seq = j->req.seq,
		.attempt = j->req.attempt,
		.n_tokens = j->n_ids,
		.pages = j->pages,
		.n_pages = j->n_pages,
		.slot = j->slot};

	if (lease_grant(p->w->leases, &terms, p->w->conf->lease_ms * NS_PER_MS,
		    j->n_choices, &j->lease) != ST_OK)
		return false; /* every lease is taken: at the next turn */
	j->n_leases = j->n_choices;
	pw_move(p, j, PW_GRANTED);
	return true;
}

void pw_grant(struct pw *p)
{
	if (p->count[PW_COMPUTED] == 0 || fault_paused(FAULT_prefilled))
		return;
	for (uint32_t i = 0; i < p->n_order; i++) {
		struct pw_job *j = &p->jobs[p->order[i]];

		if (j->state == PW_COMPUTED && !grant(p, j))
			return;
	}
}

void pw_on_lease_freed(void *ctx, const struct lease *lease)
{
	struct pw *p = ctx;
	struct wire_request r = {
		.router = lease->owner, .seq = lease->seq, .attempt = lease->attempt};
	struct pw_job *j = pw_find(p, r);

	assert(j != NULL && lease->generation - j->lease < j->n_choices);
	if (--j->n_leases == 0)
		pw_move(p, j, PW_LEASE_ENDED);
}
