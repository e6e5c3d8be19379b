/* The table of transports. */
#include "common/xfer/xfer_transport.h"
#include "common/base/log.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const struct transport_ops *const table[] = {
#define X(name) &transport_##name,
	TRANSPORTS(X)
#undef X
};

static bool is_choice(const char *name)
{
	return name != NULL && name[0] != 0 && strcmp(name, "auto") != 0;
}

static bool is_chosen(const struct xfer_side *side, const struct transport_ops *t)
{
	return is_choice(side->transport) && strcmp(side->transport, t->name) == 0;
}

static bool serves(const struct transport_ops *t, const char *backend)
{
	return backend == NULL || strcmp(backend, t->backend) == 0;
}

status transport_check(const char *name, const char *backend, struct err *err)
{
	char known[128] = "auto";
	size_t at = strlen(known);

	if (!is_choice(name))
		return ST_OK;
	for (size_t i = 0; i < COUNT(table); i++) {
		if (!serves(table[i], backend))
			continue;
		if (strcmp(name, table[i]->name) == 0)
			return ST_OK;
		at += (size_t)snprintf(
			known + at, sizeof(known) - at, ", %s", table[i]->name);
		assert(at < sizeof(known));
	}
	return err_set(err, ST_INVALID, "transport '%s' is none of %s%s%s", name, known,
		backend != NULL ? ", which can be forced on backend " : "",
		backend != NULL ? backend : "");
}

/* ---- tickets ---- */

status transport_export_arenas(
	const struct xfer_side *side, struct arena_ticket *out, struct err *err)
{
	status st = ST_OK;

	for (uint32_t r = 0; r < side->n_ranks && st == ST_OK; r++)
		st = side->backend[r]->ops->arena_export(
			side->backend[r], side->arena[r], &out[r], err);
	return st;
}

status transport_offer(
	const struct xfer_side *side, struct arena_ticket *out, struct err *err)
{
	const struct transport_ops *from = NULL;

	for (size_t i = 0; i < COUNT(table); i++)
		if (table[i]->offer != NULL && serves(table[i], side->backend[0]->name) &&
			(from == NULL || is_chosen(side, table[i])))
			from = table[i];
	if (from == NULL)
		return err_set(err, ST_INVALID, "no transport offers arenas of %s",
			side->backend[0]->name);
	return from->offer(side, out, err);
}

status transport_check_ticket(uint64_t kind, int fd, struct bytes blob, struct err *err)
{
	const size_t blob_bytes = sizeof(((struct arena_ticket *)NULL)->blob);

	for (size_t i = 0; i < COUNT(table); i++)
		if (table[i]->ticket == kind && table[i]->ticket_fd == (fd >= 0) &&
			blob.len == (fd >= 0 ? 0 : blob_bytes))
			return ST_OK;
	return err_set(err, ST_INVALID,
		"an arena ticket of kind %" PRIu64 " with %s descriptor and %zu bytes",
		kind, fd >= 0 ? "a" : "no", blob.len);
}

/* ---- what is around a map ---- */

status xfer_park(const struct xfer_side *side, struct err *err)
{
	if (side->park == NULL || side->park(side->park_ctx))
		return ST_OK;
	return err_set(err, ST_DEVICE,
		"a device did not end its step in time: no arena can be mapped or "
		"released");
}

void xfer_failed(const struct xfer_side *side, const struct err *why)
{
	if (why->code == ST_DEVICE && side->failed != NULL)
		side->failed(side->failed_ctx, why);
}

void xfer_malformed(const struct xfer_side *side, const struct err *why)
{
	if (why->code == ST_INVALID && side->malformed != NULL)
		++*side->malformed;
}

void xfer_unpark(const struct xfer_side *side)
{
	if (side->unpark != NULL)
		side->unpark(side->park_ctx);
}

uint64_t xfer_pid_ns(void)
{
	struct stat sb;

	return stat("/proc/self/ns/pid", &sb) == 0 ? (uint64_t)sb.st_ino : 0;
}

/* ---- the choice ---- */

static status check_pair(const struct transport_ops *t, const struct xfer_side *side,
	const struct peer_arenas *peer, struct err *err)
{
	for (uint32_t r = 0; r < peer->n_ranks; r++)
		if ((uint32_t)peer->ticket[r].kind != t->ticket)
			return err_set(err, ST_INVALID,
				"the peer's arenas are of kind %d, it needs %u",
				(int)peer->ticket[r].kind, t->ticket);
	for (uint32_t r = 0; r < side->n_ranks; r++)
		if (!serves(t, side->backend[r]->name))
			return err_set(err, ST_INVALID,
				"this worker's backend is %s, it needs %s",
				side->backend[r]->name, t->backend);
	return t->check != NULL ? t->check(side, peer, err) : ST_OK;
}

static status open_map(const struct transport_ops *t, struct xfer_map **map,
	const struct xfer_side *side, const struct peer_arenas *peer, struct err *err)
{
	status st = t->parks ? xfer_park(side, err) : ST_OK;

	if (st != ST_OK)
		return st;
	st = t->open(map, side, peer, err);
	if (t->parks)
		xfer_unpark(side);
	return st;
}

void transport_close(const struct transport_ops *ops, const struct xfer_side *side,
	struct xfer_map *map)
{
	struct err err;

	/* The process ends with its maps. */
	if (ops->parks && xfer_park(side, &err) != ST_OK) {
		xfer_failed(side, &err);
		return;
	}
	ops->close(map);
	if (ops->parks)
		xfer_unpark(side);
}

status transport_open(const struct transport_ops **ops, struct xfer_map **map,
	const struct xfer_side *side, const struct peer_arenas *peer, struct err *err)
{
	struct err why = {0};

	if (side->given != NULL) {
		*ops = side->given;
		return open_map(side->given, map, side, peer, err);
	}
	for (size_t i = 0; i < COUNT(table); i++) {
		const struct transport_ops *t = table[i];
		status st;

		if (is_choice(side->transport) && !is_chosen(side, t))
			continue;
		st = check_pair(t, side, peer, &why);
		if (st == ST_OK)
			st = open_map(t, map, side, peer, &why);
		if (st == ST_OK) {
			*ops = t;
			return ST_OK;
		}
		/* Only what lies between the two is a reason to look further. */
		if (st != ST_INVALID &&
			(st != ST_PEER || is_chosen(side, t) || !t->tries)) {
			*err = why;
			return st;
		}
		log_info("transport=%s not used from %s to %s: %s", t->name,
			peer->device_uuid[0], side->backend[0]->uuid, why.text);
	}
	return err_set(err, ST_INVALID,
		"transport %s from %s (arenas of kind %d) to %s is not possible: %s",
		is_choice(side->transport) ? side->transport : "auto",
		peer->device_uuid[0], (int)peer->ticket[0].kind, side->backend[0]->uuid,
		why.text);
}
