/* A router and a dealer on one loop, their notes, and a peer that speaks by hand. */
#ifndef TESTS_UNIT_LOOP_BUS_FIXTURE_H
#define TESTS_UNIT_LOOP_BUS_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/loop/bus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define WATCHDOG_MS 30000

struct side {
	struct bus *bus;
	struct loop *loop;
	uint64_t malformed;
	uint32_t sent, received, connects, disconnects;
	uint32_t disconnects_at_message; /* told before the newest message */
	int conn_connected, conn_disconnected, conn_of_message;
	unsigned stop_after_disconnects, stop_after_connects;
	char peer[64];
	size_t peer_len;
};

struct fixture {
	struct loop *loop;
	struct bus_net *net;
	struct loop_timer watchdog;
	struct side router, dealer;
	char dir[64], endpoint[96];
};

static inline void on_watchdog(void *ctx)
{
	(void)ctx;
	/* A failure of cmocka jumps out of the loop, which could then not be closed. */
	print_error("the test did not end within %d ms\n", WATCHDOG_MS);
	abort();
}

static inline int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	snprintf(f->dir, sizeof(f->dir), "/tmp/baton-test-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->endpoint, sizeof(f->endpoint), "ipc://%s/bus.sock", f->dir);
	f->loop = loop_create();
	f->net = bus_net_create(f->loop);
	f->router.loop = f->dealer.loop = f->loop;
	loop_timer_start(f->loop, &f->watchdog, WATCHDOG_MS, 0, on_watchdog, f);
	*state = f;
	return 0;
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;
	char path[128];

	bus_close(f->dealer.bus);
	bus_close(f->router.bus);
	bus_net_destroy(f->net);
	loop_timer_stop(&f->watchdog);
	loop_destroy(f->loop);
	snprintf(path, sizeof(path), "%s/bus.sock", f->dir);
	unlink(path);
	assert_int_equal(rmdir(f->dir), 0);
	free(f);
	assert_int_equal(mem_taken(), 0);
	return 0;
}

static inline void note_connect(void *ctx, int conn)
{
	struct side *s = ctx;

	s->connects++;
	s->conn_connected = conn;
	if (s->connects == s->stop_after_connects)
		loop_stop(s->loop);
}

static inline void note_disconnect(void *ctx, int conn)
{
	struct side *s = ctx;

	s->disconnects++;
	s->conn_disconnected = conn;
	if (s->disconnects == s->stop_after_disconnects)
		loop_stop(s->loop);
}

static inline void note_message(
	void *ctx, struct bytes peer, uint8_t type, struct bytes body, int conn)
{
	struct side *s = ctx;

	(void)type;
	(void)body;
	s->received++;
	s->conn_of_message = conn;
	s->disconnects_at_message = s->disconnects;
	s->peer_len = MIN(peer.len, sizeof(s->peer));
	memcpy(s->peer, peer.at, s->peer_len);
	loop_stop(s->loop);
}

static const struct bus_events note_events = {
	note_message, note_connect, note_disconnect};

static inline void open_pair(struct fixture *f, const struct bus_events *router,
	const struct bus_events *dealer, uint32_t high_water, uint32_t batch)
{
	struct bus_options o = {.endpoint = f->endpoint,
		.id = BYTES_STR("w0#1"),
		.high_water = high_water,
		.batch = batch};
	struct err err;

	o.events = router;
	o.ctx = &f->router;
	o.malformed = &f->router.malformed;
	assert_int_equal(bus_bind(&f->router.bus, f->net, &o, &err), ST_OK);
	if (dealer == NULL)
		return;
	o.events = dealer;
	o.ctx = &f->dealer;
	assert_int_equal(bus_connect(&f->dealer.bus, f->net, &o, &err), ST_OK);
}

/* ---- a peer without ZeroMQ, by hand ---- */

static inline int connect_raw(const struct fixture *f)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(to.sun_path, sizeof(to.sun_path), "%s", f->endpoint + 6);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

static inline void recv_exactly(int fd, uint8_t *at, size_t len)
{
	assert_int_equal(recv(fd, at, len, MSG_WAITALL), (ssize_t)len);
}

static inline void send_raw(int fd, const char *at, size_t len)
{
	assert_int_equal(send(fd, at, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* ZMTP 3.0 with the NULL mechanism, as a DEALER: greeting and READY, both ways; a
 * message before the other side's READY would be refused. */
static inline void handshake_raw(int fd)
{
	static const char ready[] = "\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06"
				    "DEALER";
	char greeting[64] = {(char)0xff, [9] = 0x7f, [10] = 3, 0, 'N', 'U', 'L', 'L'};
	uint8_t theirs[256];

	send_raw(fd, greeting, sizeof(greeting));
	send_raw(fd, ready, sizeof(ready) - 1);
	recv_exactly(fd, theirs, 64 + 2);
	assert_int_equal(theirs[64], 4);
	recv_exactly(fd, theirs, theirs[65]);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
