/* Fault points: what holds, what counts, what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/fault.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef BATON_FAULTS

static void a_pause_holds_until_the_go_file_appears(void **state)
{
	char dir[] = "/tmp/baton-fault-XXXXXX";
	char go[96];
	struct err err;
	uint64_t before = fault_hits(FAULT_adopt);
	int fd;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(go, sizeof(go), "%s/fault.adopt.go", dir);
	assert_int_equal(
		fault_configure("pause@adopt,step_delay_ms=20", dir, &err), ST_OK);
	assert_int_equal(fault_step_delay_ms(), 20);
	assert_false(fault_paused(FAULT_pull));
	assert_true(fault_paused(FAULT_adopt));
	assert_true(fault_paused(FAULT_adopt));
	assert_int_equal(fault_hits(FAULT_adopt), before + 1);
	assert_int_equal(fault_hits(FAULT_pull), 0);
	fd = open(go, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_false(fault_paused(FAULT_adopt));
	unlink(go);
	assert_false(fault_paused(FAULT_adopt)); /* it ended for good */
	assert_int_equal(fault_configure("pause@adopt", dir, &err), ST_OK);
	assert_true(fault_paused(FAULT_adopt));
	assert_int_equal(fault_hits(FAULT_adopt), before + 2);
	assert_int_equal(fault_configure("", dir, &err), ST_OK);
	assert_false(fault_paused(FAULT_adopt));
	assert_int_equal(fault_step_delay_ms(), 0);
	rmdir(dir);
}

static void a_blow_falls_once_on_its_time(void **state)
{
	char dir[] = "/tmp/baton-fault-XXXXXX", done[96];
	struct err err;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(done, sizeof(done), "%s/fault.fail_step.done", dir);
	for (int again = 0; again < 2; again++) {
		assert_int_equal(
			fault_configure("fail_step=3,hang_step=9", dir, &err), ST_OK);
		assert_false(fault_strikes(FAULT_fail_copy));
		assert_false(fault_strikes(FAULT_fail_step));
		assert_false(fault_strikes(FAULT_fail_step));
		/* Not in a process that was started again. */
		assert_int_equal(fault_strikes(FAULT_fail_step), again == 0);
		assert_int_equal(access(done, F_OK), 0);
		assert_false(fault_strikes(FAULT_fail_step));
	}
	assert_int_equal(fault_configure("", dir, &err), ST_OK);
	for (int i = 0; i < 20; i++)
		assert_false(fault_strikes(FAULT_hang_step));
	unlink(done);
	rmdir(dir);
}

static void unknown_faults_are_refused_by_name(void **state)
{
	static const char *const bad[] = {"pause@adapt", "pause@", "pause",
		"step_delay_ms=", "step_delay_ms=x", "step_delay_ms=60001",
		"step_delay_ms=99999999999999999999", "step_delay_ms=-1", "pause@adop",
		"crash", "fail_step", "fail_step=", "fail_step=0", "fail_step=1000001",
		"hang_step=1x", "fail_pull=1"};
	struct err err;

	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++) {
		assert_int_equal(fault_configure(bad[i], "/tmp", &err), ST_INVALID);
		assert_non_null(strstr(err.text, bad[i]));
	}
	assert_int_equal(fault_configure("", "/tmp", &err), ST_OK);
}

#else

static void a_pause_holds_until_the_go_file_appears(void **state)
{
	(void)state;
	assert_false(fault_paused(FAULT_adopt));
	assert_int_equal(fault_hits(FAULT_adopt), 0);
	assert_int_equal(fault_step_delay_ms(), 0);
}

static void a_blow_falls_once_on_its_time(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		assert_false(fault_strikes(FAULT_fail_step));
}

static void unknown_faults_are_refused_by_name(void **state)
{
	struct err err;

	(void)state;
	assert_int_equal(fault_configure("", "/tmp", &err), ST_OK);
	assert_int_equal(fault_configure("fail_step=1", "/tmp", &err), ST_INVALID);
	assert_non_null(strstr(err.text, "no fault points"));
	assert_int_equal(fault_configure("pause@adopt", "/tmp", &err), ST_INVALID);
	assert_non_null(strstr(err.text, "no fault points"));
}

#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pause_holds_until_the_go_file_appears),
		cmocka_unit_test(a_blow_falls_once_on_its_time),
		cmocka_unit_test(unknown_faults_are_refused_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
