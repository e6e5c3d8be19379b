/* The threads of the ranks. Rank 0 leads: commands, then one pass if one is queued,
 * then one step if a row can advance, and sleep when there was nothing to do. */
#include "common/engine/forward.h"

#include "common/base/clock.h"
#include "common/base/fault.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct leader {
	struct rank *r;
	uint32_t queue[PASS_BUFFERS]; /* passes, oldest first */
	uint64_t epoch[PASS_BUFFERS];
	uint32_t n_queued;
	uint64_t n_steps;
	bool stop, failed;
	uint64_t took_ns; /* of the last batch */
};

static void bump(_Atomic uint64_t *counter, uint64_t by)
{
	atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

/* The ring has room for everything that can be under way at once (engine_setup.c). */
static void report(struct engine *e, const struct outcome *o)
{
	bool sent = chan_push(e->outcomes, o);

	assert(sent);
	(void)sent;
}

static void slow_down(void)
{
	uint32_t ms = fault_step_delay_ms();
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	if (ms > 0)
		(void)nanosleep(&t, NULL);
}

/* As a device that never answers. */
static void hang(void)
{
	for (;;)
		(void)pause();
}

/* The same on every rank: compute, then meet, so that rank 0 may change the batch. The
 * reason of a failure is left in r->err. */
static status run_batch(struct rank *r, const struct batch *b, enum phase phase)
{
	struct collective *c = r->e->collective;
	status st;

	if (r->index == 0 && fault_strikes(FAULT_fail_step))
		st = err_set(&r->err, ST_DEVICE, "debug_fault: fail_step");
	else
		st = forward_run(r, b, phase, &r->err);
	if (st == ST_OK && r->e->n_ranks > 1)
		st = c->ops->meet(c, r->index, &r->err);
	if (st == ST_OK || st == ST_CANCELLED)
		return st;
	err_wrap(&r->err, "rank %u, %s", r->index, r->b->device);
	atomic_store_explicit(&r->broken, true, memory_order_release);
	c->ops->abort(c);
	return st;
}

static void send_work(struct engine *e, const struct work *work)
{
	for (uint32_t i = 1; i < e->n_ranks; i++) {
		bool sent = chan_push(e->rank[i].work, work);

		assert(sent);
		(void)sent;
	}
}

/* The cause is this rank's, or that of the rank which broke off. */
static void fail(struct leader *l)
{
	struct engine *e = l->r->e;
	struct outcome o = {.result = {.kind = ENG_FAILED, .err = l->r->err},
		.pass = NO_BUFFER,
		.step = NO_BUFFER};

	for (uint32_t i = 1; i < e->n_ranks && l->r->err.code == ST_CANCELLED; i++)
		if (atomic_load_explicit(&e->rank[i].broken, memory_order_acquire))
			o.result.err = e->rank[i].err;
	l->failed = true;
	report(e, &o);
}

static bool lead_batch(struct leader *l, const struct batch *b, enum phase phase)
{
	struct engine *e = l->r->e;
	struct work work = {.kind = WORK_RUN, .phase = phase, .batch = b};
	uint64_t start = clock_ns(), began = clock_ran_ns();
	status st;

	atomic_store_explicit(&e->busy_since, began, memory_order_relaxed);
	slow_down();
	if (fault_strikes(FAULT_hang_step))
		hang();
	send_work(e, &work);
	st = run_batch(l->r, b, phase);
	bump(&e->busy_ns, clock_ns() - start);
	atomic_store_explicit(&e->busy_since, 0, memory_order_relaxed);
	l->took_ns = clock_ran_since(began);
	if (st != ST_OK)
		fail(l);
	return st == ST_OK;
}

static bool fetch_logits(struct leader *l, float *to, const struct batch *b)
{
	struct rank *r = l->r;
	uint64_t bytes = (uint64_t)b->n_out * r->e->shapes.vocab * sizeof(float);
	status st;

	if (!r->e->o.logits)
		return true;
	st = r->b->ops->download(r->s, to, r->ws.logits, bytes, &r->err);
	if (st != ST_OK)
		fail(l);
	return st == ST_OK;
}

static void count_nan(struct engine *e, const struct eng_token *tokens, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		bump(&e->n_nan_rows, (tokens[i].flags & SAMPLE_NAN) != 0);
}

static void run_pass(struct leader *l)
{
	struct engine *e = l->r->e;
	struct pass_buffer *p = &e->passes[l->queue[0]];
	const struct batch *b = &p->batch;
	struct outcome o = {.pass = l->queue[0], .step = NO_BUFFER};

	o.result = (struct eng_result){.kind = ENG_PREFILLED,
		.epoch = l->epoch[0],
		.tokens = p->tokens,
		.n = b->n_sample,
		.n_rows = b->n_rows,
		.logits = p->logits};
	l->n_queued--;
	memmove(l->queue, l->queue + 1, l->n_queued * sizeof(l->queue[0]));
	memmove(l->epoch, l->epoch + 1, l->n_queued * sizeof(l->epoch[0]));
	if (!lead_batch(l, b, PHASE_PREFILL) || !fetch_logits(l, p->logits, b))
		return;
	for (uint32_t i = 0; i < b->n_sample; i++)
		p->tokens[i] = batch_token(b, i, p->top);
	o.result.took_ns = l->took_ns;
	count_nan(e, p->tokens, b->n_sample);
	e->route.at += b->n_rows;
	bump(&e->n_passes, 1);
	report(e, &o);
}

static uint32_t free_step_buffer(const struct engine *e)
{
	for (uint32_t i = 0; i < STEP_BUFFERS; i++)
		if (!e->steps[i].out)
			return i;
	return NO_BUFFER;
}

/* false: there was nothing to step, or nowhere to put the result. */
static bool run_step(struct leader *l)
{
	struct engine *e = l->r->e;
	struct batch *b = &l->r->step;
	uint32_t buffer = free_step_buffer(e);
	struct step_buffer *s;
	struct outcome o = {.pass = NO_BUFFER, .step = buffer};

	if (buffer == NO_BUFFER || !rows_build(&e->rows, b))
		return false;
	s = &e->steps[buffer];
	if (!lead_batch(l, b, PHASE_DECODE) || !fetch_logits(l, s->logits, b))
		return true;
	o.result = (struct eng_result){.kind = ENG_STEP,
		.epoch = ++l->n_steps,
		.tokens = s->tokens,
		.n = b->n_rows,
		.n_rows = b->n_rows,
		.logits = s->logits};
	rows_advance(&e->rows, b, s->tokens, s->top);
	count_nan(e, s->tokens, o.result.n);
	s->out = true;
	bump(&e->n_steps, 1);
	report(e, &o);
	return true;
}

static void leave(struct leader *l, uint32_t table)
{
	struct outcome o = {.result = {.kind = ENG_LEFT, .n = 1},
		.pass = NO_BUFFER,
		.step = NO_BUFFER,
		.table = table};

	rows_leave(&l->r->e->rows, table, &o.last);
	report(l->r->e, &o);
}

/* Between two batches all ranks have met, and each has waited for its stream. */
static void park(struct engine *e)
{
	sem_post(&e->parked);
	while (sem_wait(&e->unpark) < 0 && errno == EINTR)
		;
}

static void obey(struct leader *l, const struct command *c)
{
	struct engine *e = l->r->e;

	switch (c->kind) {
	case CMD_PASS:
		l->queue[l->n_queued] = c->index;
		l->epoch[l->n_queued++] = c->epoch;
		break;
	case CMD_JOIN:
		rows_join(&e->rows, &c->join);
		break;
	case CMD_GROW:
		rows_grow(&e->rows, c->index, c->n_pages);
		break;
	case CMD_LEAVE:
		leave(l, c->index);
		break;
	case CMD_GIVE:
		e->steps[c->index].out = false;
		break;
	case CMD_PARK:
		park(e);
		break;
	case CMD_STOP:
		l->stop = true;
		break;
	}
}

void *rank_lead(void *rank)
{
	struct leader l = {.r = rank};
	struct engine *e = l.r->e;
	struct work stop = {.kind = WORK_STOP};
	struct command c;

	while (!l.stop) {
		bool worked = false;

		while (chan_pop(e->commands, &c))
			if (!l.failed || c.kind == CMD_STOP || c.kind == CMD_PARK)
				obey(&l, &c);
		if (!l.failed && !l.stop && l.n_queued > 0) {
			run_pass(&l);
			worked = true;
		}
		if (!l.failed && !l.stop)
			worked |= run_step(&l);
		if (!worked && !l.stop)
			chan_wait(e->commands, -1);
	}
	send_work(e, &stop);
	return NULL;
}

static status follow_batch(struct rank *r, const struct work *work)
{
	struct batch *mine = work->phase == PHASE_DECODE ? &r->step : &r->pass;
	bool same = work->phase == PHASE_DECODE && mine->version == work->batch->version;

	batch_copy(mine, work->batch, same);
	return run_batch(r, mine, work->phase);
}

void *rank_follow(void *rank)
{
	struct rank *r = rank;
	status st = ST_OK;
	struct work work;

	for (;;) {
		while (!chan_pop(r->work, &work))
			chan_wait(r->work, -1);
		if (work.kind == WORK_STOP)
			return NULL;
		/* After a failure rank 0 sends no more batches and tells why. */
		if (st == ST_OK)
			st = follow_batch(r, &work);
	}
}
