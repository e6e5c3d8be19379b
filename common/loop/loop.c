/* One libuv loop with its turn hooks, jobs and signals. */
#include "common/loop/loop_core.h"

#include "common/base/log.h"
#include "common/base/mem.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>

/* Closing a watcher takes one turn, closing what a close callback closes another one;
 * nothing in this folder nests deeper than two. */
#define CLOSE_TURNS 8

static void do_nothing(uv_idle_t *h)
{
	(void)h;
}

static void on_prepare(uv_prepare_t *h)
{
	struct loop *l = h->data;

	l->awake = false;
	for (size_t i = 0; i < LOOP_HOOKS_MAX; i++)
		if (l->hooks[i].fn != NULL)
			l->hooks[i].fn(l->hooks[i].ctx);
	loop_timer_arm(l);
	if (l->awake)
		uv_idle_start(&l->no_sleep, do_nothing);
	else
		uv_idle_stop(&l->no_sleep);
}

struct loop *loop_create(void)
{
	struct loop *l = mem_alloc(1, sizeof(*l));
	int rc = uv_loop_init(&l->uv);

	if (rc != 0) {
		log_error("event loop: %s", uv_strerror(rc));
		abort();
	}
	/* Initialising these only links them into the loop: it cannot fail. */
	uv_prepare_init(&l->uv, &l->before_sleep);
	uv_idle_init(&l->uv, &l->no_sleep);
	uv_timer_init(&l->uv, &l->alarm);
	l->before_sleep.data = l;
	l->alarm.data = l;
	uv_prepare_start(&l->before_sleep, on_prepare);
	return l;
}

void loop_run(struct loop *l)
{
	/* The prepare handle keeps the loop alive, so only loop_stop ends it. */
	uv_run(&l->uv, UV_RUN_DEFAULT);
}

void loop_stop(struct loop *l)
{
	uv_stop(&l->uv);
}

void loop_destroy(struct loop *l)
{
	int rc = UV_EBUSY;

	if (l == NULL)
		return;
	while (l->jobs > 0)
		uv_run(&l->uv, UV_RUN_ONCE);
	assert(l->timers == NULL);
	for (size_t i = 0; i < LOOP_HOOKS_MAX; i++)
		assert(l->hooks[i].fn == NULL);
	uv_close((uv_handle_t *)&l->before_sleep, NULL);
	uv_close((uv_handle_t *)&l->no_sleep, NULL);
	uv_close((uv_handle_t *)&l->alarm, NULL);
	if (l->has_signals) {
		uv_close((uv_handle_t *)&l->term, NULL);
		uv_close((uv_handle_t *)&l->interrupt, NULL);
	}
	if (l->has_hangup)
		uv_close((uv_handle_t *)&l->hangup, NULL);
	for (int turn = 0; turn < CLOSE_TURNS && rc == UV_EBUSY; turn++) {
		uv_run(&l->uv, UV_RUN_NOWAIT);
		rc = uv_loop_close(&l->uv);
	}
	assert(rc == 0);
	mem_free(l);
}

struct job {
	uv_work_t uv;
	struct loop *loop;
	void (*work)(void *ctx);
	void (*done)(void *ctx);
	void *ctx;
};

static void job_work(uv_work_t *w)
{
	struct job *j = w->data;

	j->work(j->ctx);
}

/* Jobs are never cancelled, so the status says nothing. */
static void job_done(uv_work_t *w, int rc)
{
	struct job *j = w->data;
	void (*done)(void *ctx) = j->done;
	void *ctx = j->ctx;

	(void)rc;
	j->loop->jobs--;
	mem_give(j);
	done(ctx);
}

status loop_work(
	struct loop *l, void (*work)(void *ctx), void (*done)(void *ctx), void *ctx)
{
	struct job *j = mem_take(1, sizeof(*j));

	if (j == NULL)
		return ST_LIMIT;
	*j = (struct job){.loop = l, .work = work, .done = done, .ctx = ctx};
	j->uv.data = j;
	if (uv_queue_work(&l->uv, &j->uv, job_work, job_done) != 0) {
		mem_give(j);
		return ST_LIMIT;
	}
	l->jobs++;
	return ST_OK;
}

static void start_only(void *ctx)
{
	(void)ctx;
}

void loop_start_pool(struct loop *l)
{
	/* Refused only without memory for a job: then the first one starts it. */
	(void)!loop_work(l, start_only, start_only, NULL);
}

void loop_on_turn(struct loop *l, void (*fn)(void *ctx), void *ctx)
{
	for (size_t i = 0; i < LOOP_HOOKS_MAX; i++)
		if (l->hooks[i].fn == NULL) {
			l->hooks[i].fn = fn;
			l->hooks[i].ctx = ctx;
			return;
		}
	assert(false && "too many turn hooks");
}

void loop_off_turn(struct loop *l, void (*fn)(void *ctx), void *ctx)
{
	for (size_t i = 0; i < LOOP_HOOKS_MAX; i++)
		if (l->hooks[i].fn == fn && l->hooks[i].ctx == ctx) {
			l->hooks[i].fn = NULL;
			return;
		}
	assert(false && "this turn hook was never set");
}

void loop_keep_awake(struct loop *l)
{
	l->awake = true;
}

static void on_signal(uv_signal_t *h, int signum)
{
	struct loop *l = h->data;

	(void)signum;
	l->n_signals++;
	l->on_signal(l->on_signal_ctx, l->n_signals);
}

static void on_hangup(uv_signal_t *h, int signum)
{
	struct loop *l = h->data;

	(void)signum;
	l->on_hangup(l->on_hangup_ctx);
}

status loop_on_hangup(struct loop *l, void (*fn)(void *ctx), void *ctx, struct err *err)
{
	int rc;

	assert(!l->has_hangup);
	rc = uv_signal_init(&l->uv, &l->hangup);
	if (rc != 0)
		return err_set(err, ST_IO, "signals: %s", uv_strerror(rc));
	l->has_hangup = true;
	l->hangup.data = l;
	l->on_hangup = fn;
	l->on_hangup_ctx = ctx;
	rc = uv_signal_start(&l->hangup, on_hangup, SIGHUP);
	return rc == 0 ? ST_OK : err_set(err, ST_IO, "signals: %s", uv_strerror(rc));
}

status loop_on_signals(
	struct loop *l, void (*fn)(void *ctx, unsigned count), void *ctx, struct err *err)
{
	int rc;

	assert(!l->has_signals);
	rc = uv_signal_init(&l->uv, &l->term);
	if (rc != 0)
		return err_set(err, ST_IO, "signals: %s", uv_strerror(rc));
	rc = uv_signal_init(&l->uv, &l->interrupt);
	if (rc != 0) {
		uv_close((uv_handle_t *)&l->term, NULL);
		return err_set(err, ST_IO, "signals: %s", uv_strerror(rc));
	}
	l->has_signals = true;
	l->term.data = l;
	l->interrupt.data = l;
	l->on_signal = fn;
	l->on_signal_ctx = ctx;
	rc = uv_signal_start(&l->term, on_signal, SIGTERM);
	if (rc == 0)
		rc = uv_signal_start(&l->interrupt, on_signal, SIGINT);
	if (rc != 0)
		return err_set(err, ST_IO, "signals: %s", uv_strerror(rc));
	return ST_OK;
}
