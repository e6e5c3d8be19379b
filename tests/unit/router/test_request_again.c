/* A generation that goes back to the queue: when it comes again, and what it forgets. */
#include "request_rig.h"

/* Pauses of one request that two routers could have sent to a full worker. */
static uint64_t pause_at_full_worker(uint64_t salt, uint64_t n_routers)
{
	struct msg_rejected later = {.reason = REJECT_FULL, .later = 1};
	struct request *r;
	struct rig g;
	uint64_t pause;

	rig_open(&g);
	g.set.salt = salt;
	g.p->n_routers = n_routers;
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_PREFILL);
	request_return(r, g.p, 1);
	rig_move(r, EV_P_LATER, &later);
	assert_int_equal(r->state, RQ_QUEUED);
	assert_int_equal(r->replays, 0);
	assert_int_equal(r->dispatched_ns, 0);
	pause = r->not_before_ns - r->moved_ns;
	request_cancel(r);
	rig_free_all(&g, r);
	sink_reset(&g.log);
	rig_close(&g);
	return pause;
}

static void routers_that_met_at_a_full_worker_come_back_apart(void **state)
{
	uint64_t least = UINT64_MAX, most = 0;

	(void)state;
	for (uint64_t salt = 1; salt <= 20; salt++) {
		uint64_t pause = pause_at_full_worker(salt, 2);

		assert_in_range(pause, MS(50), MS(560));
		least = MIN(least, pause);
		most = MAX(most, pause);
	}
	/* All 20 within 100 of 500 ms: once in 10^12. */
	assert_true(most - least > MS(100));
	assert_in_range(pause_at_full_worker(1, 1), MS(50), MS(60));
}

static void a_replay_forgets_how_far_it_had_come(void **state)
{
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	g.set.max_replays = 1;
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_DECODE);
	assert_true(r->dispatched_ns > 0 && r->prefilled_ns > 0 && r->adopt_ns > 0 &&
		    r->adopted_ns > 0);
	request_worker_lost(r, g.d, "d0 was lost");
	assert_int_equal(r->state, RQ_QUEUED);
	assert_int_equal(r->replays, 1);
	assert_true(r->queued_ns > 0);
	assert_int_equal(r->dispatched_ns, 0);
	assert_int_equal(r->prefilled_ns, 0);
	assert_int_equal(r->adopt_ns, 0);
	assert_int_equal(r->adopted_ns, 0);
	request_cancel(r);
	rig_free_all(&g, r);
	sink_reset(&g.log);
	rig_close(&g);
}

/* What it was told before may still be there, or have left a tombstone. */
static void a_decode_worker_that_was_lost_is_told_of_another_attempt(void **state)
{
	struct request_route route;
	struct rig g;
	struct request *r;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 10);
	rig_drive(&g, r, RQ_HANDOVER);
	request_worker_lost(r, g.d, "d0 was lost");
	assert_int_equal(r->state, RQ_PLACE);
	assert_int_equal(r->attempt, 2);
	route = rig_route(&g, r);
	rig_move(r, EV_PLACED, &route);
	rig_sent(&g, "adopt d0;");
	request_freed(r, g.d, 1); /* of what it had */
	assert_int_equal(r->state, RQ_HANDOVER);
	assert_true(request_claims(r, g.d, 2));
	request_cancel(r);
	rig_sent(&g, "cancel d0;release p0;");
	rig_free_all(&g, r);
	rig_close(&g);
}

/* The lease is of the first attempt whatever the number is by now. */
static void a_lease_that_ended_is_missed_in_a_later_attempt(void **state)
{
	struct rig g;
	struct request *r;

	(void)state;
	rig_open(&g);
	g.set.max_replays = 1;
	r = rig_request(&g, 10);
	rig_drive(&g, r, RQ_HANDOVER);
	request_worker_lost(r, g.d, "d0 was lost");
	assert_int_equal(r->state, RQ_PLACE);
	request_freed(r, g.p, 1);
	assert_int_equal(r->state, RQ_QUEUED);
	assert_int_equal(r->replays, 1);
	assert_int_equal(g.p->held_slots, 0);
	request_cancel(r);
	rig_close(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			a_decode_worker_that_was_lost_is_told_of_another_attempt),
		cmocka_unit_test(a_lease_that_ended_is_missed_in_a_later_attempt),
		cmocka_unit_test(routers_that_met_at_a_full_worker_come_back_apart),
		cmocka_unit_test(a_replay_forgets_how_far_it_had_come),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
