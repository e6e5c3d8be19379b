/* The table of transports. */
#include "common/xfer/xfer_transport.h"
#include <string.h>

/* In order of preference. */
static const struct transport_ops *const table[] = {&transport_shm};

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

static const char *obstacle_of(const struct transport_ops *t,
	const struct xfer_side *side, const struct peer_arenas *peer)
{
	for (uint32_t r = 0; r < peer->n_ranks; r++)
		if (peer->ticket[r].kind != t->ticket)
			return "the peer's arenas are of another kind";
	for (uint32_t r = 0; r < side->n_ranks; r++)
		if (strcmp(side->backend[r]->name, t->backend) != 0)
			return "this worker runs on another backend";
	return t->obstacle != NULL ? t->obstacle(side, peer) : NULL;
}

status transport_pick(const struct transport_ops **out, const struct xfer_side *side,
	const struct peer_arenas *peer, struct err *err)
{
	const char *why = "this build does not have it";

	for (size_t i = 0; i < COUNT(table); i++) {
		if (is_choice(side->transport) &&
			strcmp(side->transport, names[table[i]->id]) != 0)
			continue;
		why = obstacle_of(table[i], side, peer);
		if (why == NULL) {
			*out = table[i];
			return ST_OK;
		}
	}
	return err_set(err, ST_INVALID,
		"transport %s from %s (arenas of kind %d) to %s is not possible: %s",
		is_choice(side->transport) ? side->transport : "auto",
		peer->device_uuid[0], (int)peer->ticket[0].kind, side->backend[0]->uuid,
		why);
}
