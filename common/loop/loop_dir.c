/* A directory whose entries matter. Each rescan also renews the notification, so a
 * directory that was removed and made again is noticed at the next rescan. */
#include "common/loop/loop_core.h"

#include "common/base/bytes.h"
#include "common/base/log.h"
#include "common/base/mem.h"

#include <stddef.h>

struct loop_dir {
	uv_fs_event_t uv;
	struct loop_timer rescan;
	bool told; /* that notifications do not work */
	char *path;
	void (*fn)(void *ctx);
	void *ctx;
};

static void on_event(uv_fs_event_t *h, const char *name, int events, int rc)
{
	struct loop_dir *d = h->data;

	(void)name;
	(void)events;
	(void)rc;
	d->fn(d->ctx);
}

static int renew(struct loop_dir *d)
{
	uv_fs_event_stop(&d->uv);
	return uv_fs_event_start(&d->uv, on_event, d->path, 0);
}

static void on_rescan(void *ctx)
{
	struct loop_dir *d = ctx;
	int rc = renew(d);

	if (rc != 0 && !d->told)
		log_warn("directory %s: %s; it is only read at each rescan now", d->path,
			uv_strerror(rc));
	d->told = rc != 0;
	d->fn(d->ctx);
}

static void on_closed(uv_handle_t *h)
{
	struct loop_dir *d = h->data;

	mem_give(d->path);
	mem_give(d);
}

status loop_dir_open(struct loop_dir **out, struct loop *l, const char *path,
	uint64_t rescan_ms, void (*fn)(void *ctx), void *ctx, struct err *err)
{
	struct bytes name = bytes_of_str(path);
	struct loop_dir *d = mem_take(1, sizeof(*d));
	int rc;

	if (d == NULL || (d->path = mem_dup(name.at, name.len)) == NULL) {
		mem_give(d);
		return err_set(err, ST_LIMIT, "directory %s: no request memory", path);
	}
	d->fn = fn;
	d->ctx = ctx;
	uv_fs_event_init(&l->uv, &d->uv);
	d->uv.data = d;
	rc = renew(d);
	if (rc != 0) {
		uv_close((uv_handle_t *)&d->uv, on_closed);
		return err_set(err, ST_IO, "directory %s: %s", path, uv_strerror(rc));
	}
	loop_timer_start(l, &d->rescan, rescan_ms, rescan_ms, on_rescan, d);
	*out = d;
	return ST_OK;
}

void loop_dir_close(struct loop_dir *d)
{
	if (d == NULL)
		return;
	loop_timer_stop(&d->rescan);
	uv_close((uv_handle_t *)&d->uv, on_closed);
}
