/* Tombstones: found for their lifetime, forgotten after it, bounded in number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/worker/tombs.h"

#define LIFE (60 * NS_PER_S)

static struct wire_request req(uint64_t seq, uint32_t attempt)
{
	return (struct wire_request){.router = 5, .seq = seq, .attempt = attempt};
}

static void found_for_a_lifetime(void **state)
{
	struct tombs *t = tombs_create(8, LIFE);

	(void)state;
	tombs_add(t, req(1, 0), 1000);
	tombs_add(t, req(2, 0), 1000 + LIFE / 2);
	assert_true(tombs_has(t, req(1, 0)));
	assert_false(tombs_has(t, req(1, 1))); /* a replay is somebody else */
	tombs_sweep(t, 1000 + LIFE - 1);
	assert_true(tombs_has(t, req(1, 0)));
	tombs_sweep(t, 1000 + LIFE);
	assert_false(tombs_has(t, req(1, 0)));
	assert_true(tombs_has(t, req(2, 0)));
	tombs_destroy(t);
}

static void the_oldest_goes_when_it_is_full(void **state)
{
	struct tombs *t = tombs_create(4, LIFE);

	(void)state;
	for (uint64_t seq = 1; seq <= 6; seq++)
		tombs_add(t, req(seq, 0), seq);
	assert_int_equal(tombs_count(t), 4);
	assert_false(tombs_has(t, req(2, 0)));
	for (uint64_t seq = 3; seq <= 6; seq++)
		assert_true(tombs_has(t, req(seq, 0)));
	tombs_destroy(t);
}

static void twice_is_once(void **state)
{
	struct tombs *t = tombs_create(4, LIFE);

	(void)state;
	tombs_add(t, req(1, 0), 10);
	tombs_add(t, req(1, 0), 20);
	assert_int_equal(tombs_count(t), 1);
	tombs_sweep(t, 10 + LIFE); /* the first time counts */
	assert_int_equal(tombs_count(t), 0);
	assert_false(tombs_has(t, req(1, 0)));
	tombs_add(t, req(1, 0), 30 + LIFE);
	assert_true(tombs_has(t, req(1, 0)));
	tombs_destroy(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(found_for_a_lifetime),
		cmocka_unit_test(the_oldest_goes_when_it_is_full),
		cmocka_unit_test(twice_is_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
