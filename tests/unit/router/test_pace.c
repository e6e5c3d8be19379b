/* How long one more would wait: in virtual time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "router/pace.h"

#define TICK_NS (20 * NS_PER_MS)

struct line {
	struct pace pace;
	uint64_t now_ns, n_left;
};

/* n_waiting for so long, of whom per_s leave in a second. */
static void pass(struct line *l, double seconds, uint32_t n_waiting, double per_s)
{
	uint64_t end_ns = l->now_ns + (uint64_t)(seconds * NS_PER_S);
	double left = 0;

	pace_note(&l->pace, n_waiting, l->n_left, l->now_ns);
	while (l->now_ns < end_ns) {
		l->now_ns += TICK_NS;
		left += per_s * TICK_NS / NS_PER_S;
		pace_note(&l->pace, n_waiting, l->n_left + (uint64_t)left, l->now_ns);
	}
	l->n_left += (uint64_t)left;
}

#define ASSERT_NEAR(got, want)                                                           \
	do {                                                                             \
		double g_ = (got), w_ = (want);                                          \
		if (!(g_ > 0.8 * w_ && g_ < 1.25 * w_))                                  \
			fail_msg("%g, not about %g", g_, w_);                            \
	} while (0)

static void nobody_waits_where_nobody_has_waited(void **state)
{
	struct line l = {.now_ns = 5 * NS_PER_S};

	(void)state;
	assert_true(pace_wait_s(&l.pace, 1000) == 0);
	pass(&l, 100, 0, 0);
	assert_true(pace_wait_s(&l.pace, 1000) == 0);
}

static void the_wait_is_that_of_the_measured_rate(void **state)
{
	struct line l = {0};

	(void)state;
	pass(&l, 5, 300, 200);
	ASSERT_NEAR(pace_wait_s(&l.pace, 300), 1.5);
	pass(&l, 60, 300, 10);
	ASSERT_NEAR(pace_wait_s(&l.pace, 300), 30);
	pass(&l, 60, 300, 200);
	ASSERT_NEAR(pace_wait_s(&l.pace, 300), 1.5);
}

static void an_hour_of_idleness_says_nothing(void **state)
{
	struct line l = {0};

	(void)state;
	pass(&l, 30, 300, 100);
	pass(&l, 3600, 0, 0);
	ASSERT_NEAR(pace_wait_s(&l.pace, 300), 3);
}

/* 300 at once, before any has left: not yet a reason to turn somebody away. */
static void a_burst_is_no_long_wait_but_standing_still_becomes_one(void **state)
{
	struct line l = {0};

	(void)state;
	pass(&l, 0.1, 300, 0);
	assert_true(pace_wait_s(&l.pace, 300) < 60);
	pass(&l, 10, 300, 0);
	assert_true(pace_wait_s(&l.pace, 300) > 60);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_waits_where_nobody_has_waited),
		cmocka_unit_test(the_wait_is_that_of_the_measured_rate),
		cmocka_unit_test(an_hour_of_idleness_says_nothing),
		cmocka_unit_test(a_burst_is_no_long_wait_but_standing_still_becomes_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
