/* Transport between CPU backends: the peer's memfd arenas are mapped for reading, and
 * the processor copies. */
#include "common/base/mem.h"
#include "common/xfer/arena_map.h"

/* A millisecond or two of memcpy. */
#define ITEM_BYTES (UINT64_C(8) << 20)

struct xfer_map {
	struct arena_map arenas;
};

static void close_map(struct xfer_map *map)
{
	arena_map_release(&map->arenas);
	mem_give(map);
}

/* Any of our backends maps as well as another one: it is the same memory. */
static status open_map(struct xfer_map **out, const struct xfer_side *side,
	const struct peer_arenas *peer, struct err *err)
{
	struct xfer_map *map = mem_take(1, sizeof(*map));
	status st;

	if (map == NULL)
		return err_set(err, ST_LIMIT, "no request memory to map a peer");
	st = arena_map_init(&map->arenas, side, peer, 1, err);
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
	return arena_map_copy(&map->arenas, NULL, copies, n, err);
}

const struct transport_ops transport_shm = {
	.name = "shm",
	.backend = "cpu",
	.ticket = TICKET_MEMFD,
	.ticket_fd = true,
	.item_bytes = ITEM_BYTES,
	.offer = transport_export_arenas,
	.open = open_map,
	.copy = copy,
	.close = close_map,
};
