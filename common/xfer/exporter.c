/* The exporter: one entry per connected importer. An entry ends with its link, and with
 * it every claim that the importer held. */
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/xfer/exporter_impl.h"
#include "common/xfer/xfer_transport.h"
#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static void stop_links(struct exporter *x)
{
	for (uint32_t i = 0; i < EXPORTER_LINKS_MAX; i++)
		if (x->entries[i].link != NULL)
			exporter_link_end(&x->entries[i], NULL);
}

/* The one place where a link of the exporter ends. why: NULL when we stop. */
void exporter_link_end(struct export_link *e, const struct err *why)
{
	struct exporter *x = e->exporter;
	uint64_t id = e->id;

	if (why != NULL && why->code != ST_PEER) {
		struct msg_denied denied = {.text = bytes_of_str(why->text)};

		xfer_malformed(&x->side, why);
		log_warn("link=%" PRIu64 " importer=%s closed: %s", id, e->peer_id,
			why->text);
		/* The link has ended for reading; a frame still gets out if there is
		 * room. */
		link_send_last(e->link, MSG_denied, &denied);
	} else {
		log_info("link=%" PRIu64 " importer=%s ended: %s", id, e->peer_id,
			why != NULL ? why->text : "this worker stops");
	}
	loop_timer_stop(&e->open_timeout);
	export_stage_end(e);
	link_destroy(e->link);
	*e = (struct export_link){.exporter = x};
	x->n_links--;
	export_digest_cancel(x, id);
	lease_link_lost(x->leases, id, x->lease_ns);
}

/* A peer that connects says at once who it is. */
static void on_open_timeout(void *ctx)
{
	struct export_link *e = ctx;
	struct err err;

	(void)err_set(
		&err, ST_INVALID, "no open within %u ms", e->exporter->side.timeout_ms);
	exporter_link_end(e, &err);
}

static struct export_link *unused_entry(struct exporter *x)
{
	for (uint32_t i = 0; i < EXPORTER_LINKS_MAX; i++)
		if (x->entries[i].link == NULL)
			return &x->entries[i];
	return NULL;
}

void exporter_admit(struct exporter *x, int fd)
{
	struct export_link *e = unused_entry(x);
	struct err err;

	if (e == NULL) {
		log_warn("link refused: %u importers are connected", x->n_links);
		close(fd);
		return;
	}
	*e = (struct export_link){.exporter = x, .id = x->last_link + 1, .peer_id = "?"};
	if (link_create(&e->link, x->side.loop, fd, WIRE_EXPORTER, &exporter_link_events,
		    e, &err) != ST_OK) {
		log_warn("link refused: %s", err.text);
		return;
	}
	x->last_link++;
	x->n_links++;
	loop_timer_wait(
		x->side.loop, &e->open_timeout, x->side.timeout_ms, on_open_timeout, e);
}

status exporter_create(struct exporter **out, const struct xfer_side *side,
	struct leases *leases, uint64_t lease_ns, struct err *err)
{
	struct exporter *x = mem_alloc(1, sizeof(*x));
	status st;

	assert(side->n_ranks == side->layout.ranks);
	x->side = *side;
	if (x->side.timeout_ms == 0)
		x->side.timeout_ms = XFER_TIMEOUT_MS;
	x->leases = leases;
	x->lease_ns = lease_ns;
	for (uint32_t i = 0; i < EXPORTER_LINKS_MAX; i++)
		x->entries[i].exporter = x;
	/* Exported once: a handle stays the same as long as its arena. */
	st = transport_offer(side, x->ticket, err);
	if (st == ST_OK)
		st = export_socket_open(x, err);
	if (st != ST_OK) {
		mem_free(x);
		return st;
	}
	*out = x;
	return ST_OK;
}

void exporter_destroy(struct exporter *x)
{
	if (x == NULL)
		return;
	export_socket_close(x);
	stop_links(x);
	export_digest_abandon(x);
	export_stage_abandon(x);
	mem_free(x);
}

const char *exporter_path(const struct exporter *x)
{
	return x->socket.path;
}

uint32_t exporter_links(const struct exporter *x)
{
	return x->n_links;
}

struct export_link *exporter_link_find(struct exporter *x, uint64_t id)
{
	for (uint32_t i = 0; i < EXPORTER_LINKS_MAX; i++)
		if (x->entries[i].link != NULL && x->entries[i].id == id)
			return &x->entries[i];
	return NULL;
}

void exporter_revoke(struct exporter *x, uint64_t generation)
{
	struct lease *l = lease_find(x->leases, generation);
	struct export_link *e;
	struct msg_revoke revoke = {.lease = generation};

	if (l == NULL || l->claimer == 0)
		return;
	e = exporter_link_find(x, l->claimer);
	if (e != NULL)
		link_send(e->link, MSG_revoke, &revoke, -1);
}
