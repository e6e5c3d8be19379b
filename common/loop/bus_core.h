/* What the files of the bus share. Private to this folder. */
#ifndef COMMON_LOOP_BUS_CORE_H
#define COMMON_LOOP_BUS_CORE_H
#include "common/base/list.h"
#include "common/loop/bus.h"
#include "common/loop/runtime.h"

#define BUS_ENDPOINT_MAX 256
/* Connection events waiting for the messages that came before them. */
#define BUS_PENDING_MAX  64

struct bus_net {
	void *zmq;
	struct loop *loop;
	struct list buses;
	uint64_t n_monitors; /* each monitor has an endpoint of its own */
	bool draining;       /* a callback may run: buses are only marked closed */
};

struct bus_pending {
	int conn;
	bool connected; /* else: ended */
};

struct bus {
	struct bus_net *net;
	struct list_node node; /* of bus_net.buses */
	void *sock;
	void *monitor; /* PAIR socket that brings connection events */
	struct loop_fd *sock_watch, *monitor_watch;
	bool is_router;
	bool closed;
	bool ready; /* DEALER: a connection can carry messages */
	int conn;   /* DEALER: descriptor of the newest connection */
	uint32_t batch;
	uint32_t full_turns; /* in a row in which the batch was used up */
	uint32_t n_pending;
	struct bus_pending pending[BUS_PENDING_MAX];
	const struct bus_events *events;
	void *ctx;
	uint64_t *malformed; /* may be NULL */
	uint32_t n_binds;
	struct runtime_file file; /* ROUTER over ipc: by which it is found */
	char endpoint[BUS_ENDPOINT_MAX];
};

/* bus.c: sockets. */
void bus_read_monitor(struct bus *b);
/* One message to bus_turn_message; false: the socket is empty. */
bool bus_recv_one(struct bus *b);
void bus_close_sockets(struct bus *b);
/* What a ROUTER made to be found by; what is another's is left alone. */
void bus_remove_file(struct bus *b);

/* bus_turn.c: order. */
void bus_turn_event(struct bus *b, int conn, bool connected);
void bus_turn_message(struct bus *b, struct bytes peer, struct bytes frame, int conn);
/* Turn hook; ctx is the net. */
void bus_turn(void *ctx);

/* bus_endpoint.c */
MUST_CHECK status bus_endpoint_check(const char *endpoint, struct err *err);

#endif
