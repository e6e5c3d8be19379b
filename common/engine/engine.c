/* The engine as an object: create, plan, destroy, and what it says about itself. */
#include "common/engine/engine_impl.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"

#include <assert.h>
#include <string.h>

/* A kernel table of some thirty ops and formats, and a dozen lines of plan. */
#define TEXT_MAX ((size_t)64 << 10)

static status start_threads(struct engine *e, struct err *err)
{
	for (uint32_t i = e->n_ranks; i-- > 0;) {
		struct rank *r = &e->rank[i];
		int rc = pthread_create(
			&r->thread, NULL, i == 0 ? rank_lead : rank_follow, r);

		if (rc != 0)
			return err_set(
				err, ST_IO, "thread of rank %u: %s", i, strerror(rc));
		r->running = true;
	}
	return ST_OK;
}

static void log_lines(const char *text)
{
	while (*text != 0) {
		size_t len = strcspn(text, "\n");

		if (len > 0)
			log_info("%.*s", (int)len, text);
		text += len + (text[len] != 0);
	}
}

static void log_start(const struct engine *e)
{
	struct sink text;

	sink_init(&text, TEXT_MAX);
	for (uint32_t i = 0; i < e->n_ranks; i++)
		sink_fmt(&text, "rank %u on %s\n", i, e->rank[i].b->device);
	weights_unused(e->rank[0].files, &text);
	sink_str(&text, "\n");
	kernels_report(e->rank[0].k, &text);
	eng_plan_text(&e->plan, &e->layout, &text);
	log_lines(sink_cstr(&text));
	sink_release(&text);
}

status engine_create(
	struct engine **out, const struct engine_options *options, struct err *err)
{
	struct engine *e = mem_alloc(1, sizeof(*e));
	status st;

	sem_init(&e->parked, 0, 0);
	sem_init(&e->unpark, 0, 0);
	st = engine_setup_prepare(e, options, err);
	if (st != ST_OK)
		goto out;
	log_start(e);
	st = engine_setup_allocate(e, err);
	if (st == ST_OK)
		st = start_threads(e, err);
	if (st != ST_OK)
		goto out;
	*out = e;
	e = NULL;
out:
	engine_destroy(e);
	return st;
}

status engine_plan(
	const struct engine_options *options, struct sink *out, struct err *err)
{
	struct engine *e = mem_alloc(1, sizeof(*e));
	status st;

	e->planning = true;
	st = engine_setup_prepare(e, options, err);
	if (st == ST_OK)
		eng_plan_text(&e->plan, &e->layout, out);
	engine_destroy(e);
	return st;
}

/* Rank 0 tells the followers to stop; when its thread could not be started, they are
 * told here. */
static void stop_threads(struct engine *e)
{
	struct command stop = {.kind = CMD_STOP};
	struct work last = {.kind = WORK_STOP};

	if (e->rank[0].running) {
		while (!chan_push(e->commands, &stop))
			sched_yield();
	} else {
		for (uint32_t i = 1; i < e->n_ranks; i++) {
			bool sent =
				!e->rank[i].running || chan_push(e->rank[i].work, &last);

			assert(sent);
			(void)sent;
		}
	}
	for (uint32_t i = 0; i < e->n_ranks; i++)
		if (e->rank[i].running)
			pthread_join(e->rank[i].thread, NULL);
}

void engine_destroy(struct engine *e)
{
	if (e == NULL)
		return;
	stop_threads(e);
	engine_setup_release(e);
	mem_free(e);
}

const struct model_config *engine_config(const struct engine *e)
{
	return &e->config;
}

const struct layout *engine_layout(const struct engine *e)
{
	return &e->layout;
}

uint32_t engine_ranks(const struct engine *e)
{
	return e->n_ranks;
}

struct backend *engine_backend(const struct engine *e, uint32_t rank)
{
	assert(rank < e->n_ranks);
	return e->rank[rank].b;
}

void *engine_arena(const struct engine *e, uint32_t rank)
{
	assert(rank < e->n_ranks);
	return e->rank[rank].arena;
}

uint64_t engine_pages(const struct engine *e)
{
	return e->plan.n_pages;
}

uint64_t engine_slots(const struct engine *e)
{
	return e->plan.n_slots;
}

uint32_t engine_len_max(const struct engine *e)
{
	return e->plan.len_max;
}

void engine_report(const struct engine *e, struct sink *out)
{
	for (uint32_t i = 0; i < e->n_ranks; i++) {
		sink_fmt(out, "rank %u on %s\n", i, e->rank[i].b->device);
		kernels_report(e->rank[i].k, out);
	}
}

void engine_tap(struct engine *e, engine_tap_fn fn, void *ctx)
{
	uint64_t n = (uint64_t)e->o.rows_max * e->config.hidden;

	if (e->tap.hidden == NULL) {
		e->tap.hidden = mem_take(n, sizeof(float));
		e->tap.raw = mem_take(n, dtype_bytes(e->rank[0].b->act));
	}
	assert(e->tap.hidden != NULL && e->tap.raw != NULL);
	e->tap.fn = fn;
	e->tap.ctx = ctx;
}

void engine_route(
	struct engine *e, const uint32_t *forced, uint32_t *dump, uint32_t n_rows)
{
	e->route = (struct route){.forced = forced, .dump = dump, .n_rows = n_rows};
}

status engine_read(struct engine *e, uint32_t rank, uint64_t offset, void *host,
	uint64_t bytes, struct err *err)
{
	struct rank *r = &e->rank[rank];
	status st;

	assert(rank < e->n_ranks && offset <= e->plan.arena_bytes &&
		bytes <= e->plan.arena_bytes - offset);
	st = r->b->ops->download(r->io, host, (uint8_t *)r->arena + offset, bytes, err);
	return st == ST_OK ? r->b->ops->stream_sync(r->io, err) : st;
}

struct engine_counters engine_counters(const struct engine *e)
{
	return (struct engine_counters){
		.allreduces =
			atomic_load_explicit(&e->n_allreduces, memory_order_relaxed),
		.steps = atomic_load_explicit(&e->n_steps, memory_order_relaxed),
		.passes = atomic_load_explicit(&e->n_passes, memory_order_relaxed),
		.nan_rows = atomic_load_explicit(&e->n_nan_rows, memory_order_relaxed),
		.busy_ns = atomic_load_explicit(&e->busy_ns, memory_order_relaxed),
	};
}

uint64_t engine_stuck_ns(const struct engine *e)
{
	uint64_t since = atomic_load_explicit(&e->busy_since, memory_order_relaxed);

	return since == 0 ? 0 : clock_ran_since(since);
}
