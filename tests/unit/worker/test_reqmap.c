/* Requests to indices: given out once, taken back, strangers find nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/worker/reqmap.h"

static struct wire_request req(uint64_t router, uint64_t seq, uint32_t attempt)
{
	return (struct wire_request){.router = router, .seq = seq, .attempt = attempt};
}

static void indices_are_bounded_and_come_back(void **state)
{
	struct reqmap *m = reqmap_create(3);
	bool seen[3] = {false};
	uint32_t i;

	(void)state;
	for (uint64_t seq = 1; seq <= 3; seq++) {
		assert_true(reqmap_add(m, req(7, seq, 0), &i));
		assert_in_range(i, 0, 2);
		assert_false(seen[i]);
		seen[i] = true;
	}
	assert_int_equal(reqmap_count(m), 3);
	assert_false(reqmap_add(m, req(7, 4, 0), &i));
	reqmap_del(m, req(7, 2, 0));
	assert_int_equal(reqmap_count(m), 2);
	assert_true(reqmap_add(m, req(7, 4, 0), &i));
	assert_false(reqmap_find(m, req(7, 2, 0), &i));
	reqmap_destroy(m);
}

static void every_part_of_a_request_counts(void **state)
{
	struct reqmap *m = reqmap_create(8);
	uint32_t a, b;

	(void)state;
	assert_true(reqmap_add(m, req(7, 1, 0), &a));
	assert_false(reqmap_add(m, req(7, 1, 0), &b)); /* it has one already */
	assert_int_equal(reqmap_count(m), 1);
	assert_false(reqmap_find(m, req(8, 1, 0), &b));
	assert_false(reqmap_find(m, req(7, 2, 0), &b));
	assert_false(reqmap_find(m, req(7, 1, 1), &b));
	assert_true(reqmap_find(m, req(7, 1, 0), &b));
	assert_int_equal(a, b);
	reqmap_del(m, req(7, 1, 1)); /* another one: nothing happens */
	assert_int_equal(reqmap_count(m), 1);
	reqmap_destroy(m);
}

static void long_use_leaks_nothing(void **state)
{
	struct reqmap *m = reqmap_create(16);
	uint32_t i;

	(void)state;
	for (uint64_t seq = 0; seq < 10000; seq++) {
		if (seq >= 16)
			reqmap_del(m, req(1, seq - 16, 0));
		assert_true(reqmap_add(m, req(1, seq, 0), &i));
	}
	assert_int_equal(reqmap_count(m), 16);
	for (uint64_t seq = 10000 - 16; seq < 10000; seq++)
		assert_true(reqmap_find(m, req(1, seq, 0), &i));
	reqmap_destroy(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(indices_are_bounded_and_come_back),
		cmocka_unit_test(every_part_of_a_request_counts),
		cmocka_unit_test(long_use_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
