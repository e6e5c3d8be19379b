/* The sockets that the HTTP server listens on. */
#include "router/http_impl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 1024

bool http_is_address(const char *host)
{
	struct in6_addr any;

	return inet_pton(AF_INET6, host, &any) == 1 ||
	       inet_pton(AF_INET, host, &any) == 1;
}

static status listen_tcp(struct http *h, struct err *err)
{
	struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(h->o.port)};
	struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(h->o.port)};
	bool six = inet_pton(AF_INET6, h->o.host, &a6.sin6_addr) == 1;
	struct sockaddr *at = six ? (struct sockaddr *)&a6 : (struct sockaddr *)&a4;
	socklen_t len = six ? sizeof(a6) : sizeof(a4);
	int on = 1, off = 0;

	if (!six && inet_pton(AF_INET, h->o.host, &a4.sin_addr) != 1)
		return err_set(
			err, ST_INVALID, "host \"%s\" is no IP address", h->o.host);
	h->listen_fd = socket(
		six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (h->listen_fd < 0)
		return err_set(err, ST_IO, "socket: %s", strerror(errno));
	setsockopt(h->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (six)
		setsockopt(h->listen_fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(h->listen_fd, at, len) != 0 || listen(h->listen_fd, BACKLOG) != 0 ||
		getsockname(h->listen_fd, at, &len) != 0)
		return err_set(err, ST_IO, "listen on %s port %u: %s", h->o.host,
			h->o.port, strerror(errno));
	h->port = ntohs(six ? a6.sin6_port : a4.sin_port);
	return ST_OK;
}

static status listen_unix(struct http *h, struct err *err)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	if (h->o.unix_path == NULL || h->o.unix_path[0] == '\0')
		return ST_OK;
	if (strlen(h->o.unix_path) >= sizeof(a.sun_path))
		return err_set(err, ST_INVALID, "socket path \"%s\" is over %zu bytes",
			h->o.unix_path, sizeof(a.sun_path) - 1);
	memcpy(a.sun_path, h->o.unix_path, strlen(h->o.unix_path) + 1);
	/* What a killed predecessor left is replaced; another's socket is not. */
	if (runtime_remove_stale(h->o.unix_path, RUNTIME_STREAM, err) != ST_OK)
		return err_wrap(err, "listen on %s", h->o.unix_path);
	h->unix_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (h->unix_fd < 0 || bind(h->unix_fd, (struct sockaddr *)&a, sizeof(a)) != 0)
		return err_set(
			err, ST_IO, "listen on %s: %s", h->o.unix_path, strerror(errno));
	/* Gone already: then there is nothing to remove at the end. */
	(void)!runtime_file_note(&h->unix_file, h->o.unix_path);
	if (listen(h->unix_fd, BACKLOG) != 0)
		return err_set(
			err, ST_IO, "listen on %s: %s", h->o.unix_path, strerror(errno));
	return ST_OK;
}

status http_listen_open(struct http *h, struct err *err)
{
	status st = listen_tcp(h, err);

	return st == ST_OK ? listen_unix(h, err) : st;
}

void http_listen_close(struct http *h)
{
	if (h->listen_fd >= 0)
		close(h->listen_fd);
	if (h->unix_fd >= 0) {
		/* It may be another's by now: a successor's that started meanwhile. */
		if (runtime_file_stands(&h->unix_file, h->o.unix_path))
			unlink(h->o.unix_path);
		close(h->unix_fd);
	}
}
