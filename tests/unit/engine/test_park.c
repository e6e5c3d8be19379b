// labels: threads
/* Parking: between engine_park and engine_unpark no rank computes. */
#include "common/base/clock.h"
#include "common/base/fault.h"
#include "tests/unit/engine/engine_fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static void a_parked_engine_stands_still(void **state)
{
	static const char *const devices[] = {"cpu:0", "cpu:0,cpu:1"};
	static const uint32_t pages[] = {1, 2, 3, 4, 5, 6, 7, 8};

	(void)state;
	for (size_t i = 0; i < COUNT(devices); i++) {
		struct engine_options o = tiny_options();
		struct eng_join join = {.tag = 1,
			.pages = pages,
			.n_pages = COUNT(pages),
			.slot = 1,
			.input = 5,
			.steps_max = 400};
		struct timespec t = {.tv_nsec = 30000000};
		struct engine *e;
		uint64_t steps;

		o.gpus = devices[i];
		e = engine_with(&o);
		assert_int_equal(ST_OK, engine_join(e, &join));
		(void)next_of(e, ENG_STEP);
		assert_true(engine_park(e, 20 * NS_PER_S));
		steps = engine_counters(e).steps;
		assert_int_equal(0, engine_stuck_ns(e));
		(void)nanosleep(&t, NULL);
		assert_int_equal(steps, engine_counters(e).steps);
		engine_unpark(e);
		while (engine_counters(e).steps < steps + 20)
			(void)next_of(e, ENG_STEP);
		assert_true(engine_park(e, 20 * NS_PER_S));
		engine_unpark(e);
		engine_destroy(e);
	}
}

#ifdef BATON_FAULTS

static _Atomic uint64_t leap;

static uint64_t leaping_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec + leap;
}

/* A process that was stopped sees this of it. */
static void *leap_soon(void *unused)
{
	struct timespec t = {.tv_nsec = 50000000};

	(void)nanosleep(&t, NULL);
	leap += 90 * NS_PER_S;
	return unused;
}

/* Each of its steps takes 800 ms, and one has begun. */
static struct engine *slow_engine(void)
{
	static const uint32_t pages[] = {1, 2, 3, 4, 5, 6, 7, 8};
	struct engine_options o = tiny_options();
	struct eng_join join = {.tag = 1,
		.pages = pages,
		.n_pages = COUNT(pages),
		.slot = 1,
		.input = 5,
		.steps_max = 400};
	struct timespec t = {.tv_nsec = 1000000};
	struct engine *e = engine_with(&o);
	struct err err;

	assert_int_equal(ST_OK, fault_configure("step_delay_ms=800", "/tmp", &err));
	assert_int_equal(ST_OK, engine_join(e, &join));
	while (engine_stuck_ns(e) == 0)
		(void)nanosleep(&t, NULL);
	return e;
}

static void time_that_the_process_did_not_run_is_not_waited_for(void **state)
{
	struct engine *e;
	pthread_t t;

	(void)state;
	clock_replace(leaping_clock);
	e = slow_engine();
	assert_int_equal(0, pthread_create(&t, NULL, leap_soon, NULL));
	assert_true(engine_park(e, 20 * NS_PER_S));
	pthread_join(t, NULL);
	assert_int_equal(90 * NS_PER_S, leap);
	engine_unpark(e);
	(void)next_of(e, ENG_STEP);
	assert_true(engine_stuck_ns(e) < 20 * NS_PER_S);
	engine_destroy(e);
	assert_int_equal(ST_OK, fault_configure("", "/tmp", &(struct err){0}));
	clock_replace(NULL);
}

static void a_step_that_does_not_end_is_not_waited_for_longer_than_asked(void **state)
{
	struct engine *e = slow_engine();
	uint64_t began = clock_ns();

	(void)state;
	assert_false(engine_park(e, 150 * NS_PER_MS));
	assert_true(clock_ns() - began < 700 * NS_PER_MS);
	engine_unpark(e); /* or rank 0 stands still after that step */
	engine_destroy(e);
	assert_int_equal(ST_OK, fault_configure("", "/tmp", &(struct err){0}));
}

#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_parked_engine_stands_still),
#ifdef BATON_FAULTS
		cmocka_unit_test(time_that_the_process_did_not_run_is_not_waited_for),
		cmocka_unit_test(
			a_step_that_does_not_end_is_not_waited_for_longer_than_asked),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
