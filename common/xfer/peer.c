/* One exporter incarnation: connect, open, tickets, map; and its end. */
#include "common/base/log.h"
#include "common/xfer/importer_impl.h"
#include "common/xfer/link_socket.h"
#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static const uint8_t may_follow[PEER__STATES] = {
	[PEER_UNUSED] = MAY(PEER_CONNECTING),
	[PEER_CONNECTING] = MAY(PEER_OPENING) | MAY(PEER_ENDED),
	[PEER_OPENING] = MAY(PEER_READY) | MAY(PEER_ENDED),
	[PEER_READY] = MAY(PEER_ENDED),
	[PEER_ENDED] = MAY(PEER_UNUSED),
};

/* What holds of a peer in each state. */
static void check(const struct peer *p)
{
	bool linked = p->state == PEER_OPENING || p->state == PEER_READY;
	bool ready = p->state == PEER_READY;

	assert((p->link != NULL) == linked);
	assert(p->n_copies == 0 || ready || p->state == PEER_ENDED);
	assert(p->map == NULL || ready || p->state == PEER_ENDED);
	assert(!ready || (p->map != NULL && p->transport != NULL));
	assert((p->stage != NULL) == (ready && p->transport->room != NULL));
	assert(loop_timer_running(&p->deadline) ==
		(p->state == PEER_CONNECTING || p->state == PEER_OPENING));
	assert(!loop_timer_running(&p->retry) || p->state == PEER_CONNECTING);
}

static void set_state(struct peer *p, enum peer_state state)
{
	assert((may_follow[p->state] & MAY(state)) != 0);
	p->state = state;
	check(p);
}

struct peer *peer_find(struct importer *m, const char *id, uint64_t incarnation)
{
	for (uint32_t i = 0; i < IMPORTER_PEERS_MAX; i++) {
		struct peer *p = &m->peers[i];

		if (p->state != PEER_UNUSED && p->state != PEER_ENDED &&
			p->incarnation == incarnation && strcmp(p->id, id) == 0)
			return p;
	}
	return NULL;
}

static void close_tickets(struct peer *peer)
{
	for (uint32_t r = 0; r < RANKS_MAX; r++) {
		struct arena_ticket *t = &peer->arenas.ticket[r];

		if ((peer->tickets & 1u << r) != 0 && t->fd >= 0)
			close(t->fd);
		t->fd = -1;
	}
}

/* Nothing of it is used any more. */
static void forget(struct peer *peer)
{
	struct importer *m = peer->importer;

	if (peer->map != NULL)
		transport_close(peer->transport, &m->side, peer->map);
	*peer = (struct peer){.importer = m, .state = peer->state};
	set_state(peer, PEER_UNUSED);
}

static void unmap_when_idle(struct peer *peer)
{
	struct importer *m = peer->importer;

	if (peer->state != PEER_ENDED || peer->n_copies > 0)
		return;
	forget(peer);
	loop_keep_awake(m->side.loop); /* whoever waits for it is told in the turn */
}

void peer_copy_over(struct peer *peer)
{
	assert(peer->n_copies > 0);
	peer->n_copies--;
	unmap_when_idle(peer);
}

static void stop_contact(struct peer *peer)
{
	loop_timer_stop(&peer->retry);
	loop_timer_stop(&peer->deadline);
	close_tickets(peer);
	stage_close(peer);
	link_destroy(peer->link);
	peer->link = NULL;
	set_state(peer, PEER_ENDED);
}

void peer_end(struct peer *peer, const struct err *why)
{
	struct importer *m = peer->importer;
	struct err told = peer->denied.code != ST_OK ? peer->denied : *why;

	xfer_failed(&m->side, why);
	(void)err_wrap(&told, "link to %s", peer->id);
	if (told.code == ST_PEER)
		log_info("%s", told.text);
	else
		log_warn("%s", told.text);
	/* To a pull every end of the link is the loss of the peer, but what it has
	 * refused it will refuse again. */
	told.code = peer->denied.code != ST_OK || why->code == ST_INVALID ? ST_INVALID
									  : ST_PEER;
	stop_contact(peer);
	for (uint32_t i = 0; i < IMPORTER_PULLS_MAX; i++)
		if (m->pulls[i].state != PULL_UNUSED && m->pulls[i].peer == peer)
			pull_peer_ended(&m->pulls[i], &told);
	unmap_when_idle(peer);
}

void peer_close(struct peer *peer)
{
	if (peer->state == PEER_UNUSED)
		return;
	if (peer->state != PEER_ENDED)
		stop_contact(peer);
	forget(peer);
}

static void on_deadline(void *ctx)
{
	struct peer *peer = ctx;
	struct err err;

	if (peer->state == PEER_CONNECTING)
		(void)err_set(&err, ST_PEER, "not within %u ms: %s",
			peer->importer->side.timeout_ms, peer->waits.text);
	else
		(void)err_set(&err, ST_PEER, "no arenas came within %u ms",
			peer->importer->side.timeout_ms);
	peer_end(peer, &err);
}

/* Everything that the plan and the transport rely on. */
static status check_arena(struct peer *peer, const struct msg_arena *m,
	const struct layout *l, int fd, struct err *err)
{
	struct importer *im = peer->importer;
	uint64_t hash = layout_compat_hash(l), size;

	if (hash != im->compat_hash)
		return err_set(err, ST_INVALID,
			"its layout is %016" PRIx64 ", ours is %016" PRIx64, hash,
			im->compat_hash);
	if (m->ranks != l->ranks || m->rank >= l->ranks)
		return err_set(err, ST_INVALID,
			"arena of rank %" PRIu64 " of %" PRIu64
			", its layout has %u ranks",
			m->rank, m->ranks, l->ranks);
	if ((peer->tickets & 1u << m->rank) != 0)
		return err_set(
			err, ST_INVALID, "arena of rank %" PRIu64 " came twice", m->rank);
	if (peer->tickets != 0 &&
		(memcmp(l, &peer->arenas.layout, sizeof(*l)) != 0 ||
			m->pages != peer->arenas.pages || m->slots != peer->arenas.slots))
		return err_set(err, ST_INVALID,
			"arena of rank %" PRIu64 " differs from the others", m->rank);
	if (m->pages > UINT64_MAX / 4 / l->page_bytes ||
		m->slots > UINT64_MAX / 4 / l->slot_bytes)
		return err_set(err, ST_INVALID,
			"an arena of %" PRIu64 " pages and %" PRIu64 " slots", m->pages,
			m->slots);
	size = layout_arena_bytes(l, m->pages, m->slots);
	if (m->bytes != size)
		return err_set(err, ST_INVALID,
			"an arena of %" PRIu64 " bytes; %" PRIu64 " pages and %" PRIu64
			" slots need %" PRIu64,
			m->bytes, m->pages, m->slots, size);
	return transport_check_ticket(m->kind, fd, m->blob, err);
}

static status map_arenas(struct peer *peer, struct err *err)
{
	struct importer *m = peer->importer;
	status st = transport_open(
		&peer->transport, &peer->map, &m->side, &peer->arenas, err);

	if (st == ST_OK && peer->transport->room != NULL)
		st = stage_open(peer, peer->transport->room(peer->map), err);
	if (st != ST_OK)
		return st;
	close_tickets(peer);
	loop_timer_stop(&peer->deadline);
	set_state(peer, PEER_READY);
	log_info("link to %s incarnation=%016" PRIx64
		 " transport=%s ranks=%u bytes=%" PRIu64,
		peer->id, peer->incarnation, peer->transport->name, peer->arenas.n_ranks,
		peer->arenas.n_ranks * peer->arenas.ticket[0].bytes);
	for (uint32_t i = 0; i < IMPORTER_PULLS_MAX; i++)
		if (m->pulls[i].state == PULL_WAITING && m->pulls[i].peer == peer)
			pull_peer_ready(&m->pulls[i]);
	return ST_OK;
}

static status on_arena(void *ctx, const void *msg, int *fd, struct err *err)
{
	const struct msg_arena *m = msg;
	struct peer *peer = ctx;
	struct peer_arenas *a = &peer->arenas;
	struct arena_ticket *t;
	struct layout l;
	status st;

	if (peer->state != PEER_OPENING)
		return err_set(err, ST_INVALID, "an arena came after the last one");
	st = layout_get(&l, m->layout, err);
	if (st == ST_OK)
		st = check_arena(peer, m, &l, *fd, err);
	if (st != ST_OK)
		return st;
	a->layout = l;
	a->pages = m->pages;
	a->slots = m->slots;
	a->n_ranks = l.ranks;
	(void)snprintf(a->device_uuid[m->rank], sizeof(a->device_uuid[0]), "%.*s",
		(int)m->device_uuid.len, (const char *)m->device_uuid.at);
	a->pid_ns = m->has_pid_ns ? m->pid_ns : 0;
	t = &a->ticket[m->rank];
	*t = (struct arena_ticket){
		.kind = (enum ticket_kind)m->kind, .fd = *fd, .bytes = m->bytes};
	*fd = -1;
	if (m->blob.len > 0)
		memcpy(t->blob, m->blob.at, m->blob.len);
	peer->tickets |= 1u << m->rank;
	if (peer->tickets != (1u << l.ranks) - 1)
		return ST_OK;
	return map_arenas(peer, err);
}

static bool is_pull_of(
	const struct import_pull *p, const struct peer *peer, uint64_t lease)
{
	return p->state != PULL_UNUSED && p->peer == peer && p->what.lease == lease;
}

static status on_claimed(void *ctx, const void *msg, int *fd, struct err *err)
{
	const struct msg_claimed *m = msg;
	struct peer *peer = ctx;
	struct importer *im = peer->importer;

	(void)fd;
	for (uint32_t i = 0; i < IMPORTER_PULLS_MAX; i++)
		if (im->pulls[i].claim_unanswered &&
			is_pull_of(&im->pulls[i], peer, m->lease)) {
			pull_claimed(&im->pulls[i], m);
			return ST_OK;
		}
	return err_set(err, ST_INVALID,
		"claimed for lease %" PRIu64 ", which was not asked for", m->lease);
}

static status on_fetched(void *ctx, const void *msg, int *fd, struct err *err)
{
	(void)fd;
	return stage_fetched(ctx, msg, err);
}

/* May find nothing: it crosses our done. */
static status on_revoke(void *ctx, const void *msg, int *fd, struct err *err)
{
	const struct msg_revoke *m = msg;
	struct peer *peer = ctx;
	struct importer *im = peer->importer;
	struct err why;

	(void)fd;
	(void)err;
	(void)err_set(
		&why, ST_CANCELLED, "%s withdrew lease %" PRIu64, peer->id, m->lease);
	for (uint32_t i = 0; i < IMPORTER_PULLS_MAX; i++)
		if (is_pull_of(&im->pulls[i], peer, m->lease))
			pull_stop(&im->pulls[i], &why);
	return ST_OK;
}

static status on_denied(void *ctx, const void *msg, int *fd, struct err *err)
{
	const struct msg_denied *m = msg;
	struct peer *peer = ctx;

	(void)fd;
	(void)err;
	(void)err_set(&peer->denied, ST_INVALID, "refused: %.*s", (int)m->text.len,
		(const char *)m->text.at);
	return ST_OK; /* the end of the link follows */
}

static const struct link_handler handlers[] = {
	{MSG_arena, on_arena},
	{MSG_claimed, on_claimed},
	{MSG_fetched, on_fetched},
	{MSG_revoke, on_revoke},
	{MSG_denied, on_denied},
};

static void on_end(void *ctx, const struct err *why)
{
	struct peer *peer = ctx;

	xfer_malformed(&peer->importer->side, why);
	peer_end(peer, why);
}

static void open_link(struct peer *peer, int fd)
{
	static const struct link_events events = {handlers, COUNT(handlers), on_end};
	struct importer *m = peer->importer;
	struct msg_open open = {
		.id = bytes_of_str(m->side.id),
		.incarnation = m->side.incarnation,
		.source_incarnation = peer->incarnation,
		.compat_hash = m->compat_hash,
	};
	struct err err;

	if (link_create(&peer->link, m->side.loop, fd, WIRE_IMPORTER, &events, peer,
		    &err) != ST_OK) {
		peer_end(peer, &err);
		return;
	}
	set_state(peer, PEER_OPENING);
	link_send(peer->link, MSG_open, &open, -1);
}

/* Runs from a timer, never inside importer_pull, so that a refusal ends the pull on the
 * loop like any other. */
static void try_connect(void *ctx)
{
	struct peer *peer = ctx;
	struct err err;
	int fd;
	status st = link_connect(peer->path, &fd, &err);

	if (st == ST_OK) {
		open_link(peer, fd);
	} else if (st == ST_AGAIN) {
		peer->waits = err;
		loop_timer_start(peer->importer->side.loop, &peer->retry, RETRY_MS, 0,
			try_connect, peer);
	} else {
		peer_end(peer, &err);
	}
}

status peer_start(
	struct importer *m, const struct pull *p, struct peer **out, struct err *err)
{
	struct peer *peer = NULL;

	for (uint32_t i = 0; i < IMPORTER_PEERS_MAX && peer == NULL; i++)
		if (m->peers[i].state == PEER_UNUSED)
			peer = &m->peers[i];
	if (peer == NULL)
		return err_set(err, ST_LIMIT, "links to %u workers are open",
			IMPORTER_PEERS_MAX);
	if (strlen(p->worker_id) >= sizeof(peer->id) ||
		strlen(p->link_path) >= sizeof(peer->path))
		return err_set(err, ST_INVALID,
			"worker id of %zu or link path of %zu bytes, at most %zu and %zu",
			strlen(p->worker_id), strlen(p->link_path), sizeof(peer->id) - 1,
			sizeof(peer->path) - 1);
	*peer = (struct peer){.importer = m, .incarnation = p->incarnation};
	memcpy(peer->id, p->worker_id, strlen(p->worker_id));
	memcpy(peer->path, p->link_path, strlen(p->link_path));
	loop_timer_wait(
		m->side.loop, &peer->deadline, m->side.timeout_ms, on_deadline, peer);
	loop_timer_start(m->side.loop, &peer->retry, 0, 0, try_connect, peer);
	set_state(peer, PEER_CONNECTING);
	*out = peer;
	return ST_OK;
}
