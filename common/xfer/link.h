/* One end of a link: messages of common/wire over a connected socket (link_socket.h), a
 * frame each: type byte, msgpack body, and a descriptor beside it where a ticket needs
 * one. Whatever is wrong with a frame ends this link and nothing else. Loop thread only.
 */
#ifndef COMMON_XFER_LINK_H
#define COMMON_XFER_LINK_H
#include "common/loop/loop.h"
#include "common/wire/wire.h"

/* The largest link message, fetch, has 2.1 KiB. */
#define LINK_FRAME_MAX 4096u
/* Frames that wait for a peer that does not read; one more ends the link. Above what
 * the most pulls of one importer can have unanswered (IMPORTER_PULLS_MAX). */
#define LINK_QUEUE_MAX 512u

struct link;
struct link_handler {
	enum msg_type type;
	/* msg is the decoded struct. *fd: -1, or a descriptor that came with it; taken by
	 * setting it to -1. An error ends the link. Must not destroy the link. */
	status (*fn)(void *ctx, const void *msg, int *fd, struct err *err);
};

struct link_events {
	const struct link_handler *handlers; /* of all that this party may receive */
	size_t n_handlers;
	/* Once, never from inside another call: the peer is gone (ST_PEER), broke the
	 * protocol (anything else), or does not read (ST_LIMIT). Destroy it then or
	 * later. */
	void (*on_end)(void *ctx, const struct err *why);
};

/* Takes fd over, also on failure. we: WIRE_IMPORTER or WIRE_EXPORTER. */
MUST_CHECK status link_create(struct link **out, struct loop *loop, int fd,
	enum wire_party we, const struct link_events *events, void *ctx, struct err *err);
void link_destroy(struct link *l);
/* msg: struct msg_* of that type. fd: sent along, stays the caller's and must stay open
 * while the link lives; -1: none. A failure comes as on_end. */
void link_send(struct link *l, enum msg_type type, const void *msg, int fd);
/* From on_end, before link_destroy: a last word, if the socket takes it at once. */
void link_send_last(struct link *l, enum msg_type type, const void *msg);

#endif
