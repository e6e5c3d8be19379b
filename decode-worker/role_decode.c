/* The decode role: adopts become jobs; each turn grows, admits and joins. */
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/worker/answer.h"
#include "decode-worker/decode.h"

#include <string.h>

static status on_cancel(void *self, const void *msg, struct err *err)
{
	struct dw *d = self;
	const struct msg_cancel *m = msg;
	struct wire_request r = wire_request_of(m);
	struct dw_job *j = dw_find(d, r);

	(void)err;
	if (j != NULL)
		dw_finish(d, j, FINISH_CANCELLED, NULL);
	else
		answer_freed(d->w, r); /* it ended before the cancel came */
	return ST_OK;
}

static const struct role_handler handlers[] = {
	{MSG_adopt, dw_on_adopt},
	{MSG_cancel, on_cancel},
};

static status start(struct worker *w, void **self, struct err *err)
{
	uint32_t seqs = (uint32_t)w->conf->max_num_seqs;
	struct dw *d = mem_alloc(1, sizeof(*d));

	(void)err;
	d->w = w;
	d->capacity = pool_size(w->slots) + (uint32_t)w->conf->max_queued + 1;
	d->requests = reqmap_create(d->capacity);
	d->jobs = mem_alloc(d->capacity, sizeof(*d->jobs));
	d->order = mem_alloc(d->capacity, sizeof(*d->order));
	d->ends = mem_alloc(seqs, sizeof(*d->ends));
	for (uint32_t i = 0; i < ROUTERS_MAX; i++) {
		d->out[i].records = mem_alloc(seqs, sizeof(*d->out[i].records));
		d->out[i].tops =
			mem_alloc((size_t)seqs * SAMPLE_TOP_MAX, sizeof(*d->out[i].tops));
	}
	*self = d;
	return ST_OK;
}

static void stop(void *self)
{
	struct dw *d = self;

	for (uint32_t i = 0; i < d->n_order; i++)
		dw_release(&d->jobs[d->order[i]]);
	for (uint32_t i = 0; i < ROUTERS_MAX; i++) {
		mem_free(d->out[i].records);
		mem_free(d->out[i].tops);
	}
	reqmap_destroy(d->requests);
	mem_free(d->jobs);
	mem_free(d->order);
	mem_free(d->ends);
	mem_free(d);
}

static void on_left(struct dw *d, uint64_t tag)
{
	struct dw_job *j = &d->jobs[(uint32_t)tag];

	if (j->tag == tag && j->state == DW_LEAVING)
		dw_move(d, j, DW_LEFT);
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

	dw_leave_again(d);
	dw_grow(d);
	dw_admit(d);
	dw_join(d);
}

/* Ending a job takes it out of order[], so these walk from the youngest. */
static void cut(void *self, const char *text)
{
	struct dw *d = self;

	for (uint32_t i = d->n_order; i-- > 0;)
		dw_finish(d, &d->jobs[d->order[i]], FINISH_DRAINED, text);
}

static bool drained(const void *self)
{
	const struct dw *d = self;

	return d->n_order == 0;
}

static void router_lost(void *self, uint64_t router)
{
	struct dw *d = self;

	for (uint32_t i = d->n_order; i-- > 0;) {
		struct dw_job *j = &d->jobs[d->order[i]];

		if (j->req.router == router)
			dw_finish(d, j, FINISH_CANCELLED, "its router is gone");
	}
}

static bool named(void *self, struct wire_request r, uint64_t number, bool wanted)
{
	struct dw_job *j = dw_find(self, r);

	if (j == NULL)
		return false;
	j->named = number;
	if (!wanted)
		dw_finish(self, j, FINISH_CANCELLED, NULL);
	return true;
}

static void unnamed(void *self, uint64_t router, uint64_t number)
{
	struct dw *d = self;

	for (uint32_t i = d->n_order; i-- > 0;) {
		struct dw_job *j = &d->jobs[d->order[i]];

		if (j->req.router == router && j->named != number)
			dw_finish(d, j, FINISH_CANCELLED, "its router does not know it");
	}
}

/* Pulls that are under way end through the importer. */
static void peer_down(void *self, struct bytes id, uint64_t incarnation)
{
	struct dw *d = self;

	for (uint32_t i = d->n_order; i-- > 0;) {
		struct dw_job *j = &d->jobs[d->order[i]];

		if (j->state == DW_QUEUED && j->source_incarnation == incarnation &&
			bytes_eq(id, bytes_of_str(j->source_id)))
			dw_reject(d, j, REJECT_SOURCE, "the prefill worker is gone");
	}
}

static struct role_load load(const void *self)
{
	const struct dw *d = self;
	struct role_load l = {.queued = d->count[DW_QUEUED],
		.running = d->n_order - d->count[DW_QUEUED]};

	for (uint32_t i = 0; i < d->n_order; i++) {
		const struct dw_job *j = &d->jobs[d->order[i]];

		if (j->state == DW_QUEUED)
			l.queued_tokens += j->n_tokens;
	}
	return l;
}

const struct role role_decode = {
	.name = "decode",
	.party = WIRE_DECODE,
	.handlers = handlers,
	.n_handlers = COUNT(handlers),
	.start = start,
	.on_result = on_result,
	.turn = turn,
	.cut = cut,
	.drained = drained,
	.router_lost = router_lost,
	.named = named,
	.unnamed = unnamed,
	.peer_down = peer_down,
	.load = load,
	.stop = stop,
};
