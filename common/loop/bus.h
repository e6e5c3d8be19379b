/* Control messages: a ZeroMQ socket on a loop. A message is one frame: a type byte and
 * a msgpack body; on a ROUTER socket the routing id of the peer stands before it.
 *
 * A net is the process's ZeroMQ context: create it once, close all buses, destroy it.
 * Everything runs on the thread of the loop. */
#ifndef COMMON_LOOP_BUS_H
#define COMMON_LOOP_BUS_H
#include "common/base/bytes.h"
#include "common/base/err.h"
#include "common/loop/loop.h"

#include <stdint.h>

/* Largest frame, type byte included; a peer that sends more loses its connection. */
#define BUS_FRAME_MAX   ((size_t)16 << 20)
#define BUS_PEER_ID_MAX 255u

struct bus_net;
struct bus_net *bus_net_create(struct loop *l);
/* Waits at most the linger time for messages that were accepted but not yet sent. */
void bus_net_destroy(struct bus_net *net);

struct bus_events {
	/* peer: routing id (empty on a DEALER); body: without the type byte. Both are
	 * borrowed for the call. conn: the connection that carried the frame, the number
	 * that on_disconnect will give; -1 where the transport has none. The callback may
	 * send on, and close, any bus. */
	void (*on_message)(
		void *ctx, struct bytes peer, uint8_t type, struct bytes body, int conn);
	/* A connection was made and can carry messages (DEALER), or was accepted
	 * (ROUTER). May be NULL. */
	void (*on_connect)(void *ctx, int conn);
	/* It ended. Comes after the last message that it carried (unless other peers
	 * flood this socket meanwhile), and before the first message of a later
	 * connection that got the same number. May be NULL. */
	void (*on_disconnect)(void *ctx, int conn);
};

struct bus_options {
	/* "ipc:///absolute/path" (under 108 bytes) or "tcp://HOST:PORT" with HOST a
	 * loopback address; anything else is refused by name. */
	const char *endpoint;
	struct bytes id;     /* DEALER: own routing id, 1 to 255 bytes, first not zero */
	uint32_t high_water; /* messages queued per peer and direction */
	uint32_t batch;      /* messages handed out per turn of the loop */
	const struct bus_events *events;
	void *ctx;
	/* Counts messages that are not exactly one non-empty frame; they are dropped.
	 * NULL: nobody wants to know. */
	uint64_t *malformed;
};

struct bus;
/* ROUTER. For ipc: a stale socket file is removed, one that answers is refused. */
MUST_CHECK status bus_bind(struct bus **out, struct bus_net *net,
	const struct bus_options *o, struct err *err);
/* DEALER. The peer need not be there yet; a lost connection is made again
 * (first after 50 ms, then ever less often, down to every 500 ms) until the bus is
 * closed. */
MUST_CHECK status bus_connect(struct bus **out, struct bus_net *net,
	const struct bus_options *o, struct err *err);
/* Whether those who look for the endpoint find this bus. false only for a ROUTER whose
 * ipc file was removed or replaced: connections go on, but no new one can be made. */
bool bus_bound(const struct bus *b);
/* Makes the file anew, as bus_bind does, beside the connections that live. The listener
 * of the old file stays open, so it is refused after BUS_BINDS_MAX. */
#define BUS_BINDS_MAX 64u
MUST_CHECK status bus_bind_again(struct bus *b, struct err *err);
/* No callback comes after it. An ipc file is removed while it is the bus's own. NULL is
 * allowed. */
void bus_close(struct bus *b);
/* The endpoint as bound or connected (a port 0 or * is resolved). */
const char *bus_endpoint(const struct bus *b);

/* Copies and queues; peer is ignored on a DEALER. ST_LIMIT: the peer's high-water mark
 * is reached. ST_PEER: no connection to that peer. ST_INVALID: above BUS_FRAME_MAX. */
MUST_CHECK status bus_send(
	struct bus *b, struct bytes peer, uint8_t type, struct bytes body);

#endif
