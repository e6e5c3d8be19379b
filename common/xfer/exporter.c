/* The exporter: a listening socket and one entry per connected importer. An entry ends
 * with its link, and with it every claim that the importer held. */
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/loop/runtime.h"
#include "common/xfer/exporter_impl.h"
#include "common/xfer/probe.h"
#include <assert.h>
#include <dirent.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* With no descriptor left, accepting again at once would spin. */
#define ACCEPT_PAUSE_MS 100

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

		x->malformed += why->code == ST_INVALID;
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

static void on_end(void *ctx, const struct err *why)
{
	exporter_link_end(ctx, why);
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

static const struct link_events link_events = {exporter_on_message, on_end};

static struct export_link *unused_entry(struct exporter *x)
{
	for (uint32_t i = 0; i < EXPORTER_LINKS_MAX; i++)
		if (x->entries[i].link == NULL)
			return &x->entries[i];
	return NULL;
}

static void admit(struct exporter *x, int fd)
{
	struct export_link *e = unused_entry(x);
	struct err err;

	if (e == NULL) {
		log_warn("link refused: %u importers are connected", x->n_links);
		close(fd);
		return;
	}
	*e = (struct export_link){.exporter = x, .id = x->last_link + 1, .peer_id = "?"};
	if (link_create(&e->link, x->side.loop, fd, WIRE_EXPORTER, &link_events, e,
		    &err) != ST_OK) {
		log_warn("link refused: %s", err.text);
		return;
	}
	x->last_link++;
	x->n_links++;
	loop_timer_start(x->side.loop, &e->open_timeout, x->side.timeout_ms, 0,
		on_open_timeout, e);
}

static void accept_again(void *ctx)
{
	struct exporter *x = ctx;

	loop_fd_start(x->watch, LOOP_READABLE);
}

static void on_acceptable(void *ctx, int listen_fd, unsigned events)
{
	struct exporter *x = ctx;
	struct err err;
	int fd;
	status st;

	(void)events;
	while ((st = link_accept(listen_fd, &fd, &err)) == ST_OK)
		admit(x, fd);
	if (st == ST_AGAIN)
		return;
	log_warn("%s", err.text);
	if (st != ST_LIMIT)
		return; /* a stranger; the watch is level-triggered for the next one */
	loop_fd_stop(x->watch);
	loop_timer_start(
		x->side.loop, &x->accept_pause, ACCEPT_PAUSE_MS, 0, accept_again, x);
}

static status make_path(struct exporter *x, struct err *err)
{
	int n = snprintf(x->path, sizeof(x->path), "%s/" XFER_LINK_NAME,
		x->side.runtime_dir, x->side.id, x->side.incarnation);

	if (n < 0 || (size_t)n >= sizeof(x->path))
		return err_set(err, ST_INVALID,
			"link path %s/" XFER_LINK_NAME " has %d bytes, at most %zu",
			x->side.runtime_dir, x->side.id, x->side.incarnation, n,
			sizeof(x->path) - 1);
	return ST_OK;
}

/* A worker that was killed leaves its socket file; the next one of that id clears it
 * away. One that answers belongs to a worker that lives and stays. */
static void sweep_earlier(const struct exporter *x)
{
	const char *dir = x->side.runtime_dir, *id = x->side.id;
	char path[RUNTIME_PATH_BYTES];
	DIR *d = opendir(dir);
	struct dirent *entry;
	struct err err;

	while (d != NULL && (entry = readdir(d)) != NULL) {
		size_t n = strlen(entry->d_name), n_id = strlen(id);

		/* ID.%016x.link */
		if (n != n_id + 22 || strncmp(entry->d_name, id, n_id) != 0 ||
			entry->d_name[n_id] != '.' ||
			strcmp(entry->d_name + n - 5, ".link") != 0)
			continue;
		if (snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name) <
				(int)sizeof(path) &&
			runtime_remove_stale(path, RUNTIME_SEQPACKET, &err) != ST_OK)
			log_debug("%s", err.text); /* it lives */
	}
	if (d != NULL)
		closedir(d);
}

static status listen_and_watch(struct exporter *x, struct err *err)
{
	int fd = -1;
	status st = make_path(x, err);

	sweep_earlier(x);

	if (st == ST_OK)
		st = link_listen(x->path, &fd, err);
	if (st != ST_OK)
		return st;
	st = loop_fd_open(&x->watch, x->side.loop, fd, on_acceptable, x, err);
	if (st != ST_OK) {
		close(fd);
		(void)unlink(x->path);
		return st;
	}
	loop_fd_start(x->watch, LOOP_READABLE);
	return ST_OK;
}

status exporter_create(struct exporter **out, const struct xfer_side *side,
	struct leases *leases, uint64_t lease_ns, struct err *err)
{
	struct exporter *x = mem_alloc(1, sizeof(*x));
	status st = ST_OK;

	assert(side->n_ranks == side->layout.ranks);
	x->side = *side;
	if (x->side.timeout_ms == 0)
		x->side.timeout_ms = XFER_TIMEOUT_MS;
	x->leases = leases;
	x->lease_ns = lease_ns;
	for (uint32_t i = 0; i < EXPORTER_LINKS_MAX; i++)
		x->entries[i].exporter = x;
	/* Exported once: a handle stays the same as long as its arena. */
	for (uint32_t r = 0; r < side->n_ranks && st == ST_OK; r++)
		st = side->backend[r]->ops->arena_export(
			side->backend[r], side->arena[r], &x->ticket[r], err);
	if (st == ST_OK && x->ticket[0].kind == TICKET_CUDA_IPC)
		st = probe_mark(side, err);
	if (st == ST_OK)
		st = listen_and_watch(x, err);
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
	(void)unlink(x->path); /* may be gone with its directory */
	loop_timer_stop(&x->accept_pause);
	loop_fd_close(x->watch, true);
	stop_links(x);
	export_digest_abandon(x);
	export_stage_abandon(x);
	mem_free(x);
}

const char *exporter_path(const struct exporter *x)
{
	return x->path;
}

uint32_t exporter_links(const struct exporter *x)
{
	return x->n_links;
}

uint64_t exporter_malformed(const struct exporter *x)
{
	return x->malformed;
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
