/* Collectives among rank threads whose buffers are plain memory: each rank publishes
 * its buffer, all meet, each rank reduces one slice for everybody, all meet again. */
#include "common/engine/collective.h"

#include "common/base/mem.h"
#include "common/state/layout.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

/* A rank is late by microseconds as a rule; after this many looks the core is offered
 * to it. */
#define SPINS 256

/* Elements per rank boundary: a cache line of floats, so that two ranks never write
 * the same line. */
#define SLICE 16u

struct host {
	struct collective base;
	void *buf[RANKS_MAX];
	uint8_t *gathered; /* rank 0's */
	_Atomic uint32_t arrived;
	_Atomic uint32_t round; /* rises when everybody has arrived */
	atomic_bool aborted;
};

static struct host *host_of(struct collective *c)
{
	return container_of(c, struct host, base);
}

static bool is_aborted(const struct host *h)
{
	return atomic_load_explicit(&h->aborted, memory_order_acquire);
}

static status meet(struct host *h, struct err *err)
{
	uint32_t round = atomic_load_explicit(&h->round, memory_order_acquire);

	if (is_aborted(h))
		return err_set(err, ST_CANCELLED, "another rank failed");
	if (atomic_fetch_add_explicit(&h->arrived, 1, memory_order_acq_rel) + 1 ==
		h->base.n_ranks) {
		atomic_store_explicit(&h->arrived, 0, memory_order_relaxed);
		atomic_store_explicit(&h->round, round + 1, memory_order_release);
		return ST_OK;
	}
	for (unsigned looks = 0;
		atomic_load_explicit(&h->round, memory_order_acquire) == round; looks++) {
		if (is_aborted(h))
			return err_set(err, ST_CANCELLED, "another rank failed");
		if (looks >= SPINS)
			sched_yield();
	}
	return ST_OK;
}

static status host_meet(struct collective *c, uint32_t rank, struct err *err)
{
	(void)rank;
	return meet(host_of(c), err);
}

static void slice_of(
	const struct host *h, uint32_t rank, uint64_t n, uint64_t *from, uint64_t *to)
{
	uint64_t lines = CEIL_DIV(n, SLICE);

	*from = MIN(lines * rank / h->base.n_ranks * SLICE, n);
	*to = MIN(lines * (rank + 1) / h->base.n_ranks * SLICE, n);
}

static void sum_f32(const struct host *h, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++) {
		float sum = ((const float *)h->buf[0])[i];

		for (uint32_t r = 1; r < h->base.n_ranks; r++)
			sum += ((const float *)h->buf[r])[i];
		for (uint32_t r = 0; r < h->base.n_ranks; r++)
			((float *)h->buf[r])[i] = sum;
	}
}

static void sum_bf16(const struct host *h, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++) {
		float sum = 0;
		uint16_t rounded;

		for (uint32_t r = 0; r < h->base.n_ranks; r++)
			sum += bf16_value(((const uint16_t *)h->buf[r])[i]);
		rounded = bf16_round(sum);
		for (uint32_t r = 0; r < h->base.n_ranks; r++)
			((uint16_t *)h->buf[r])[i] = rounded;
	}
}

static status host_all_reduce(struct collective *c, uint32_t rank, struct stream *s,
	void *buf, uint64_t n, enum dtype dtype, struct err *err)
{
	struct host *h = host_of(c);
	uint64_t from, to;
	status st;

	(void)s;
	h->buf[rank] = buf;
	st = meet(h, err);
	if (st != ST_OK)
		return st;
	slice_of(h, rank, n, &from, &to);
	if (dtype == DT_F32)
		sum_f32(h, from, to);
	else
		sum_bf16(h, from, to);
	return meet(h, err);
}

/* Each rank copies its own parts, all at once. */
static status host_gather(struct collective *c, uint32_t rank, struct stream *s, void *to,
	const void *part, uint64_t n, uint64_t bytes, struct err *err)
{
	struct host *h = host_of(c);
	status st;

	(void)s;
	if (rank == 0)
		h->gathered = to;
	st = meet(h, err);
	if (st != ST_OK)
		return st;
	for (uint64_t i = 0; i < n; i++)
		memcpy(h->gathered + (i * h->base.n_ranks + rank) * bytes,
			(const uint8_t *)part + i * bytes, bytes);
	return meet(h, err);
}

static void host_abort(struct collective *c)
{
	atomic_store_explicit(&host_of(c)->aborted, true, memory_order_release);
}

static void host_destroy(struct collective *c)
{
	mem_free(host_of(c));
}

static const struct collective_ops host_ops = {
	.all_reduce = host_all_reduce,
	.gather = host_gather,
	.meet = host_meet,
	.abort = host_abort,
	.destroy = host_destroy,
};

struct collective *collective_host_create(uint32_t n_ranks)
{
	struct host *h = mem_alloc(1, sizeof(*h));

	h->base = (struct collective){&host_ops, n_ranks};
	return &h->base;
}

status collective_create(struct collective **out, struct backend *const *backends,
	uint32_t n_ranks, struct err *err)
{
	for (uint32_t r = 0; n_ranks > 1 && r < n_ranks; r++)
		if (strcmp(backends[r]->name, "cpu") != 0)
			return err_set(err, ST_INVALID,
				"tensor parallelism over %u devices: this build has no "
				"collectives for %s",
				n_ranks, backends[r]->device);
	*out = collective_host_create(n_ranks);
	return ST_OK;
}
