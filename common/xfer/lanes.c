/* Streams for copies on the pool. */
#include "common/xfer/lanes.h"
#include "common/base/mem.h"
#include <sched.h>
#include <stdatomic.h>

/* libuv's pool has four threads unless it is told otherwise. */
#define LANES 8u

struct lane {
	atomic_bool taken;
	struct stream *stream[RANKS_MAX];
};

struct lanes {
	const struct xfer_side *side;
	struct lane lane[LANES];
};

status lanes_create(struct lanes **out, const struct xfer_side *side, struct err *err)
{
	struct lanes *l = mem_take(1, sizeof(*l));
	status st = ST_OK;

	if (l == NULL)
		return err_set(err, ST_LIMIT, "no request memory for streams");
	l->side = side;
	for (uint32_t i = 0; i < LANES && st == ST_OK; i++)
		for (uint32_t r = 0; r < side->n_ranks && st == ST_OK; r++)
			st = side->backend[r]->ops->stream_create(
				side->backend[r], &l->lane[i].stream[r], err);
	if (st != ST_OK) {
		lanes_destroy(l);
		return st;
	}
	*out = l;
	return ST_OK;
}

void lanes_destroy(struct lanes *l)
{
	if (l == NULL)
		return;
	for (uint32_t i = 0; i < LANES; i++)
		for (uint32_t r = 0; r < l->side->n_ranks; r++)
			if (l->lane[i].stream[r] != NULL)
				l->side->backend[r]->ops->stream_destroy(
					l->lane[i].stream[r]);
	mem_give(l);
}

struct lane *lanes_take(struct lanes *l)
{
	for (;;) {
		for (uint32_t i = 0; i < LANES; i++)
			if (!atomic_exchange_explicit(
				    &l->lane[i].taken, true, memory_order_acquire))
				return &l->lane[i];
		sched_yield();
	}
}

void lanes_give(struct lane *l)
{
	atomic_store_explicit(&l->taken, false, memory_order_release);
}

struct stream *lane_stream(const struct lane *l, uint32_t rank)
{
	return l->stream[rank];
}
