/* ZeroMQ on a loop.
 *
 * The descriptor of a ZeroMQ socket only announces edges: "readable" means "ask again",
 * and any send or receive may have consumed the edge of a message still queued. So the
 * descriptor does nothing but end the loop's sleep; every turn, before it sleeps again,
 * each socket is read until it is empty or its batch is used up, and after a full batch
 * or a send the loop is kept awake for one more turn. */
#include "common/loop/bus_core.h"

#include "common/base/log.h"
#include "common/base/mem.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

/* For what was accepted but not sent when a bus closes: enough for an answer that is on
 * its way, short against the times of the protocol (seconds). */
#define LINGER_MS        500
#define RECONNECT_MS     50
#define RECONNECT_MAX_MS 500
#define BUS_ENDPOINT_MAX 256
/* Connection events waiting for the messages that came before them. */

/* ---- connection events ---- */

/* First frame: event u16 and value u32, both in host order; second: the endpoint. */
static void note_event(struct bus *b, const uint8_t *frame)
{
	uint16_t event;
	int32_t conn;

	memcpy(&event, frame, sizeof(event));
	memcpy(&conn, frame + sizeof(event), sizeof(conn));
	switch (event) {
	case ZMQ_EVENT_ACCEPTED:
		bus_turn_event(b, conn, true);
		break;
	case ZMQ_EVENT_CONNECTED:
		b->conn = conn; /* nothing can be sent before the handshake */
		break;
	case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
		if (b->is_router)
			break;
		b->ready = true;
		bus_turn_event(b, b->conn, true);
		break;
	case ZMQ_EVENT_DISCONNECTED:
		/* A DEALER's connection that never became ready was never told. */
		if (b->is_router || b->ready)
			bus_turn_event(b, conn, false);
		b->ready = false;
		break;
	default:
		break;
	}
}

void bus_read_monitor(struct bus *b)
{
	uint8_t frame[6], address[BUS_ENDPOINT_MAX];

	/* What does not fit waits in the monitor's own queue, which has no limit. */
	while (b->n_pending < BUS_PENDING_MAX) {
		int n = zmq_recv(b->monitor, frame, sizeof(frame), ZMQ_DONTWAIT);

		if (n < 0 && zmq_errno() == EINTR)
			continue;
		if (n < 0)
			return;
		/* The frames of a message arrive together; only their size matters. */
		while (zmq_recv(b->monitor, address, sizeof(address), ZMQ_DONTWAIT) < 0 &&
			zmq_errno() == EINTR)
			;
		if (n == (int)sizeof(frame))
			note_event(b, frame);
	}
}

/* ---- receiving ---- */

static int recv_frame(struct bus *b, zmq_msg_t *m)
{
	int n;

	do
		n = zmq_msg_recv(m, b->sock, ZMQ_DONTWAIT);
	while (n < 0 && zmq_errno() == EINTR);
	return n;
}

bool bus_recv_one(struct bus *b)
{
	zmq_msg_t id, body;
	bool more, good;
	bool got;

	zmq_msg_init(&id);
	zmq_msg_init(&body);
	if (b->is_router) {
		got = recv_frame(b, &id) >= 0;
		more = got && zmq_msg_more(&id);
		good = more && recv_frame(b, &body) >= 0;
	} else {
		got = recv_frame(b, &body) >= 0;
		good = got;
	}
	more = got && zmq_msg_more(good ? &body : &id);
	good = good && !more && zmq_msg_size(&body) > 0;
	while (more && recv_frame(b, &body) >= 0)
		more = zmq_msg_more(&body);
	if (good)
		bus_turn_message(b, (struct bytes){zmq_msg_data(&id), zmq_msg_size(&id)},
			(struct bytes){zmq_msg_data(&body), zmq_msg_size(&body)},
			zmq_msg_get(&body, ZMQ_SRCFD));
	else if (got && b->malformed != NULL)
		++*b->malformed;
	zmq_msg_close(&body);
	zmq_msg_close(&id);
	return got;
}

/* Being called is all that is needed: the turn that follows reads the sockets. */
static void on_wake(void *ctx, int fd, unsigned events)
{
	(void)ctx;
	(void)fd;
	(void)events;
}

/* ---- opening and closing ---- */

struct bus_net *bus_net_create(struct loop *l)
{
	struct bus_net *net = mem_alloc(1, sizeof(*net));

	net->loop = l;
	net->zmq = zmq_ctx_new();
	if (net->zmq == NULL) {
		log_error("message context: %s", zmq_strerror(zmq_errno()));
		abort();
	}
	loop_on_turn(l, bus_turn, net);
	return net;
}

void bus_net_destroy(struct bus_net *net)
{
	if (net == NULL)
		return;
	assert(net->buses.n == 0);
	loop_off_turn(net->loop, bus_turn, net);
	while (zmq_ctx_term(net->zmq) < 0 && zmq_errno() == EINTR)
		;
	mem_free(net);
}

static status zmq_failed(const char *endpoint, const char *what, struct err *err)
{
	return err_set(
		err, ST_IO, "%s %s: %s", what, endpoint, zmq_strerror(zmq_errno()));
}

static bool set_int(void *sock, int option, int value)
{
	return zmq_setsockopt(sock, option, &value, sizeof(value)) == 0;
}

static status open_socket(struct bus *b, const struct bus_options *o, struct err *err)
{
	int64_t max = (int64_t)BUS_FRAME_MAX;
	bool ok;

	b->sock = zmq_socket(b->net->zmq, b->is_router ? ZMQ_ROUTER : ZMQ_DEALER);
	if (b->sock == NULL)
		return zmq_failed(o->endpoint, "socket", err);
	ok = set_int(b->sock, ZMQ_LINGER, LINGER_MS) &&
	     set_int(b->sock, ZMQ_SNDHWM, (int)o->high_water) &&
	     set_int(b->sock, ZMQ_RCVHWM, (int)o->high_water) &&
	     set_int(b->sock, ZMQ_RECONNECT_IVL, RECONNECT_MS) &&
	     set_int(b->sock, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS) &&
	     zmq_setsockopt(b->sock, ZMQ_MAXMSGSIZE, &max, sizeof(max)) == 0;
	if (b->is_router)
		/* Mandatory: an unknown peer is an error and not a silent loss. No
		 * hand-over of ids: with it the older live socket goes mute unseen. */
		ok = ok && set_int(b->sock, ZMQ_ROUTER_MANDATORY, 1);
	else
		/* Immediate: nothing is queued for a router that is not there. */
		ok = ok && set_int(b->sock, ZMQ_IMMEDIATE, 1) &&
		     zmq_setsockopt(b->sock, ZMQ_ROUTING_ID, o->id.at, o->id.len) == 0;
	return ok ? ST_OK : zmq_failed(o->endpoint, "options of", err);
}

static status open_monitor(struct bus *b, const struct bus_options *o, struct err *err)
{
	int events = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED |
		     ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
	char name[64];

	snprintf(name, sizeof(name), "inproc://monitor-%llu",
		(unsigned long long)b->net->n_monitors++);
	/* No high-water mark here: a full monitor would stop the I/O thread. */
	b->monitor = zmq_socket(b->net->zmq, ZMQ_PAIR);
	if (zmq_socket_monitor(b->sock, name, events) != 0 || b->monitor == NULL ||
		!set_int(b->monitor, ZMQ_LINGER, 0) ||
		!set_int(b->monitor, ZMQ_RCVHWM, 0) || zmq_connect(b->monitor, name) != 0)
		return zmq_failed(o->endpoint, "monitor of", err);
	return ST_OK;
}

static status watch(struct bus *b, void *sock, struct loop_fd **out, struct err *err)
{
	int fd;
	size_t size = sizeof(fd);
	status st;

	if (zmq_getsockopt(sock, ZMQ_FD, &fd, &size) != 0)
		return err_set(
			err, ST_IO, "socket descriptor: %s", zmq_strerror(zmq_errno()));
	st = loop_fd_open(out, b->net->loop, fd, on_wake, NULL, err);
	if (st == ST_OK)
		loop_fd_start(*out, LOOP_READABLE);
	return st;
}

/* The descriptors belong to ZeroMQ: unwatched first, closed by it after. */
void bus_close_sockets(struct bus *b)
{
	loop_fd_close(b->sock_watch, false);
	loop_fd_close(b->monitor_watch, false);
	if (b->sock != NULL) {
		zmq_socket_monitor(b->sock, NULL, 0);
		zmq_close(b->sock);
	}
	if (b->monitor != NULL)
		zmq_close(b->monitor);
	b->sock_watch = b->monitor_watch = NULL;
	b->sock = b->monitor = NULL;
	b->closed = true;
}

/* NULL: not over ipc. */
static const char *file_of(const char *endpoint)
{
	return strncmp(endpoint, "ipc://", 6) == 0 ? endpoint + 6 : NULL;
}

static status listen_at(struct bus *b, const char *endpoint, struct err *err)
{
	const char *path = file_of(endpoint);
	status st = ST_OK;

	if (path != NULL)
		st = runtime_remove_stale(path, RUNTIME_STREAM, err);
	if (st != ST_OK)
		return st;
	if (zmq_bind(b->sock, endpoint) != 0)
		return zmq_failed(endpoint, "bind", err);
	b->n_binds++;
	if (path == NULL)
		return ST_OK;
	if (!runtime_file_note(&b->file, path))
		return err_set(err, ST_IO, "socket %s: %s", path, strerror(errno));
	return ST_OK;
}

static status attach(struct bus *b, const struct bus_options *o, struct err *err)
{
	size_t size = sizeof(b->endpoint);
	status st = ST_OK;

	if (b->is_router)
		st = listen_at(b, o->endpoint, err);
	else if (zmq_connect(b->sock, o->endpoint) != 0)
		st = zmq_failed(o->endpoint, "connect", err);
	if (st != ST_OK)
		return st;
	if (zmq_getsockopt(b->sock, ZMQ_LAST_ENDPOINT, b->endpoint, &size) != 0)
		return zmq_failed(o->endpoint, "endpoint of", err);
	return ST_OK;
}

bool bus_bound(const struct bus *b)
{
	const char *path = file_of(b->endpoint);

	return !b->is_router || path == NULL || runtime_file_stands(&b->file, path);
}

/* While the socket still listens: whoever wants the name meanwhile finds it in use, so
 * the file that is removed is the one that was looked at. */
void bus_remove_file(struct bus *b)
{
	const char *path = file_of(b->endpoint);

	if (b->is_router && path != NULL && bus_bound(b) && unlink(path) != 0)
		log_warn("socket %s cannot be removed: %s", path, strerror(errno));
}

/* No zmq_unbind before it: that ends the connections which came by the old file. */
status bus_bind_again(struct bus *b, struct err *err)
{
	if (b->n_binds >= BUS_BINDS_MAX)
		return err_set(err, ST_LIMIT, "%s was bound %u times, which is the most",
			b->endpoint, b->n_binds);
	return listen_at(b, b->endpoint, err);
}

static status open_bus(struct bus **out, struct bus_net *net, const struct bus_options *o,
	bool is_router, struct err *err)
{
	struct bus *b;
	status st = bus_endpoint_check(o->endpoint, err);

	if (st != ST_OK)
		return st;
	assert(o->batch > 0 && o->high_water > 0 && o->high_water <= INT32_MAX);
	assert(is_router ||
		(o->id.len > 0 && o->id.len <= BUS_PEER_ID_MAX && o->id.at[0] != 0));
	b = mem_take(1, sizeof(*b));
	if (b == NULL)
		return err_set(err, ST_LIMIT, "bus %s: no request memory", o->endpoint);
	*b = (struct bus){.net = net,
		.is_router = is_router,
		.conn = -1,
		.batch = o->batch,
		.events = o->events,
		.ctx = o->ctx,
		.malformed = o->malformed};
	st = open_socket(b, o, err);
	if (st == ST_OK)
		st = open_monitor(b, o, err);
	if (st == ST_OK)
		st = watch(b, b->sock, &b->sock_watch, err);
	if (st == ST_OK)
		st = watch(b, b->monitor, &b->monitor_watch, err);
	if (st == ST_OK)
		st = attach(b, o, err);
	if (st != ST_OK) {
		bus_close_sockets(b);
		mem_give(b);
		return st;
	}
	list_add(&net->buses, &b->node);
	*out = b;
	return ST_OK;
}

status bus_bind(struct bus **out, struct bus_net *net, const struct bus_options *o,
	struct err *err)
{
	return open_bus(out, net, o, true, err);
}

status bus_connect(struct bus **out, struct bus_net *net, const struct bus_options *o,
	struct err *err)
{
	return open_bus(out, net, o, false, err);
}

/* ---- sending ---- */

/* ZeroMQ looks at its commands (a peer that reads again, a new peer) only now and then
 * when it sends; asking for the events makes it look. */
static void refresh(struct bus *b)
{
	int events;
	size_t size = sizeof(events);

	zmq_getsockopt(b->sock, ZMQ_EVENTS, &events, &size);
}

static int send_once(struct bus *b, struct bytes peer, zmq_msg_t *m)
{
	int n = 0;

	if (b->is_router)
		do
			n = zmq_send(
				b->sock, peer.at, peer.len, ZMQ_SNDMORE | ZMQ_DONTWAIT);
		while (n < 0 && zmq_errno() == EINTR);
	if (n < 0)
		return -1;
	do
		n = zmq_msg_send(m, b->sock, ZMQ_DONTWAIT);
	while (n < 0 && zmq_errno() == EINTR);
	return n;
}

status bus_send(struct bus *b, struct bytes peer, uint8_t type, struct bytes body)
{
	zmq_msg_t m;
	uint8_t *frame;
	int n;

	if (body.len >= BUS_FRAME_MAX)
		return ST_INVALID;
	if (b->closed || (!b->is_router && !b->ready))
		return ST_PEER;
	if (zmq_msg_init_size(&m, body.len + 1) != 0)
		return ST_LIMIT;
	frame = zmq_msg_data(&m);
	frame[0] = type;
	if (body.len > 0)
		memcpy(frame + 1, body.at, body.len);
	n = send_once(b, peer, &m);
	if (n < 0) {
		refresh(b);
		n = send_once(b, peer, &m);
	}
	loop_keep_awake(b->net->loop);
	if (n < 0) {
		bool full = zmq_errno() == EAGAIN;

		zmq_msg_close(&m);
		/* A DEALER without a connection looks like one whose queue is full. */
		bus_read_monitor(b);
		return full && (b->is_router || b->ready) ? ST_LIMIT : ST_PEER;
	}
	return ST_OK;
}
