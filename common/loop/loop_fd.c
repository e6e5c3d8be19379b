/* Watchers of descriptors. */
#include "common/loop/loop_core.h"

#include "common/base/mem.h"

#include <stddef.h>
#include <unistd.h>

struct loop_fd {
	uv_poll_t uv;
	int fd;
	bool owns_fd; /* set at close */
	loop_fd_fn *fn;
	void *ctx;
};

static void on_poll(uv_poll_t *h, int rc, int uv_events)
{
	struct loop_fd *w = h->data;
	unsigned events = 0;

	/* Only EBADF comes here, for a bare POLLERR; libuv has stopped the watcher. */
	if (rc < 0)
		events = LOOP_GONE;
	if (uv_events & UV_READABLE)
		events |= LOOP_READABLE;
	if (uv_events & UV_WRITABLE)
		events |= LOOP_WRITABLE;
	if (uv_events & UV_DISCONNECT)
		events |= LOOP_GONE;
	w->fn(w->ctx, w->fd, events);
}

status loop_fd_open(struct loop_fd **out, struct loop *l, int fd, loop_fd_fn *fn,
	void *ctx, struct err *err)
{
	struct loop_fd *w = mem_take(1, sizeof(*w));
	int rc;

	if (w == NULL)
		return err_set(
			err, ST_LIMIT, "watch descriptor %d: no request memory", fd);
	*w = (struct loop_fd){.fd = fd, .fn = fn, .ctx = ctx};
	rc = uv_poll_init(&l->uv, &w->uv, fd);
	if (rc != 0) {
		mem_give(w);
		return err_set(
			err, ST_IO, "watch descriptor %d: %s", fd, uv_strerror(rc));
	}
	w->uv.data = w;
	*out = w;
	return ST_OK;
}

void loop_fd_start(struct loop_fd *w, unsigned events)
{
	int uv_events = 0;

	if (events & LOOP_READABLE)
		uv_events |= UV_READABLE;
	if (events & LOOP_WRITABLE)
		uv_events |= UV_WRITABLE;
	if (events & LOOP_GONE)
		uv_events |= UV_DISCONNECT;
	/* Fails only for an event mask of its own making or a handle being closed. */
	uv_poll_start(&w->uv, uv_events, on_poll);
}

void loop_fd_stop(struct loop_fd *w)
{
	uv_poll_stop(&w->uv);
}

static void on_closed(uv_handle_t *h)
{
	struct loop_fd *w = h->data;

	if (w->owns_fd)
		close(w->fd);
	mem_give(w);
}

void loop_fd_close(struct loop_fd *w, bool close_the_fd)
{
	if (w == NULL)
		return;
	w->owns_fd = close_the_fd;
	uv_close((uv_handle_t *)&w->uv, on_closed);
}
