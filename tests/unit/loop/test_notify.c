/* systemd notification against a datagram socket of our own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/loop/notify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int bind_datagram(const char *name)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	socklen_t len =
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));

	memcpy(at.sun_path, name, strlen(name));
	if (name[0] == '@')
		at.sun_path[0] = 0;
	assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
	return fd;
}

static void expect(int fd, const char *want)
{
	char got[512];
	ssize_t n = recv(fd, got, sizeof(got) - 1, 0);

	assert_true(n >= 0);
	got[n] = 0;
	assert_string_equal(got, want);
}

static void check_all_texts(const char *name)
{
	int fd = bind_datagram(name);
	char big[1000];

	setenv("NOTIFY_SOCKET", name, 1);
	assert_true(notify_ready());
	expect(fd, "READY=1");
	assert_true(notify_status("running %d, READY=1 is not\nforged", 3));
	expect(fd, "STATUS=running 3, READY=1 is not forged");
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	assert_true(notify_status("%s", big));
	assert_int_equal(recv(fd, big, sizeof(big), 0), 255);
	assert_true(notify_watchdog());
	expect(fd, "WATCHDOG=1");
	assert_true(notify_stopping());
	expect(fd, "STOPPING=1");
	assert_int_equal(recv(fd, big, sizeof(big), 0), -1); /* nothing more */
	close(fd);
}

static void texts_arrive_at_a_path_and_at_an_abstract_name(void **state)
{
	char dir[] = "/tmp/baton-notify-XXXXXX";
	char name[108];

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(name, sizeof(name), "%s/n", dir);
	check_all_texts(name);
	unlink(name);
	rmdir(dir);
	snprintf(name, sizeof(name), "@baton-notify-%d", (int)getpid());
	check_all_texts(name);
}

static void nothing_happens_when_nobody_asked_or_listens(void **state)
{
	char name[200];

	(void)state;
	unsetenv("NOTIFY_SOCKET");
	assert_false(notify_ready());
	setenv("NOTIFY_SOCKET", "/nonexistent/n", 1);
	assert_false(notify_ready());
	setenv("NOTIFY_SOCKET", "relative", 1);
	assert_false(notify_ready());
	memset(name, '/', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	setenv("NOTIFY_SOCKET", name, 1);
	assert_false(notify_ready());
}

static void the_watchdog_is_fed_twice_per_period_and_only_if_meant_for_us(void **state)
{
	char pid[32];

	(void)state;
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	assert_int_equal(notify_watchdog_ms(), 0);
	setenv("WATCHDOG_USEC", "30000000", 1);
	assert_int_equal(notify_watchdog_ms(), 15000);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("WATCHDOG_PID", pid, 1);
	assert_int_equal(notify_watchdog_ms(), 15000);
	setenv("WATCHDOG_PID", "1", 1);
	assert_int_equal(notify_watchdog_ms(), 0);
	unsetenv("WATCHDOG_PID");
	setenv("WATCHDOG_USEC", "soon", 1);
	assert_int_equal(notify_watchdog_ms(), 0);
	setenv("WATCHDOG_USEC", "10", 1);
	assert_int_equal(notify_watchdog_ms(), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_arrive_at_a_path_and_at_an_abstract_name),
		cmocka_unit_test(nothing_happens_when_nobody_asked_or_listens),
		cmocka_unit_test(
			the_watchdog_is_fed_twice_per_period_and_only_if_meant_for_us),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
