/* The carrier of links: SEQPACKET sockets, which keep the bounds of frames, let
 * descriptors ride along, say who the peer is, and end when it dies. Nothing else of this
 * folder knows what kind of socket it is. */
#ifndef COMMON_XFER_LINK_SOCKET_H
#define COMMON_XFER_LINK_SOCKET_H
#include "common/base/bytes.h"
#include "common/base/err.h"

/* Paths are in the runtime directory. */
MUST_CHECK status link_listen(const char *path, int *fd, struct err *err);
/* ST_AGAIN: nobody is waiting. ST_LIMIT: no descriptor is left, wait. Only the same user
 * is let in. */
MUST_CHECK status link_accept(int listen_fd, int *fd, struct err *err);
/* ST_AGAIN: the listener's queue is full, or its file was removed and it will bind it
 * anew: try later; ST_PEER: nobody is there. */
MUST_CHECK status link_connect(const char *path, int *fd, struct err *err);

/* One frame, and rider beside it unless it is -1. ST_AGAIN: the socket is full. */
MUST_CHECK status link_put_frame(int fd, struct bytes frame, int rider, struct err *err);
/* One frame of at most max bytes into at; *rider: -1, or a descriptor that is the
 * caller's now. ST_AGAIN: nothing is there. ST_PEER: it is gone. ST_INVALID: a frame that
 * is too long or has more than one descriptor, which are closed. */
MUST_CHECK status link_take_frame(
	int fd, uint8_t *at, size_t max, size_t *len, int *rider, struct err *err);

#endif
