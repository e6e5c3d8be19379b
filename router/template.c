/* The queue of renders and the children that take from it. */
#include "router/template_impl.h"

#include "common/base/json_write.h"
#include "common/base/log.h"
#include "common/base/mem.h"

#include <poll.h>
#include <string.h>

/* The first frame: paths, and all added tokens as JSON, where a byte takes six. */
#define INIT_BYTES_MAX (6u * TOK_ADDED_MAX * TOK_TOKEN_BYTES_MAX + (1u << 20))

static void release_job(struct template_job *job)
{
	list_remove(&job->node);
	sink_release(&job->frame);
	mem_give(job->request);
	mem_give(job);
}

void template_fail(struct template *t, struct template_job *job, const struct err *err)
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

struct template_job *template_take(struct template *t)
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

static void feed_all(struct template *t)
{
	for (uint32_t i = 0; i < t->n_children; i++)
		template_child_feed(&t->children[i]);
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

void template_give_up(struct template *t)
{
	struct template_job *job;
	struct err err;

	err_set(&err, ST_PEER,
		"Chat template: no process that renders it can be kept "
		"running.");
	for (unsigned i = 0; i < TEMPLATE_SIZES; i++)
		while ((job = take_job(t, i)) != NULL)
			template_fail(t, job, &err);
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
		template_child_start(&t->children[i]);
	}
	if (t->init.full)
		err_set(err, ST_LIMIT, "Chat template: too many added tokens");
	else if (template_child_wait(&t->children[0], err) == ST_OK) {
		t->ready = true;
		for (uint32_t i = 1; i < t->n_children; i++)
			if (t->children[i].state == CHILD_DOWN)
				template_child_respawn(&t->children[i]);
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
