/* The clock of time in which this process ran. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"

static uint64_t fake = 1000 * NS_PER_S;

static uint64_t fake_clock(void)
{
	return fake;
}

static int set_up(void **state)
{
	(void)state;
	clock_replace(fake_clock);
	clock_look();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	clock_replace(NULL);
	return 0;
}

static void time_that_is_looked_at_counts(void **state)
{
	uint64_t began = clock_ran_ns();

	(void)state;
	for (int i = 0; i < 100; i++) {
		fake += CLOCK_GAP_NS - 1;
		clock_look();
	}
	assert_int_equal(clock_ran_since(began), 100 * (CLOCK_GAP_NS - 1));
}

static void a_gap_does_not_count(void **state)
{
	uint64_t began = clock_ran_ns(), within;

	(void)state;
	fake += 100 * NS_PER_MS;
	clock_look();
	fake += 60 * NS_PER_S;
	within = clock_ran_ns(); /* by who runs again before the gap is found */
	clock_look();
	assert_int_equal(clock_ran_since(began), 100 * NS_PER_MS);
	assert_int_equal(clock_ran_since(within), 0);
	fake += 100 * NS_PER_MS;
	clock_look();
	assert_int_equal(clock_ran_since(began), 200 * NS_PER_MS);
	fake += CLOCK_GAP_NS;
	clock_look();
	assert_int_equal(clock_ran_since(began), 200 * NS_PER_MS);
}

/* began is a little after the look before it. */
static void a_gap_that_holds_all_the_time_is_no_time_at_all(void **state)
{
	uint64_t began;

	(void)state;
	clock_look();
	fake += 1000;
	began = clock_ran_ns();
	fake += 5 * NS_PER_S;
	clock_look();
	assert_int_equal(clock_ran_since(began), 0);
}

static void a_sleep_is_told_once_to_each_that_asks(void **state)
{
	uint64_t one = 0, other = 0;

	(void)state;
	(void)clock_slept(&one);
	(void)clock_slept(&other);
	assert_int_equal(clock_slept(&one), 0);
	fake += 6 * NS_PER_S;
	assert_int_equal(clock_ran_of(fake), clock_ran_ns());
	assert_int_equal(clock_slept(&one), 6 * NS_PER_S);
	assert_int_equal(clock_slept(&one), 0);
	assert_int_equal(clock_slept(&other), 6 * NS_PER_S);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(time_that_is_looked_at_counts),
		cmocka_unit_test(a_gap_does_not_count),
		cmocka_unit_test(a_gap_that_holds_all_the_time_is_no_time_at_all),
		cmocka_unit_test(a_sleep_is_told_once_to_each_that_asks),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
