/* Frames in and out of one link. Input is decoded in a buffer of the link; output goes
 * to the socket at once, or waits in a bounded queue until the socket takes it. */
#include "common/xfer/link.h"
#include "common/base/list.h"
#include "common/base/mem.h"
#include "common/xfer/link_socket.h"
#include <assert.h>
#include <string.h>
#include <unistd.h>

/* Frames handled per event, so that a busy peer does not keep others waiting. */
#define FRAMES_PER_TURN 32

struct frame {
	struct list_node node; /* of the queue */
	int fd;
	size_t len;
	uint8_t bytes[];
};

struct link {
	struct loop *loop;
	struct loop_fd *watch;
	int fd;
	enum wire_party we;
	const struct link_events *events;
	void *ctx;
	struct list queue;
	bool inside;                /* a handler runs */
	bool ended;                 /* on_end was called */
	struct err broken;          /* code other than ST_OK: on_end is due */
	struct loop_timer end_soon; /* calls it */
	uint8_t in[LINK_FRAME_MAX];
};

union any_message {
	struct msg_open open;
	struct msg_arena arena;
	struct msg_claim claim;
	struct msg_claimed claimed;
	struct msg_done done;
	struct msg_revoke revoke;
	struct msg_denied denied;
	struct msg_stage stage;
	struct msg_fetch fetch;
	struct msg_fetched fetched;
};

static void end_link(struct link *l, const struct err *why)
{
	struct err copy = *why;

	if (l->ended)
		return;
	l->ended = true;
	loop_timer_stop(&l->end_soon);
	loop_fd_stop(l->watch);
	l->events->on_end(l->ctx, &copy); /* may destroy l */
}

static void on_end_soon(void *ctx)
{
	struct link *l = ctx;

	end_link(l, &l->broken);
}

/* Found while sending: tell the owner when it is not in the middle of something. */
static void break_soon(struct link *l)
{
	loop_fd_stop(l->watch);
	loop_timer_start(l->loop, &l->end_soon, 0, 0, on_end_soon, l);
}

static void watch_for(struct link *l)
{
	if (!l->ended && l->broken.code == ST_OK)
		loop_fd_start(
			l->watch, LOOP_READABLE | (l->queue.n > 0 ? LOOP_WRITABLE : 0u));
}

static void flush_queue(struct link *l)
{
	list_each (f, &l->queue, struct frame, node) {
		status st = link_put_frame(
			l->fd, (struct bytes){f->bytes, f->len}, f->fd, &l->broken);

		if (st == ST_AGAIN)
			break;
		if (st != ST_OK) {
			break_soon(l);
			return;
		}
		list_remove(&f->node);
		mem_give(f);
	}
	watch_for(l);
}

static status enqueue(struct link *l, struct bytes b, int fd, struct err *err)
{
	struct frame *f;

	if (l->queue.n == LINK_QUEUE_MAX)
		return err_set(err, ST_LIMIT,
			"the link's peer does not read: %u frames wait", l->queue.n);
	f = mem_take(1, sizeof(*f) + b.len);
	if (f == NULL)
		return err_set(err, ST_LIMIT, "no request memory for a link frame");
	f->fd = fd;
	f->len = b.len;
	memcpy(f->bytes, b.at, b.len);
	list_add(&l->queue, &f->node);
	watch_for(l);
	return ST_OK;
}

static status encode(struct link *l, enum msg_type type, const void *msg,
	struct sink *out, struct err *err)
{
	const struct wire_msg *m = wire_find(type);
	uint8_t type_byte = (uint8_t)type;

	assert(m != NULL && (m->from & l->we) != 0);
	sink_init(out, LINK_FRAME_MAX);
	sink_put(out, &type_byte, 1);
	return wire_encode(m, msg, out, err);
}

void link_send(struct link *l, enum msg_type type, const void *msg, int fd)
{
	struct sink out;
	status st;

	if (l->ended || l->broken.code != ST_OK)
		return;
	st = encode(l, type, msg, &out, &l->broken);
	if (st == ST_OK)
		st = l->queue.n > 0
			     ? ST_AGAIN
			     : link_put_frame(l->fd, sink_bytes(&out), fd, &l->broken);
	if (st == ST_AGAIN)
		st = enqueue(l, sink_bytes(&out), fd, &l->broken);
	if (st != ST_OK)
		break_soon(l);
	sink_release(&out);
}

void link_send_last(struct link *l, enum msg_type type, const void *msg)
{
	struct sink out;
	struct err err;
	status st = encode(l, type, msg, &out, &err);

	if (st == ST_OK && l->queue.n == 0)
		st = link_put_frame(l->fd, sink_bytes(&out), -1, &err);
	(void)st;
	sink_release(&out);
}

static status handle_frame(struct link *l, struct bytes in, int *fd, struct err *err)
{
	const struct wire_msg *m = wire_find(in.at[0]);
	const struct link_handler *h = NULL;
	union any_message msg;
	status st;

	for (size_t i = 0; i < l->events->n_handlers && h == NULL; i++)
		if ((unsigned)l->events->handlers[i].type == in.at[0])
			h = &l->events->handlers[i];
	if (m == NULL || (m->to & l->we) == 0 || h == NULL)
		return err_set(err, ST_INVALID, "unexpected frame of type %u (%s)",
			in.at[0], m != NULL ? m->name : "unknown");
	assert(m->size <= sizeof(msg));
	memset(&msg, 0, sizeof(msg));
	st = wire_decode(m, (struct bytes){in.at + 1, in.len - 1}, &msg, err);
	if (st != ST_OK) {
		(void)err_wrap(err, "%s", m->name);
		err->code = ST_INVALID; /* out of bounds is malformed, too */
		return ST_INVALID;
	}
	l->inside = true;
	st = h->fn(l->ctx, &msg, fd, err);
	l->inside = false;
	if (st == ST_OK && *fd >= 0)
		st = err_set(err, ST_INVALID, "%s came with a descriptor", m->name);
	return st;
}

/* ST_AGAIN: nothing is there. */
static status receive(struct link *l, struct err *err)
{
	size_t len;
	int rider;
	status st = link_take_frame(l->fd, l->in, sizeof(l->in), &len, &rider, err);

	if (st != ST_OK)
		return st;
	st = handle_frame(l, (struct bytes){l->in, len}, &rider, err);
	if (rider >= 0)
		close(rider);
	return st;
}

static void on_event(void *ctx, int fd, unsigned events)
{
	struct link *l = ctx;
	bool gone = (events & LOOP_GONE) != 0;
	struct err err = {0};
	status st = ST_OK;

	(void)fd;
	if ((events & LOOP_WRITABLE) != 0)
		flush_queue(l);
	/* After GONE there is no further event, and what is left is bounded by the
	 * socket's buffer. */
	for (int i = 0; (i < FRAMES_PER_TURN || gone) && st == ST_OK; i++)
		st = receive(l, &err);
	if (st == ST_AGAIN && gone)
		st = err_set(&err, ST_PEER, "the link hung up");
	if (st != ST_OK && st != ST_AGAIN)
		end_link(l, &err);
}

status link_create(struct link **out, struct loop *loop, int fd, enum wire_party we,
	const struct link_events *events, void *ctx, struct err *err)
{
	struct link *l = mem_take(1, sizeof(*l));
	status st;

	if (l == NULL) {
		close(fd);
		return err_set(err, ST_LIMIT, "no request memory for a link");
	}
	l->loop = loop;
	l->fd = fd;
	l->we = we;
	l->events = events;
	l->ctx = ctx;
	st = loop_fd_open(&l->watch, loop, fd, on_event, l, err);
	if (st != ST_OK) {
		close(fd);
		mem_give(l);
		return st;
	}
	watch_for(l);
	*out = l;
	return ST_OK;
}

void link_destroy(struct link *l)
{
	if (l == NULL)
		return;
	assert(!l->inside);
	l->ended = true;
	loop_timer_stop(&l->end_soon);
	list_each (f, &l->queue, struct frame, node)
		mem_give(f);
	loop_fd_close(l->watch, true);
	mem_give(l);
}
