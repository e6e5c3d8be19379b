/* The table of transports. */
#include "common/xfer/xfer_transport.h"
#include "common/base/log.h"
#include <string.h>
#include <sys/stat.h>

/* In order of preference. */
static const struct transport_ops *const table[] = {
	&transport_shm, &transport_cuda_ipc, &transport_cuda_host};

static const char *const names[TRANSPORT__COUNT] = {
#define X(name) [TRANSPORT_##name] = #name,
	TRANSPORT_MAP(X)
#undef X
};

const char *transport_name(enum transport t)
{
	return (unsigned)t < TRANSPORT__COUNT ? names[t] : "?";
}

static bool is_choice(const char *name)
{
	return name != NULL && name[0] != 0 && strcmp(name, "auto") != 0;
}

status transport_check_name(const char *name, struct err *err)
{
	if (!is_choice(name))
		return ST_OK;
	for (size_t i = 0; i < COUNT(names); i++)
		if (strcmp(name, names[i]) == 0)
			return ST_OK;
	return err_set(err, ST_INVALID,
		"transport '%s' is none of auto, shm, cuda_ipc, cuda_host", name);
}

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

static status check_pair(const struct transport_ops *t, const struct xfer_side *side,
	const struct peer_arenas *peer, struct err *err)
{
	for (uint32_t r = 0; r < peer->n_ranks; r++)
		if (peer->ticket[r].kind != t->ticket)
			return err_set(err, ST_INVALID,
				"the peer's arenas are of kind %d, it needs %d",
				(int)peer->ticket[r].kind, (int)t->ticket);
	for (uint32_t r = 0; r < side->n_ranks; r++)
		if (strcmp(side->backend[r]->name, t->backend) != 0)
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
		status st;

		if (is_choice(side->transport) &&
			strcmp(side->transport, names[table[i]->id]) != 0)
			continue;
		st = check_pair(table[i], side, peer, &why);
		if (st == ST_OK)
			st = open_map(table[i], map, side, peer, &why);
		if (st == ST_OK) {
			*ops = table[i];
			return ST_OK;
		}
		/* Only what lies between the two is a reason to look further. */
		if (st != ST_INVALID && (st != ST_PEER || is_choice(side->transport) ||
						table[i]->id != TRANSPORT_cuda_ipc)) {
			*err = why;
			return st;
		}
		log_info("transport=%s not used from %s to %s: %s", names[table[i]->id],
			peer->device_uuid[0], side->backend[0]->uuid, why.text);
	}
	return err_set(err, ST_INVALID,
		"transport %s from %s (arenas of kind %d) to %s is not possible: %s",
		is_choice(side->transport) ? side->transport : "auto",
		peer->device_uuid[0], (int)peer->ticket[0].kind, side->backend[0]->uuid,
		why.text);
}
