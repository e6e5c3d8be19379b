/* The queue of renders and the children that take from it. */
#include "router/template_impl.h"

#include "common/base/clock.h"
#include "common/base/json_write.h"
#include "common/base/log.h"
#include "common/base/mem.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

/* Besides render_ms, what a MiB of messages may compute: three times what it takes. */
#define PER_MIB_MS       1000u
/* A child that does not get to compute has so many times its limit, and is then taken
 * for one that stands still. */
#define STANDS_STILL     20u
#define REAP_MS          10
#define BACK_OFF_MS      100
#define BACK_OFF_MS_MAX  5000
/* The first frame: paths, and all added tokens as JSON, where a byte takes six. */
#define INIT_BYTES_MAX   (6u * TOK_ADDED_MAX * TOK_TOKEN_BYTES_MAX + (1u << 20))
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

static void start_child(struct template_child *c)
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

static void respawn(void *ctx)
{
	struct template_child *c = ctx;

	/* A killed process is gone within moments; waiting for it here would stop all
	 * else. */
	if (!template_child_reap(c)) {
		loop_timer_start(c->t->loop, &c->timer, REAP_MS, 0, respawn, c);
		return;
	}
	c->t->restarts++;
	start_child(c);
	template_settle(c->t);
}

static void release_job(struct template_job *job)
{
	list_remove(&job->node);
	sink_release(&job->frame);
	mem_give(job->request);
	mem_give(job);
}

static void fail_job(struct template *t, struct template_job *job, const struct err *err)
{
	job->code = err->code;
	job->err = *err;
	list_add(&t->ended, &job->node);
}

enum template_size template_next(const struct template_load *l)
{
	bool room = l->n_children == 1
			    ? l->last == TEMPLATE_SHORT || l->waiting[TEMPLATE_SHORT] == 0
			    : l->n_long < l->n_children - 1;

	if (l->waiting[TEMPLATE_LONG] > 0 && room &&
		(l->n_long == 0 || l->waiting[TEMPLATE_SHORT] == 0))
		return TEMPLATE_LONG;
	return l->waiting[TEMPLATE_SHORT] > 0 ? TEMPLATE_SHORT : TEMPLATE_SIZES;
}

static enum template_size size_of(const struct template_job *job)
{
	return job->len > TEMPLATE_SHORT_MAX ? TEMPLATE_LONG : TEMPLATE_SHORT;
}

/* NULL: there is none of this size. */
static struct template_job *take_job(struct template *t, enum template_size size)
{
	struct template_job *job = list_first(&t->queue[size], struct template_job, node);

	if (job != NULL)
		list_remove(&job->node);
	return job;
}

static struct template_job *next_job(struct template *t)
{
	struct template_load l = {.n_children = t->n_children, .last = t->last};
	enum template_size size;

	for (uint32_t i = 0; i < t->n_children; i++)
		l.n_long += t->children[i].job != NULL &&
			    size_of(t->children[i].job) == TEMPLATE_LONG;
	for (unsigned i = 0; i < TEMPLATE_SIZES; i++)
		l.waiting[i] = t->queue[i].n;
	size = template_next(&l);
	if (size == TEMPLATE_SIZES)
		return NULL;
	t->last = size;
	return take_job(t, size);
}

/* What the job may compute. */
static uint64_t limit_ns(const struct template *t, const struct template_job *job)
{
	return (t->render_ms + job->len * PER_MIB_MS / (1u << 20)) * NS_PER_MS;
}

static void feed(struct template_child *c)
{
	struct template *t = c->t;
	struct template_job *job;

	if (c->state != CHILD_IDLE)
		return;
	job = next_job(t);
	if (job == NULL)
		return;
	c->job = job;
	c->began_ns = clock_ran_ns();
	c->began_cpu_ns = template_child_cpu_ns(c);
	loop_timer_wait(t->loop, &c->timer, limit_ns(t, job) / NS_PER_MS, on_limit, c);
	set_state(c, CHILD_BUSY);
	template_child_send(c, (struct bytes){(const uint8_t *)job->request, job->len});
}

static void feed_all(struct template *t)
{
	for (uint32_t i = 0; i < t->n_children; i++)
		feed(&t->children[i]);
}

void template_settle(struct template *t)
{
	struct template_job *job;

	while ((job = list_first(&t->ended, struct template_job, node)) != NULL) {
		bool ok = job->code == ST_OK;

		/* What is withdrawn from inside fn is another one. */
		list_remove(&job->node);
		if (job->fn != NULL)
			job->fn(job->ctx, ok ? &job->frame : NULL, job->text, job->code,
				ok ? NULL : &job->err);
		release_job(job);
	}
	feed_all(t);
}

/* Of BUSY: what the render has computed decides. */
static void look_at_render(struct template_child *c)
{
	uint64_t limit, used;

	limit = limit_ns(c->t, c->job);
	used = template_child_cpu_ns(c);
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

static void give_up_queue(struct template *t)
{
	struct template_job *job;
	struct err err;

	err_set(&err, ST_PEER,
		"Chat template: no process that renders it can be kept "
		"running.");
	for (unsigned i = 0; i < TEMPLATE_SIZES; i++)
		while ((job = take_job(t, i)) != NULL)
			fail_job(t, job, &err);
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
		loop_timer_start(t->loop, &c->timer, wait, 0, respawn, c);
	}
	if (job != NULL)
		fail_job(t, job, &err);
	if (t->ready && c->failures >= FAILURES_GIVE_UP && template_alive(t) == 0)
		give_up_queue(t);
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
		fail_job(c->t, job, &err);
	}
}

static status queue_job(struct template *t, const struct template_job *made,
	uint64_t *ticket, struct err *err)
{
	struct template_job *job;

	if (made->len > UINT32_MAX)
		return err_set(err, ST_LIMIT, "Chat template: %zu bytes of messages.",
			made->len);
	if (template_queued(t) >= t->queue_max)
		return err_set(err, ST_LIMIT, "Chat template: %u renders are waiting.",
			template_queued(t));
	job = mem_take(1, sizeof(*job));
	if (job == NULL)
		return err_set(err, ST_LIMIT, "Chat template: no request memory.");
	*job = *made;
	job->ticket = ++t->last_ticket;
	list_add(&t->queue[size_of(job)], &job->node);
	*ticket = job->ticket;
	return ST_OK;
}

status template_render(struct template *t, char *request, size_t len, template_fn *fn,
	void *ctx, uint64_t *ticket, struct err *err)
{
	struct template_job job = {.request = request, .len = len, .fn = fn, .ctx = ctx};

	if (queue_job(t, &job, ticket, err) != ST_OK) {
		mem_give(request);
		return err->code;
	}
	feed_all(t);
	return ST_OK;
}

static void withdraw(struct list *from, uint64_t ticket)
{
	list_each (job, from, struct template_job, node)
		if (job->ticket == ticket)
			release_job(job);
}

void template_cancel(struct template *t, uint64_t ticket)
{
	for (uint32_t i = 0; i < t->n_children; i++) {
		struct template_job *job = t->children[i].job;

		if (job != NULL && job->ticket == ticket)
			job->fn = NULL;
	}
	for (unsigned i = 0; i < TEMPLATE_SIZES; i++)
		withdraw(&t->queue[i], ticket);
	withdraw(&t->ended, ticket);
}

static void put_init(struct sink *out, const struct template_options *o)
{
	const char *path = o->template_path != NULL ? o->template_path : "";
	struct json_out w;

	json_out_init(&w, out);
	json_open(&w, '{');
	json_add_text(&w, "model_dir", o->model_dir);
	json_add_text(&w, "template_path", path);
	json_name(&w, "added");
	json_open(&w, '[');
	for (size_t i = 0; i < o->n_added; i++) {
		json_open(&w, '[');
		json_put_bytes(&w, o->added[i].text);
		json_put_bool(&w, o->added[i].special);
		json_close(&w);
	}
	json_close(&w);
	json_close(&w);
}

/* Before the loop runs: what is wrong with the template or python is known at start. */
static status wait_ready(struct template_child *c, struct err *err)
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

status template_create(
	struct template **out, const struct template_options *o, struct err *err)
{
	const char *python = o->python != NULL && o->python[0] != '\0'
				     ? o->python
				     : "/usr/bin/python3";
	struct template *t = mem_alloc(1, sizeof(*t));

	t->loop = o->loop;
	t->python = mem_alloc(1, strlen(python) + 1);
	memcpy(t->python, python, strlen(python) + 1);
	t->memory_bytes = o->memory_bytes > 0 ? o->memory_bytes : UINT64_C(1) << 30;
	t->n_children = MIN(o->children > 0 ? o->children : 2, TEMPLATE_CHILDREN_MAX);
	t->render_ms = o->render_ms > 0 ? o->render_ms : 2000;
	t->queue_max = o->queue_max > 0 ? o->queue_max : 256;
	sink_init(&t->init, INIT_BYTES_MAX);
	put_init(&t->init, o);
	for (uint32_t i = 0; i < t->n_children; i++) {
		t->children[i].t = t;
		t->children[i].fd = -1;
		start_child(&t->children[i]);
	}
	if (t->init.full)
		err_set(err, ST_LIMIT, "Chat template: too many added tokens");
	else if (wait_ready(&t->children[0], err) == ST_OK) {
		t->ready = true;
		for (uint32_t i = 1; i < t->n_children; i++)
			if (t->children[i].state == CHILD_DOWN)
				respawn(&t->children[i]);
		*out = t;
		return ST_OK;
	} else if (t->none) {
		log_warn("%s; requests with messages are refused, all others served "
			 "(chat_template can name a file)",
			err->text);
		*out = NULL;
		template_destroy(t);
		return ST_OK;
	}
	template_destroy(t);
	return err->code;
}

static void release_all(struct list *jobs)
{
	list_each (job, jobs, struct template_job, node)
		release_job(job);
}

void template_destroy(struct template *t)
{
	if (t == NULL)
		return;
	t->ready = false;
	for (uint32_t i = 0; i < t->n_children; i++) {
		struct template_child *c = &t->children[i];

		loop_timer_stop(&c->timer);
		template_child_kill(c);
		/* Killed: gone within moments, and nothing else is to be done. */
		while (!template_child_reap(c))
			poll(NULL, 0, 1);
		if (c->job != NULL)
			release_job(c->job);
	}
	for (unsigned k = 0; k < TEMPLATE_SIZES; k++)
		release_all(&t->queue[k]);
	release_all(&t->ended);
	sink_release(&t->init);
	mem_free(t->python);
	mem_free(t);
}

uint32_t template_alive(const struct template *t)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->n_children; i++)
		n += t->children[i].state == CHILD_IDLE ||
		     t->children[i].state == CHILD_BUSY;
	return n;
}

uint64_t template_restarts(const struct template *t)
{
	return t->restarts;
}

uint32_t template_queued(const struct template *t)
{
	return t->queue[TEMPLATE_SHORT].n + t->queue[TEMPLATE_LONG].n;
}
