/* The life of one child: its states, its limits, when it is started again. */
#include "router/template_impl.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <assert.h>
#include <poll.h>
#include <string.h>

/* Besides render_ms, what a MiB of messages may compute: three times what it takes. */
#define PER_MIB_MS       1000u
/* A child that does not get to compute has so many times its limit, and is then taken
 * for one that stands still. */
#define STANDS_STILL     20u
#define REAP_MS          10
#define BACK_OFF_MS      100
#define BACK_OFF_MS_MAX  5000
/* With every child failing this often in a row, waiting renders are given up. */
#define FAILURES_GIVE_UP 3

static const uint8_t may_follow[CHILD__STATES] = {
	[CHILD_DOWN] = MAY(CHILD_STARTING) | MAY(CHILD_DOWN), /* cannot be spawned */
	[CHILD_STARTING] = MAY(CHILD_IDLE) | MAY(CHILD_DOWN),
	[CHILD_IDLE] = MAY(CHILD_BUSY) | MAY(CHILD_DOWN),
	[CHILD_BUSY] = MAY(CHILD_IDLE) | MAY(CHILD_DOWN),
};

/* What holds of a child in each state. */
static void check(const struct template_child *c)
{
	bool busy = c->state == CHILD_BUSY;

	assert((c->job != NULL) == busy);
	assert((c->fd >= 0) == (c->state != CHILD_DOWN));
	assert((c->watch != NULL) == (c->fd >= 0));
	assert(c->state == CHILD_DOWN ||
		loop_timer_running(&c->timer) == (c->state != CHILD_IDLE));
}

static void set_state(struct template_child *c, enum child_state state)
{
	assert((may_follow[c->state] & MAY(state)) != 0);
	c->state = state;
	check(c);
}

static void on_limit(void *ctx);

void template_child_start(struct template_child *c)
{
	struct template *t = c->t;

	if (template_child_spawn(c, &t->start_error) != ST_OK) {
		template_on_end(c, ST_IO, t->start_error.text);
		return;
	}
	loop_timer_wait(t->loop, &c->timer, TEMPLATE_START_MS, on_limit, c);
	set_state(c, CHILD_STARTING);
	template_child_send(c, sink_bytes(&t->init));
}

void template_child_respawn(void *ctx)
{
	struct template_child *c = ctx;

	/* A killed process is gone within moments; waiting for it here would stop all
	 * else. */
	if (!template_child_reap(c)) {
		loop_timer_start(
			c->t->loop, &c->timer, REAP_MS, 0, template_child_respawn, c);
		return;
	}
	c->t->restarts++;
	template_child_start(c);
	template_settle(c->t);
}

/* What the job may compute. */
static uint64_t limit_ns(const struct template *t, const struct template_job *job)
{
	return (t->render_ms + job->len * PER_MIB_MS / (1u << 20)) * NS_PER_MS;
}

void template_child_feed(struct template_child *c)
{
	struct template *t = c->t;
	struct template_job *job;

	if (c->state != CHILD_IDLE)
		return;
	job = template_take(t);
	if (job == NULL)
		return;
	c->job = job;
	c->began_ns = clock_ran_ns();
	c->began_cpu_ns = template_child_cpu_ns(c);
	loop_timer_wait(t->loop, &c->timer, limit_ns(t, job) / NS_PER_MS, on_limit, c);
	set_state(c, CHILD_BUSY);
	template_child_send(c, (struct bytes){(const uint8_t *)job->request, job->len});
}

/* Of BUSY: what the render has computed decides. */
static void look_at_render(struct template_child *c)
{
	uint64_t limit = limit_ns(c->t, c->job);
	uint64_t used = template_child_cpu_ns(c);

	used -= MIN(c->began_cpu_ns, used);
	if (used >= limit || clock_ran_since(c->began_ns) >= STANDS_STILL * limit)
		template_on_end(c, ST_CANCELLED, "It takes too long.");
	else
		loop_timer_wait(c->t->loop, &c->timer, (limit - used) / NS_PER_MS + 1,
			on_limit, c);
}

static void on_limit(void *ctx)
{
	struct template_child *c = ctx;

	if (c->state == CHILD_STARTING)
		template_on_end(c, ST_IO, "It does not become ready.");
	else
		look_at_render(c);
	template_settle(c->t);
}

void template_on_end(struct template_child *c, status code, const char *why)
{
	struct template *t = c->t;
	struct template_job *job = c->job;
	bool was_ready = c->state == CHILD_IDLE || c->state == CHILD_BUSY;
	uint64_t wait = 0;
	struct err err;

	err_set(&err, code, "Chat template: %s", why);
	c->job = NULL;
	template_child_kill(c);
	loop_timer_stop(&c->timer);
	set_state(c, CHILD_DOWN);
	/* A render that was too long or too large says nothing about the process. */
	if (!was_ready || code == ST_PEER)
		c->failures++;
	if (c->failures > 1)
		wait = MIN((uint64_t)BACK_OFF_MS << MIN(c->failures - 2, 10u),
			BACK_OFF_MS_MAX);
	if (!was_ready)
		t->start_error = err;
	if (t->ready) {
		log_warn("template child ended, a new one starts in %llu ms: %s",
			(unsigned long long)wait, err.text);
		loop_timer_start(t->loop, &c->timer, wait, 0, template_child_respawn, c);
	}
	if (job != NULL)
		template_fail(t, job, &err);
	if (t->ready && c->failures >= FAILURES_GIVE_UP && template_alive(t) == 0)
		template_give_up(t);
}

static void child_ready(struct template_child *c, char kind, struct bytes text)
{
	char why[256];

	if (kind == 'r') {
		loop_timer_stop(&c->timer);
		set_state(c, CHILD_IDLE);
		return;
	}
	c->t->none = kind == 'n';
	snprintf(why, sizeof(why), "%.*s", (int)MIN(text.len, sizeof(why) - 1),
		(const char *)text.at);
	template_on_end(c, ST_INVALID, why);
}

void template_on_frame(
	struct template_child *c, char kind, struct sink *frame, struct bytes text)
{
	bool starts = c->state == CHILD_STARTING;
	struct template_job *job = c->job;
	struct err err;

	if (c->state == CHILD_IDLE || template_child_sends(c) ||
		(!starts && kind != 'o' && kind != 'e')) {
		template_on_end(c, kind == 'm' ? ST_LIMIT : ST_PEER,
			kind == 'm' ? "It needs more memory than it may have."
				    : "The process that renders it broke the protocol.");
		return;
	}
	if (starts) {
		child_ready(c, kind, text);
		return;
	}
	c->job = NULL;
	c->failures = 0;
	loop_timer_stop(&c->timer);
	set_state(c, CHILD_IDLE);
	if (kind == 'o') {
		job->frame = *frame;
		job->text = text;
		*frame = (struct sink){0};
		list_add(&c->t->ended, &job->node);
	} else {
		err_set(&err, ST_INVALID, "%.*s",
			(int)MIN(text.len, sizeof(err.text) - 1), (const char *)text.at);
		template_fail(c->t, job, &err);
	}
}

status template_child_wait(struct template_child *c, struct err *err)
{
	uint64_t end = clock_ns() + TEMPLATE_START_MS * NS_PER_MS;

	while (c->state == CHILD_STARTING) {
		struct pollfd p = {.fd = c->fd, .events = POLLIN};
		uint64_t now = clock_ns();

		if (template_child_sends(c))
			p.events |= POLLOUT;
		if (now >= end) {
			on_limit(c);
			break;
		}
		if (poll(&p, 1, (int)((end - now) / NS_PER_MS) + 1) > 0)
			template_child_io(c);
	}
	if (c->state == CHILD_IDLE)
		return ST_OK;
	*err = c->t->start_error;
	if (err->code == ST_PEER)
		return err_set(err, ST_IO,
			"Chat template: %s cannot be run, or lacks jinja2.",
			c->t->python);
	return err->code;
}
