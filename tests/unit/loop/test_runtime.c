/* The runtime directory: made right, refused when others could enter it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/loop/runtime.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct fixture {
	char top[64], dir[96], path[128];
	struct err err;
	struct runtime rt;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	snprintf(f->top, sizeof(f->top), "/tmp/baton-runtime-XXXXXX");
	assert_non_null(mkdtemp(f->top));
	snprintf(f->dir, sizeof(f->dir), "%s/run", f->top);
	snprintf(f->path, sizeof(f->path), "%s/sock", f->top);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	char routers[128];

	snprintf(routers, sizeof(routers), "%s/routers", f->dir);
	unlink(f->path);
	rmdir(routers);
	if (rmdir(f->dir) != 0)
		unlink(f->dir);
	assert_int_equal(rmdir(f->top), 0);
	free(f);
	return 0;
}

static unsigned mode_of(const char *path)
{
	struct stat sb;

	assert_int_equal(lstat(path, &sb), 0);
	return (unsigned)sb.st_mode & 0777;
}

static void it_is_made_for_its_owner_alone(void **state)
{
	struct fixture *f = *state;
	char with_slashes[128];

	umask(0);
	assert_int_equal(runtime_open(&f->rt, f->dir, &f->err), ST_OK);
	assert_int_equal(mode_of(f->rt.dir), 0700);
	assert_int_equal(mode_of(f->rt.routers), 0700);
	snprintf(with_slashes, sizeof(with_slashes), "%s//", f->dir);
	assert_int_equal(runtime_open(&f->rt, with_slashes, &f->err), ST_OK);
	assert_string_equal(f->rt.dir, f->dir);
}

static void refused(struct fixture *f, const char *dir, const char *text)
{
	assert_int_not_equal(runtime_open(&f->rt, dir, &f->err), ST_OK);
	if (strstr(f->err.text, text) == NULL)
		fail_msg("%s: %s", dir, f->err.text);
}

static void one_that_others_may_enter_is_refused(void **state)
{
	struct fixture *f = *state;
	char routers[128];

	assert_int_equal(mkdir(f->dir, 0700), 0);
	assert_int_equal(chmod(f->dir, 0755), 0);
	refused(f, f->dir, "has mode 0755, not 0700");
	assert_int_equal(chmod(f->dir, 0700), 0);
	snprintf(routers, sizeof(routers), "%s/routers", f->dir);
	assert_int_equal(mkdir(routers, 0700), 0);
	assert_int_equal(chmod(routers, 0770), 0);
	refused(f, f->dir, "has mode 0770, not 0700");
}

static void one_of_another_user_a_link_or_a_file_is_refused(void **state)
{
	struct fixture *f = *state;
	char name[128];
	int fd;

	if (geteuid() == 0) {
		assert_int_equal(mkdir(f->dir, 0700), 0);
		assert_int_equal(chown(f->dir, 12345, 12345), 0);
		refused(f, f->dir, "belongs to user 12345, this process is user 0");
		assert_int_equal(rmdir(f->dir), 0);
	} else {
		refused(f, "/", "belongs to user 0");
	}
	assert_int_equal(symlink(f->top, f->dir), 0);
	refused(f, f->dir, "is not a directory");
	snprintf(name, sizeof(name), "%s/", f->dir);
	refused(f, name, "is not a directory");
	assert_int_equal(unlink(f->dir), 0);
	fd = open(f->dir, O_CREAT | O_WRONLY, 0700);
	close(fd);
	refused(f, f->dir, "is not a directory");
	refused(f, "relative/dir", "not an absolute path");
	refused(f, "/nonexistent/dir", "No such file");
}

static void paths_end_at_107_bytes(void **state)
{
	struct fixture *f = *state;
	char out[RUNTIME_PATH_BYTES];
	char name[200], want[RUNTIME_PATH_BYTES];
	int room;

	assert_int_equal(runtime_open(&f->rt, f->dir, &f->err), ST_OK);
	room = 107 - (int)strlen(f->rt.dir) - 1;
	memset(name, 'n', sizeof(name));
	assert_int_equal(runtime_path(&f->rt, out, &f->err, "%.*s", room, name), ST_OK);
	assert_int_equal(strlen(out), 107);
	assert_int_equal(
		runtime_path(&f->rt, out, &f->err, "%.*s", room + 1, name), ST_INVALID);
	assert_non_null(strstr(f->err.text, "makes a path of 108, at most 107"));
	assert_int_equal(
		runtime_path(&f->rt, out, &f->err, "%s.%d.link", "p0", 17), ST_OK);
	snprintf(want, sizeof(want), "%.80s/p0.17.link", f->dir);
	assert_string_equal(out, want);
}

static void a_directory_has_76_bytes_and_leaves_room_for_a_link(void **state)
{
	struct fixture *f = *state;
	char out[RUNTIME_PATH_BYTES], name[200], want[64];

	snprintf(name, sizeof(name), "/%075d///", 1);
	assert_int_equal(runtime_name(&f->rt, name, &f->err), ST_OK);
	assert_int_equal(strlen(f->rt.dir), 76);
	assert_int_equal(
		runtime_path(&f->rt, out, &f->err, "%s.%016x.link", "id345678", 1u),
		ST_OK);
	assert_int_equal(strlen(out), 107);
	for (int n = 77; n <= 150; n++) {
		snprintf(name, sizeof(name), "/%0*d", n - 1, 1);
		assert_int_equal(runtime_name(&f->rt, name, &f->err), ST_INVALID);
		snprintf(want, sizeof(want), " has %d bytes, at most 76", n);
		assert_non_null(strstr(f->err.text, want));
		assert_memory_equal(f->err.text, name, (size_t)n);
		assert_non_null(strstr(f->err.text, "107"));
	}
}

static int bind_socket(const char *path, int type)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	assert_true(strlen(path) < sizeof(at.sun_path));
	memcpy(at.sun_path, path, strlen(path));
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

static void a_stale_socket_goes_and_a_live_one_stays(void **state)
{
	struct fixture *f = *state;
	int types[] = {SOCK_STREAM, SOCK_SEQPACKET};

	assert_int_equal(runtime_remove_stale(f->path, RUNTIME_STREAM, &f->err), ST_OK);
	for (unsigned i = 0; i < COUNT(types); i++) {
		enum runtime_socket_kind kind =
			i == 0 ? RUNTIME_STREAM : RUNTIME_SEQPACKET;
		enum runtime_socket_kind other =
			i == 0 ? RUNTIME_SEQPACKET : RUNTIME_STREAM;
		int fd = bind_socket(f->path, types[i]);

		assert_int_equal(listen(fd, 4), 0);
		assert_int_equal(runtime_remove_stale(f->path, kind, &f->err), ST_PEER);
		assert_non_null(strstr(f->err.text, "in use"));
		assert_int_equal(runtime_remove_stale(f->path, other, &f->err), ST_PEER);
		assert_int_equal(access(f->path, F_OK), 0);
		close(fd);
		assert_int_equal(runtime_remove_stale(f->path, kind, &f->err), ST_OK);
		assert_int_equal(access(f->path, F_OK), -1);
	}
}

static void what_is_not_a_socket_is_not_removed(void **state)
{
	struct fixture *f = *state;
	int fd = open(f->path, O_CREAT | O_WRONLY, 0600);

	close(fd);
	assert_int_equal(
		runtime_remove_stale(f->path, RUNTIME_STREAM, &f->err), ST_INVALID);
	assert_int_equal(access(f->path, F_OK), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static void the_boot_id_is_one_line_and_too_little_room_cuts_it(void **state)
{
	char id[64], again[64], small[8];
	struct err err;

	(void)state;
	assert_int_equal(runtime_boot_id(id, sizeof(id), &err), ST_OK);
	assert_int_equal(strlen(id), 36);
	assert_null(strchr(id, '\n'));
	assert_int_equal(runtime_boot_id(again, sizeof(again), &err), ST_OK);
	assert_string_equal(id, again);
	assert_int_equal(runtime_boot_id(small, sizeof(small), &err), ST_OK);
	assert_memory_equal(small, id, 7);
	assert_int_equal(small[7], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_boot_id_is_one_line_and_too_little_room_cuts_it),
		T(it_is_made_for_its_owner_alone),
		T(one_that_others_may_enter_is_refused),
		T(one_of_another_user_a_link_or_a_file_is_refused),
		T(paths_end_at_107_bytes),
		T(a_directory_has_76_bytes_and_leaves_room_for_a_link),
		T(a_stale_socket_goes_and_a_live_one_stays),
		T(what_is_not_a_socket_is_not_removed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
