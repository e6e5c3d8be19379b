/* The runtime directory and its paths. */
#include "common/loop/runtime.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Whoever may write here could answer in the name of a worker. lstat: a link in /tmp
 * could be turned by its owner after the check. */
static status own_directory(const char *dir, struct err *err)
{
	struct stat sb;

	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return err_set(err, ST_IO, "make runtime directory %s: %s", dir,
			strerror(errno));
	if (lstat(dir, &sb) < 0)
		return err_set(
			err, ST_IO, "runtime directory %s: %s", dir, strerror(errno));
	if (!S_ISDIR(sb.st_mode))
		return err_set(
			err, ST_INVALID, "runtime directory %s is not a directory", dir);
	if (sb.st_uid != geteuid())
		return err_set(err, ST_INVALID,
			"runtime directory %s belongs to user %u, this process is user "
			"%u",
			dir, (unsigned)sb.st_uid, (unsigned)geteuid());
	if ((sb.st_mode & 0777) != 0700)
		return err_set(err, ST_INVALID,
			"runtime directory %s has mode %04o, not 0700", dir,
			(unsigned)(sb.st_mode & 0777));
	return ST_OK;
}

status runtime_name(struct runtime *rt, const char *configured, struct err *err)
{
	bool is_default = configured == NULL || configured[0] == 0;
	char preset[32] = "/run/baton";
	const char *dir = is_default ? preset : configured;
	size_t len;

	if (is_default && geteuid() != 0)
		snprintf(preset, sizeof(preset), "/tmp/baton-%u", (unsigned)geteuid());
	/* A link's name with a slash behind it would be followed. */
	for (len = strlen(dir); len > 1 && dir[len - 1] == '/';)
		len--;
	if (len > RUNTIME_DIR_BYTES_MAX)
		return err_set(err, ST_INVALID,
			"%s has %zu bytes, at most %d: a socket's path in it must fit "
			"into %d",
			dir, len, RUNTIME_DIR_BYTES_MAX, RUNTIME_PATH_BYTES - 1);
	if (dir[0] != '/')
		return err_set(err, ST_INVALID,
			"runtime directory '%s' is not an absolute path", dir);
	memcpy(rt->dir, dir, len);
	rt->dir[len] = 0;
	return runtime_path(rt, rt->routers, err, "routers");
}

status runtime_open(struct runtime *rt, const char *configured, struct err *err)
{
	status st = runtime_name(rt, configured, err);

	if (st == ST_OK)
		st = own_directory(rt->dir, err);
	if (st == ST_OK)
		st = own_directory(rt->routers, err);
	return st;
}

status runtime_path(const struct runtime *rt, char out[RUNTIME_PATH_BYTES],
	struct err *err, const char *fmt, ...)
{
	char name[RUNTIME_PATH_BYTES];
	va_list ap;
	size_t dir_len = strlen(rt->dir);
	int n;

	va_start(ap, fmt);
	n = vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	if (n < 0 || dir_len + 1 + (size_t)n >= RUNTIME_PATH_BYTES)
		return err_set(err, ST_INVALID,
			"%s/%s: a name of %d bytes makes a path of %zu, at most %d",
			rt->dir, name, n, dir_len + 1 + (size_t)n,
			RUNTIME_PATH_BYTES - 1);
	memcpy(out, rt->dir, dir_len);
	out[dir_len] = '/';
	memcpy(out + dir_len + 1, name, (size_t)n + 1);
	return ST_OK;
}

status runtime_answers(
	const char *path, enum runtime_socket_kind kind, bool *answers, struct err *err)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int type = kind == RUNTIME_STREAM ? SOCK_STREAM : SOCK_SEQPACKET;
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	status st = ST_OK;
	bool nobody = false;

	if (fd < 0)
		return err_set(err, ST_IO, "socket: %s", strerror(errno));
	assert(strlen(path) < sizeof(to.sun_path));
	memcpy(to.sun_path, path, strlen(path));
	/* Refused: a file without a listener. EAGAIN is a listener with a full queue, and
	 * EPROTOTYPE one of another kind. */
	if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0) {
		if (errno == ECONNREFUSED || errno == ENOENT)
			nobody = true;
		else if (errno != EAGAIN && errno != EPROTOTYPE)
			st = err_set(
				err, ST_IO, "connect to %s: %s", path, strerror(errno));
	}
	close(fd);
	if (st == ST_OK)
		*answers = !nobody;
	return st;
}

status runtime_remove_stale(
	const char *path, enum runtime_socket_kind kind, struct err *err)
{
	struct stat sb;
	bool answers;
	status st;

	if (strlen(path) >= RUNTIME_PATH_BYTES)
		return err_set(err, ST_INVALID,
			"socket path %s has %zu bytes, at most %d", path, strlen(path),
			RUNTIME_PATH_BYTES - 1);
	if (lstat(path, &sb) < 0) {
		if (errno == ENOENT)
			return ST_OK;
		return err_set(err, ST_IO, "socket %s: %s", path, strerror(errno));
	}
	if (!S_ISSOCK(sb.st_mode))
		return err_set(err, ST_INVALID, "%s exists and is not a socket", path);
	st = runtime_answers(path, kind, &answers, err);
	if (st != ST_OK)
		return st;
	if (answers)
		return err_set(
			err, ST_PEER, "socket %s is in use by another process", path);
	if (unlink(path) < 0 && errno != ENOENT)
		return err_set(
			err, ST_IO, "remove stale socket %s: %s", path, strerror(errno));
	return ST_OK;
}

bool runtime_file_note(struct runtime_file *f, const char *path)
{
	struct stat sb;

	*f = (struct runtime_file){.ino = 0};
	if (lstat(path, &sb) != 0)
		return false;
	*f = (struct runtime_file){sb.st_dev, sb.st_ino};
	return true;
}

bool runtime_file_stands(const struct runtime_file *f, const char *path)
{
	struct runtime_file now;

	return f->ino != 0 && runtime_file_note(&now, path) && now.dev == f->dev &&
	       now.ino == f->ino;
}

status runtime_boot_id(char *out, size_t size, struct err *err)
{
	static const char path[] = "/proc/sys/kernel/random/boot_id";
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, out, size - 1) : -1;

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return err_set(err, ST_IO, "%s: %s", path, strerror(errno));
	out[n] = 0;
	out[strcspn(out, "\n")] = 0;
	return ST_OK;
}
