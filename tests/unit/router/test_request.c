/* The move table of a generation as data, its set, its pauses. */
#include "request_rig.h"

/* ---- the table as data ---- */

static void every_state_can_be_cancelled_and_can_fail(void **state)
{
	(void)state;
	for (unsigned s = 0; s < RQ_DONE; s++) {
		assert_true(request_move_known(s, EV_CANCELLED));
		assert_true(request_move_known(s, EV_FAILED));
	}
}

/* Events of a worker reach a request only while that worker serves it: p from PREFILL
 * to HANDOVER, d (told to adopt) in HANDOVER and DECODE. */
static void whatever_a_serving_worker_says_has_a_row(void **state)
{
	static const enum request_event of_p[] = {
		EV_PREFILLED, EV_P_FINISHED, EV_P_LATER, EV_P_REJECTED, EV_P_LOST};
	static const enum request_event of_d[] = {EV_ADOPTED, EV_TOKEN, EV_D_FINISHED,
		EV_D_LATER, EV_D_REJECTED, EV_D_LOST, EV_EVICTED, EV_OFFERED};

	(void)state;
	for (unsigned s = RQ_PREFILL; s <= RQ_HANDOVER; s++)
		for (size_t i = 0; i < COUNT(of_p); i++)
			if (!request_move_known(s, of_p[i]))
				fail_msg("%s in %s", request_event_name(of_p[i]),
					request_state_name(s));
	for (unsigned s = RQ_HANDOVER; s <= RQ_DECODE; s++)
		for (size_t i = 0; i < COUNT(of_d); i++)
			if (!request_move_known(s, of_d[i]) &&
				!(s == RQ_HANDOVER && of_d[i] == EV_ADOPTED))
				fail_msg("%s in %s", request_event_name(of_d[i]),
					request_state_name(s));
	/* A reserved d may be lost before it was told. */
	assert_true(request_move_known(RQ_PREFILL, EV_D_LOST));
	assert_true(request_move_known(RQ_PLACE, EV_D_LOST));
}

static void an_impossible_pair_changes_nothing(void **state)
{
	struct rig g;
	struct request *r;
	struct err err;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_QUEUED);
	assert_int_equal(request_move(r, EV_ADOPTED, &rig_adopted, &err), ST_PEER);
	assert_string_equal(err.text, "ADOPTED in state queued");
	assert_int_equal(r->state, RQ_QUEUED);
	request_cancel(r);
	rig_close(&g);
}

static void more_requests_than_places_are_not_made(void **state)
{
	struct request *all[17];
	struct rig g;

	(void)state;
	rig_open(&g);
	for (int i = 0; i < 17; i++)
		all[i] = requests_add(&g.set);
	assert_null(all[16]);
	assert_ptr_equal(requests_find(&g.set, all[3]->seq), all[3]);
	assert_null(requests_find(&g.set, 0));
	assert_null(requests_find(&g.set, 1u << 20));
	assert_int_equal(requests_waiting(&g.set), 16);
	for (int i = 0; i < 16; i++)
		request_cancel(all[i]);
	assert_int_equal(requests_live(&g.set), 0);
	rig_close(&g);
}

/* Where prompts wait, places are counted until they are computed. Who generates has a
 * slot: a decode worker with more slots than places in a queue fills them all. */
static void a_generation_takes_a_slot_and_no_place_in_a_queue(void **state)
{
	struct rig g;
	struct request *r;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_PREFILL);
	assert_int_equal(g.p->held_queue, 1);
	assert_int_equal(g.d->held_queue, 0);
	assert_int_equal(g.d->held_slots, 1);
	request_cancel(r);
	rig_free_all(&g, r);
	sink_reset(&g.log);
	rig_close(&g);
}

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_state_can_be_cancelled_and_can_fail),
		cmocka_unit_test(whatever_a_serving_worker_says_has_a_row),
		cmocka_unit_test(an_impossible_pair_changes_nothing),
		cmocka_unit_test(more_requests_than_places_are_not_made),
		cmocka_unit_test(a_generation_takes_a_slot_and_no_place_in_a_queue),
		cmocka_unit_test(routers_that_met_at_a_full_worker_come_back_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
