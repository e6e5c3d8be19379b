/* Many runs of one case with fewer or more of its rows. A run of thousands of rows writes
 * more than can be brought back and compared for each of them, so that only some rows
 * are: they are poisoned before it, and fetched after it. */
#include "kernels/selfcheck_rig.h"

#include "common/base/attr.h"
#include "common/base/mem.h"

#include <assert.h>
#include <string.h>

static uint64_t row_bytes(const struct check_rig *rig, const struct check_buffer *b)
{
	return b->stride * rig_element_bytes(rig->backend, b->type);
}

/* Room for a row of poison, whole ones after it. */
static status reserve(struct check_rig *rig, uint32_t n, struct err *err)
{
	const struct backend_ops *ops = rig->backend->ops;
	uint64_t one = 0, all = 0;
	void *pinned = NULL;
	status st;

	for (uint32_t i = 0; i < rig->c->n_buffers; i++) {
		const struct check_buffer *b = &rig->c->buffers[i];

		/* A state is also an input, which the next run would need again. */
		assert(b->role != CHECK_STATE);
		if (b->role == CHECK_OUT) {
			one = MAX(one, row_bytes(rig, b));
			all += n * row_bytes(rig, b);
		}
	}
	if (one + all <= rig->pinned_bytes)
		return ST_OK;
	rig_close_rows(rig);
	st = ops->alloc(rig->backend, MEM_PINNED, one + all, &pinned, err);
	if (st != ST_OK)
		return st;
	rig->pinned = pinned;
	rig->pinned_bytes = one + all;
	memset(rig->pinned, POISON, one + all);
	return ST_OK;
}

void rig_close_rows(struct check_rig *rig)
{
	if (rig->pinned != NULL)
		rig->backend->ops->free(rig->backend, MEM_PINNED, rig->pinned);
	rig->pinned = NULL;
	rig->pinned_bytes = 0;
}

/* Where the rows that come back begin: they stand at the end. */
static uint8_t *fetched(const struct check_rig *rig)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < rig->c->n_buffers; i++) {
		if (rig->c->buffers[i].role == CHECK_OUT)
			all += rig->rows->n * row_bytes(rig, &rig->c->buffers[i]);
	}
	return rig->pinned + (rig->pinned_bytes - all);
}

/* The rows of every output: to the device, from one row of poison, or back. */
static status move_rows(struct check_rig *rig, bool back, struct err *err)
{
	const struct rows_run *how = rig->rows;
	struct copy_piece *pieces = mem_alloc(how->n, sizeof(*pieces));
	uint8_t *to = fetched(rig);
	status st = ST_OK;

	for (uint32_t i = 0; i < rig->c->n_buffers && st == ST_OK; i++) {
		const struct check_buffer *b = &rig->c->buffers[i];
		uint64_t bytes = row_bytes(rig, b);

		if (b->role != CHECK_OUT)
			continue;
		for (uint32_t r = 0; r < how->n; r++) {
			uint8_t *at = rig->device + b->at + how->at[r] * bytes;

			pieces[r] = back ? (struct copy_piece){at, to + r * bytes, bytes}
					 : (struct copy_piece){rig->pinned, at, bytes};
		}
		st = rig->backend->ops->copy_list(rig->stream, pieces, how->n, err);
		to += how->n * bytes;
	}
	if (st == ST_OK)
		st = rig->backend->ops->stream_sync(rig->stream, err);
	mem_free(pieces);
	return st;
}

status rig_poison_rows(struct check_rig *rig, struct err *err)
{
	return move_rows(rig, false, err);
}

uint64_t selfcheck_rows_outputs(const struct check_case *c, uint32_t n)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < c->n_buffers; i++) {
		if (c->buffers[i].role == CHECK_OUT)
			all += n * c->buffers[i].stride;
	}
	return all;
}

status selfcheck_rows(struct check_rig *rig, const struct variant *v,
	const struct rows_run *how, float *out, struct err *err)
{
	uint8_t *from;
	status st = reserve(rig, how->n, err);

	if (st != ST_OK)
		return st;
	rig->rows = how;
	check_set_rows(rig->c, how->count);
	st = rig_poison_rows(rig, err);
	if (st == ST_OK)
		st = rig_launch(rig, v, how->graph, err);
	if (st == ST_OK)
		st = move_rows(rig, true, err);
	from = fetched(rig);
	for (uint32_t i = 0; i < rig->c->n_buffers && st == ST_OK; i++) {
		const struct check_buffer *b = &rig->c->buffers[i];

		if (b->role != CHECK_OUT)
			continue;
		rig_decode(rig, b, from, how->n * b->stride, out);
		from += how->n * row_bytes(rig, b);
		out += how->n * b->stride;
	}
	rig->rows = NULL;
	return st;
}
