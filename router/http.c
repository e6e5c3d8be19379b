/* The HTTP server on the loop: libmicrohttpd's turn, time limits. Its sockets are in
 * http_listen.c, what concerns one connection in http_conn.c. */
#include "router/http_impl.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define SWEEP_MS          250
#define ACCEPTS_PER_EVENT 64
/* Runs of libmicrohttpd in one turn before others get theirs. */
#define RUNS_PER_TURN     4
/* Of libmicrohttpd's memory of a connection: the lines of an answer's head. */
#define ANSWER_ROOM       (8u << 10)
/* Descriptors are numbered from the lowest free one; far more than else are open. */
#define OTHER_FDS         8192u

static const struct http_options defaults = {
	.body_max = 32u << 20,
	.header_max = 16u << 10,
	.stream_max = 16u << 20,
	.headers_max = 100,
	.connections_max = 4096,
	.idle_s = 75,
	.read_s = 60,
	.drain_s = 60,
};

uint64_t http_ran_ns(void)
{
	clock_look();
	return clock_ran_ns();
}

void http_mark_ready(struct http_req *req)
{
	struct http *h = req->h;

	if (req->ready.in == NULL)
		list_add(&h->ready, &req->ready);
	/* The turn hook may be over already when another hook comes here. */
	loop_keep_awake(h->o.loop);
}

/* Give up what is to be cut, see to what waited, and resume all that have something to
 * say. */
static void resume_ready(struct http *h)
{
	struct http_req *req;

	/* One that is resumed may become ready again. */
	while ((req = list_first(&h->ready, struct http_req, ready)) != NULL) {
		list_remove(&req->ready);
		if (req->cut)
			http_conn_cut(req, HTTP_STOPPED);
		http_conn_between(req);
		if (req->ours && http_stream_flush(req))
			continue;
		if (req->suspended) {
			req->suspended = false;
			MHD_resume_connection(req->conn);
			h->must_run = true;
		}
	}
}

static void on_timeout(void *ctx)
{
	struct http *h = ctx;

	h->must_run = true;
}

/* One place runs libmicrohttpd: before the loop sleeps, once for all that happened in
 * the turn. */
static void on_turn(void *ctx)
{
	struct http *h = ctx;
	MHD_UNSIGNED_LONG_LONG ms;
	uint32_t before;

	if (clock_slept(&h->slept_ns) > 0)
		list_each (c, &h->conns, struct http_req, node)
			http_limits_renew(c);
	for (int i = 0; i < RUNS_PER_TURN; i++) {
		resume_ready(h);
		if (!h->must_run)
			break;
		before = h->conns.n;
		h->must_run = false;
		http_tap_run(h);
		/* At the connection limit the listening socket is not watched; it is
		 * looked at again only in a run that begins with a free place. */
		if (h->conns.n < before)
			h->must_run = true;
		if (MHD_get_timeout(h->daemon, &ms) != MHD_YES)
			loop_timer_stop(&h->timeout);
		else if (ms == 0)
			h->must_run = true;
		else
			loop_timer_start(h->o.loop, &h->timeout, ms, 0, on_timeout, h);
	}
	if (h->must_run || h->ready.n > 0)
		loop_keep_awake(h->o.loop);
}

static void on_epoll(void *ctx, int fd, unsigned events)
{
	struct http *h = ctx;

	(void)fd;
	(void)events;
	h->must_run = true;
}

static unsigned places(const struct http *h)
{
	return h->o.connections_max + HTTP_PROBE_PLACES;
}

static void on_sweep(void *ctx)
{
	struct http *h = ctx;
	uint64_t now = http_ran_ns();

	list_each (c, &h->conns, struct http_req, node)
		http_limits_sweep(c, now);
	/* What no event tells: a descriptor came free after accept had failed. */
	h->must_run = true;
	if (h->unix_watch != NULL && h->conns.n < places(h))
		loop_fd_start(h->unix_watch, LOOP_READABLE);
}

/* Until the next sweep: a descriptor that cannot be accepted from stays readable. */
static void pause_unix(struct http *h)
{
	loop_fd_stop(h->unix_watch);
}

/* libmicrohttpd has one listening socket per daemon; connections of the Unix socket are
 * handed to it one by one. */
static void on_unix(void *ctx, int fd, unsigned events)
{
	struct http *h = ctx;

	(void)events;
	for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
		struct sockaddr_un peer = {.sun_family = AF_UNIX};
		int c;

		if (h->conns.n >= places(h)) {
			pause_unix(h);
			return;
		}
		c = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (c < 0 && (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR))
			return;
		if (c < 0) {
			log_warn("http: accept on %s: %s", h->o.unix_path,
				strerror(errno));
			pause_unix(h);
			return;
		}
		/* On failure the descriptor is closed by libmicrohttpd. */
		if (MHD_add_connection(h->daemon, c, (struct sockaddr *)&peer,
			    sizeof(sa_family_t)) != MHD_YES)
			log_warn("http: a connection of the Unix socket was refused");
		h->must_run = true;
	}
}

__attribute__((format(printf, 2, 0))) static void on_mhd_log(
	void *cls, const char *fmt, va_list ap)
{
	char text[256];

	(void)cls;
	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	log_debug("http: %s", text);
}

unsigned http_mhd_timeout_s(const struct http_options *o)
{
	return MAX(o->drain_s, o->idle_s + 1);
}

static status start_daemon(struct http *h, struct err *err)
{
	const union MHD_DaemonInfo *info;

	/* Of each connection, from its first request on. Twice the limit of the header
	 * lines, so that too long ones can be answered by ourselves; the rest is for
	 * the answer's. */
	h->daemon = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL,
		NULL, http_conn_access, h, MHD_OPTION_EXTERNAL_LOGGER, on_mhd_log, h,
		MHD_OPTION_LISTEN_SOCKET, h->listen_fd, MHD_OPTION_CONNECTION_LIMIT,
		places(h), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		2 * h->o.header_max + ANSWER_ROOM, MHD_OPTION_CONNECTION_TIMEOUT,
		http_mhd_timeout_s(&h->o), MHD_OPTION_URI_LOG_CALLBACK, http_conn_uri, h,
		MHD_OPTION_NOTIFY_CONNECTION, http_conn_notify, h,
		MHD_OPTION_NOTIFY_COMPLETED, http_conn_completed, h, MHD_OPTION_END);
	if (h->daemon == NULL)
		return err_set(
			err, ST_IO, "libmicrohttpd does not start: %s", strerror(errno));
	info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	if (loop_fd_open(&h->epoll, h->o.loop, info->epoll_fd, on_epoll, h, err) != ST_OK)
		return err->code;
	loop_fd_start(h->epoll, LOOP_READABLE);
	if (h->unix_fd >= 0) {
		if (loop_fd_open(&h->unix_watch, h->o.loop, h->unix_fd, on_unix, h,
			    err) != ST_OK)
			return err->code;
		loop_fd_start(h->unix_watch, LOOP_READABLE);
	}
	return ST_OK;
}

static void fill_defaults(struct http_options *o)
{
	if (o->body_max == 0)
		o->body_max = defaults.body_max;
	if (o->header_max == 0)
		o->header_max = defaults.header_max;
	if (o->stream_max == 0)
		o->stream_max = defaults.stream_max;
	if (o->headers_max == 0)
		o->headers_max = defaults.headers_max;
	if (o->memory_max == 0)
		o->memory_max = UINT64_MAX;
	if (o->connections_max == 0)
		o->connections_max = defaults.connections_max;
	if (o->idle_s == 0)
		o->idle_s = defaults.idle_s;
	if (o->read_s == 0)
		o->read_s = defaults.read_s;
	if (o->drain_s == 0)
		o->drain_s = defaults.drain_s;
}

/* What a half or wholly built server holds besides its connections. */
static void release(struct http *h)
{
	loop_fd_close(h->epoll, false);
	loop_fd_close(h->unix_watch, false);
	if (h->daemon != NULL) {
		/* Else it would close the listening socket, which is ours. */
		if (!h->quiesced)
			(void)MHD_quiesce_daemon(h->daemon);
		MHD_stop_daemon(h->daemon);
	}
	http_listen_close(h);
	mem_free(h->by_fd);
	mem_free(h);
}

status http_create(struct http **out, const struct http_options *options,
	const struct http_handler *handler, struct err *err)
{
	struct http *h = mem_alloc(1, sizeof(*h));

	h->o = *options;
	h->handler = *handler;
	h->listen_fd = -1;
	h->unix_fd = -1;
	fill_defaults(&h->o);
	h->head = (struct http_head_limits){h->o.header_max, h->o.headers_max};
	h->n_by_fd = h->o.connections_max + OTHER_FDS;
	h->by_fd = mem_alloc(h->n_by_fd, sizeof(struct http_req *));
	if (http_tap_check(err) != ST_OK || http_listen_open(h, err) != ST_OK ||
		start_daemon(h, err) != ST_OK) {
		release(h);
		return err->code;
	}
	loop_on_turn(h->o.loop, on_turn, h);
	loop_timer_start(h->o.loop, &h->sweep, SWEEP_MS, SWEEP_MS, on_sweep, h);
	*out = h;
	return ST_OK;
}

uint16_t http_port(const struct http *h)
{
	return h->port;
}

uint32_t http_connections(const struct http *h)
{
	return h->conns.n;
}

uint32_t http_requests(const struct http *h)
{
	return h->n_requests;
}

void http_each(struct http *h, void (*fn)(void *ctx, struct http_req *req), void *ctx)
{
	list_each (c, &h->conns, struct http_req, node)
		if (c->phase == HTTP_HANDED)
			fn(ctx, c);
}

void http_quiesce(struct http *h)
{
	if (h->quiesced)
		return;
	h->quiesced = true;
	/* The descriptor stays open until the daemon stops; closing it earlier would
	 * let its number be used again while libmicrohttpd still polls it. */
	(void)MHD_quiesce_daemon(h->daemon);
	/* A socket that nobody accepts from would still take connections. */
	shutdown(h->listen_fd, SHUT_RDWR);
	if (h->unix_watch != NULL) {
		loop_fd_close(h->unix_watch, false);
		h->unix_watch = NULL;
		shutdown(h->unix_fd, SHUT_RDWR);
	}
}

void http_destroy(struct http *h)
{
	if (h == NULL)
		return;
	http_quiesce(h);
	h->stopping = true;
	loop_off_turn(h->o.loop, on_turn, h);
	loop_timer_stop(&h->timeout);
	loop_timer_stop(&h->sweep);
	/* libmicrohttpd aborts the process when it is stopped with a connection that is
	 * suspended. */
	list_each (c, &h->conns, struct http_req, node) {
		c->cut = true;
		http_mark_ready(c);
	}
	resume_ready(h);
	http_tap_run(h);
	release(h);
}
