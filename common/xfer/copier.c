/* Lists of pieces, one after the other. */
#include "common/xfer/copier.h"

void copier_begin(struct copier *c, const struct xfer_side *side, struct lanes *lanes,
	struct err *err)
{
	c->side = side;
	c->lane = lanes_take(lanes);
	c->err = err;
	c->st = ST_OK;
	c->n = 0;
	for (uint32_t r = 0; r < RANKS_MAX; r++)
		c->used[r] = false;
}

static void flush(struct copier *c)
{
	const struct backend_ops *ops = c->side->backend[c->rank]->ops;
	struct stream *s = lane_stream(c->lane, c->rank);

	if (c->n == 0 || c->st != ST_OK)
		return;
	c->used[c->rank] = true;
	if (c->how != NULL)
		c->st = ops->copy_list_by(s, c->how, c->pieces, c->n, c->err);
	else
		c->st = ops->copy_list(s, c->pieces, c->n, c->err);
	c->n = 0;
}

void copier_add(struct copier *c, uint32_t rank, const struct copy_method *how,
	struct copy_piece piece)
{
	if (c->n == COPIER_PIECES || (c->n > 0 && c->rank != rank))
		flush(c);
	if (c->st != ST_OK)
		return;
	c->rank = rank;
	c->how = how;
	c->pieces[c->n++] = piece;
}

status copier_end(struct copier *c)
{
	if (c->n > 0)
		flush(c);
	for (uint32_t r = 0; r < c->side->n_ranks; r++) {
		struct err late;
		status st = c->used[r] ? c->side->backend[r]->ops->stream_sync(
						 lane_stream(c->lane, r), &late)
				       : ST_OK;

		if (c->st == ST_OK && st != ST_OK) {
			c->st = st;
			*c->err = late;
		}
	}
	lanes_give(c->lane);
	return c->st;
}
