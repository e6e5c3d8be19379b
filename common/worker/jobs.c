/* Places, order, counts and moves of jobs; admission answers and ends. */
#include "common/worker/jobs.h"

#include "common/base/hash.h"
#include "common/base/idmap.h"
#include "common/base/mem.h"
#include "common/worker/answer.h"
#include "common/worker/worker.h"

#include <assert.h>
#include <string.h>

/* ---- places ---- */

bool request_eq(struct wire_request a, struct wire_request b)
{
	return a.router == b.router && a.seq == b.seq && a.attempt == b.attempt;
}

uint64_t request_key(struct wire_request r)
{
	uint64_t key = hash64_u64(hash64_u64(r.router, r.seq), r.attempt);

	return key != 0 ? key : 1;
}

static struct job *at(const struct jobs *s, uint32_t index)
{
	assert(index < s->capacity);
	return (struct job *)(void *)(s->places + (size_t)index * s->kind->bytes);
}

struct jobs *jobs_create(struct worker *w, const struct job_kind *kind, uint32_t capacity)
{
	struct jobs *s = mem_alloc(1, sizeof(*s));

	assert(kind->n_states <= JOB_STATES_MAX && kind->bytes >= sizeof(struct job));
	s->w = w;
	s->kind = kind;
	s->capacity = s->count[JOB_GONE] = capacity;
	s->index_of = idmap_create(capacity);
	s->places = mem_alloc(capacity, kind->bytes);
	s->free = mem_alloc(capacity, sizeof(*s->free));
	for (uint32_t i = 0; i < capacity; i++)
		s->free[i] = capacity - 1 - i;
	return s;
}

void jobs_destroy(struct jobs *s)
{
	if (s == NULL)
		return;
	list_each (job, &s->order, struct job, node)
		s->kind->release(job);
	idmap_destroy(s->index_of);
	mem_free(s->places);
	mem_free(s->free);
	mem_free(s);
}

/* The map is keyed by a hash; two requests that share one cannot be taken for each other,
 * since the second one finds no place. */
static struct job *place(struct jobs *s, const struct job *made)
{
	struct job *job;
	uint32_t index;

	if (s->count[JOB_GONE] == 0)
		return NULL;
	index = s->free[s->count[JOB_GONE] - 1];
	if (!idmap_put(s->index_of, request_key(made->req), index))
		return NULL;
	job = at(s, index);
	memcpy(job, made, s->kind->bytes);
	job->tag = (uint64_t)++s->last_use << 32 | index;
	job->state = JOB_QUEUED;
	list_add(&s->order, &job->node);
	s->count[JOB_GONE]--;
	s->count[JOB_QUEUED]++;
	s->kind->check(s->w->self, job);
	return job;
}

struct job *jobs_add(struct jobs *s, struct job *made, status st, const struct err *err)
{
	struct job *job = st == ST_OK ? place(s, made) : NULL;
	bool later = st == ST_OK || st == ST_LIMIT;

	if (job != NULL)
		return job;
	s->kind->release(made);
	answer_rejected(s->w, made->req, later ? REJECT_FULL : REJECT_INVALID, later,
		"%s", st == ST_OK ? "every place is taken" : err->text);
	return NULL;
}

struct job *jobs_find(const struct jobs *s, struct wire_request r)
{
	uint32_t i;

	return idmap_get(s->index_of, request_key(r), &i) && request_eq(at(s, i)->req, r)
		       ? at(s, i)
		       : NULL;
}

struct job *jobs_of_tag(const struct jobs *s, uint64_t tag)
{
	struct job *job = at(s, (uint32_t)tag);

	return job->tag == tag && job->state != JOB_GONE ? job : NULL;
}

/* ---- moves ---- */

bool jobs_move_known(const struct job_kind *kind, unsigned state, unsigned event)
{
	return kind->moves[state][event].act != NULL;
}

void jobs_no_act(void *self, struct job *job)
{
	(void)self;
	(void)job;
}

static void step(struct jobs *s, struct job *job, unsigned event)
{
	const struct job_move *m = &s->kind->moves[job->state][event];

	assert(jobs_move_known(s->kind, job->state, event));
	s->count[job->state]--;
	s->count[m->next]++;
	job->state = m->next;
	m->act(s->w->self, job);
}

/* Nothing is held any more. count[JOB_GONE] has the place already. */
static void forget(struct jobs *s, struct job *job)
{
	list_remove(&job->node);
	idmap_del(s->index_of, request_key(job->req));
	s->free[s->count[JOB_GONE] - 1] = (uint32_t)job->tag;
	s->kind->release(job);
	if (!job->rejected)
		answer_freed(s->w, job->req);
}

void jobs_move(struct jobs *s, struct job *job, unsigned event)
{
	if (s->moving != NULL) {
		assert(s->moving == job && s->then == JOB_NONE);
		s->then = event;
		return;
	}
	s->moving = job;
	for (; event != JOB_NONE; event = s->then) {
		s->then = JOB_NONE;
		step(s, job, event);
	}
	s->moving = NULL;
	if (job->state == JOB_GONE)
		forget(s, job);
	else
		s->kind->check(s->w->self, job);
}

void jobs_check(const struct jobs *s)
{
	uint32_t count[JOB_STATES_MAX] = {[JOB_GONE] = s->capacity - s->order.n};

	assert(s->moving == NULL && s->order.n <= s->capacity);
	list_each (job, &s->order, struct job, node) {
		assert(job->state != JOB_GONE && job->state < s->kind->n_states);
		assert(jobs_of_tag(s, job->tag) == job && jobs_find(s, job->req) == job);
		count[job->state]++;
		s->kind->check(s->w->self, job);
	}
	assert(memcmp(count, s->count, sizeof(count)) == 0);
	for (uint32_t i = 0; i < s->count[JOB_GONE]; i++)
		assert(at(s, s->free[i])->state == JOB_GONE);
}

/* ---- ends ---- */

void jobs_end(struct jobs *s, struct job *job, enum wire_finish reason, const char *text)
{
	if ((s->kind->said & MAY(job->state)) == 0)
		answer_finished(s->w, job->req, reason, job->n_generated, text);
	jobs_move(s, job, JOB_ENDED);
}

void jobs_cancel(struct jobs *s, struct wire_request r)
{
	struct job *job = jobs_find(s, r);

	if (job != NULL)
		jobs_end(s, job, FINISH_CANCELLED, NULL);
	else
		answer_freed(s->w, r);
}

void jobs_cut(struct jobs *s, const char *text)
{
	list_each (job, &s->order, struct job, node)
		jobs_end(s, job, FINISH_DRAINED, text);
}

void jobs_router_lost(struct jobs *s, uint64_t router)
{
	list_each (job, &s->order, struct job, node)
		if (job->req.router == router &&
			(s->kind->lasting & MAY(job->state)) == 0)
			jobs_end(s, job, FINISH_CANCELLED, "its router is gone");
}

bool jobs_named(struct jobs *s, struct wire_request r, uint64_t number, bool wanted)
{
	struct job *job = jobs_find(s, r);

	if (job == NULL)
		return false;
	job->named = number;
	if (!wanted)
		jobs_end(s, job, FINISH_CANCELLED, NULL);
	return true;
}

void jobs_unnamed(struct jobs *s, uint64_t router, uint64_t number)
{
	list_each (job, &s->order, struct job, node) {
		if (job->req.router != router || job->named == number)
			continue;
		if ((s->kind->lasting & MAY(job->state)) != 0)
			s->kind->disown(s->w->self, job);
		else
			jobs_end(s, job, FINISH_CANCELLED, "its router does not know it");
	}
}

/* ---- admission ---- */

bool jobs_room(const struct jobs *s, uint32_t n_pages)
{
	return pool_count(s->w->slots, POOL_FREE) > 0 &&
	       pool_count(s->w->pages, POOL_FREE) >= n_pages;
}

bool jobs_refuse(struct jobs *s, struct wire_request r)
{
	if (!service_takes(s->w, r.router)) {
		answer_rejected(
			s->w, r, REJECT_DRAINING, true, "this worker is draining");
		return true;
	}
	if (jobs_find(s, r) == NULL && !tombs_has(s->w->tombs, r))
		return false;
	answer_rejected(s->w, r, REJECT_DUPLICATE, false,
		"attempt %u of this request was here already", r.attempt);
	return true;
}

/* What can begin at once needs no place in the queue. */
bool jobs_refuse_full(struct jobs *s, struct wire_request r, uint32_t n_pages)
{
	if (s->count[JOB_QUEUED] < s->w->conf->max_queued ||
		(s->count[JOB_QUEUED] == 0 && jobs_room(s, n_pages)))
		return false;
	answer_rejected(s->w, r, REJECT_FULL, true,
		"%u requests wait, %u pages and %u slots are free", s->count[JOB_QUEUED],
		pool_count(s->w->pages, POOL_FREE), pool_count(s->w->slots, POOL_FREE));
	return true;
}

struct job_load jobs_load(const struct jobs *s)
{
	struct job_load l = {.queued = s->count[JOB_QUEUED],
		.running = s->order.n - s->count[JOB_QUEUED]};

	list_each (job, &s->order, struct job, node)
		l.queued_tokens += s->kind->waits(job);
	return l;
}
