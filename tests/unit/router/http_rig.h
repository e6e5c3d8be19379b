/* A server on a loop of its own thread, with a handler whose behaviour the path
 * chooses, and blocking clients. Included by test_http*.c only. */
#ifndef TESTS_UNIT_ROUTER_HTTP_RIG_H
#define TESTS_UNIT_ROUTER_HTTP_RIG_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "router/api_out.h"
#include "router/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PIECE "data: 0123456789\n\n"

struct rig {
	struct loop *loop;
	struct http *http;
	int stop_fd;
	struct loop_fd *stop;
	pthread_t thread;
	atomic_uint requests, gone, ends, delivered, refused, refused_code, wrong_order;
	atomic_int quiesce;
	atomic_int count; /* 1: conns is wanted */
	atomic_uint conns;
	atomic_ullong body_bytes;
};

/* What the handler remembers of a request. */
struct kept {
	struct rig *rig;
	struct http_req *req;
	struct loop_timer timer;
	int left;
	bool gone, aborted;
	char piece[65536];
	size_t piece_len;
};

static void stream_tick(void *ctx)
{
	struct kept *k = ctx;

	if (k->left-- > 0) {
		http_stream_write(
			k->req, (struct bytes){(const uint8_t *)k->piece, k->piece_len});
		return;
	}
	loop_timer_stop(&k->timer);
	http_stream_end(k->req);
}

static void answer_later(void *ctx)
{
	struct kept *k = ctx;

	http_respond(k->req, 200, "text/plain", BYTES_STR("late"));
}

/* All that is left in one turn, and the end. */
static void burst_tick(void *ctx)
{
	struct kept *k = ctx;

	while (k->left-- > 0 && !k->gone)
		http_stream_write(
			k->req, (struct bytes){(const uint8_t *)k->piece, k->piece_len});
	http_stream_end(k->req);
}

/* /burst: three pieces; /burst/N: N of 64 KiB. A piece goes before them. */
static void burst(struct rig *r, struct kept *k, const char *path)
{
	bool large = path[6] == '/';

	k->left = large ? (int)strtol(path + 7, NULL, 10) : 3;
	k->piece_len = large ? sizeof(k->piece) : sizeof(PIECE) - 1;
	for (size_t i = 0; i < k->piece_len; i++)
		k->piece[i] = large ? (char)('a' + i % 23) : PIECE[i];
	http_stream_begin(k->req, 200, "text/event-stream");
	http_stream_write(k->req, BYTES_STR(PIECE));
	loop_timer_start(r->loop, &k->timer, 20, 0, burst_tick, k);
}

/* Writes four megabytes without waiting. */
static void flood(struct kept *k)
{
	http_stream_begin(k->req, 200, "text/event-stream");
	memset(k->piece, 'x', sizeof(k->piece));
	for (unsigned i = 0; i < (4u << 20) / sizeof(k->piece); i++)
		if (!http_stream_write(k->req,
			    (struct bytes){(const uint8_t *)k->piece, sizeof(k->piece)}))
			break;
	/* Unended: only the client's slowness can end it. */
}

static void rig_request(void *ctx, struct http_req *req)
{
	struct rig *r = ctx;
	struct kept *k = calloc(1, sizeof(*k));
	const char *path = http_path(req);
	struct sink body = http_body_take(req);

	atomic_fetch_add(&r->requests, 1);
	atomic_fetch_add(&r->body_bytes, body.len);
	k->rig = r;
	k->req = req;
	http_set_user(req, k);
	if (strcmp(path, "/echo") == 0) {
		http_header_add(req, "X-Method", http_method(req));
		http_header_add(req, "X-Path", path);
		http_respond(req, 200, "text/plain", sink_bytes(&body));
	} else if (strcmp(path, "/later") == 0) {
		loop_timer_start(r->loop, &k->timer, 10, 0, answer_later, k);
	} else if (strncmp(path, "/stream", 7) == 0) {
		k->left = path[7] == '/' ? (int)strtol(path + 8, NULL, 10) : 5;
		k->piece_len = sizeof(PIECE) - 1;
		memcpy(k->piece, PIECE, k->piece_len);
		http_stream_begin(req, 200, "text/event-stream");
		loop_timer_start(r->loop, &k->timer, 2, 2, stream_tick, k);
	} else if (strncmp(path, "/burst", 6) == 0) {
		burst(r, k, path);
	} else if (strcmp(path, "/flood") == 0) {
		flood(k);
	} else if (strcmp(path, "/abort") == 0) {
		http_stream_begin(req, 200, "text/event-stream");
		http_stream_write(req, BYTES_STR("first"));
		http_stream_abort(req);
		k->aborted = true;
	} else if (strcmp(path, "/open") == 0) {
		http_stream_begin(req, 200, "text/event-stream");
		http_stream_write(req, BYTES_STR("first"));
	} else if (strcmp(path, "/never") != 0) {
		http_respond(req, 404, "text/plain", BYTES_STR("no"));
	}
	sink_release(&body);
}

static void rig_gone(void *ctx, struct http_req *req)
{
	struct rig *r = ctx;
	struct kept *k = http_user(req);

	if (k->gone)
		atomic_fetch_add(&r->wrong_order, 1);
	k->gone = true;
	/* Both must do nothing now. */
	http_stream_write(req, BYTES_STR("x"));
	loop_timer_stop(&k->timer);
	atomic_fetch_add(&r->gone, 1);
}

static void rig_end(void *ctx, struct http_req *req)
{
	struct rig *r = ctx;
	struct kept *k = http_user(req);
	bool delivered;

	if (k == NULL) {
		atomic_fetch_add(&r->wrong_order, 1);
		return;
	}
	delivered = http_lost(req) == HTTP_NOT_LOST && !k->aborted;
	if (k->gone && delivered)
		atomic_fetch_add(&r->wrong_order, 1);
	loop_timer_stop(&k->timer);
	http_set_user(req, NULL);
	free(k);
	if (delivered)
		atomic_fetch_add(&r->delivered, 1);
	atomic_fetch_add(&r->ends, 1);
}

static void rig_refused(void *ctx, struct http_req *req, unsigned code, const char *why)
{
	struct rig *r = ctx;

	(void)req;
	(void)why;
	atomic_store(&r->refused_code, code);
	atomic_fetch_add(&r->refused, 1);
}

/* Paths under /mine have a shape of errors of their own. */
static void rig_error(struct sink *out, const char *path, const struct api_error *e)
{
	if (path != NULL && strncmp(path, "/mine", 5) == 0)
		sink_fmt(
			out, "{\"mine\":{\"path\":\"%s\",\"status\":%u}}", path, e->http);
	else
		out_error(out, e);
}

/* What a stream of events says when there is nothing to say. */
static void rig_half_closed(void *ctx, struct http_req *req)
{
	(void)ctx;
	http_stream_write(req, BYTES_STR(":\n\n"));
}

static void rig_wake(void *ctx, int fd, unsigned events)
{
	struct rig *r = ctx;
	uint64_t n;

	(void)events;
	if (read(fd, &n, sizeof(n)) != sizeof(n))
		return;
	if (atomic_load(&r->count)) {
		atomic_store(&r->conns, http_connections(r->http));
		atomic_store(&r->count, 0);
	} else if (atomic_load(&r->quiesce)) {
		http_quiesce(r->http);
		atomic_store(&r->quiesce, 0);
	} else {
		loop_stop(r->loop);
	}
}

static void *rig_thread(void *ctx)
{
	struct rig *r = ctx;

	loop_run(r->loop);
	return NULL;
}

static struct rig *rig_start(struct http_options o)
{
	struct rig *r = calloc(1, sizeof(*r));
	struct http_handler handler = {.ctx = r,
		.on_request = rig_request,
		.on_gone = rig_gone,
		.on_end = rig_end,
		.on_refused = rig_refused,
		.on_half_closed = rig_half_closed,
		.put_error = rig_error};
	struct err err;

	r->loop = loop_create();
	o.loop = r->loop;
	if (o.host == NULL)
		o.host = "127.0.0.1";
	if (http_create(&r->http, &o, &handler, &err) != ST_OK)
		fail_msg("%s", err.text);
	r->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_int_equal(
		loop_fd_open(&r->stop, r->loop, r->stop_fd, rig_wake, r, &err), ST_OK);
	loop_fd_start(r->stop, LOOP_READABLE);
	assert_int_equal(pthread_create(&r->thread, NULL, rig_thread, r), 0);
	return r;
}

static void rig_signal(struct rig *r)
{
	uint64_t one = 1;

	assert_int_equal(write(r->stop_fd, &one, sizeof(one)), sizeof(one));
}

/* Open connections, as the loop's thread sees them. */
static inline unsigned rig_connections(struct rig *r)
{
	atomic_store(&r->count, 1);
	rig_signal(r);
	while (atomic_load(&r->count))
		usleep(200);
	return atomic_load(&r->conns);
}

/* Stops the server with whatever is open, and checks what must hold at every end. */
static void rig_stop(struct rig *r)
{
	rig_signal(r);
	pthread_join(r->thread, NULL);
	http_destroy(r->http);
	loop_fd_close(r->stop, true);
	loop_destroy(r->loop);
	assert_int_equal(atomic_load(&r->requests), atomic_load(&r->ends));
	assert_int_equal(atomic_load(&r->wrong_order), 0);
	assert_int_equal(mem_taken(), 0);
	free(r);
}

/* Waits up to 5 s for a counter. */
static inline void rig_until(atomic_uint *counter, unsigned value)
{
	for (int i = 0; i < 5000 && atomic_load(counter) < value; i++)
		usleep(1000);
	assert_int_equal(atomic_load(counter), value);
}

static int connect_to(struct rig *r)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons(http_port(r->http)),
		.sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct timeval limit = {.tv_sec = 10};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static void put(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Reads until `end` was seen (NULL: until the connection ends). */
static const char *take_until(int fd, const char *end)
{
	static char buf[1 << 20];
	size_t n = 0;

	buf[0] = '\0';
	while (n < sizeof(buf) - 1 && (end == NULL || strstr(buf, end) == NULL)) {
		ssize_t k = recv(fd, buf + n, 1, 0);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			break;
		n += (size_t)k;
		buf[n] = '\0';
	}
	if (end != NULL && strstr(buf, end) == NULL)
		fail_msg("no \"%s\" in \"%s\"", end, buf);
	return buf;
}

/* One request on a connection of its own; everything that comes back. */
static inline const char *ask(struct rig *r, const char *text)
{
	int fd = connect_to(r);
	const char *answer;

	put(fd, text);
	answer = take_until(fd, NULL);
	close(fd);
	return answer;
}

#define HAS(text, part)                                                                  \
	do {                                                                             \
		const char *t_ = (text);                                                 \
		if (strstr(t_, (part)) == NULL)                                          \
			fail_msg("no \"%s\" in \"%s\"", (part), t_);                     \
	} while (0)

#endif
