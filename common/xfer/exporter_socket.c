/* The file at which importers find this exporter: bound at the start, and bound anew when
 * somebody removed it. Links that are open do not depend on it. */
#include "common/base/log.h"
#include "common/loop/runtime.h"
#include "common/xfer/exporter_impl.h"
#include "common/xfer/link_socket.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* With no descriptor left, accepting again at once would spin. */
#define ACCEPT_PAUSE_MS 100
#define CHECK_MS        1000

/* ---- accepting ---- */

static void accept_again(void *ctx)
{
	struct export_socket *s = ctx;

	loop_fd_start(s->watch, LOOP_READABLE);
}

static void on_acceptable(void *ctx, int listen_fd, unsigned events)
{
	struct exporter *x = ctx;
	struct export_socket *s = &x->socket;
	struct err err;
	int fd;
	status st;

	(void)events;
	while ((st = link_accept(listen_fd, &fd, &err)) == ST_OK)
		exporter_admit(x, fd);
	if (st == ST_AGAIN)
		return;
	log_warn("%s", err.text);
	if (st != ST_LIMIT)
		return; /* a stranger; the watch is level-triggered for the next one */
	loop_fd_stop(s->watch);
	loop_timer_start(
		x->side.loop, &s->accept_pause, ACCEPT_PAUSE_MS, 0, accept_again, s);
}

/* ---- binding ---- */

static status make_path(struct exporter *x, struct err *err)
{
	char *path = x->socket.path;
	int n = snprintf(path, sizeof(x->socket.path), "%s/" XFER_LINK_NAME,
		x->side.runtime_dir, x->side.id, x->side.incarnation);

	if (n < 0 || (size_t)n >= sizeof(x->socket.path))
		return err_set(err, ST_INVALID,
			"link path %s/" XFER_LINK_NAME " has %d bytes, at most %zu",
			x->side.runtime_dir, x->side.id, x->side.incarnation, n,
			sizeof(x->socket.path) - 1);
	return ST_OK;
}

/* A worker that was killed leaves its socket file; the next one of that id clears it
 * away. One that answers belongs to a worker that lives and stays. */
static void sweep_earlier(const struct exporter *x)
{
	const char *dir = x->side.runtime_dir, *id = x->side.id;
	char path[RUNTIME_PATH_BYTES];
	DIR *d = opendir(dir);
	struct dirent *entry;
	struct err err;

	while (d != NULL && (entry = readdir(d)) != NULL) {
		size_t n = strlen(entry->d_name), n_id = strlen(id);

		/* ID.%016x.link */
		if (n != n_id + 22 || strncmp(entry->d_name, id, n_id) != 0 ||
			entry->d_name[n_id] != '.' ||
			strcmp(entry->d_name + n - 5, ".link") != 0)
			continue;
		if (snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name) <
				(int)sizeof(path) &&
			runtime_remove_stale(path, RUNTIME_SEQPACKET, &err) != ST_OK)
			log_debug("%s", err.text); /* it lives */
	}
	if (d != NULL)
		closedir(d);
}

/* Whoever connected by the old file and waits is let in before its socket closes. */
static void replace_watch(struct exporter *x, struct loop_fd *watch, int fd)
{
	struct export_socket *s = &x->socket;
	struct loop_fd *old = s->watch;
	int old_fd = s->fd;

	loop_timer_stop(&s->accept_pause);
	if (old != NULL)
		on_acceptable(x, old_fd, LOOP_READABLE);
	s->watch = watch;
	s->fd = fd;
	loop_fd_close(old, true);
	loop_fd_start(watch, LOOP_READABLE);
}

static status bind_and_watch(struct exporter *x, struct err *err)
{
	struct export_socket *s = &x->socket;
	struct loop_fd *watch;
	struct runtime_file file;
	int fd = -1;
	status st = link_listen(s->path, &fd, err);

	if (st != ST_OK)
		return st;
	if (!runtime_file_note(&file, s->path))
		st = err_set(err, ST_IO, "socket %s: %s", s->path, strerror(errno));
	if (st == ST_OK)
		st = loop_fd_open(&watch, x->side.loop, fd, on_acceptable, x, err);
	if (st != ST_OK) {
		close(fd);
		(void)unlink(s->path);
		return st;
	}
	s->file = file;
	replace_watch(x, watch, fd);
	return ST_OK;
}

/* ---- the file was removed ---- */

/* Files of /tmp that look old are removed by cleaners. */
static void check(void *ctx)
{
	struct exporter *x = ctx;
	struct export_socket *s = &x->socket;
	struct runtime runtime;
	struct err err;
	status st;

	if (runtime_file_stands(&s->file, s->path)) {
		s->lost = false;
		return;
	}
	/* The directory may be gone as well. */
	st = runtime_open(&runtime, x->side.runtime_dir, &err);
	if (st == ST_OK)
		st = bind_and_watch(x, &err);
	if (st == ST_OK)
		log_error("socket %s was removed by somebody; it is bound anew and "
			  "workers can connect again; keep cleaners of old files out of "
			  "%s",
			s->path, x->side.runtime_dir);
	else if (!s->lost)
		log_error("socket %s was removed by somebody and cannot be bound anew: "
			  "%s; workers that are connected stay, no others can take over "
			  "a state from here until this is mended or this worker is "
			  "started again",
			s->path, err.text);
	s->lost = st != ST_OK;
}

status export_socket_open(struct exporter *x, struct err *err)
{
	status st = make_path(x, err);

	sweep_earlier(x);
	if (st == ST_OK)
		st = bind_and_watch(x, err);
	if (st == ST_OK)
		loop_timer_start(
			x->side.loop, &x->socket.check, CHECK_MS, CHECK_MS, check, x);
	return st;
}

void export_socket_close(struct exporter *x)
{
	struct export_socket *s = &x->socket;

	if (runtime_file_stands(&s->file, s->path))
		(void)unlink(s->path);
	loop_timer_stop(&s->check);
	loop_timer_stop(&s->accept_pause);
	loop_fd_close(s->watch, true);
}
