// labels: threads
/* Parking: between engine_park and engine_unpark no rank computes. */
#include "common/base/clock.h"
#include "tests/unit/engine/engine_fixture.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_parked_engine_stands_still),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
