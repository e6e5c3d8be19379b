/* The work of a pull on the pool. A pull has one task, which copies one work item at a
 * time: the pool serves first come, first served, so concurrent pulls take turns, and a
 * cancel is seen after an item at the latest. */
#include "common/base/clock.h"
#include "common/base/fault.h"
#include "common/base/mem.h"
#include "common/xfer/digest.h"
#include "common/xfer/importer_impl.h"
#include <assert.h>
#include <inttypes.h>

#define ITEM_PIECES 256u
_Static_assert(STAGE_PIECES_MAX <= ITEM_PIECES, "a buffer is one item");

struct import_task {
	struct task task; /* first */
	struct import_pull *pull;
	struct peer *peer;
	const struct xfer_side *side;
	const struct transport_ops *transport;
	struct xfer_map *map;
	struct plan_copy pieces[ITEM_PIECES];
	uint32_t n;
	uint32_t buffer; /* staged */
	/* For the digest. */
	struct plan_refs refs;
	uint64_t want;
	/* What came of it. */
	status code;
	struct err err;
	uint64_t ns;
};

bool copy_all_done(const struct import_pull *p)
{
	return p->copies != NULL && p->at == p->n_copies;
}

static void run_copy(struct task *t)
{
	struct import_task *it = (struct import_task *)t;
	uint64_t began = clock_ns();

	if (atomic_load(&t->cancel))
		it->code = err_set(&it->err, ST_CANCELLED, "the copy was cancelled");
	else if (fault_strikes(FAULT_fail_copy))
		it->code = err_set(&it->err, ST_DEVICE, "debug_fault: fail_copy");
	else
		it->code = it->transport->copy(it->map, it->pieces, it->n, &it->err);
	it->ns = clock_ns() - began;
}

static void run_verify(struct task *t)
{
	struct import_task *it = (struct import_task *)t;
	uint32_t n = digest_variants(&it->side->layout);

	it->code = ST_OK;
	for (uint32_t i = 0; i < n && it->code == ST_OK; i++) {
		uint64_t got = 0;

		it->code = digest_compute(
			it->side, &it->refs, i, &t->cancel, &got, &it->err);
		if (it->code == ST_OK && got != it->want)
			it->code = err_set(&it->err, ST_INVALID,
				"digest of the pulled state (replica %u of %u) is "
				"%016" PRIx64 ", the source's is %016" PRIx64,
				i, n, got, it->want);
	}
}

static void verify_done(struct task *t)
{
	struct import_task *it = (struct import_task *)t;

	it->pull->task_runs = false;
	pull_task_over(it->pull, it->code, &it->err);
}

static void copy_done(struct task *t)
{
	struct import_task *it = (struct import_task *)t;
	struct import_pull *p = it->pull;
	struct peer *peer = it->peer;

	p->task_runs = false;
	stage_copied(peer, it->buffer);
	if (it->code == ST_OK) {
		p->result.bytes += plan_bytes(it->pieces, it->n);
		p->result.copy_ns += it->ns;
		for (uint32_t i = 0; i < it->n; i++) {
			p->at_bytes += it->pieces[i].bytes;
			if (p->at_bytes == p->copies[p->at].bytes) {
				p->at++;
				p->at_bytes = 0;
			}
		}
	}
	pull_task_over(p, it->code, &it->err);
	peer_copy_over(peer); /* last: the map may close */
}

static struct import_task *task_of(struct import_pull *p)
{
	if (p->task == NULL)
		p->task = mem_take(1, sizeof(*p->task));
	if (p->task == NULL)
		return NULL;
	p->task->pull = p;
	p->task->side = &p->importer->side;
	return p->task;
}

/* From where the pull stands, up to an item's bytes. */
static void fill_item(struct import_task *it, const struct import_pull *p)
{
	uint64_t room = it->transport->item_bytes, skip = p->at_bytes;

	it->n = 0;
	for (uint64_t i = p->at; i < p->n_copies && it->n < ITEM_PIECES && room > 0;
		i++) {
		struct plan_copy c = p->copies[i];

		c.src_offset += skip;
		c.dst_offset += skip;
		c.bytes = MIN(c.bytes - skip, room);
		room -= c.bytes;
		skip = 0;
		it->pieces[it->n++] = c;
	}
}

static status start(struct import_pull *p, struct import_task *it, struct err *err)
{
	atomic_store(&it->task.cancel, false);
	if (task_start(p->importer->side.loop, &it->task) != ST_OK)
		return err_set(err, ST_LIMIT, "no request memory to start copying");
	p->task_runs = true;
	return ST_OK;
}

status copy_next(struct import_pull *p, struct err *err)
{
	struct import_task *it = task_of(p);
	status st;

	assert(!p->task_runs && !copy_all_done(p));
	if (it == NULL)
		return err_set(err, ST_LIMIT, "no request memory for copying");
	it->peer = p->peer;
	it->transport = p->peer->transport;
	it->map = p->peer->map;
	it->task.run = run_copy;
	it->task.done = copy_done;
	if (p->peer->stage == NULL)
		fill_item(it, p);
	else
		it->n = stage_next(p, it->pieces, &it->buffer);
	if (it->n == 0)
		return ST_OK;
	st = start(p, it, err);
	if (st == ST_OK)
		p->peer->n_copies++;
	else
		stage_copied(p->peer, it->buffer);
	return st;
}

status copy_verify(struct import_pull *p, struct err *err)
{
	struct import_task *it = task_of(p);

	assert(!p->task_runs);
	if (it == NULL)
		return err_set(err, ST_LIMIT, "no request memory for a digest");
	it->refs = (struct plan_refs){.pages = p->what.dst_pages,
		.n_pages = p->what.n_pages,
		.slot = p->what.dst_slot,
		.arena_pages = p->importer->side.arena_pages};
	it->want = p->digest;
	it->task.run = run_verify;
	it->task.done = verify_done;
	return start(p, it, err);
}

void copy_cancel(struct import_pull *p)
{
	if (p->task_runs)
		atomic_store(&p->task->task.cancel, true);
}

void copy_release(struct import_pull *p)
{
	if (p->task != NULL)
		task_abandon(&p->task->task);
	p->task = NULL;
	p->task_runs = false;
	stage_pull_ended(p);
	mem_give(p->copies);
	p->copies = NULL;
}
