/* What importers ask of an exporter: open, claim, done. */
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/xfer/digest.h"
#include "common/xfer/exporter_impl.h"
#include "common/xfer/task.h"
#include "common/xfer/xfer_transport.h"
#include <inttypes.h>
#include <string.h>

struct export_digest {
	struct task task; /* first */
	struct exporter *exporter;
	struct list_node node; /* of exporter.digests */
	uint64_t link, lease;
	status code;
	uint64_t digest;
	struct err err;
	struct plan_refs refs;
	uint32_t pages[];
};

static void answer_claim(struct export_link *e, uint64_t lease, const struct err *why_not,
	const uint64_t *digest)
{
	struct msg_claimed claimed = {.lease = lease, .ok = why_not == NULL};

	if (why_not != NULL) {
		claimed.text = bytes_of_str(why_not->text);
		claimed.has_text = true;
	}
	if (digest != NULL) {
		claimed.digest = *digest;
		claimed.has_digest = true;
	}
	link_send(e->link, MSG_claimed, &claimed, -1);
}

static void run_digest(struct task *t)
{
	struct export_digest *d = (struct export_digest *)t;

	d->code = digest_compute(
		&d->exporter->side, &d->refs, 0, &t->cancel, &d->digest, &d->err);
}

static void digest_done(struct task *t)
{
	struct export_digest *d = (struct export_digest *)t;
	struct exporter *x = d->exporter;
	struct export_link *e = exporter_link_find(x, d->link);
	struct err err;

	list_remove(&d->node);
	if (d->code != ST_OK)
		xfer_failed(&x->side, &d->err);
	if (e != NULL && d->code == ST_OK) {
		answer_claim(e, d->lease, NULL, &d->digest);
	} else if (e != NULL) {
		answer_claim(e, d->lease, &d->err, NULL);
		if (lease_unclaim(x->leases, d->lease, d->link, x->lease_ns, &err) !=
			ST_OK)
			log_error("%s", err.text);
	}
	mem_give(d);
}

static status start_digest(struct export_link *e, const struct lease *l, struct err *err)
{
	struct exporter *x = e->exporter;
	struct export_digest *d =
		mem_take(1, sizeof(*d) + l->n_pages * sizeof(d->pages[0]));

	if (d == NULL)
		return err_set(err, ST_LIMIT, "no request memory for a digest");
	d->task.run = run_digest;
	d->task.done = digest_done;
	d->exporter = x;
	d->link = e->id;
	d->lease = l->generation;
	memcpy(d->pages, l->pages, l->n_pages * sizeof(d->pages[0]));
	d->refs = (struct plan_refs){.pages = d->pages,
		.n_pages = l->n_pages,
		.slot = l->slot,
		.arena_pages = x->side.arena_pages};
	if (task_start(x->side.loop, &d->task) != ST_OK) {
		mem_give(d);
		return err_set(err, ST_LIMIT, "no request memory to start a digest");
	}
	list_add(&x->digests, &d->node);
	return ST_OK;
}

void export_digest_cancel(struct exporter *x, uint64_t link)
{
	list_each (d, &x->digests, struct export_digest, node)
		if (d->link == link)
			atomic_store(&d->task.cancel, true);
}

void export_digest_abandon(struct exporter *x)
{
	list_each (d, &x->digests, struct export_digest, node) {
		list_remove(&d->node);
		task_abandon(&d->task);
	}
}

static void send_arenas(struct export_link *e)
{
	struct exporter *x = e->exporter;
	uint8_t record[LAYOUT_RECORD_BYTES];

	layout_put(&x->side.layout, record);
	for (uint32_t r = 0; r < x->side.n_ranks; r++) {
		const struct arena_ticket *t = &x->ticket[r];
		struct msg_arena arena = {
			.rank = r,
			.ranks = x->side.n_ranks,
			.kind = t->kind,
			.bytes = t->bytes,
			.pages = x->side.arena_pages,
			.slots = x->side.arena_slots,
			.layout = {record, sizeof(record)},
			.device_uuid = bytes_of_str(x->side.backend[r]->uuid),
			.pid_ns = xfer_pid_ns(),
			.has_pid_ns = true,
		};

		if (t->fd < 0) {
			arena.blob = (struct bytes){t->blob, sizeof(t->blob)};
			arena.has_blob = true;
		}
		link_send(e->link, MSG_arena, &arena, t->fd);
	}
}

static status on_open(void *ctx, const void *msg, int *fd, struct err *err)
{
	const struct msg_open *m = msg;
	struct export_link *e = ctx;
	struct exporter *x = e->exporter;
	uint64_t ours = layout_compat_hash(&x->side.layout);

	(void)fd;
	if (e->opened)
		return err_set(err, ST_INVALID, "open came twice");
	(void)snprintf(e->peer_id, sizeof(e->peer_id), "%.*s", (int)m->id.len,
		(const char *)m->id.at);
	e->peer_incarnation = m->incarnation;
	if (m->source_incarnation != x->side.incarnation)
		return err_set(err, ST_INVALID,
			"%s is incarnation %016" PRIx64
			", the importer wants %016" PRIx64,
			x->side.id, x->side.incarnation, m->source_incarnation);
	if (m->compat_hash != ours)
		return err_set(err, ST_INVALID,
			"layout of %s is %016" PRIx64 ", the importer's is %016" PRIx64,
			x->side.id, ours, m->compat_hash);
	e->opened = true;
	loop_timer_stop(&e->open_timeout);
	log_info("link=%" PRIu64 " importer=%s incarnation=%016" PRIx64 " opened", e->id,
		e->peer_id, e->peer_incarnation);
	send_arenas(e);
	return ST_OK;
}

static status on_claim(void *ctx, const void *msg, int *fd, struct err *err)
{
	const struct msg_claim *m = msg;
	struct export_link *e = ctx;
	struct exporter *x = e->exporter;
	struct lease *l = NULL;
	struct err why;

	(void)fd;
	if (!e->opened)
		return err_set(err, ST_INVALID, "claim came before open");
	if (lease_claim(x->leases, m->lease, e->id, (uint32_t)m->n_tokens, &l, &why) !=
		ST_OK) {
		answer_claim(e, m->lease, &why, NULL);
		return ST_OK;
	}
	if (!m->has_digest || m->digest == 0) {
		answer_claim(e, m->lease, NULL, NULL);
		return ST_OK;
	}
	if (start_digest(e, l, &why) == ST_OK)
		return ST_OK;
	answer_claim(e, m->lease, &why, NULL);
	return lease_unclaim(x->leases, m->lease, e->id, x->lease_ns, err);
}

static status on_done(void *ctx, const void *msg, int *fd, struct err *err)
{
	const struct msg_done *m = msg;
	struct export_link *e = ctx;
	struct exporter *x = e->exporter;

	(void)fd;
	if (m->ok != 0)
		return lease_done(x->leases, m->lease, e->id, err);
	return lease_unclaim(x->leases, m->lease, e->id, x->lease_ns, err);
}

static status on_stage(void *ctx, const void *msg, int *fd, struct err *err)
{
	return export_stage_open(ctx, msg, fd, err);
}

static status on_fetch(void *ctx, const void *msg, int *fd, struct err *err)
{
	(void)fd;
	return export_stage_fetch(ctx, msg, err);
}

static void on_end(void *ctx, const struct err *why)
{
	exporter_link_end(ctx, why);
}

/* A descriptor that nobody takes ends the link. */
static const struct link_handler handlers[] = {
	{MSG_open, on_open},
	{MSG_claim, on_claim},
	{MSG_done, on_done},
	{MSG_stage, on_stage},
	{MSG_fetch, on_fetch},
};

const struct link_events exporter_link_events = {handlers, COUNT(handlers), on_end};
