/* The importer: its table of pulls and what the worker calls. Pulls end in one place,
 * the turn hook, so done is never called from inside a call of the worker's own. */
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/xfer/importer_impl.h"
#include <assert.h>
#include <inttypes.h>
#include <string.h>

static bool is_mapped(const struct importer *m, const struct peer_down *d)
{
	for (uint32_t i = 0; i < IMPORTER_PEERS_MAX; i++) {
		const struct peer *p = &m->peers[i];

		if (p->state != PEER_UNUSED && p->incarnation == d->incarnation &&
			strcmp(p->id, d->id) == 0)
			return true;
	}
	return false;
}

/* Those who wait for the end of an incarnation of which nothing is left. */
static void tell_gone(struct importer *m)
{
	list_each (d, &m->downs, struct peer_down, node) {
		if (is_mapped(m, d))
			continue;
		list_remove(&d->node);
		d->gone(d->ctx, d->id, d->incarnation);
		mem_give(d);
	}
}

static void on_turn(void *ctx)
{
	struct importer *m = ctx;

	for (uint32_t i = 0; i < IMPORTER_PULLS_MAX && m->n_ended > 0; i++)
		if (m->pulls[i].state == PULL_ENDED)
			pull_deliver(&m->pulls[i]);
	tell_gone(m);
}

status importer_create(
	struct importer **out, const struct xfer_side *side, struct err *err)
{
	struct importer *m;
	status st = transport_check(side->transport, NULL, err);

	if (st != ST_OK)
		return st;
	assert(side->n_ranks == side->layout.ranks);
	m = mem_alloc(1, sizeof(*m));
	m->side = *side;
	if (m->side.timeout_ms == 0)
		m->side.timeout_ms = XFER_TIMEOUT_MS;
	m->compat_hash = layout_compat_hash(&side->layout);
	for (uint32_t i = 0; i < IMPORTER_PEERS_MAX; i++)
		m->peers[i].importer = m;
	for (uint32_t i = 0; i < IMPORTER_PULLS_MAX; i++)
		m->pulls[i].importer = m;
	loop_on_turn(side->loop, on_turn, m);
	*out = m;
	return ST_OK;
}

void importer_destroy(struct importer *m)
{
	if (m == NULL)
		return;
	m->closing = true;
	for (uint32_t i = 0; i < IMPORTER_PULLS_MAX; i++)
		pull_abandon(&m->pulls[i]);
	for (uint32_t i = 0; i < IMPORTER_PEERS_MAX; i++)
		peer_close(&m->peers[i]);
	tell_gone(m);
	loop_off_turn(m->side.loop, on_turn, m);
	mem_free(m);
}

static status check_pull(const struct importer *m, const struct pull *p, struct err *err)
{
	if (m->closing)
		return err_set(err, ST_CANCELLED, "this worker stops importing");
	if ((uint64_t)p->n_before + p->n_pages != CEIL_DIV(p->n_tokens, PAGE_TOKENS))
		return err_set(err, ST_INVALID,
			"a pull of %u tokens names %u pages behind %u, not %u in all",
			p->n_tokens, p->n_pages, p->n_before,
			CEIL_DIV(p->n_tokens, PAGE_TOKENS));
	if (p->digest && p->n_before > 0)
		return err_set(err, ST_INVALID,
			"a digest of a state whose first %u pages are not pulled",
			p->n_before);
	for (uint32_t i = 0; i < IMPORTER_PULLS_MAX; i++) {
		const struct import_pull *o = &m->pulls[i];

		if (o->state == PULL_UNUSED || o->what.lease != p->lease ||
			o->peer == NULL || o->peer->incarnation != p->incarnation ||
			strcmp(o->peer->id, p->worker_id) != 0)
			continue;
		/* Two claims for one lease could not be told apart by their answers. */
		if (o->state != PULL_ENDED && o->state != PULL_RETURNING)
			return err_set(err, ST_INVALID,
				"lease %" PRIu64 " of %s is being pulled already",
				p->lease, p->worker_id);
		if (o->claim_unanswered)
			return err_set(err, ST_LIMIT,
				"lease %" PRIu64 " of %s is still being given back",
				p->lease, p->worker_id);
	}
	return ST_OK;
}

static struct import_pull *unused_pull(struct importer *m)
{
	for (uint32_t i = 0; i < IMPORTER_PULLS_MAX; i++)
		if (m->pulls[i].state == PULL_UNUSED)
			return &m->pulls[i];
	return NULL;
}

static status copy_request(
	struct import_pull *p, const struct pull *what, struct err *err)
{
	size_t bytes = what->n_pages * sizeof(*p->pages);

	p->pages = mem_take(MAX(2 * (size_t)what->n_pages, 1u), sizeof(*p->pages));
	if (p->pages == NULL)
		return err_set(err, ST_LIMIT, "no request memory for a pull of %u pages",
			what->n_pages);
	if (bytes > 0) {
		memcpy(p->pages, what->src_pages, bytes);
		memcpy(p->pages + what->n_pages, what->dst_pages, bytes);
	}
	p->what = *what;
	p->what.src_pages = p->pages;
	p->what.dst_pages = p->pages + what->n_pages;
	p->what.link_path = p->what.worker_id = NULL;
	return ST_OK;
}

status importer_pull(struct importer *m, const struct pull *what,
	void (*done)(void *ctx, const struct pull_result *r), void *ctx, uint64_t *handle,
	struct err *err)
{
	struct import_pull *p = unused_pull(m);
	struct peer *peer = peer_find(m, what->worker_id, what->incarnation);
	status st = check_pull(m, what, err);

	if (st != ST_OK)
		return st;
	if (p == NULL)
		return err_set(
			err, ST_LIMIT, "%u pulls are under way", IMPORTER_PULLS_MAX);
	*p = (struct import_pull){.importer = m, .done = done, .ctx = ctx};
	st = copy_request(p, what, err);
	if (st == ST_OK && peer == NULL)
		st = peer_start(m, what, &peer, err);
	if (st != ST_OK) {
		mem_give(p->pages);
		*p = (struct import_pull){.importer = m};
		return st;
	}
	pull_begin(p, peer);
	p->handle = *handle = ++m->last_handle;
	return ST_OK;
}

void importer_cancel(struct importer *m, uint64_t handle)
{
	struct err why;

	(void)err_set(&why, ST_CANCELLED, "the pull was cancelled");
	for (uint32_t i = 0; i < IMPORTER_PULLS_MAX; i++)
		if (m->pulls[i].state != PULL_UNUSED && m->pulls[i].handle == handle)
			pull_stop(&m->pulls[i], &why);
}

void importer_peer_down(struct importer *m, const char *worker_id, uint64_t incarnation,
	void (*gone)(void *ctx, const char *worker_id, uint64_t incarnation), void *ctx)
{
	struct peer *peer = peer_find(m, worker_id, incarnation);
	struct peer_down *d = mem_take(1, sizeof(*d));
	struct err why;

	if (d == NULL) {
		log_error("peer_down of %s: no request memory to acknowledge it",
			worker_id);
	} else {
		(void)snprintf(d->id, sizeof(d->id), "%s", worker_id);
		d->incarnation = incarnation;
		d->gone = gone;
		d->ctx = ctx;
		list_add(&m->downs, &d->node);
		loop_keep_awake(m->side.loop);
	}
	if (peer != NULL) {
		(void)err_set(&why, ST_PEER,
			"incarnation %016" PRIx64 " was declared lost", incarnation);
		peer_end(peer, &why);
	}
}

uint32_t importer_peers(const struct importer *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < IMPORTER_PEERS_MAX; i++)
		n += m->peers[i].state != PEER_UNUSED;
	return n;
}

uint32_t importer_pulls(const struct importer *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < IMPORTER_PULLS_MAX; i++)
		n += m->pulls[i].state != PULL_UNUSED &&
		     m->pulls[i].state != PULL_RETURNING;
	return n;
}
