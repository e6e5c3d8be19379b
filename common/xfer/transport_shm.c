/* Transport between CPU backends: the peer's memfd arenas are mapped for reading, and
 * the processor copies. */
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/xfer/xfer_transport.h"

/* A millisecond or two of memcpy. */
#define ITEM_BYTES  (UINT64_C(8) << 20)
#define LIST_PIECES 64u

struct xfer_map {
	const struct xfer_side *side;
	uint32_t n_ranks;
	const uint8_t *arena[RANKS_MAX];
	uint64_t bytes[RANKS_MAX];
};

static void close_map(struct xfer_map *map)
{
	struct backend *b = map->side->backend[0];
	struct err err;

	for (uint32_t r = 0; r < map->n_ranks; r++)
		if (map->arena[r] != NULL && b->ops->arena_close(b, map->arena[r],
						     map->bytes[r], &err) != ST_OK)
			log_error("%s", err.text);
	mem_give(map);
}

/* Any of our backends maps as well as another one: it is the same memory. */
static status open_map(struct xfer_map **out, const struct xfer_side *side,
	const struct peer_arenas *peer, struct err *err)
{
	struct backend *b = side->backend[0];
	struct xfer_map *map = mem_take(1, sizeof(*map));
	status st = ST_OK;

	if (map == NULL)
		return err_set(err, ST_LIMIT, "no request memory to map a peer");
	map->side = side;
	map->n_ranks = peer->n_ranks;
	for (uint32_t r = 0; r < peer->n_ranks && st == ST_OK; r++) {
		const void *at = NULL;

		st = b->ops->arena_open(b, &peer->ticket[r], &at, err);
		map->arena[r] = at;
		map->bytes[r] = peer->ticket[r].bytes;
	}
	if (st != ST_OK) {
		close_map(map);
		return st;
	}
	*out = map;
	return ST_OK;
}

/* copies[0..n) have one destination rank. */
static status copy_to_rank(
	struct xfer_map *map, const struct plan_copy *copies, uint32_t n, struct err *err)
{
	struct backend *b = map->side->backend[copies[0].dst_rank];
	uint8_t *arena = map->side->arena[copies[0].dst_rank];
	struct copy_piece pieces[LIST_PIECES];
	struct stream *stream = NULL;
	uint32_t filled = 0;
	status st = b->ops->stream_create(b, &stream, err);

	if (st != ST_OK)
		return st;
	for (uint32_t i = 0; i < n && st == ST_OK; i++) {
		pieces[filled++] = (struct copy_piece){
			.src = map->arena[copies[i].src_rank] + copies[i].src_offset,
			.dst = arena + copies[i].dst_offset,
			.bytes = copies[i].bytes,
		};
		if (filled == LIST_PIECES || i + 1 == n) {
			st = b->ops->copy_list(stream, pieces, filled, err);
			filled = 0;
		}
	}
	if (st == ST_OK)
		st = b->ops->stream_sync(stream, err);
	b->ops->stream_destroy(stream);
	return st;
}

static status copy(
	struct xfer_map *map, const struct plan_copy *copies, uint32_t n, struct err *err)
{
	uint32_t first = 0;
	status st = ST_OK;

	for (uint32_t i = 1; i <= n && st == ST_OK; i++)
		if (i == n || copies[i].dst_rank != copies[first].dst_rank) {
			st = copy_to_rank(map, copies + first, i - first, err);
			first = i;
		}
	return st;
}

const struct transport_ops transport_shm = {
	.id = TRANSPORT_shm,
	.ticket = TICKET_MEMFD,
	.backend = "cpu",
	.item_bytes = ITEM_BYTES,
	.open = open_map,
	.copy = copy,
	.close = close_map,
};
