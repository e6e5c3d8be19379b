/* The sockets under a link: who may connect to whom, and frames on them. */
#include "common/xfer/link_socket.h"
#include "common/loop/runtime.h"
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

status link_put_frame(int fd, struct bytes frame, int rider, struct err *err)
{
	struct iovec iov = {
		.iov_base = (void *)(uintptr_t)frame.at, .iov_len = frame.len};
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (rider >= 0) {
		struct cmsghdr *c;

		m.msg_control = &control;
		m.msg_controllen = sizeof(control.space);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &rider, sizeof(rider));
	}
	do
		n = sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n >= 0)
		return ST_OK;
	if (errno == EAGAIN || errno == ENOBUFS)
		return ST_AGAIN;
	return err_set(err, ST_PEER, "send on the link: %s", strerror(errno));
}

/* The first descriptor of a frame; any other one is closed and counted against it. */
static int take_descriptors(struct msghdr *m, uint32_t *n)
{
	int first = -1;

	*n = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0);
			at += sizeof(int)) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd));
			if ((*n)++ == 0)
				first = fd;
			else
				close(fd);
		}
	}
	return first;
}

status link_take_frame(
	int fd, uint8_t *at, size_t max, size_t *len, int *rider, struct err *err)
{
	/* Room for more descriptors than a frame may have, so that they can be closed. */
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(8 * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = at, .iov_len = max};
	struct msghdr m = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	uint32_t n_fds;
	ssize_t n;
	int first;
	status st = ST_OK;

	/* A peer that closes with our frames unread resets the connection; what it had
	 * sent before is still there, behind the one report of the reset. */
	do
		n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && (errno == EINTR || errno == ECONNRESET));
	if (n < 0 && errno == EAGAIN)
		return ST_AGAIN;
	if (n < 0)
		return err_set(err, ST_PEER, "receive on the link: %s", strerror(errno));
	first = take_descriptors(&m, &n_fds);
	if (n == 0)
		st = err_set(err, ST_PEER, "the peer closed the link");
	else if ((m.msg_flags & MSG_TRUNC) != 0)
		st = err_set(err, ST_INVALID, "a frame of more than %zu bytes", max);
	else if (n_fds > 1 || (m.msg_flags & MSG_CTRUNC) != 0)
		st = err_set(err, ST_INVALID, "a frame with %u descriptors", n_fds);
	if (st != ST_OK) {
		if (first >= 0)
			close(first);
		return st;
	}
	*len = (size_t)n;
	*rider = first;
	return ST_OK;
}
