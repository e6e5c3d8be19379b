/* Mapped arenas of a peer. */
#include "common/xfer/arena_map.h"
#include "common/base/log.h"
#include "common/xfer/copier.h"

status arena_map_init(struct arena_map *m, const struct xfer_side *side,
	const struct peer_arenas *peer, uint32_t n_ours, struct err *err)
{
	status st;

	m->side = side;
	m->n_ours = n_ours;
	m->n_theirs = peer->n_ranks;
	st = lanes_create(&m->lanes, side, err);
	for (uint32_t d = 0; d < n_ours; d++)
		for (uint32_t r = 0; r < m->n_theirs && st == ST_OK; r++) {
			struct backend *b = side->backend[d];
			const void *at = NULL;

			st = b->ops->arena_open(b, &peer->ticket[r], &at, err);
			m->at[d][r] = at;
			m->bytes[r] = peer->ticket[r].bytes;
		}
	return st;
}

void arena_map_release(struct arena_map *m)
{
	struct err err;

	for (uint32_t d = 0; d < m->n_ours; d++)
		for (uint32_t r = 0; r < m->n_theirs; r++) {
			struct backend *b = m->side->backend[d];

			if (m->at[d][r] != NULL && b->ops->arena_close(b, m->at[d][r],
							   m->bytes[r], &err) != ST_OK)
				log_error("%s", err.text);
		}
	lanes_destroy(m->lanes);
}

status arena_map_copy(const struct arena_map *m, const struct copy_method *const *how,
	const struct plan_copy *copies, uint32_t n, struct err *err)
{
	struct copier c;

	copier_begin(&c, m->side, m->lanes, err);
	for (uint32_t i = 0; i < n; i++) {
		const struct plan_copy *p = &copies[i];
		uint32_t d = p->dst_rank;

		copier_add(&c, d, how != NULL ? how[d] : NULL,
			(struct copy_piece){
				.src = m->at[MIN(d, m->n_ours - 1)][p->src_rank] +
				       p->src_offset,
				.dst = (uint8_t *)m->side->arena[d] + p->dst_offset,
				.bytes = p->bytes});
	}
	return copier_end(&c);
}
