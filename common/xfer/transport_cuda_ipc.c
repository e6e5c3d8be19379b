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
#include "common/xfer/copy_choice.h"
#include "common/xfer/lanes.h"
#include "common/xfer/probe.h"
#include "common/xfer/xfer_transport.h"
#include <inttypes.h>
#include <string.h>

/* A fraction of a millisecond over NVLink, under one over PCIe 5. */
#define ITEM_BYTES  (UINT64_C(32) << 20)
#define LIST_PIECES 128u

struct xfer_map {
	const struct xfer_side *side;
	uint32_t n_ranks; /* the peer's */
	/* By our rank, whose device it is mapped for, and by the peer's. */
	const uint8_t *arena[RANKS_MAX][RANKS_MAX];
	uint64_t bytes[RANKS_MAX];
	struct copy_choice choice[RANKS_MAX];
	struct lanes *lanes;
};

static void close_map(struct xfer_map *map)
{
	struct err err;

	for (uint32_t d = 0; d < map->side->n_ranks; d++)
		for (uint32_t r = 0; r < map->n_ranks; r++) {
			struct backend *b = map->side->backend[d];

			if (map->arena[d][r] != NULL &&
				b->ops->arena_close(b, map->arena[d][r], map->bytes[r],
					&err) != ST_OK)
				log_error("%s", err.text);
		}
	lanes_destroy(map->lanes);
	mem_give(map);
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

static status map_rank(
	struct xfer_map *map, const struct peer_arenas *peer, uint32_t d, struct err *err)
{
	const struct xfer_side *side = map->side;
	struct backend *b = side->backend[d];
	status st = ST_OK;

	for (uint32_t r = 0; r < peer->n_ranks && st == ST_OK; r++) {
		const void *at = NULL;

		st = b->ops->arena_open(b, &peer->ticket[r], &at, err);
		map->arena[d][r] = at;
		map->bytes[r] = peer->ticket[r].bytes;
		if (st == ST_OK)
			st = probe_peer(side, d, at, &peer->layout, err);
	}
	if (st == ST_OK)
		st = copy_choose(&map->choice[d], side, peer, d, map->arena[d], err);
	if (st == ST_OK)
		log_info("transport=cuda_ipc from %s to %s%s copy=%s",
			peer->device_uuid[0], b->uuid,
			strcmp(peer->device_uuid[0], b->uuid) == 0 ? " (one device)" : "",
			map->choice[d].text);
	return st;
}

static status open_map(struct xfer_map **out, const struct xfer_side *side,
	const struct peer_arenas *peer, struct err *err)
{
	struct xfer_map *map = mem_take(1, sizeof(*map));
	status st;

	if (map == NULL)
		return err_set(err, ST_LIMIT, "no request memory to map a peer");
	map->side = side;
	map->n_ranks = peer->n_ranks;
	st = lanes_create(&map->lanes, side, err);
	for (uint32_t d = 0; d < side->n_ranks && st == ST_OK; d++)
		st = map_rank(map, peer, d, err);
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

/* Enqueues copies[0..n), which have one destination rank. */
static status enqueue(struct xfer_map *map, struct stream *s,
	const struct plan_copy *copies, uint32_t n, struct err *err)
{
	uint32_t d = copies[0].dst_rank, filled = 0;
	uint8_t *arena = map->side->arena[d];
	struct copy_piece pieces[LIST_PIECES];
	status st = ST_OK;

	for (uint32_t i = 0; i < n && st == ST_OK; i++) {
		pieces[filled++] = (struct copy_piece){
			.src = map->arena[d][copies[i].src_rank] + copies[i].src_offset,
			.dst = arena + copies[i].dst_offset,
			.bytes = copies[i].bytes};
		if (filled == LIST_PIECES || i + 1 == n) {
			st = map->side->backend[d]->ops->copy_list_by(
				s, &map->choice[d].how, pieces, filled, err);
			filled = 0;
		}
	}
	return st;
}

static status copy(
	struct xfer_map *map, const struct plan_copy *copies, uint32_t n, struct err *err)
{
	struct lane *lane = lanes_take(map->lanes);
	bool used[RANKS_MAX] = {false};
	uint32_t first = 0;
	status st = ST_OK;

	for (uint32_t i = 1; i <= n && st == ST_OK; i++) {
		uint32_t d = copies[first].dst_rank;

		if (i < n && copies[i].dst_rank == d)
			continue;
		used[d] = true;
		st = enqueue(map, lane_stream(lane, d), copies + first, i - first, err);
		first = i;
	}
	/* Also after a failure: nobody may free what a copy still writes. */
	for (uint32_t d = 0; d < map->side->n_ranks; d++) {
		struct err late;
		status end = used[d] ? map->side->backend[d]->ops->stream_sync(
					       lane_stream(lane, d), &late)
				     : ST_OK;

		if (st == ST_OK && end != ST_OK) {
			st = end;
			*err = late;
		}
	}
	lanes_give(lane);
	return st;
}

/* Of rank 0; the log names each rank's. */
static const char *method(const struct xfer_map *map)
{
	return map->choice[0].name;
}

const struct transport_ops transport_cuda_ipc = {
	.id = TRANSPORT_cuda_ipc,
	.ticket = TICKET_CUDA_IPC,
	.backend = "cuda",
	.item_bytes = ITEM_BYTES,
	.parks = true,
	.check = check_pair,
	.open = open_map,
	.copy = copy,
	.method = method,
	.close = close_map,
};
