// labels: threads
/* The log of a program whose reader does not read: nobody waits for it. Each case is a
 * process of its own, since a program's log lasts until its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/process.h"

#include <assert.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINES 20000
/* Far below what a reader that stalls would cost, far above a busy machine. */
#define SOON  (5 * NS_PER_S)

static char text[4u << 20];

/* Forks a program whose standard error is the pipe that *reader reads. */
static pid_t start(void (*program)(void), int *reader)
{
	int fds[2];
	struct err err;
	pid_t pid;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		dup2(fds[1], STDERR_FILENO);
		if (process_begin(&err) != ST_OK)
			_exit(99);
		program();
		_exit(process_end(0));
	}
	close(fds[1]);
	*reader = fds[0];
	return pid;
}

static int end_of(pid_t pid)
{
	int rc;

	assert_int_equal(waitpid(pid, &rc, 0), pid);
	return rc;
}

static const char *read_all(int fd)
{
	size_t n = 0;
	ssize_t k;

	while ((k = read(fd, text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)k;
	text[n] = 0;
	close(fd);
	return text;
}

static void say_many(void)
{
	for (int i = 0; i < LINES; i++)
		log_info("line=%06d end", i);
}

/* Whole lines in order: what came before the notice, the notice, what came after; all
 * that are not there were counted. */
static void check_lines(const char *all, bool may_drop)
{
	unsigned long long dropped = 0, seen = 0;
	long last = -1;

	for (const char *at = all; *at != 0; at = strchr(at, '\n') + 1) {
		const char *stop = strchr(at, '\n'), *line, *notice;

		assert_non_null(stop);
		line = memmem(at, (size_t)(stop - at), "line=", 5);
		notice = memmem(at, (size_t)(stop - at), " log lines", 10);
		if (line != NULL) {
			char *end;
			long i = strtol(line + 5, &end, 10);

			assert_int_equal(end - line, 11);
			assert_memory_equal(end, " end", 4);
			assert_true(i > last);
			last = i;
			seen++;
		} else {
			assert_non_null(notice);
			while (notice[-1] >= '0' && notice[-1] <= '9')
				notice--;
			dropped += strtoull(notice, NULL, 10);
		}
	}
	assert_int_equal(seen + dropped, LINES);
	assert_int_equal(dropped > 0, may_drop);
}

static void slowly(void)
{
	for (int i = 0; i < LINES; i++) {
		log_info("line=%06d end", i);
		if (i % 100 == 0)
			usleep(1000);
	}
}

static void a_reader_that_reads_gets_every_line_in_order(void **state)
{
	int fd;
	pid_t pid = start(slowly, &fd);

	(void)state;
	check_lines(read_all(fd), false);
	assert_int_equal(end_of(pid), 0);
}

static void lines_that_find_no_room_are_dropped_and_counted(void **state)
{
	int fd;
	pid_t pid = start(say_many, &fd);

	(void)state;
	/* The pipe and the queue are full long before. */
	usleep(300000);
	check_lines(read_all(fd), true);
	assert_int_equal(end_of(pid), 0);
}

static void a_reader_that_stalls_holds_up_neither_work_nor_the_end(void **state)
{
	uint64_t t0 = clock_ns();
	int fd;
	pid_t pid = start(say_many, &fd);

	(void)state;
	assert_int_equal(end_of(pid), 0);
	assert_true(clock_ns() - t0 < SOON);
	close(fd);
}

static void fail_an_assertion(void)
{
	int volatile two = 2;

	log_info("before");
	assert(two == 3);
}

static void what_was_logged_before_a_failed_assertion_is_written(void **state)
{
	int fd;
	pid_t pid = start(fail_an_assertion, &fd);
	const char *all = read_all(fd);
	int rc = end_of(pid);

	(void)state;
	assert_non_null(strstr(all, "before\n"));
	assert_non_null(strstr(strstr(all, "before\n"),
		"assertion failed: two == 3 in fail_an_assertion, "));
	assert_true(WIFSIGNALED(rc) && WTERMSIG(rc) == SIGABRT);
}

static void flood_and_fail(void)
{
	say_many();
	fail_an_assertion();
}

static void a_failed_assertion_ends_although_nobody_reads(void **state)
{
	uint64_t t0 = clock_ns();
	int fd;
	pid_t pid = start(flood_and_fail, &fd);
	int rc = end_of(pid);

	(void)state;
	assert_true(WIFSIGNALED(rc) && WTERMSIG(rc) == SIGABRT);
	assert_true(clock_ns() - t0 < SOON);
	close(fd);
}

static void say_and_check(void)
{
	struct stat null, st;

	assert_int_equal(stat("/dev/null", &null), 0);
	for (int fd = 0; fd < 3; fd++)
		if (fstat(fd, &st) != 0 || st.st_rdev != null.st_rdev)
			_exit(98);
	if (open("/dev/null", O_RDONLY | O_CLOEXEC) < 3)
		_exit(97);
}

static void closed_standard_descriptors_stand_for_dev_null(void **state)
{
	struct err err;
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		close(STDIN_FILENO);
		close(STDOUT_FILENO);
		close(STDERR_FILENO);
		if (process_begin(&err) != ST_OK)
			_exit(99);
		say_and_check();
		_exit(process_end(0));
	}
	assert_int_equal(end_of(pid), 0);
}

/* Standard error is closed and its number becomes that of a file of our own. */
static void lose_standard_error(void)
{
	FILE *own = tmpfile();

	log_info("line one");
	close(STDERR_FILENO);
	dup2(fileno(own), STDERR_FILENO);
	log_info("line two");
	log_end();
	_exit(lseek(fileno(own), 0, SEEK_END) == 0 ? 0 : 96);
}

static void a_line_never_goes_to_what_took_the_number_of_stderr(void **state)
{
	int fd;
	pid_t pid = start(lose_standard_error, &fd);
	const char *all = read_all(fd);

	(void)state;
	assert_non_null(strstr(all, "line one\n"));
	assert_non_null(strstr(all, "line two\n"));
	assert_int_equal(end_of(pid), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reader_that_reads_gets_every_line_in_order),
		cmocka_unit_test(lines_that_find_no_room_are_dropped_and_counted),
		cmocka_unit_test(a_reader_that_stalls_holds_up_neither_work_nor_the_end),
		cmocka_unit_test(what_was_logged_before_a_failed_assertion_is_written),
		cmocka_unit_test(a_failed_assertion_ends_although_nobody_reads),
		cmocka_unit_test(closed_standard_descriptors_stand_for_dev_null),
		cmocka_unit_test(a_line_never_goes_to_what_took_the_number_of_stderr),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
