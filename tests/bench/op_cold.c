/* Chains of work and of reads that empty the cache, replayed in turn. */
#include "tests/bench/op_cold.h"

#include "common/base/attr.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "tests/bench/op_read.h"

#include <stdlib.h>
#include <string.h>

/* The L2 of an H200 has 50 to 60 MB, and what it throws out is not the oldest. Reads take
 * turns on FLUSHES pieces: one that found a part of itself in L2 would be faster where no
 * work has displaced that part. */
#define FLUSHES           3u
#define FLUSH_BYTES       (UINT64_C(256) << 20)
#define OTHER_BYTES       (UINT64_C(1280) << 20)
/* On the CPU, where nothing but the way is tried. */
#define SMALL_FLUSH_BYTES (UINT64_C(8) << 20)
#define SMALL_OTHER_BYTES (UINT64_C(64) << 20)

#define LINKS_MAX        20u /* works in a chain */
#define REPLAYS_MAX      4u  /* between two waits */
#define WARM_REPLAYS_MAX 64u
#define ROUNDS           5u
#define CHAIN_NS         (3 * NS_PER_MS) /* about, unless one work takes longer */
#define SLOW_NS          (20 * NS_PER_MS) /* from here on caches and launches do not matter */

struct cold {
	struct backend *backend;
	struct stream *stream;
	uint8_t *memory; /* FLUSHES times flush bytes, then other bytes */
	uint8_t *rest;   /* these */
	uint64_t flush, other;
	double flush_ns, read_rate, copy_rate;
	uint64_t cpu_sum; /* of what the CPU has read */
};

struct chain {
	const struct cold_job *job; /* NULL: none */
	bool flush;
	uint32_t links, replays;
	struct graph *graph; /* NULL on a backend without */
	double first_ns;     /* of its first replays */
};

/* How often: see the macros. */
struct plan {
	double once_ns; /* through the stream, with its launch */
	uint32_t links, replays;
};

static bool has_graphs(const struct cold *c)
{
	return c->backend->ops->capture_begin != NULL;
}

/* Only the CUDA backend has graphs, and only its streams have kernels. */
static status read_memory(
	struct cold *c, const uint8_t *at, uint64_t bytes, struct err *err)
{
	uint64_t sum = 0, word;

	if (has_graphs(c))
		return op_read_cuda(c->stream, at, bytes, err);
	for (uint64_t i = 0; i < bytes; i += sizeof(word)) {
		memcpy(&word, at + i, sizeof(word));
		sum ^= word;
	}
	c->cpu_sum ^= sum;
	return ST_OK;
}

static status enqueue_chain(struct cold *c, const struct chain *k, struct err *err)
{
	status st = ST_OK;

	for (uint32_t i = 0; i < k->links && st == ST_OK; i++) {
		if (k->flush)
			st = read_memory(
				c, c->memory + i % FLUSHES * c->flush, c->flush, err);
		if (st == ST_OK && k->job != NULL)
			st = k->job->enqueue(c->stream, k->job->what, err);
	}
	return st;
}

static status capture_chain(struct cold *c, struct chain *k, struct err *err)
{
	const struct backend_ops *ops = c->backend->ops;
	struct err ignored;
	status st = ops->capture_begin(c->stream, err);

	if (st != ST_OK)
		return st;
	st = enqueue_chain(c, k, err);
	if (st == ST_OK)
		return ops->capture_end(c->stream, &k->graph, err);
	/* The capture must end all the same; a broken one gives no graph. */
	if (ops->capture_end(c->stream, &k->graph, &ignored) != ST_OK)
		k->graph = NULL;
	return st;
}

/* *ns: of all its links and replays. */
static status run_chain(
	struct cold *c, const struct chain *k, double *ns, struct err *err)
{
	uint64_t start = clock_ns();
	status st = ST_OK;

	for (uint32_t i = 0; i < k->replays && st == ST_OK; i++)
		st = k->graph != NULL
			     ? c->backend->ops->graph_launch(k->graph, c->stream, err)
			     : enqueue_chain(c, k, err);
	if (st == ST_OK)
		st = c->backend->ops->stream_sync(c->stream, err);
	*ns = (double)(clock_ns() - start);
	return st;
}

/* Captured, and replayed: the first replay moves the graph to the device. */
static status open_chain(struct cold *c, struct chain *k, struct err *err)
{
	status st = has_graphs(c) ? capture_chain(c, k, err) : ST_OK;

	return st == ST_OK ? run_chain(c, k, &k->first_ns, err) : st;
}

static void close_chain(struct cold *c, struct chain *k)
{
	if (k->graph != NULL)
		c->backend->ops->graph_destroy(k->graph);
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *at, uint32_t n)
{
	qsort(at, n, sizeof(*at), compare_doubles);
	return at[n / 2];
}

/* Twice through the stream, the second time by the clock. */
static status plan_for(
	struct cold *c, const struct cold_job *job, struct plan *plan, struct err *err)
{
	struct chain once = {.job = job, .links = 1, .replays = 1};
	double ns = 0, chain = (double)CHAIN_NS;
	status st = run_chain(c, &once, &ns, err);

	if (st == ST_OK)
		st = run_chain(c, &once, &ns, err);
	if (st != ST_OK)
		return st;
	plan->once_ns = ns;
	ns += c->flush_ns;
	plan->links = (uint32_t)MAX(1, MIN((double)LINKS_MAX, chain / ns));
	plan->replays = (uint32_t)MAX(
		1, MIN((double)REPLAYS_MAX, 2 * chain / (ns * plan->links)));
	return ST_OK;
}

static double works_of(const struct chain *k)
{
	return (double)k->links * k->replays;
}

static status run_rounds(struct cold *c, const struct chain *both,
	const struct chain *flush, const struct chain *warm, struct cold_times *out,
	struct err *err)
{
	double cold[ROUNDS], alone[ROUNDS], ns;
	status st = ST_OK;

	for (uint32_t i = 0; i < ROUNDS && st == ST_OK; i++) {
		double with = 0, without = 0, again = 0;

		st = run_chain(c, both, &with, err);
		if (st == ST_OK)
			st = run_chain(c, flush, &without, err);
		if (st == ST_OK)
			st = run_chain(c, warm, &again, err);
		cold[i] = (with - without) / works_of(both);
		alone[i] = again / works_of(warm);
	}
	if (st != ST_OK)
		return st;
	ns = median(cold, ROUNDS);
	out->cold_us = ns > 0 ? ns * 1e-3 : 0;
	out->warm_us = median(alone, ROUNDS) * 1e-3;
	return ST_OK;
}

status cold_time(struct cold *c, const struct cold_job *job, struct cold_times *out,
	struct err *err)
{
	struct chain both = {.job = job, .flush = true}, flush = {.flush = true};
	struct chain warm = {.job = job}, *all[] = {&both, &flush, &warm};
	struct plan plan = {0};
	status st = plan_for(c, job, &plan, err);

	if (st == ST_OK && plan.once_ns > (double)SLOW_NS) {
		*out = (struct cold_times){plan.once_ns * 1e-3, plan.once_ns * 1e-3};
		return ST_OK;
	}
	for (uint32_t i = 0; i < COUNT(all) && st == ST_OK; i++) {
		all[i]->links = plan.links;
		all[i]->replays = plan.replays;
		st = open_chain(c, all[i], err);
	}
	/* A chain without reads may be so short that the wait for it would count. */
	if (st == ST_OK)
		warm.replays = (uint32_t)MAX(
			1, MIN((double)WARM_REPLAYS_MAX,
				   (double)CHAIN_NS * warm.replays / warm.first_ns));
	if (st == ST_OK)
		st = run_rounds(c, &both, &flush, &warm, out, err);
	for (uint32_t i = 0; i < COUNT(all); i++)
		close_chain(c, all[i]);
	return st;
}

struct region {
	struct cold *c;
	uint64_t bytes;
};

static status enqueue_read(struct stream *s, void *what, struct err *err)
{
	const struct region *r = what;

	(void)s;
	return read_memory(r->c, r->c->rest, r->bytes, err);
}

/* The first half of the other memory into the second. */
static status enqueue_copy(struct stream *s, void *what, struct err *err)
{
	const struct region *r = what;
	struct copy_piece piece = {.src = r->c->rest,
		.dst = r->c->rest + r->c->other / 2,
		.bytes = r->bytes};

	return r->c->backend->ops->copy_list(s, &piece, 1, err);
}

status cold_time_read(struct cold *c, double bytes, double *us, struct err *err)
{
	struct region r = {c, ((uint64_t)bytes + 15) / 16 * 16};
	struct cold_job job = {enqueue_read, &r};
	struct cold_times times = {0};
	status st;

	*us = 0;
	if (r.bytes > c->other || r.bytes == 0)
		return ST_OK;
	st = cold_time(c, &job, &times, err);
	*us = times.cold_us;
	return st;
}

static status measure_rates(struct cold *c, struct err *err)
{
	struct region all = {c, c->other}, half = {c, c->other / 2};
	struct cold_job read = {enqueue_read, &all}, copy = {enqueue_copy, &half};
	struct chain flush = {.flush = true, .links = 1, .replays = 1};
	struct cold_times times = {0};
	status st = run_chain(c, &flush, &c->flush_ns, err);

	if (st == ST_OK)
		st = run_chain(c, &flush, &c->flush_ns, err);
	if (st == ST_OK)
		st = cold_time(c, &read, &times, err);
	c->read_rate = (double)all.bytes * 1e6 / MAX(times.cold_us, 1e-3);
	if (st == ST_OK)
		st = cold_time(c, &copy, &times, err);
	c->copy_rate = 2 * (double)half.bytes * 1e6 / MAX(times.cold_us, 1e-3);
	return st;
}

static status fill_memory(struct cold *c, struct err *err)
{
	uint64_t bytes = FLUSHES * c->flush + c->other;
	status st;

	if (!has_graphs(c)) {
		for (uint64_t i = 0; i < bytes; i++)
			c->memory[i] = (uint8_t)(i * 0x9E3779B1u >> 16);
		return ST_OK;
	}
	st = op_fill_cuda(c->stream, c->memory, bytes, err);
	return st == ST_OK ? c->backend->ops->stream_sync(c->stream, err) : st;
}

status cold_open(struct cold **out, struct backend *b, struct err *err)
{
	bool small = b->ops->capture_begin == NULL;
	struct cold *c = mem_alloc(1, sizeof(*c));
	void *memory = NULL;
	status st;

	*c = (struct cold){.backend = b,
		.flush = small ? SMALL_FLUSH_BYTES : FLUSH_BYTES,
		.other = small ? SMALL_OTHER_BYTES : OTHER_BYTES};
	st = b->ops->stream_create(b, &c->stream, err);
	if (st == ST_OK)
		st = b->ops->alloc(
			b, MEM_DEVICE, FLUSHES * c->flush + c->other, &memory, err);
	c->memory = memory;
	if (st == ST_OK) {
		c->rest = c->memory + FLUSHES * c->flush;
		st = fill_memory(c, err);
	}
	if (st == ST_OK)
		st = measure_rates(c, err);
	if (st != ST_OK) {
		cold_close(c);
		return st;
	}
	*out = c;
	return ST_OK;
}

void cold_close(struct cold *c)
{
	if (c == NULL)
		return;
	if (c->memory != NULL)
		c->backend->ops->free(c->backend, MEM_DEVICE, c->memory);
	if (c->stream != NULL)
		c->backend->ops->stream_destroy(c->stream);
	mem_free(c);
}

double cold_read_rate(const struct cold *c)
{
	return c->read_rate;
}

double cold_copy_rate(const struct cold *c)
{
	return c->copy_rate;
}
