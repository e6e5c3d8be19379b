/* From the queue to a row of the engine. */
#include "common/base/clock.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/worker/answer.h"
#include "decode-worker/decode.h"

#include <assert.h>
#include <string.h>

uint32_t dw_pages_needed(uint32_t n_tokens)
{
	return CEIL_DIV(n_tokens + 1, PAGE_TOKENS);
}

static void on_pulled(void *ctx, const struct pull_result *r)
{
	struct dw_job *j = ctx;
	struct dw *d = j->d;

	j->pulled = *r;
	if (r->code == ST_OK) {
		jobs_move(d->jobs, &j->job, DW_PULLED);
		return;
	}
	if (j->job.state == DW_ABORTING) {
		jobs_move(d->jobs, &j->job, DW_PULL_FAILED);
		return;
	}
	d->w->stats.v[STAT_handover_failed]++;
	dw_reject(d, j,
		r->refused || r->code == ST_CANCELLED ? REJECT_LEASE : REJECT_SOURCE,
		r->err.text);
}

static status start_pull(struct dw *d, struct dw_job *j, struct err *err)
{
	struct pull p = {.link_path = j->link_path,
		.worker_id = j->source_id,
		.incarnation = j->source_incarnation,
		.lease = j->lease,
		.n_tokens = j->n_tokens,
		.src_pages = j->src_pages + j->n_shared,
		.dst_pages = j->pages + j->n_shared,
		.n_pages = j->n_state_pages - j->n_shared,
		.n_before = j->n_shared,
		.src_slot = j->src_slot,
		.dst_slot = j->slot};

	return importer_pull(d->w->importer, &p, on_pulled, j, &j->pull, err);
}

/* Another choice of the same prompt whose state is on its way to this worker, or here.
 * The group is a router's word: a prompt of another size is none. */
static struct dw_job *find_twin(const struct dw *d, const struct dw_job *j)
{
	struct dw_job *found = NULL;

	if (j->group == 0)
		return NULL;
	list_each (o, &d->jobs->order, struct dw_job, job.node) {
		if (o == j || o->group != j->group ||
			o->source_incarnation != j->source_incarnation ||
			o->n_prompt != j->n_prompt ||
			o->n_state_pages != j->n_state_pages)
			continue;
		if (o->job.state == DW_READY || o->job.state == DW_RUNNING)
			return o;
		if (o->job.state == DW_PULLING)
			found = o;
	}
	return found;
}

/* Full pages never change again: both sequences hold them. */
static void share_pages(struct dw *d, struct dw_job *j, const struct dw_job *twin)
{
	j->n_shared = j->n_tokens / PAGE_TOKENS;
	memcpy(j->pages, twin->pages, j->n_shared * sizeof(*j->pages));
	pool_share(d->w->pages, j->pages, j->n_shared);
}

static void take_room(struct dw *d, struct dw_job *j, const struct dw_job *twin)
{
	status pages, slot;

	j->n_pages = dw_pages_needed(j->n_tokens);
	j->n_shared = 0;
	if (twin != NULL)
		share_pages(d, j, twin);
	pages = pool_take(d->w->pages, j->pages + j->n_shared, j->n_pages - j->n_shared);
	slot = pool_take(d->w->slots, &j->slot, 1);
	assert(pages == ST_OK && slot == ST_OK); /* jobs_room */
}

/* false: what it needs is not there yet; it stays where it is. */
static bool admit(struct dw *d, struct dw_job *j)
{
	const struct dw_job *twin = find_twin(d, j);
	struct err err;
	status st;

	if (twin != NULL && twin->job.state == DW_PULLING)
		return false; /* soon there is less to pull */
	if (!jobs_room(d->jobs, dw_pages_needed(j->n_tokens)))
		return false;
	take_room(d, j, twin);
	st = start_pull(d, j, &err);
	if (st == ST_OK) {
		jobs_move(d->jobs, &j->job, DW_STARTED);
		return true;
	}
	pool_give(d->w->pages, j->pages, j->n_pages);
	pool_give(d->w->slots, &j->slot, 1);
	j->n_pages = 0;
	if (st == ST_LIMIT)
		return false; /* as many pulls as the importer runs at a time */
	d->w->stats.v[STAT_handover_failed]++;
	dw_reject(d, j, REJECT_SOURCE, err.text);
	return true;
}

/* In order of arrival; nothing new while running rows want pages. */
void dw_admit(struct dw *d)
{
	if (d->jobs->count[DW_QUEUED] == 0 || d->starved || fault_paused(FAULT_adopt))
		return;
	list_each (j, &d->jobs->order, struct dw_job, job.node)
		if (j->job.state == DW_QUEUED && !admit(d, j))
			return;
}

static void say_adopted(struct dw *d, struct dw_job *j)
{
	uint64_t wait = clock_ns() - j->arrived_ns;
	struct msg_adopted m = {REQ_MEMBERS(j->job.req), .bytes = j->pulled.bytes,
		.copy_ns = j->pulled.copy_ns,
		.transport = bytes_of_str(j->pulled.transport),
		.has_copy = j->pulled.copy != NULL};

	if (m.has_copy)
		m.copy = bytes_of_str(j->pulled.copy);
	j->adopted = true;
	log_info("adopted " REQ_FMT
		 " from=%s tokens=%u bytes=%llu transport=%s wait_ms=%llu",
		REQ_ARG(j->job.req), j->source_id, j->n_tokens,
		(unsigned long long)m.bytes, j->pulled.transport,
		(unsigned long long)(wait / NS_PER_MS));
	routers_send(d->w->routers, j->job.req.router, MSG_adopted, &m);
}

static bool join(struct dw *d, struct dw_job *j)
{
	struct eng_join terms = {.tag = j->job.tag,
		.pages = j->pages,
		.n_pages = j->n_state_pages,
		.slot = j->slot,
		.n_tokens = j->n_tokens,
		.input = j->last_token,
		.how = j->draw.how,
		.past = {.edits = j->draw.edits,
			.ids = j->past,
			.n_ids = j->n_past,
			.n_prompt = j->n_past_prompt},
		.guide = j->guide,
		.steps_max = j->n_end - j->n_tokens};

	if (engine_join(d->w->engine, &terms) != ST_OK)
		return false; /* its queue is full: at the next turn */
	j->n_told = j->n_state_pages;
	jobs_move(d->jobs, &j->job, DW_JOINED);
	return true;
}

void dw_join(struct dw *d)
{
	uint32_t rows = d->jobs->count[DW_RUNNING] + d->jobs->count[DW_LEAVING] +
			d->jobs->count[DW_OFFERING];

	if (d->jobs->count[DW_READY] == 0 || fault_paused(FAULT_adopted))
		return;
	list_each (j, &d->jobs->order, struct dw_job, job.node) {
		if (j->job.state != DW_READY)
			continue;
		if (rows >= d->w->conf->max_num_seqs)
			return;
		if (!j->adopted)
			say_adopted(d, j);
		if (fault_paused(FAULT_decode) || !join(d, j))
			return;
		rows++;
	}
}
