/* Orders and offers over a socket pair. */
#include "deploy/tools/logits_order.h"

#include "common/base/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

static status send_whole(int fd, const void *at, size_t bytes, struct err *err)
{
	ssize_t n;

	do
		n = send(fd, at, bytes, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n == (ssize_t)bytes)
		return ST_OK;
	return err_set(err, ST_PEER, "the other process of the hand-over: %s",
		n < 0 ? strerror(errno) : "a message was cut");
}

static status receive_whole(int fd, void *at, size_t bytes, struct err *err)
{
	ssize_t n;

	do
		n = recv(fd, at, bytes, 0);
	while (n < 0 && errno == EINTR);
	if (n == (ssize_t)bytes)
		return ST_OK;
	return err_set(err, ST_PEER, "the other process of the hand-over %s",
		n == 0  ? "has ended"
		: n < 0 ? strerror(errno)
			: "sent half a message");
}

status order_send(int fd, const uint32_t *ids, uint32_t n, struct err *err)
{
	struct order *order;
	status st;

	if (n > ORDER_IDS_MAX)
		return err_set(err, ST_LIMIT,
			"%u tokens: a hand-over takes at most %u here", n, ORDER_IDS_MAX);
	order = mem_take(1, sizeof(*order));
	if (order == NULL)
		return err_set(err, ST_NOMEM, "no memory for an order");
	order->n = n;
	memcpy(order->ids, ids, n * sizeof(*ids));
	st = send_whole(fd, order, sizeof(*order), err);
	mem_give(order);
	return st;
}

status order_receive(int fd, struct order *order, struct err *err)
{
	return receive_whole(fd, order, sizeof(*order), err);
}

status offer_send(int fd, const struct offer *offer, struct err *err)
{
	return send_whole(fd, offer, sizeof(*offer), err);
}

status offer_receive(int fd, struct offer *offer, struct err *err)
{
	return receive_whole(fd, offer, sizeof(*offer), err);
}

void order_side(struct xfer_side *side, const struct engine *e)
{
	side->layout = *engine_layout(e);
	side->arena_pages = engine_pages(e);
	side->arena_slots = engine_slots(e);
	side->arena_bytes =
		layout_arena_bytes(engine_layout(e), engine_pages(e), engine_slots(e));
	side->n_ranks = engine_ranks(e);
	for (uint32_t r = 0; r < side->n_ranks; r++) {
		side->backend[r] = engine_backend(e, r);
		side->arena[r] = engine_arena(e, r);
	}
}
