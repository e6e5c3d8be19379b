/* Orders and offers over a socket pair. */
#include "deploy/tools/logits_order.h"

#include "common/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

/* Longer than any pass of the tools' sequences. */
#define PARK_NS (600 * NS_PER_S)

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
	struct pollfd p = {.fd = fd, .events = POLLIN};
	ssize_t n;

	/* The loop's descriptor does not block; the parts of an order follow at once. */
	do {
		(void)poll(&p, 1, -1);
		n = recv(fd, at, bytes, 0);
	} while (n < 0 && (errno == EINTR || errno == EAGAIN));
	if (n == (ssize_t)bytes)
		return ST_OK;
	return err_set(err, ST_PEER, "the other process of the hand-over %s",
		n == 0  ? "has ended"
		: n < 0 ? strerror(errno)
			: "sent half a message");
}

status order_send(int fd, const uint32_t *ids, uint32_t n, struct err *err)
{
	status st;

	if (n > ORDER_IDS_MAX)
		return err_set(err, ST_LIMIT,
			"%u tokens: a hand-over takes at most %u here", n, ORDER_IDS_MAX);
	st = send_whole(fd, &n, sizeof(n), err);
	for (uint32_t at = 0; at < n && st == ST_OK; at += ORDER_PART_IDS)
		st = send_whole(
			fd, ids + at, MIN(n - at, ORDER_PART_IDS) * sizeof(*ids), err);
	return st;
}

status order_receive(int fd, struct order *order, struct err *err)
{
	status st = receive_whole(fd, &order->n, sizeof(order->n), err);

	if (st == ST_OK && order->n > ORDER_IDS_MAX)
		st = err_set(err, ST_INVALID, "an order of %u tokens", order->n);
	for (uint32_t at = 0; st == ST_OK && at < order->n; at += ORDER_PART_IDS)
		st = receive_whole(fd, order->ids + at,
			MIN(order->n - at, ORDER_PART_IDS) * sizeof(order->ids[0]), err);
	return st;
}

status offer_send(int fd, const struct offer *offer, struct err *err)
{
	return send_whole(fd, offer, sizeof(*offer), err);
}

status offer_receive(int fd, struct offer *offer, struct err *err)
{
	return receive_whole(fd, offer, sizeof(*offer), err);
}

static bool park(void *ctx)
{
	return engine_park(ctx, PARK_NS);
}

static void unpark(void *ctx)
{
	engine_unpark(ctx);
}

void order_side(struct xfer_side *side, struct engine *e)
{
	side->park = park;
	side->unpark = unpark;
	side->park_ctx = e;
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
