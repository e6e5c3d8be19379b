/* Bytes with an end, errors, and the memory budget under them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/mem.h"
#include "common/base/stats.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int nothing_is_left(void **state)
{
	(void)state;
	assert_int_equal(mem_taken(), 0);
	return 0;
}

static void a_cursor_never_passes_its_end(void **state)
{
	static const uint8_t in[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
	struct cursor c = {in, in + sizeof(in)};
	struct bytes b;
	uint64_t u;
	uint32_t v;

	(void)state;
	assert_true(cur_u64le(&c, &u));
	assert_true(u == 0x0807060504030201);
	assert_false(cur_u64le(&c, &u));
	assert_true(cur_u32le(&c, &v));
	assert_int_equal(v, 0x0c0b0a09);
	assert_false(cur_u32le(&c, &v));
	assert_false(cur_take(&c, 2, &b));
	assert_true(cur_take(&c, 1, &b));
	assert_int_equal(b.at[0], 13);
	assert_true(cur_take(&c, 0, &b));
	assert_false(cur_take(&c, SIZE_MAX, &b));
}

static void a_sink_grows_to_its_maximum_and_then_drops(void **state)
{
	struct sink s;

	(void)state;
	sink_init(&s, 10);
	assert_string_equal(sink_cstr(&s), "");
	sink_str(&s, "abc");
	sink_fmt(&s, "%d-%s", 42, "xy");
	assert_string_equal(sink_cstr(&s), "abc42-xy");
	sink_str(&s, "zz");
	assert_false(s.full);
	assert_int_equal(sink_bytes(&s).len, 10);
	sink_put(&s, "!", 1);
	assert_true(s.full);
	assert_int_equal(s.len, 10);
	sink_reset(&s);
	assert_false(s.full);
	sink_fmt(&s, "%s", "0123456789");
	sink_consume(&s, 4);
	assert_string_equal(sink_cstr(&s), "456789");
	sink_fmt(&s, "%s", "abcde");
	assert_true(s.full);
	sink_release(&s);
}

static void the_budget_refuses_and_returns_to_its_start(void **state)
{
	struct sink s;
	void *p;

	(void)state;
	assert_null(mem_take(SIZE_MAX, 2));
	mem_budget(1000);
	p = mem_take(1, 600);
	assert_non_null(p);
	assert_null(mem_take(1, 600));
	assert_null(mem_regrow(p, 1200));
	((char *)p)[599] = 1; /* the old block is as it was */
	sink_init(&s, 5000);
	for (int i = 0; i < 1000 && !s.full; i++)
		sink_str(&s, "0123456789");
	assert_true(s.full);
	sink_release(&s);
	p = mem_regrow(p, 10);
	assert_non_null(p);
	mem_give(p);
	mem_give(NULL);
	mem_budget(UINT64_C(1) << 30);
	p = mem_dup("abc", 3);
	assert_string_equal(p, "abc");
	mem_give(p);
}

/* In a child: it is meant to end the process. */
static void a_start_up_allocation_after_the_seal_aborts(void **state)
{
	int rc;
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		close(STDERR_FILENO);
		mem_seal();
		mem_give(mem_take(1, 10)); /* request memory still works */
		mem_free(mem_alloc(1, 10));
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &rc, 0), pid);
	assert_true(WIFSIGNALED(rc) && WTERMSIG(rc) == SIGABRT);
}

static void an_error_keeps_its_code_and_gains_prefixes(void **state)
{
	char long_text[600];
	struct err err;

	(void)state;
	assert_int_equal(err_set(&err, ST_INVALID, "row %d", 3), ST_INVALID);
	assert_int_equal(err_wrap(&err, "file %s", "x"), ST_INVALID);
	assert_string_equal(err.text, "file x: row 3");
	assert_non_null(strstr(err.file, "test_bytes.c"));
	memset(long_text, 'a', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = 0;
	err_wrap(&err, "%s", long_text);
	err_set(&err, ST_IO, "%s", long_text);
	err_wrap(&err, "p");
	assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
	assert_memory_equal(err.text, "p: aaa", 6);
	assert_string_equal(status_name(ST_PEER), "PEER");
	assert_string_equal(status_name(ST__COUNT), "?");
}

static uint64_t fixed_clock(void)
{
	return 77;
}

static void the_clock_moves_forward_and_can_be_replaced(void **state)
{
	uint64_t a = clock_ns();

	(void)state;
	usleep(2000);
	assert_true(clock_ns() - a >= 2 * NS_PER_MS);
	clock_replace(fixed_clock);
	assert_int_equal(clock_ns(), 77);
	clock_replace(NULL);
	assert_true(clock_ns() > a);
	assert_true(clock_unix_s() > 1700000000);
}

/* Indices travel in beats: a moved entry would give every later one a wrong name. */
static void statistics_keep_their_numbers(void **state)
{
	(void)state;
	assert_int_equal(STAT_prefill_tokens, 0);
	assert_int_equal(STAT_handover_bytes, 5);
	assert_int_equal(STAT_pages_free, 15);
	assert_int_equal(STAT_fault_hits, 24);
	assert_int_equal(STAT_log_dropped, 25);
	assert_string_equal(stats_name(STAT_jobs), "jobs");
	assert_string_equal(stats_kind(STAT_jobs), "gauge");
	assert_string_equal(stats_kind(STAT_evicted), "counter");
	for (unsigned i = 0; i < STAT__COUNT; i++)
		assert_true(strlen(stats_help((enum stat_id)i)) > 5);
	assert_string_equal(stats_name(STAT__COUNT), "?");
}

#define T(name) cmocka_unit_test_teardown(name, nothing_is_left)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_cursor_never_passes_its_end),
		T(a_sink_grows_to_its_maximum_and_then_drops),
		T(the_budget_refuses_and_returns_to_its_start),
		T(a_start_up_allocation_after_the_seal_aborts),
		T(an_error_keeps_its_code_and_gains_prefixes),
		T(the_clock_moves_forward_and_can_be_replaced),
		T(statistics_keep_their_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
