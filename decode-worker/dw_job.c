/* The states of a decode job, and what happens between them. */
#include "common/base/log.h"
#include "common/worker/answer.h"
#include "decode-worker/decode.h"

#include <assert.h>
#include <string.h>

typedef void dw_action(struct dw *d, struct dw_job *j);

struct dw_row {
	enum dw_state next;
	dw_action *act; /* NULL: this pair cannot happen */
};

static void nothing(struct dw *d, struct dw_job *j)
{
	(void)d;
	(void)j;
}

/* The last action of every job: nothing is held any more. */
static void forget(struct dw *d, struct dw_job *j)
{
	uint32_t index = (uint32_t)(j - d->jobs);
	uint32_t at = 0;

	while (d->order[at] != index)
		at++;
	d->n_order--;
	memmove(&d->order[at], &d->order[at + 1], (d->n_order - at) * sizeof(*d->order));
	reqmap_del(d->requests, j->req);
	dw_release(j);
	if (!j->rejected)
		answer_freed(d->w, j->req);
}

static void give_back(struct dw *d, struct dw_job *j)
{
	pool_give(d->w->pages, j->pages, j->n_pages);
	pool_give(d->w->slots, &j->slot, 1);
	forget(d, j);
}

static void cancel_pull(struct dw *d, struct dw_job *j)
{
	importer_cancel(d->w->importer, j->pull);
}

static void note_pulled(struct dw *d, struct dw_job *j)
{
	struct stats *s = &d->w->stats;

	pool_fill_done(d->w->pages, j->pages, j->n_pages);
	pool_fill_done(d->w->slots, &j->slot, 1);
	s->v[STAT_handover_count]++;
	s->v[STAT_handover_bytes] += j->pulled.bytes;
	s->v[STAT_handover_ns] += j->pulled.copy_ns;
	d->w->transport = j->pulled.transport;
}

/* ST_AGAIN: the engine's queue is full; dw_leave_again comes back to it. */
static void leave(struct dw *d, struct dw_job *j)
{
	j->leave_sent = engine_leave(d->w->engine, j->tag) == ST_OK;
}

static const struct dw_row rows[DW__STATES][DW__EVENTS] = {
	[DW_QUEUED] =
		{
			[DW_STARTED] = {DW_PULLING, nothing},
			[DW_ENDED] = {DW_GONE, forget},
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
			[DW_ENDED] = {DW_ABORTING, nothing},
		},
	[DW_READY] =
		{
			[DW_JOINED] = {DW_RUNNING, nothing},
			[DW_ENDED] = {DW_GONE, give_back},
		},
	[DW_RUNNING] =
		{
			[DW_ENDED] = {DW_LEAVING, leave},
		},
	[DW_LEAVING] =
		{
			[DW_ENDED] = {DW_LEAVING, nothing},
			[DW_LEFT] = {DW_GONE, give_back},
		},
};

bool dw_move_known(enum dw_state state, enum dw_event ev)
{
	return rows[state][ev].act != NULL;
}

void dw_move(struct dw *d, struct dw_job *j, enum dw_event ev)
{
	const struct dw_row *row = &rows[j->state][ev];

	assert(row->act != NULL);
	d->count[j->state]--;
	d->count[row->next]++;
	j->state = row->next;
	row->act(d, j);
}

struct dw_job *dw_find(struct dw *d, struct wire_request r)
{
	uint32_t i;

	return reqmap_find(d->requests, r, &i) ? &d->jobs[i] : NULL;
}

static bool on_its_way_out(const struct dw_job *j)
{
	return j->state == DW_LEAVING || j->state == DW_ABORTING;
}

void dw_finish(struct dw *d, struct dw_job *j, enum wire_finish reason, const char *text)
{
	if (on_its_way_out(j))
		return;
	answer_finished(d->w, j->req, reason, j->n_generated, text);
	dw_move(d, j, DW_ENDED);
}

void dw_evict(struct dw *d, struct dw_job *j)
{
	struct msg_evicted m = {
		.router = j->req.router, .seq = j->req.seq, .attempt = j->req.attempt};

	d->w->stats.v[STAT_evicted]++;
	log_info("evicted " REQ_FMT " generated=%u: no free page", REQ_ARG(j->req),
		j->n_generated);
	routers_send(d->w->routers, j->req.router, MSG_evicted, &m);
	dw_move(d, j, DW_ENDED);
}

void dw_reject(struct dw *d, struct dw_job *j, enum wire_reject reason, const char *text)
{
	j->rejected = true;
	answer_rejected(d->w, j->req, reason, true, "%s", text);
	dw_move(d, j, j->state == DW_PULLING ? DW_PULL_FAILED : DW_ENDED);
}

void dw_leave_again(struct dw *d)
{
	if (d->count[DW_LEAVING] == 0)
		return;
	for (uint32_t i = 0; i < d->n_order; i++) {
		struct dw_job *j = &d->jobs[d->order[i]];

		if (j->state == DW_LEAVING && !j->leave_sent)
			leave(d, j);
	}
}
