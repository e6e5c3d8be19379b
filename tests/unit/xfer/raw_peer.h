/* The other end of a link, driven by hand. Include cmocka first. */
#ifndef TESTS_UNIT_XFER_RAW_PEER_H
#define TESTS_UNIT_XFER_RAW_PEER_H
#include "common/xfer/link_socket.h"
#include "unit/xfer/xfer_fixture.h"
#include <errno.h>
#include <sys/socket.h>

static inline void raw_send_bytes(
	int fd, const void *at, size_t len, const int *fds, size_t n_fds)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)at, .iov_len = len};
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(8 * sizeof(int))];
	} control = {0};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	if (n_fds > 0) {
		struct cmsghdr *c = &control.header;

		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
	}
	assert_int_equal((ssize_t)len, sendmsg(fd, &m, MSG_NOSIGNAL));
}

/* Type byte and body, by the encoder. */
static inline size_t raw_frame(enum msg_type type, const void *msg, uint8_t *out)
{
	struct sink s;
	size_t len;
	struct err err;

	sink_init(&s, LINK_FRAME_MAX);
	CHECK_OK(wire_encode(wire_find(type), msg, &s, &err), err);
	out[0] = (uint8_t)type;
	memcpy(out + 1, s.at, s.len);
	len = s.len + 1;
	sink_release(&s);
	return len;
}

static inline void raw_send(
	int fd, enum msg_type type, const void *msg, const int *fds, size_t n_fds)
{
	uint8_t frame[LINK_FRAME_MAX];

	raw_send_bytes(fd, frame, raw_frame(type, msg, frame), fds, n_fds);
}

struct raw_peer {
	int fd;
	uint8_t frame[LINK_FRAME_MAX];
	ssize_t n; /* of the last frame; 0: the end */
	int got_fd;
};

static inline bool raw_has_frame(void *ctx)
{
	struct raw_peer *p = ctx;
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = p->frame, .iov_len = sizeof(p->frame)};
	struct msghdr m = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	struct cmsghdr *c;

	p->n = recvmsg(p->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (p->n < 0)
		return false;
	c = CMSG_FIRSTHDR(&m);
	if (c != NULL) {
		if (p->got_fd >= 0)
			close(p->got_fd);
		memcpy(&p->got_fd, CMSG_DATA(c), sizeof(p->got_fd));
	}
	return true;
}

/* Waits for one message of this type and decodes it into msg. */
static inline void raw_expect(
	struct loop *loop, struct raw_peer *p, enum msg_type type, void *msg)
{
	const struct wire_msg *m = wire_find(type);
	struct err err;

	if (!loop_until(loop, raw_has_frame, p, 20000))
		fail_msg("no %s came", m->name);
	if (p->n == 0)
		fail_msg("the link ended, %s was expected", m->name);
	if (p->frame[0] != type)
		fail_msg("type %u came, %s was expected", p->frame[0], m->name);
	memset(msg, 0, m->size);
	CHECK_OK(
		wire_decode(m, (struct bytes){p->frame + 1, (size_t)p->n - 1}, msg, &err),
		err);
}

static inline void raw_expect_end(struct loop *loop, struct raw_peer *p)
{
	assert_true(loop_until(loop, raw_has_frame, p, 20000));
	assert_int_equal(0, p->n);
}

static inline void raw_close(struct raw_peer *p)
{
	if (p->fd >= 0)
		close(p->fd);
	if (p->got_fd >= 0)
		close(p->got_fd);
	*p = (struct raw_peer){.fd = -1, .got_fd = -1};
}

static inline void raw_connect(struct raw_peer *p, const char *path)
{
	struct err err;

	*p = (struct raw_peer){.fd = -1, .got_fd = -1};
	CHECK_OK(link_connect(path, &p->fd, &err), err);
}

#endif
