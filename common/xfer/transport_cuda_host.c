/* Transport between GPUs that cannot reach each other's memory: the exporter copies into
 * a memfd that both processes have mapped and pinned, the importer copies out of it. Four
 * buffers, two for one pull, so that both directions run at the same time. */
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/xfer/copier.h"
#include "common/xfer/xfer_transport.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BUFFERS      4u
#define BUFFER_BYTES (UINT64_C(8) << 20)

struct xfer_map {
	const struct xfer_side *side;
	int fd;
	uint8_t *at;
	struct lanes *lanes;
};

static void close_map(struct xfer_map *map)
{
	struct backend *b = map->side->backend[0];
	struct err err;

	if (map->at != NULL &&
		b->ops->host_unmap(b, map->at, BUFFERS * BUFFER_BYTES, &err) != ST_OK)
		log_error("%s", err.text);
	if (map->fd >= 0)
		close(map->fd);
	lanes_destroy(map->lanes);
	mem_give(map);
}

/* Sealed, so that no side can take the memory from under the other's devices. */
static status make_memory(struct xfer_map *map, struct err *err)
{
	struct backend *b = map->side->backend[0];
	void *at = NULL;
	status st;

	map->fd = memfd_create("baton-stage", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (map->fd < 0 || ftruncate(map->fd, (off_t)(BUFFERS * BUFFER_BYTES)) != 0 ||
		fcntl(map->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) !=
			0)
		return err_set(err, ST_NOMEM, "memory to stage a hand-over: %s",
			strerror(errno));
	st = b->ops->host_map(b, map->fd, BUFFERS * BUFFER_BYTES, &at, err);
	map->at = at;
	return st;
}

static status open_map(struct xfer_map **out, const struct xfer_side *side,
	const struct peer_arenas *peer, struct err *err)
{
	struct xfer_map *map = mem_take(1, sizeof(*map));
	status st;

	if (map == NULL)
		return err_set(err, ST_LIMIT, "no request memory to stage a hand-over");
	map->side = side;
	map->fd = -1;
	st = make_memory(map, err);
	if (st == ST_OK)
		st = lanes_create(&map->lanes, side, err);
	if (st != ST_OK) {
		close_map(map);
		return st;
	}
	log_info("transport=%s from %s to %s buffers=%u of=%llu bytes",
		transport_cuda_host.name, peer->device_uuid[0], side->backend[0]->uuid,
		BUFFERS, (unsigned long long)BUFFER_BYTES);
	*out = map;
	return ST_OK;
}

static struct stage_room room(const struct xfer_map *map)
{
	return (struct stage_room){
		.fd = map->fd, .buffers = BUFFERS, .buffer_bytes = BUFFER_BYTES};
}

/* src_rank is the buffer, src_offset stands in it. */
static status copy(
	struct xfer_map *map, const struct plan_copy *copies, uint32_t n, struct err *err)
{
	struct copier c;

	copier_begin(&c, map->side, map->lanes, err);
	for (uint32_t i = 0; i < n; i++) {
		const struct plan_copy *p = &copies[i];

		copier_add(&c, p->dst_rank, NULL,
			(struct copy_piece){.src = map->at + p->src_rank * BUFFER_BYTES +
						   p->src_offset,
				.dst = (uint8_t *)map->side->arena[p->dst_rank] +
				       p->dst_offset,
				.bytes = p->bytes});
	}
	return copier_end(&c);
}

/* The exporter copies for whoever says stage, whatever it has offered. */
const struct transport_ops transport_cuda_host = {
	.name = "cuda_host",
	.backend = "cuda",
	.ticket = TICKET_CUDA_IPC,
	.item_bytes = BUFFER_BYTES,
	.parks = true,
	.open = open_map,
	.room = room,
	.copy = copy,
	.close = close_map,
};
