// labels: threads
/* The Unix socket of the HTTP server beside files and sockets that are there already. */
#include "http_rig.h"

#include <fcntl.h>
#include <sys/stat.h>

#define CLOSE "Connection: close\r\n"

static struct sockaddr_un at = {.sun_family = AF_UNIX};

static void name_path(void)
{
	snprintf(at.sun_path, sizeof(at.sun_path), "/tmp/baton-test-listen-%d.sock",
		(int)getpid());
	unlink(at.sun_path);
}

static int bound_socket(int type)
{
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

static ino_t inode(void)
{
	struct stat st;

	return lstat(at.sun_path, &st) == 0 ? st.st_ino : 0;
}

static void check_answers(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	put(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n" CLOSE
		"\r\nunix");
	HAS(take_until(fd, NULL), "200 OK");
	close(fd);
}

/* A server of this path is refused with these words, and the path stays what it was. */
static void check_refused(const char *words)
{
	struct loop *loop = loop_create();
	struct http_handler handler = {.ctx = NULL};
	struct http_options o = {
		.loop = loop, .host = "127.0.0.1", .unix_path = at.sun_path};
	ino_t was = inode();
	struct http *h;
	struct err err;

	assert_int_not_equal(http_create(&h, &o, &handler, &err), ST_OK);
	HAS(err.text, words);
	HAS(err.text, at.sun_path);
	assert_int_equal(inode(), was);
	loop_destroy(loop);
}

static void what_is_no_socket_is_left_alone(void **state)
{
	char text[8] = "";
	int fd;

	(void)state;
	name_path();
	fd = open(at.sun_path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, "keep", 4), 4);
	check_refused("is not a socket");
	assert_int_equal(pread(fd, text, sizeof(text), 0), 4);
	assert_string_equal(text, "keep");
	close(fd);
	unlink(at.sun_path);
	assert_int_equal(mkdir(at.sun_path, 0700), 0);
	check_refused("is not a socket");
	assert_int_equal(rmdir(at.sun_path), 0);
	assert_int_equal(symlink("/nowhere", at.sun_path), 0);
	check_refused("is not a socket");
	unlink(at.sun_path);
}

static void a_socket_that_somebody_listens_on_is_refused(void **state)
{
	struct rig *r;
	int fd, queued;

	(void)state;
	name_path();
	r = rig_start((struct http_options){.unix_path = at.sun_path});
	check_refused("in use by another process");
	check_answers();
	rig_stop(r);
	/* One whose queue is full answers nobody, and is there all the same. */
	fd = bound_socket(SOCK_STREAM);
	assert_int_equal(listen(fd, 0), 0);
	queued = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(queued, (struct sockaddr *)&at, sizeof(at)), 0);
	check_refused("in use by another process");
	close(queued);
	close(fd);
	unlink(at.sun_path);
	fd = bound_socket(SOCK_DGRAM);
	check_refused("in use by another process");
	close(fd);
	unlink(at.sun_path);
}

static void a_stale_socket_is_replaced(void **state)
{
	struct rig *r;
	int fd;

	(void)state;
	name_path();
	fd = bound_socket(SOCK_STREAM);
	assert_int_equal(listen(fd, 1), 0);
	close(fd);
	r = rig_start((struct http_options){.unix_path = at.sun_path});
	check_answers();
	rig_stop(r);
	assert_int_equal(inode(), 0);
}

static void the_end_removes_only_the_own_socket(void **state)
{
	struct rig *first, *second;

	(void)state;
	name_path();
	first = rig_start((struct http_options){.unix_path = at.sun_path});
	/* Somebody cleared the path, and a successor took it. */
	unlink(at.sun_path);
	second = rig_start((struct http_options){.unix_path = at.sun_path});
	rig_signal(first);
	pthread_join(first->thread, NULL);
	http_destroy(first->http);
	loop_fd_close(first->stop, true);
	loop_destroy(first->loop);
	free(first);
	check_answers();
	rig_stop(second);
	assert_int_equal(inode(), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_no_socket_is_left_alone),
		cmocka_unit_test(a_socket_that_somebody_listens_on_is_refused),
		cmocka_unit_test(a_stale_socket_is_replaced),
		cmocka_unit_test(the_end_removes_only_the_own_socket),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
