/* Who is read when, and what is told in which order. */
#include "common/loop/bus_core.h"

#include "common/base/mem.h"

#include <assert.h>
#include <string.h>

/* Full batches after which connection events are not held back any longer. */
#define FULL_TURNS_MAX 64

static void tell_pending(struct bus *b, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && !b->closed; i++) {
		struct bus_pending *p = &b->pending[i];

		if (p->connected && b->events->on_connect != NULL)
			b->events->on_connect(b->ctx, p->conn);
		if (!p->connected && b->events->on_disconnect != NULL)
			b->events->on_disconnect(b->ctx, p->conn);
	}
	b->n_pending -= n;
	memmove(b->pending, b->pending + n, b->n_pending * sizeof(b->pending[0]));
}

void bus_turn_event(struct bus *b, int conn, bool connected)
{
	assert(b->n_pending < BUS_PENDING_MAX);
	b->pending[b->n_pending++] = (struct bus_pending){conn, connected};
}

/* A later connection may have got the number of one that ended: what is known of the
 * number up to its newest beginning comes before a message that carries it. */
static void tell_before(struct bus *b, int conn)
{
	for (uint32_t i = b->n_pending; i > 0; i--)
		if (b->pending[i - 1].connected && b->pending[i - 1].conn == conn) {
			tell_pending(b, i);
			return;
		}
}

void bus_turn_message(struct bus *b, struct bytes peer, struct bytes frame, int conn)
{
	bus_read_monitor(b);
	tell_before(b, conn);
	if (!b->closed)
		b->events->on_message(b->ctx, peer, frame.at[0],
			(struct bytes){frame.at + 1, frame.len - 1}, conn);
}

/* Events are told once the socket was found empty after they were read: every message
 * from before them has been handed out then. Under a flood that never ends they are
 * told all the same after some turns. */
static void drain(struct bus *b)
{
	uint32_t n = 0;

	bus_read_monitor(b);
	while (n < b->batch && !b->closed && bus_recv_one(b))
		n++;
	/* Either may have left something unread. */
	if (n == b->batch || b->n_pending == BUS_PENDING_MAX)
		loop_keep_awake(b->net->loop);
	b->full_turns = n == b->batch ? b->full_turns + 1 : 0;
	if (b->full_turns % FULL_TURNS_MAX == 0 || b->n_pending == BUS_PENDING_MAX)
		tell_pending(b, b->n_pending);
}

static void free_bus(struct bus *b)
{
	list_remove(&b->node);
	mem_give(b);
}

void bus_turn(void *ctx)
{
	struct bus_net *net = ctx;

	net->draining = true;
	list_each (b, &net->buses, struct bus, node)
		if (!b->closed)
			drain(b);
	net->draining = false;
	list_each (b, &net->buses, struct bus, node) {
		if (b->closed) {
			bus_close_sockets(b);
			free_bus(b);
		}
	}
}

void bus_close(struct bus *b)
{
	if (b == NULL)
		return;
	bus_remove_file(b);
	if (b->net->draining) {
		/* The message in hand may belong to it: its sockets go with it later. */
		b->closed = true;
		return;
	}
	bus_close_sockets(b);
	free_bus(b);
}

const char *bus_endpoint(const struct bus *b)
{
	return b->endpoint;
}
