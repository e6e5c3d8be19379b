/* Where bytes come in. libmicrohttpd 0.9 does not show what it read: a header line with a
 * NUL or a bare CR, or with a space before the colon, reaches us as if it were another
 * line. So its reads pass through here: it calls recv(2), and the name that a program
 * defines itself is the one that its libraries find. What a connection of ours sends is
 * looked at (http_head.h) and handed on as it came, or answered and not handed on. */
#include "router/http_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define DROP_BYTES    (16u << 10)
#define DROPS_AT_ONCE 64
/* Of libmicrohttpd, in which it reads what is there: it does in the first. */
#define CHECK_RUNS    4

/* The server whose run of libmicrohttpd this thread is in. */
static _Thread_local struct http *running;

void http_tap_run(struct http *h)
{
	running = h;
	MHD_run(h->daemon);
	running = NULL;
}

/* After a refusal: read and thrown away, so that the client can come to see the answer.
 */
static ssize_t drop(struct http_req *req)
{
	char bytes[DROP_BYTES];

	for (int i = 0; i < DROPS_AT_ONCE; i++) {
		ssize_t n = recvfrom(req->fd, bytes, sizeof(bytes), 0, NULL, NULL);

		if (n <= 0)
			return n;
		req->dropped += (size_t)n;
		if (req->dropped > HTTP_LINGER_BYTES)
			return 0; /* as if it had ended */
	}
	errno = EAGAIN;
	return -1;
}

bool http_tap_drop(struct http_req *req)
{
	return drop(req) != 0;
}

/* Also while a request is answered libmicrohttpd reads: what is wrong then, and the end,
 * wait until that one is over (http_conn_between). */
static ssize_t read_some(struct http_req *req, void *buf, size_t len)
{
	size_t begin;
	ssize_t n;

	if (req->dropping)
		return drop(req);
	if (!req->faulty && !req->ended) {
		n = recvfrom(req->fd, buf, len, 0, NULL, NULL);
		if (n < 0)
			return n;
		req->ended = n == 0;
		if (n > 0) {
			req->heard_ns = http_ran_ns();
			if (http_head_is_idle(&req->head))
				req->began_ns = req->heard_ns;
			if (http_head_feed(
				    &req->head, buf, (size_t)n, &begin, &req->fault))
				return n;
			req->faulty = true;
			/* What came whole before it is answered first. */
			if (begin > 0)
				return (ssize_t)begin;
		}
	}
	if (req->phase == HTTP_HANDED || req->phase == HTTP_REFUSED) {
		errno = EAGAIN;
		return -1;
	}
	if (req->ended)
		return 0;
	http_conn_refuse(req, &req->fault);
	return drop(req);
}

/* ---- whether it is ours that is called ---- */

/* Of http_tap_check in this thread: whose reading it waits for. */
static _Thread_local struct {
	int fd;
	bool waits, seen;
} checked;

/* NOLINTNEXTLINE(readability-function-size): libmicrohttpd's signature */
static enum MHD_Result no_request(void *cls, struct MHD_Connection *conn, const char *url,
	const char *method, const char *version, const char *data, size_t *data_len,
	void **con_cls)
{
	(void)cls, (void)conn, (void)url, (void)method, (void)version;
	(void)data, (void)data_len, (void)con_cls;
	return MHD_NO;
}

/* A daemon of its own with one connection, on which half a request waits. */
status http_tap_check(struct err *err)
{
	struct sockaddr_un peer = {.sun_family = AF_UNIX};
	struct MHD_Daemon *d = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET,
		0, NULL, NULL, no_request, NULL, MHD_OPTION_END);
	int fd[2] = {-1, -1};
	bool begun = d != NULL &&
		     socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
			     fd) == 0;

	checked.fd = fd[0];
	checked.waits = begun;
	checked.seen = false;
	/* fd[0] is libmicrohttpd's from here on, whatever it answers. */
	begun = begun &&
		MHD_add_connection(d, fd[0], (struct sockaddr *)&peer,
			sizeof(sa_family_t)) == MHD_YES &&
		send(fd[1], "GET", 3, MSG_NOSIGNAL) == 3;
	for (int i = 0; begun && !checked.seen && i < CHECK_RUNS; i++)
		MHD_run(d);
	checked.waits = false;
	if (d != NULL)
		MHD_stop_daemon(d);
	if (fd[1] >= 0)
		close(fd[1]);
	if (!begun)
		return err_set(
			err, ST_IO, "libmicrohttpd cannot be tried: %s", strerror(errno));
	return checked.seen ? ST_OK
			    : err_set(err, ST_IO,
				      "libmicrohttpd does not read through this "
				      "program's recv(2): what clients send would "
				      "not be checked");
}

ssize_t recv(int fd, void *buf, size_t len, int flags)
{
	struct http_req *req = NULL;

	checked.seen |= checked.waits && fd == checked.fd;
	if (running != NULL && fd >= 0 && (uint32_t)fd < running->n_by_fd)
		req = running->by_fd[fd];
	if (req == NULL)
		return recvfrom(fd, buf, len, flags, NULL, NULL);
	return read_some(req, buf, len);
}
