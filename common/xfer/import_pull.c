/* One pull: claim, copy, verify, done. See the diagram in importer_impl.h. */
#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/xfer/importer_impl.h"
#include <assert.h>
#include <inttypes.h>

/* With a digest the exporter reads the state before it answers; no device is slower. */
#define DIGEST_BYTES_PER_MS UINT64_C(500000)

static const uint8_t may_follow[PULL__STATES] = {
	[PULL_UNUSED] = MAY(PULL_WAITING),
	[PULL_WAITING] = MAY(PULL_HELD) | MAY(PULL_ENDED),
	[PULL_HELD] = MAY(PULL_CLAIMING) | MAY(PULL_ENDED),
	[PULL_CLAIMING] = MAY(PULL_COPYING) | MAY(PULL_ENDED),
	[PULL_COPYING] = MAY(PULL_VERIFYING) | MAY(PULL_ENDED),
	[PULL_VERIFYING] = MAY(PULL_ENDED),
	[PULL_ENDED] = MAY(PULL_UNUSED) | MAY(PULL_RETURNING),
	[PULL_RETURNING] = MAY(PULL_UNUSED),
};

/* What holds of a pull in each state. */
static void check(const struct import_pull *p)
{
	bool works = p->state == PULL_COPYING || p->state == PULL_VERIFYING;

	assert(!works || p->copies != NULL);
	/* What is complete is verified also when its source is gone. */
	assert(!works || p->claim_held || p->peer == NULL);
	assert(!p->claim_held || works);
	assert(!p->task_runs || works);
	assert((p->state == PULL_CLAIMING || p->state == PULL_RETURNING)
			? p->claim_unanswered
			: !p->claim_unanswered || p->state == PULL_ENDED);
	assert((p->pages != NULL) ==
		(p->state != PULL_UNUSED && p->state != PULL_RETURNING));
	assert(p->peer != NULL || works || p->state == PULL_UNUSED ||
		p->state == PULL_ENDED);
}

static void set_state(struct import_pull *p, enum pull_state state)
{
	assert((may_follow[p->state] & MAY(state)) != 0);
	p->state = state;
	check(p);
}

static void send_done(struct import_pull *p, bool ok)
{
	struct msg_done done = {.lease = p->what.lease, .ok = ok};

	if (p->claim_held && p->peer != NULL)
		link_send(p->peer->link, MSG_done, &done, -1);
	p->claim_held = false;
}

/* Nothing of it runs any more. */
static void finish(struct import_pull *p)
{
	struct pull_result *r = &p->result;

	loop_timer_stop(&p->timer);
	send_done(p, r->code == ST_OK);
	copy_release(p);
	set_state(p, PULL_ENDED);
	p->importer->n_ended++;
	/* The importer's turn hook may have passed it already in this turn. */
	loop_keep_awake(p->importer->side.loop);
}

void pull_stop(struct import_pull *p, const struct err *why)
{
	if (p->state == PULL_UNUSED || p->state == PULL_ENDED ||
		p->state == PULL_RETURNING || p->stopping)
		return;
	p->result.code = why->code;
	p->result.err = *why;
	p->stopping = true;
	copy_cancel(p);
	if (!p->task_runs)
		finish(p);
}

static void succeed(struct import_pull *p)
{
	p->result.code = ST_OK;
	finish(p);
}

static void on_claim_timeout(void *ctx)
{
	struct import_pull *p = ctx;
	struct err err;

	(void)err_set(&err, ST_PEER,
		"%s did not answer the claim of lease %" PRIu64 " in time", p->peer->id,
		p->what.lease);
	pull_stop(p, &err);
}

static uint64_t claim_timeout_ms(const struct import_pull *p)
{
	const struct layout *l = &p->importer->side.layout;

	if (!p->what.digest)
		return p->importer->side.timeout_ms;
	return p->importer->side.timeout_ms +
	       l->ranks * (p->what.n_pages * l->page_bytes + l->slot_bytes) /
		       DIGEST_BYTES_PER_MS;
}

static void claim(void *ctx)
{
	struct import_pull *p = ctx;
	struct msg_claim m = {.lease = p->what.lease,
		.n_tokens = p->what.n_tokens,
		.digest = p->what.digest,
		.has_digest = p->what.digest};

	if (fault_paused(FAULT_claim)) {
		loop_timer_start(
			p->importer->side.loop, &p->timer, RETRY_MS, 0, claim, p);
		return;
	}
	p->claim_unanswered = true;
	set_state(p, PULL_CLAIMING);
	link_send(p->peer->link, MSG_claim, &m, -1);
	loop_timer_wait(p->importer->side.loop, &p->timer, claim_timeout_ms(p),
		on_claim_timeout, p);
}

void pull_peer_ready(struct import_pull *p)
{
	assert(p->state == PULL_WAITING);
	p->result.transport = p->peer->transport->name;
	if (p->peer->transport->method != NULL)
		p->result.copy = p->peer->transport->method(p->peer->map);
	set_state(p, PULL_HELD);
	claim(p);
}

void pull_begin(struct import_pull *p, struct peer *peer)
{
	p->peer = peer;
	set_state(p, PULL_WAITING);
	if (peer->state == PEER_READY)
		pull_peer_ready(p);
}

static status make_plan(struct import_pull *p, struct err *err)
{
	const struct layout *src = &p->peer->arenas.layout;
	const struct layout *dst = &p->importer->side.layout;
	struct plan_refs from = {.pages = p->what.src_pages,
		.n_pages = p->what.n_pages,
		.slot = p->what.src_slot,
		.arena_pages = p->peer->arenas.pages};
	struct plan_refs to = {.pages = p->what.dst_pages,
		.n_pages = p->what.n_pages,
		.slot = p->what.dst_slot,
		.arena_pages = p->importer->side.arena_pages};
	uint64_t max = plan_copies_max(src, dst, p->what.n_pages, p->what.dst_slot != 0);

	if (p->what.src_slot >= p->peer->arenas.slots ||
		p->what.dst_slot >= p->importer->side.arena_slots)
		return err_set(err, ST_INVALID,
			"slot %u of %s into slot %u: the arenas have %" PRIu64
			" and %" PRIu64 " slots",
			p->what.src_slot, p->peer->id, p->what.dst_slot,
			p->peer->arenas.slots, p->importer->side.arena_slots);
	p->copies = mem_take(MAX(max, UINT64_C(1)), sizeof(*p->copies));
	if (p->copies == NULL)
		return err_set(err, ST_LIMIT,
			"no request memory for a plan of %" PRIu64 " copies", max);
	return plan_build(src, &from, dst, &to, p->copies, max, &p->n_copies, err);
}

static void step(struct import_pull *p);

static void on_pull_paused(void *ctx)
{
	step(ctx);
}

/* One item of copying, or what follows the last. */
static void step(struct import_pull *p)
{
	struct err err;
	status st;

	if (!copy_all_done(p)) {
		if (fault_paused(FAULT_pull)) {
			loop_timer_start(p->importer->side.loop, &p->timer, RETRY_MS, 0,
				on_pull_paused, p);
			return;
		}
		st = copy_next(p, &err);
	} else if (p->what.digest && p->state == PULL_COPYING) {
		set_state(p, PULL_VERIFYING);
		st = copy_verify(p, &err);
	} else {
		succeed(p);
		return;
	}
	if (st != ST_OK)
		pull_stop(p, &err);
}

void pull_resume(struct import_pull *p)
{
	if (p->state == PULL_COPYING && !p->stopping && !p->task_runs &&
		!copy_all_done(p) && !loop_timer_running(&p->timer))
		step(p);
}

void pull_task_over(struct import_pull *p, status st, const struct err *err)
{
	struct err lost;

	if (st != ST_OK)
		xfer_failed(&p->importer->side, err);
	if (p->stopping) {
		finish(p);
		return;
	}
	if (st != ST_OK) {
		pull_stop(p, err);
		return;
	}
	/* The peer died while the item was copied: what is complete counts. */
	if (p->peer == NULL && !copy_all_done(p)) {
		(void)err_set(&lost, ST_PEER, "%s", p->result.err.text);
		pull_stop(p, &lost);
		return;
	}
	step(p);
}

static status begin_copy(
	struct import_pull *p, const struct msg_claimed *m, struct err *err)
{
	status st;

	if (p->what.digest && !m->has_digest)
		return err_set(err, ST_INVALID,
			"%s granted lease %" PRIu64
			" without the digest that was asked for",
			p->peer->id, p->what.lease);
	p->digest = m->digest;
	st = make_plan(p, err);
	if (st == ST_OK) {
		set_state(p, PULL_COPYING);
		step(p);
	}
	return st;
}

void pull_claimed(struct import_pull *p, const struct msg_claimed *m)
{
	struct err why;

	assert(p->claim_unanswered);
	p->claim_unanswered = false;
	p->claim_held = m->ok != 0;
	if (p->state == PULL_RETURNING || p->state == PULL_ENDED) {
		send_done(p, false);
		if (p->state == PULL_RETURNING)
			set_state(p, PULL_UNUSED);
		return;
	}
	loop_timer_stop(&p->timer);
	if (!p->claim_held) {
		(void)err_set(&why, ST_INVALID, "%s: %.*s", p->peer->id, (int)m->text.len,
			(const char *)m->text.at);
		p->result.refused = true;
		pull_stop(p, &why);
	} else if (begin_copy(p, m, &why) != ST_OK) {
		pull_stop(p, &why);
	}
}

void pull_peer_ended(struct import_pull *p, const struct err *why)
{
	p->peer = NULL;
	p->claim_unanswered = false;
	p->claim_held = false;
	if (p->state == PULL_RETURNING) {
		set_state(p, PULL_UNUSED);
		return;
	}
	/* A state that is complete needs its source no more; whether this one is, shows
	 * when the task is over. */
	if (!p->task_runs)
		pull_stop(p, why);
	else if (!p->stopping)
		p->result.err = *why;
}

static void forget(struct import_pull *p)
{
	mem_give(p->pages);
	p->pages = NULL;
	if (p->claim_unanswered)
		set_state(p, PULL_RETURNING);
	else
		set_state(p, PULL_UNUSED);
}

void pull_deliver(struct import_pull *p)
{
	struct pull_result result = p->result;
	void (*done)(void *ctx, const struct pull_result *r) = p->done;
	void *ctx = p->ctx;

	assert(p->state == PULL_ENDED);
	p->importer->n_ended--;
	if (result.code == ST_OK)
		result.err = (struct err){0};
	forget(p);
	done(ctx, &result);
}

void pull_abandon(struct import_pull *p)
{
	if (p->state == PULL_UNUSED || p->state == PULL_RETURNING)
		return;
	copy_release(p); /* waits for the pool */
	if (p->state != PULL_ENDED) {
		p->result.code = err_set(
			&p->result.err, ST_CANCELLED, "this worker stops importing");
		finish(p);
	}
	p->claim_unanswered = false;
	pull_deliver(p);
}
