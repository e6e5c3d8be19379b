/* What counts as life of a request at its workers, and what is given up. */
#include "request_rig.h"

#include "common/base/clock.h"

static void progress_of_a_prompt_is_life_and_saying_it_again_is_not(void **state)
{
	struct request *r;
	uint64_t moved;
	struct rig g;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_PREFILL);
	r->moved_ns = 1;
	request_progress(r, 64);
	moved = r->moved_ns;
	assert_true(moved > 1);
	r->moved_ns = 1;
	request_progress(r, 64);
	request_progress(r, 0);
	request_progress(r, 101); /* it has 100 */
	assert_int_equal(request_moved_ns(r), 1);
	request_progress(r, 100);
	assert_true(request_moved_ns(r) >= moved);
	request_cancel(r);
	rig_free_all(&g, r);
	rig_close(&g);
}

static void beat(struct worker_view *w, uint64_t step, uint64_t queued, uint64_t now_ns)
{
	struct msg_beat m = {.step = step, .queued = queued};

	fleet_beat(w, &m, now_ns);
}

static void a_prompt_lives_while_its_worker_ends_passes_of_others(void **state)
{
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_PREFILL);
	r->moved_ns = 10;
	beat(g.d, 9, 0, 40);
	assert_int_equal(request_moved_ns(r), 10);
	beat(g.p, 1, 3, 20);
	assert_int_equal(request_moved_ns(r), 20);
	beat(g.p, 1, 3, 30);
	assert_int_equal(request_moved_ns(r), 20);
	request_cancel(r);
	rig_free_all(&g, r);
	rig_close(&g);
}

/* With nothing queued there it waits for no place: what it waits for does not come. */
static void an_adopt_lives_while_its_worker_has_a_queue_and_works(void **state)
{
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_HANDOVER);
	r->moved_ns = 10;
	beat(g.d, 1, 1, 20);
	assert_int_equal(request_moved_ns(r), 20);
	beat(g.d, 2, 0, 30);
	assert_int_equal(request_moved_ns(r), 10);
	request_cancel(r);
	rig_free_all(&g, r);
	rig_close(&g);
}

static void a_request_that_ran_on_two_lost_workers_is_not_tried_on_a_third(void **state)
{
	struct request_route route;
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	g.set.max_replays = 2;
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_DECODE);
	request_worker_lost(r, g.d, "The decode worker d0 was lost");
	assert_int_equal(r->state, RQ_QUEUED);
	route = rig_route(&g, r);
	route.d = g.d2;
	rig_move(r, EV_DISPATCHED, &route);
	request_worker_lost(r, g.p, "The prefill worker p0 was lost");
	assert_int_equal(r->state, RQ_DONE);
	assert_string_equal(r->error.code, "worker_lost");
	assert_non_null(strstr(r->error.message, "not tried on a third"));
	assert_true(r->no_retry);
	rig_free_all(&g, r);
	rig_close(&g);
}

/* The lease is whole, and yet. */
static void a_lease_that_two_lost_workers_took_over_goes_to_no_third(void **state)
{
	struct request_route route;
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_HANDOVER);
	request_worker_lost(r, g.d, "d0 was lost");
	assert_int_equal(r->state, RQ_PLACE);
	route = (struct request_route){.d = g.d2, .d_hold = request_decode_hold(r)};
	rig_move(r, EV_PLACED, &route);
	request_worker_lost(r, g.d2, "d1 was lost");
	assert_int_equal(r->state, RQ_DONE);
	assert_string_equal(r->error.code, "worker_lost");
	rig_sent(&g, "adopt d1;release p0;");
	rig_free_all(&g, r);
	rig_close(&g);
}

/* It was there, reserved or computed, but nobody worked on it. */
static void a_worker_that_was_lost_beside_it_does_not_count(void **state)
{
	struct request_route route;
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	g.set.max_replays = 2;
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_PLACE); /* d0 was reserved, and was lost */
	request_worker_lost(r, g.p, "p0 was lost");
	assert_int_equal(r->state, RQ_QUEUED);
	assert_int_equal(r->deaths, 0);
	route = rig_route(&g, r);
	route.d = g.d2;
	rig_move(r, EV_DISPATCHED, &route);
	request_worker_lost(r, g.p, "p0 was lost");
	assert_int_equal(r->state, RQ_QUEUED);
	assert_int_equal(r->deaths, 1);
	request_cancel(r);
	rig_free_all(&g, r);
	rig_close(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(progress_of_a_prompt_is_life_and_saying_it_again_is_not),
		cmocka_unit_test(a_prompt_lives_while_its_worker_ends_passes_of_others),
		cmocka_unit_test(an_adopt_lives_while_its_worker_has_a_queue_and_works),
		cmocka_unit_test(
			a_request_that_ran_on_two_lost_workers_is_not_tried_on_a_third),
		cmocka_unit_test(
			a_lease_that_two_lost_workers_took_over_goes_to_no_third),
		cmocka_unit_test(a_worker_that_was_lost_beside_it_does_not_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
