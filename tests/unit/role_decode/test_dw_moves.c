/* The move table of decode jobs, walked: what every state accepts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "decode-worker/decode.h"

static void every_live_state_can_be_ended(void **state)
{
	(void)state;
	for (unsigned s = 0; s < DW__STATES; s++)
		assert_int_equal(jobs_move_known(&dw_jobs, s, DW_ENDED), s != DW_GONE);
}

static void nothing_happens_to_what_is_gone(void **state)
{
	(void)state;
	for (unsigned e = 0; e < DW__EVENTS; e++)
		assert_false(jobs_move_known(&dw_jobs, DW_GONE, e));
}

/* An importer's answer and an engine's last word come exactly where one is awaited. */
static void the_known_pairs(void **state)
{
	static const bool known[DW__STATES][DW__EVENTS] = {
		[DW_QUEUED] = {[DW_STARTED] = true, [DW_ENDED] = true},
		[DW_PULLING] =
			{[DW_PULLED] = true, [DW_PULL_FAILED] = true, [DW_ENDED] = true},
		[DW_ABORTING] =
			{[DW_PULLED] = true, [DW_PULL_FAILED] = true, [DW_ENDED] = true},
		[DW_READY] = {[DW_JOINED] = true, [DW_ENDED] = true},
		[DW_RUNNING] = {[DW_OFFERS] = true, [DW_ENDED] = true},
		[DW_OFFERING] = {[DW_LEFT] = true, [DW_ENDED] = true},
		[DW_OFFERED] = {[DW_LEASE_ENDED] = true, [DW_ENDED] = true},
		[DW_LEAVING] = {[DW_LEFT] = true, [DW_ENDED] = true},
	};

	(void)state;
	for (unsigned s = 0; s < DW__STATES; s++)
		for (unsigned e = 0; e < DW__EVENTS; e++)
			assert_int_equal(jobs_move_known(&dw_jobs, s, e), known[s][e]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_live_state_can_be_ended),
		cmocka_unit_test(nothing_happens_to_what_is_gone),
		cmocka_unit_test(the_known_pairs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
