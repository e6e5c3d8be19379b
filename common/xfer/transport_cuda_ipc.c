/* Transport between GPUs of one host: the peer's arenas are mapped by CUDA IPC and read
 * over the link between the two devices, or inside one device when both workers share
 * it. Mapped once per exporter incarnation; before that the link is tried with data in
 * both directions.
 *
 * A pull runs on a stream of its own. Its source is complete before the lease exists (the
 * exporter grants it after the pass has finished), its destination is not in any step
 * until the pull has ended, so the streams of the steps need not wait for it. */
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/xfer/arena_map.h"
#include "common/xfer/copy_choice.h"
#include "common/xfer/probe.h"
#include <inttypes.h>
#include <string.h>

/* A fraction of a millisecond over NVLink, under one over PCIe 5. */
#define ITEM_BYTES (UINT64_C(32) << 20)

struct xfer_map {
	struct arena_map arenas;
	struct copy_choice choice[RANKS_MAX];
	const struct copy_method *how[RANKS_MAX]; /* of choice */
};

static void close_map(struct xfer_map *map)
{
	arena_map_release(&map->arenas);
	mem_give(map);
}

/* With the marks by which importers see that the link delivers. */
static status offer(
	const struct xfer_side *side, struct arena_ticket *out, struct err *err)
{
	status st = transport_export_arenas(side, out, err);

	return st == ST_OK ? probe_mark(side, err) : st;
}

static status check_pair(
	const struct xfer_side *side, const struct peer_arenas *peer, struct err *err)
{
	uint64_t ours = xfer_pid_ns();
	status st = ST_OK;

	if (peer->pid_ns != ours)
		return err_set(err, ST_INVALID,
			"the peer is in PID namespace %" PRIu64
			", this process in %" PRIu64 ": CUDA IPC needs one for both",
			peer->pid_ns, ours);
	for (uint32_t d = 0; d < side->n_ranks; d++)
		for (uint32_t r = 0; r < peer->n_ranks && st == ST_OK; r++)
			st = side->backend[d]->ops->peer_check(
				side->backend[d], peer->device_uuid[r], err);
	return st;
}

/* Tries the link of our rank d with data, then times it. */
static status try_rank(
	struct xfer_map *map, const struct peer_arenas *peer, uint32_t d, struct err *err)
{
	const struct xfer_side *side = map->arenas.side;
	const uint8_t *const *at = map->arenas.at[d];
	const char *uuid = side->backend[d]->uuid;
	status st = ST_OK;

	for (uint32_t r = 0; r < peer->n_ranks && st == ST_OK; r++)
		st = probe_peer(side, d, at[r], &peer->layout, err);
	if (st == ST_OK)
		st = copy_choose(&map->choice[d], side, peer, d, at, err);
	if (st != ST_OK)
		return st;
	map->how[d] = &map->choice[d].how;
	log_info("transport=cuda_ipc from %s to %s%s copy=%s", peer->device_uuid[0], uuid,
		strcmp(peer->device_uuid[0], uuid) == 0 ? " (one device)" : "",
		map->choice[d].text);
	return ST_OK;
}

static status open_map(struct xfer_map **out, const struct xfer_side *side,
	const struct peer_arenas *peer, struct err *err)
{
	struct xfer_map *map = mem_take(1, sizeof(*map));
	status st;

	if (map == NULL)
		return err_set(err, ST_LIMIT, "no request memory to map a peer");
	st = arena_map_init(&map->arenas, side, peer, side->n_ranks, err);
	for (uint32_t d = 0; d < side->n_ranks && st == ST_OK; d++)
		st = try_rank(map, peer, d, err);
	/* Timing has written over the mark in our own page 0. */
	if (st == ST_OK)
		st = probe_mark(side, err);
	if (st != ST_OK) {
		close_map(map);
		return st;
	}
	*out = map;
	return ST_OK;
}

static status copy(
	struct xfer_map *map, const struct plan_copy *copies, uint32_t n, struct err *err)
{
	return arena_map_copy(&map->arenas, map->how, copies, n, err);
}

/* Of rank 0; the log names each rank's. */
static const char *method(const struct xfer_map *map)
{
	return map->choice[0].name;
}

const struct transport_ops transport_cuda_ipc = {
	.name = "cuda_ipc",
	.backend = "cuda",
	.ticket = TICKET_CUDA_IPC,
	.item_bytes = ITEM_BYTES,
	.parks = true,
	.tries = true,
	.offer = offer,
	.check = check_pair,
	.open = open_map,
	.copy = copy,
	.method = method,
	.close = close_map,
};
