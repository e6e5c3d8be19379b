/* The move table of prefill jobs, walked: what every state accepts, where it leads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "prefill-worker/prefill.h"

static void every_live_state_can_be_ended(void **state)
{
	(void)state;
	for (unsigned s = 0; s < PW__STATES; s++)
		assert_int_equal(jobs_move_known(&pw_jobs, s, PW_ENDED), s != PW_GONE);
}

static void nothing_happens_to_what_is_gone(void **state)
{
	(void)state;
	for (unsigned e = 0; e < PW__EVENTS; e++)
		assert_false(jobs_move_known(&pw_jobs, PW_GONE, e));
}

/* Pages are given back in exactly one way from each state, so the pairs are few; a new
 * pair needs a new line here, and a thought. */
static void the_known_pairs(void **state)
{
	static const bool known[PW__STATES][PW__EVENTS] = {
		[PW_QUEUED] = {[PW_ADMITTED] = true, [PW_ENDED] = true},
		[PW_FILLING] = {[PW_SAMPLED] = true, [PW_NAN] = true, [PW_ENDED] = true},
		[PW_COMPUTED] = {[PW_GRANTED] = true, [PW_ENDED] = true},
		[PW_EXPORTED] = {[PW_LEASE_ENDED] = true, [PW_ENDED] = true},
		[PW_LEAVING] = {[PW_QUIET] = true, [PW_ENDED] = true},
	};

	(void)state;
	for (unsigned s = 0; s < PW__STATES; s++)
		for (unsigned e = 0; e < PW__EVENTS; e++)
			assert_int_equal(jobs_move_known(&pw_jobs, s, e), known[s][e]);
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
