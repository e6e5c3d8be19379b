/* The exporter's socket file is removed under it: it is bound anew, and the links that
 * are open do not notice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/xfer/exporter_impl.h"
#include "unit/xfer/pair.h"
#include "unit/xfer/raw_peer.h"
#include <fcntl.h>

static const char *path_of(const struct pair *t)
{
	return exporter_path(t->p.exporter);
}

static bool is_socket(void *path)
{
	struct stat sb;

	return lstat(path, &sb) == 0 && S_ISSOCK(sb.st_mode);
}

/* The next look, and what follows from it. */
static void pass_a_second(struct pair *t)
{
	clock_offset += 1100 * NS_PER_MS;
	loop_for(t->loop, 10);
}

static void check_that_importers_can_connect(struct pair *t)
{
	uint32_t n = exporter_links(t->p.exporter);
	struct raw_peer peer;

	raw_connect(&peer, path_of(t));
	SOON(t->loop, exporter_links(t->p.exporter) == n + 1);
	raw_close(&peer);
	SOON(t->loop, exporter_links(t->p.exporter) == n);
}

static void a_removed_file_is_bound_anew_beside_open_links(void **state)
{
	struct pair *t = *state;
	char path[RUNTIME_PATH_BYTES];
	struct stat sb;
	uint32_t fds;

	snprintf(path, sizeof(path), "%s", path_of(t));
	one_pull(t, 100, 1, true);
	fds = count_fds();
	for (int again = 0; again < 3; again++) {
		assert_int_equal(0, unlink(path));
		pass_a_second(t);
		assert_true(is_socket(path));
		assert_int_equal(0, lstat(path, &sb));
		assert_int_equal(0600, sb.st_mode & 0777);
		assert_string_equal(path, path_of(t));
		assert_int_equal(1, exporter_links(t->p.exporter));
		one_pull(t, 100, 2, true);
		check_that_importers_can_connect(t);
		SOON(t->loop, count_fds() == fds); /* the old socket is closed */
	}
}

static void a_file_that_is_there_is_left_alone(void **state)
{
	struct pair *t = *state;
	struct stat before, after;

	assert_int_equal(0, lstat(path_of(t), &before));
	for (int i = 0; i < 3; i++)
		pass_a_second(t);
	assert_int_equal(0, lstat(path_of(t), &after));
	assert_int_equal(before.st_ino, after.st_ino);
}

static void the_directory_is_made_anew_as_well(void **state)
{
	struct pair *t = *state;
	struct stat sb;

	remove_dir(t->dir);
	pass_a_second(t);
	assert_int_equal(0, lstat(t->dir, &sb));
	assert_int_equal(0700, sb.st_mode & 0777);
	check_that_importers_can_connect(t);
	one_pull(t, 100, 3, true);
}

static void a_file_of_somebody_else_is_not_touched_and_waited_for(void **state)
{
	struct pair *t = *state;
	char path[RUNTIME_PATH_BYTES];
	struct err err;
	int fd;

	snprintf(path, sizeof(path), "%s", path_of(t));
	one_pull(t, 100, 4, true);
	/* A listener that lives, then one that has died, then what is no socket. */
	assert_int_equal(0, unlink(path));
	CHECK_OK(link_listen(path, &fd, &err), err);
	for (int i = 0; i < 2; i++) {
		pass_a_second(t);
		assert_true(t->p.exporter->socket.lost);
		one_pull(t, 100, 5, true);
	}
	close(fd);
	pass_a_second(t);
	assert_false(t->p.exporter->socket.lost);
	check_that_importers_can_connect(t);
	assert_int_equal(0, unlink(path));
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	pass_a_second(t);
	assert_true(t->p.exporter->socket.lost);
	exporter_destroy(t->p.exporter);
	t->p.exporter = NULL;
	assert_int_equal(0, access(path, F_OK));
}

static void who_waits_on_the_old_file_is_let_in(void **state)
{
	struct pair *t = *state;
	struct raw_peer peer;

	raw_connect(&peer, path_of(t));
	assert_int_equal(0, unlink(path_of(t)));
	pass_a_second(t);
	assert_int_equal(1, exporter_links(t->p.exporter));
	check_that_importers_can_connect(t);
	raw_close(&peer);
}

/* Its lease is whole, so it is worth the second. */
static void a_pull_waits_for_the_file(void **state)
{
	struct pair *t = *state;
	struct place src, dst;
	uint64_t lease = node_grant(&t->p, &src, 100, 6);
	struct state_view v;
	struct pull what;
	struct puller p;

	node_take(&t->d, &dst, 100);
	what = pull_from(&t->p, &src, lease, &dst);
	assert_int_equal(0, unlink(path_of(t)));
	start_pull(&t->d, &what, &p);
	loop_for(t->loop, 30);
	assert_int_equal(0, p.n_done);
	pass_a_second(t);
	wait_done(t->loop, &p);
	CHECK_OK(p.result.code, p.result.err);
	v = node_view(&t->d, &dst);
	assert_int_equal(0, state_wrong(&v, 6));
	node_give(&t->d, &dst);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(a_removed_file_is_bound_anew_beside_open_links),
		WITH(a_file_that_is_there_is_left_alone),
		WITH(the_directory_is_made_anew_as_well),
		WITH(a_file_of_somebody_else_is_not_touched_and_waited_for),
		WITH(a_pull_waits_for_the_file),
		WITH(who_waits_on_the_old_file_is_let_in),
	};

	log_level_set(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
