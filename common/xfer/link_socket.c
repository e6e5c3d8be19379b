/* The sockets under a link: who may connect to whom. */
#include "common/loop/runtime.h"
#include "common/xfer/link.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 64

static status make_socket(
	const char *path, struct sockaddr_un *at, int *fd, struct err *err)
{
	*at = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof(at->sun_path))
		return err_set(err, ST_INVALID, "link path %s has %zu bytes, at most %zu",
			path, strlen(path), sizeof(at->sun_path) - 1);
	memcpy(at->sun_path, path, strlen(path));
	*fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (*fd < 0)
		return err_set(err, ST_IO, "link socket: %s", strerror(errno));
	return ST_OK;
}

/* The runtime directory keeps others out already; this holds when it does not. */
static status same_user(int fd, struct err *err)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return err_set(err, ST_IO, "link peer: %s", strerror(errno));
	if (peer.uid != geteuid())
		return err_set(err, ST_PEER,
			"link peer (process %d) is user %u, this process is user %u",
			(int)peer.pid, (unsigned)peer.uid, (unsigned)geteuid());
	return ST_OK;
}

status link_listen(const char *path, int *fd, struct err *err)
{
	struct sockaddr_un at;
	int s = -1;
	status st;

	st = runtime_remove_stale(path, RUNTIME_SEQPACKET, err);
	if (st != ST_OK)
		return st;
	st = make_socket(path, &at, &s, err);
	if (st != ST_OK)
		return st;
	/* On Linux the file that bind makes takes the mode of the socket, so there is no
	 * moment at which others could connect. */
	if (fchmod(s, 0600) < 0 || bind(s, (struct sockaddr *)&at, sizeof(at)) < 0 ||
		listen(s, BACKLOG) < 0) {
		st = err_set(err, ST_IO, "listen on %s: %s", path, strerror(errno));
		close(s);
		return st;
	}
	*fd = s;
	return ST_OK;
}

status link_accept(int listen_fd, int *fd, struct err *err)
{
	int s = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	status st;

	if (s < 0 && (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR))
		return ST_AGAIN;
	if (s < 0)
		return err_set(err, ST_LIMIT, "accept a link: %s", strerror(errno));
	st = same_user(s, err);
	if (st != ST_OK) {
		close(s);
		return st;
	}
	*fd = s;
	return ST_OK;
}

status link_connect(const char *path, int *fd, struct err *err)
{
	struct sockaddr_un at;
	int s = -1;
	status st = make_socket(path, &at, &s, err);

	if (st != ST_OK)
		return st;
	if (connect(s, (struct sockaddr *)&at, sizeof(at)) == 0) {
		st = same_user(s, err);
	} else {
		bool passes = errno == EAGAIN || errno == EINTR || errno == ENOENT;

		st = err_set(err, passes ? ST_AGAIN : ST_PEER, "connect to %s: %s", path,
			strerror(errno));
	}
	if (st != ST_OK) {
		close(s);
		return st;
	}
	*fd = s;
	return ST_OK;
}
