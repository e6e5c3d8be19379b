/* One connection: reading a request, handing it over, seeing its client leave. */
#include "router/http_impl.h"

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "router/probe.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static struct http_req *req_of(struct MHD_Connection *conn)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info != NULL ? info->socket_context : NULL;
}

/* Beyond connections_max the one that has been idle longest makes room. */
static void make_room(struct http *h, const struct http_req *newest)
{
	struct http_req *oldest = NULL;

	list_each (c, &h->conns, struct http_req, node)
		if (c != newest && c->phase == HTTP_IDLE && !c->gone &&
			http_head_is_idle(&c->head) &&
			(oldest == NULL || c->since_ns < oldest->since_ns))
			oldest = c;
	if (oldest == NULL)
		return;
	oldest->leaving = true;
	h->n_leaving++;
	http_conn_cut(oldest, HTTP_CLIENT_GONE);
}

static bool is_over(const struct http *h)
{
	return h->conns.n - h->n_leaving > h->o.connections_max;
}

void http_conn_notify(void *cls, struct MHD_Connection *conn, void **socket_context,
	enum MHD_ConnectionNotificationCode code)
{
	struct http *h = cls;
	struct http_req *req;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		/* Without memory the connection has no record; it gets an answer that
		 * needs none, and is closed. */
		req = mem_take(1, sizeof(*req));
		*socket_context = req;
		if (req == NULL)
			return;
		req->h = h;
		req->conn = conn;
		req->fd = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD)
				  ->connect_fd;
		http_phase_reset(req);
		http_head_init(&req->head, &h->head);
		if ((uint32_t)req->fd >= h->n_by_fd) {
			mem_give(req);
			*socket_context = NULL;
			return;
		}
		h->by_fd[req->fd] = req;
		list_add(&h->conns, &req->node);
		if (is_over(h))
			make_room(h, req);
		return;
	}
	req = *socket_context;
	if (req == NULL)
		return;
	*socket_context = NULL;
	assert(req->phase != HTTP_HANDED);
	/* One that was closed to make room ends in the same run. */
	list_remove(&req->ready);
	h->by_fd[req->fd] = NULL;
	loop_fd_close(req->watch, false);
	http_phase_reset(req);
	list_remove(&req->node);
	h->n_leaving -= req->leaving;
	mem_give(req);
}

void *http_conn_uri(void *cls, const char *uri, struct MHD_Connection *conn)
{
	struct http_req *req = req_of(conn);

	(void)cls;
	(void)uri;
	if (req == NULL)
		return NULL;
	http_phase_begin(req);
	return req;
}

void http_conn_refuse(struct http_req *req, const struct http_fault *f)
{
	/* Its request line may be what is wrong. */
	if (req->phase == HTTP_IDLE)
		http_phase_begin(req);
	http_refuse_raw(req, f->status, f->code, f->text);
}

void http_conn_between(struct http_req *req)
{
	if (req->phase != HTTP_IDLE || req->gone)
		return;
	if (req->faulty)
		http_conn_refuse(req, &req->fault);
	else if (req->ended)
		http_conn_cut(req, HTTP_CLIENT_GONE);
}

/* Kept if it can stand in a log line as it is. */
static bool is_good_id(const char *id)
{
	size_t n = 0;

	while (id[n] > ' ' && id[n] <= '~' && id[n] != '"' && id[n] != '\\')
		n++;
	return id[n] == '\0' && n > 0 && n <= HTTP_ID_MAX;
}

/* Nobody is idle and every place is taken: whoever asks how we are hears it. */
static bool may_stay(const struct http_req *req, struct http_fault *f)
{
	struct bytes body;
	unsigned code;

	if (!is_over(req->h) || probe_answer(req->path, PROBE_READY, true, &code, &body))
		return true;
	*f = (struct http_fault){503, "overloaded", "Every connection is taken."};
	return false;
}

static bool may_enter(struct http_req *req, struct http_fault *f)
{
	const struct http_handler *handler = &req->h->handler;

	return handler->may_enter == NULL || handler->may_enter(handler->ctx, req, f);
}

/* The header lines are complete: keep what the answer needs, refuse what is not to be
 * read further. */
static enum MHD_Result begin_body(
	struct http_req *req, const char *url, const char *method, const char *version)
{
	const char *id = http_header(req, "X-Request-Id");
	struct http_fault f;
	bool sends_body;

	req->method = method;
	req->path = http_head_path(url);
	req->old = strcmp(version, MHD_HTTP_VERSION_1_0) == 0;
	if (id != NULL && is_good_id(id))
		memcpy(req->id, id, strlen(id) + 1);
	if (may_enter(req, &f) && may_stay(req, &f) && http_refuse_check(req, &f)) {
		http_phase_set(req, HTTP_BODY);
		return MHD_YES;
	}
	/* With Expect the client waits for our word, without a body it sends nothing. */
	sends_body = http_header(req, "Content-Length") != NULL ||
		     http_header(req, "Transfer-Encoding") != NULL;
	if (!sends_body || http_header(req, "Expect") != NULL) {
		http_phase_set(req, HTTP_REFUSED);
		return http_refuse_queue(req, f.status, f.code, f.text);
	}
	http_refuse_raw(req, f.status, f.code, f.text);
	return MHD_YES;
}

static void take_body(struct http_req *req, const char *data, size_t len)
{
	char text[96];

	if (len > req->h->o.body_max - req->body.len) {
		snprintf(text, sizeof(text), "The body is over %zu bytes.",
			req->h->o.body_max);
		http_refuse_raw(req, 413, "body_too_large", text);
		return;
	}
	/* A sink that is full at least doubles. */
	if (req->body.len + len >= req->body.cap &&
		mem_taken() + MAX(req->body.cap, len) > req->h->o.memory_max)
		req->body.full = true;
	sink_put(&req->body, data, len);
	if (req->body.full)
		http_refuse_raw(req, 503, "overloaded",
			"The server has no memory for this request now.");
}

bool http_conn_hung_up(const struct http_req *req)
{
	struct pollfd p = {.fd = req->fd};

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR)) != 0;
}

/* A client that shut its writing side may be waiting for the answer, or be gone: only the
 * answer of its host to something that we send tells the one from the other. Before the
 * answer that is an interim one, which every client of HTTP/1.1 passes over; in a stream
 * the handler has something to say. One of HTTP/1.0 is taken to be there. */
static void ask_if_there(struct http_req *req)
{
	static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
	const struct http_handler *handler = &req->h->handler;
	bool head_is_out = req->status != 0 && req->response == NULL;

	req->half_closed = true;
	http_conn_watch(req);
	if (!head_is_out && req->status == 0 && !req->old)
		(void)!send(req->fd, interim, sizeof(interim) - 1,
			MSG_NOSIGNAL | MSG_DONTWAIT);
	else if (head_is_out && req->streaming && handler->on_half_closed != NULL)
		handler->on_half_closed(handler->ctx, req);
}

void http_conn_watch(const struct http_req *req)
{
	unsigned events = req->blocked ? LOOP_WRITABLE : 0;

	if (req->watch == NULL)
		return;
	if (!req->half_closed && !req->complete)
		events |= LOOP_GONE;
	if (events != 0 && !req->gone)
		loop_fd_start(req->watch, events);
	else
		loop_fd_stop(req->watch);
}

static void on_watch(void *ctx, int fd, unsigned events)
{
	struct http_req *req = ctx;

	(void)fd;
	if (events & LOOP_WRITABLE)
		http_mark_ready(req);
	if (!(events & LOOP_GONE))
		return;
	/* With the whole answer given, the next write will tell. */
	if (req->complete)
		http_conn_watch(req);
	else if (http_conn_hung_up(req) || req->half_closed)
		http_conn_cut(req, HTTP_CLIENT_GONE);
	else
		ask_if_there(req);
}

/* No memory for the watcher: the client's leaving is then seen at the next write. */
static void watch(struct http_req *req)
{
	struct err err;

	if (req->gone || req->watching || req->half_closed)
		return;
	if (req->watch == NULL && loop_fd_open(&req->watch, req->h->o.loop, req->fd,
					  on_watch, req, &err) != ST_OK)
		return;
	loop_fd_start(req->watch, LOOP_GONE);
	req->watching = true;
}

void http_conn_suspend(struct http_req *req)
{
	req->suspended = true;
	MHD_suspend_connection(req->conn);
	watch(req);
}

/* The answer's head goes out with its first piece. */
static enum MHD_Result answer_or_suspend(struct http_req *req)
{
	if (req->response != NULL &&
		(!req->streaming || req->complete || req->out.len > 0))
		return http_answer_queue(req);
	http_conn_suspend(req);
	return MHD_YES;
}

static enum MHD_Result hand_over(struct http_req *req)
{
	struct http *h = req->h;

	http_phase_set(req, HTTP_HANDED);
	h->n_requests++;
	h->handler.on_request(h->handler.ctx, req);
	return answer_or_suspend(req);
}

/* NOLINTNEXTLINE(readability-function-size): libmicrohttpd's signature */
enum MHD_Result http_conn_access(void *cls, struct MHD_Connection *conn, const char *url,
	const char *method, const char *version, const char *data, size_t *data_len,
	void **con_cls)
{
	struct http_req *req = req_of(conn);

	(void)con_cls;
	if (req == NULL)
		return http_refuse_unrecorded(cls, conn, http_head_path(url));
	if (req->h->stopping)
		return MHD_NO;
	switch (req->phase) {
	case HTTP_HEAD:
		return begin_body(req, url, method, version);
	case HTTP_BODY:
		if (*data_len == 0)
			return hand_over(req);
		take_body(req, data, *data_len);
		*data_len = 0;
		return MHD_YES;
	case HTTP_HANDED:
		if (req->gone || req->aborted)
			return MHD_NO;
		return answer_or_suspend(req);
	case HTTP_REFUSED:
		if (*data_len == 0)
			return MHD_NO;
		*data_len = 0;
		return MHD_YES;
	case HTTP_IDLE:
	case HTTP__PHASES:
		break;
	}
	return MHD_NO;
}

void http_conn_lost(struct http_req *req, enum http_loss why)
{
	if (req->loss == HTTP_NOT_LOST)
		req->loss = why;
}

void http_conn_cut(struct http_req *req, enum http_loss why)
{
	struct http *h = req->h;

	http_conn_lost(req, why);
	if (!req->gone) {
		req->gone = true;
		if (req->watch != NULL)
			loop_fd_stop(req->watch);
		shutdown(req->fd, SHUT_RDWR);
		http_mark_ready(req);
	}
	if (req->phase == HTTP_HANDED && !req->complete && !req->told_gone) {
		req->told_gone = true;
		h->handler.on_gone(h->handler.ctx, req);
	}
}

static enum http_loss loss_of(enum MHD_RequestTerminationCode code)
{
	if (code == MHD_REQUEST_TERMINATED_TIMEOUT_REACHED)
		return HTTP_NOT_READING;
	return code == MHD_REQUEST_TERMINATED_DAEMON_SHUTDOWN ? HTTP_STOPPED
							      : HTTP_CLIENT_GONE;
}

/* The end of what a client sends can come with its last request: epoll tells of it once,
 * and libmicrohttpd does not look again. */
static void note_end(struct http_req *req)
{
	char byte;

	if (recvfrom(req->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT, NULL, NULL) == 0)
		req->ended = true;
	if (req->ended || req->faulty)
		http_mark_ready(req);
}

void http_conn_completed(void *cls, struct MHD_Connection *conn, void **con_cls,
	enum MHD_RequestTerminationCode code)
{
	struct http *h = cls;
	struct http_req *req = req_of(conn);

	*con_cls = NULL;
	if (req == NULL)
		return;
	if (req->is_slow)
		MHD_set_connection_option(
			conn, MHD_CONNECTION_OPTION_TIMEOUT, http_mhd_timeout_s(&h->o));
	if (req->watching) {
		loop_fd_stop(req->watch);
		req->watching = false;
	}
	if (req->response != NULL) {
		MHD_destroy_response(req->response);
		req->response = NULL;
	}
	if (req->phase == HTTP_HANDED) {
		if (!req->aborted &&
			(code != MHD_REQUEST_TERMINATED_COMPLETED_OK || !req->complete))
			http_conn_lost(req, loss_of(code));
		if (!req->complete)
			http_conn_cut(req, loss_of(code));
		req->gone = true;
		h->n_requests--;
		h->handler.on_end(h->handler.ctx, req);
	}
	list_remove(&req->ready);
	http_phase_reset(req);
	if (code == MHD_REQUEST_TERMINATED_COMPLETED_OK)
		note_end(req);
}
