/* The move table of a generation: walked as data, then driven through whole lives. */
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
		EV_D_LATER, EV_D_REJECTED, EV_D_LOST, EV_EVICTED};

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

/* ---- whole lives ---- */

/* A decode worker whose count of the answer differs from what arrived cannot be
 * believed: tokens are missing, or there are more than were asked for. */
static void a_decode_worker_that_miscounts_is_an_error(void **state)
{
	static const uint32_t counts[] = {0, 1, 2, 4, 99};
	struct wire_first first = {.token = 11};

	(void)state;
	for (size_t i = 0; i < COUNT(counts); i++) {
		struct msg_finished end = {
			.reason = FINISH_LENGTH, .n_generated = counts[i]};
		struct request_token t = {.token = 12};
		struct request_route route;
		struct msg_prefilled m;
		struct request *r;
		struct rig g;

		rig_open(&g);
		r = rig_request(&g, 3);
		route = rig_route(&g, r);
		rig_move(r, EV_PREPARED, NULL);
		rig_move(r, EV_DISPATCHED, &route);
		m = rig_prefilled(r, &first);
		rig_move(r, EV_PREFILLED, &m);
		rig_move(r, EV_ADOPTED, &rig_adopted);
		for (int n = 0; n < 6; n++)
			rig_move(r, EV_TOKEN, &t);
		assert_int_equal(
			request_generated(r), 3); /* the rest was not asked for */
		rig_move(r, EV_D_FINISHED, &end);
		assert_int_equal(g.finish, REQUEST_FAILED);
		assert_string_equal(r->error.code, "worker_protocol");
		request_freed(r, g.p, 1);
		request_freed(r, g.d, 1);
		rig_close(&g);
	}
}

static void a_request_goes_from_prompt_to_answer(void **state)
{
	struct msg_finished end = {.reason = FINISH_STOP_TOKEN, .n_generated = 3};
	struct wire_first first = {.token = 11};
	struct request_token t = {.token = 12};
	struct msg_prefilled m;
	struct request_route route;
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	route = rig_route(&g, r);
	rig_move(r, EV_PREPARED, NULL);
	assert_int_equal(g.set.queued[0].n, 1);
	rig_move(r, EV_DISPATCHED, &route);
	rig_sent(&g, "prefill p0;");
	assert_int_equal(g.set.queued[0].n, 0);
	assert_int_equal(g.p->held_tokens, 100);
	assert_int_equal(g.p->held_pages, 2);
	assert_int_equal(g.d->held_pages, 2); /* 100 + 5 tokens */
	m = rig_prefilled(r, &first);
	rig_move(r, EV_PREFILLED, &m);
	rig_sent(&g, "adopt d0;");
	assert_int_equal(r->state, RQ_HANDOVER);
	assert_int_equal(g.p->held_tokens, 0); /* computed; its pages are still there */
	assert_int_equal(g.p->held_pages, 2);
	request_freed(r, g.p, 1); /* d is done with the lease before it says adopted */
	assert_int_equal(r->state, RQ_HANDOVER);
	assert_int_equal(g.p->held_pages, 0);
	rig_move(r, EV_ADOPTED, &rig_adopted);
	assert_int_equal(r->handover_bytes, 4096);
	assert_string_equal(r->transport, "shm");
	rig_move(r, EV_TOKEN, &t);
	t.token = RIG_STOP_ID;
	rig_move(r, EV_TOKEN, &t);
	rig_move(r, EV_D_FINISHED, &end);
	rig_sent(&g, "");
	assert_int_equal(g.ends, 1);
	assert_int_equal(g.finish, REQUEST_STOP);
	assert_int_equal(request_generated(r), 3); /* the stop token counts */
	assert_int_equal(g.n_delivered, 2);        /* and has no text */
	requests_reap(&g.set);
	assert_int_equal(g.set.n, 1); /* d has not given it back */
	request_freed(r, g.d, 1);
	rig_close(&g);
}

static void check_first_token_ends(
	uint32_t token, uint32_t max_tokens, enum request_finish want)
{
	struct wire_first first = {.token = token};
	struct msg_prefilled m;
	struct request *r;
	struct rig g;

	rig_open(&g);
	r = rig_request(&g, max_tokens);
	rig_drive(&g, r, RQ_PREFILL);
	m = rig_prefilled(r, &first);
	rig_move(r, EV_PREFILLED, &m);
	rig_sent(&g, "release p0;"); /* d was never told */
	assert_int_equal(r->state, RQ_DONE);
	assert_int_equal(g.finish, want);
	assert_int_equal(g.d->held_slots, 0);
	assert_int_equal(r->handover_bytes, 0);
	request_freed(r, g.p, 1);
	rig_close(&g);
}

static void a_first_token_that_ends_it_touches_no_decode_worker(void **state)
{
	(void)state;
	check_first_token_ends(RIG_STOP_ID, 5, REQUEST_STOP);
	check_first_token_ends(RIG_HIT_ID, 5, REQUEST_STOP);
	check_first_token_ends(11, 1, REQUEST_LENGTH);
}

static void ignore_eos_goes_on(void **state)
{
	struct wire_first first = {.token = RIG_STOP_ID};
	struct msg_prefilled m;
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	r->n_stop_ids = 0; /* what the router makes of ignore_eos */
	rig_drive(&g, r, RQ_PREFILL);
	m = rig_prefilled(r, &first);
	rig_move(r, EV_PREFILLED, &m);
	assert_int_equal(r->state, RQ_HANDOVER);
	assert_int_equal(g.n_delivered, 1);
	request_cancel(r);
	rig_free_all(&g, r);
	rig_close(&g);
}

/* ---- cancel ---- */

static void a_cancel_reaches_everyone_who_holds_something(void **state)
{
	static const char *const sent[RQ_DONE] = {
		[RQ_PREPARE] = "",
		[RQ_QUEUED] = "",
		[RQ_PREFILL] = "cancel p0;",
		[RQ_PLACE] = "release p0;",
		[RQ_HANDOVER] = "cancel d0;release p0;",
		[RQ_DECODE] = "cancel d0;release p0;", /* p has not freed its copy yet */
	};

	(void)state;
	for (unsigned s = 0; s < RQ_DONE; s++) {
		struct rig g;
		struct request *r;

		rig_open(&g);
		r = rig_request(&g, 5);
		rig_drive(&g, r, s);
		request_cancel(r);
		rig_sent(&g, sent[s]);
		assert_int_equal(r->state, RQ_DONE);
		assert_int_equal(g.ends, 1);
		assert_int_equal(g.finish, REQUEST_CANCELLED);
		request_cancel(r);
		assert_int_equal(g.ends, 1);
		/* A reservation that nobody was told of is gone at once; the rest stays
		 * until the worker's word. */
		assert_int_equal(g.d->held_slots, s >= RQ_HANDOVER ? 1 : 0);
		assert_int_equal(g.p->held_slots, s >= RQ_PREFILL ? 1 : 0);
		rig_free_all(&g, r);
		rig_close(&g);
	}
}

static void a_cancel_stops_the_preparation(void **state)
{
	struct rig g;
	struct request *r;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	r->prepare = &g;
	request_cancel(r);
	rig_sent(&g, "stop prepare;");
	rig_close(&g);
}

/* The client's side may give up while it is told of the first token. */
static void a_cancel_from_inside_a_delivery_is_a_cancel(void **state)
{
	struct wire_first first = {.token = 11};
	struct msg_prefilled m;
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_PREFILL);
	g.fail_on_deliver = r;
	m = rig_prefilled(r, &first);
	rig_move(r, EV_PREFILLED, &m);
	rig_sent(&g, "release p0;");
	assert_int_equal(g.ends, 1);
	assert_int_equal(g.finish, REQUEST_CANCELLED);
	rig_free_all(&g, r);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_state_can_be_cancelled_and_can_fail),
		cmocka_unit_test(whatever_a_serving_worker_says_has_a_row),
		cmocka_unit_test(an_impossible_pair_changes_nothing),
		cmocka_unit_test(a_decode_worker_that_miscounts_is_an_error),
		cmocka_unit_test(a_request_goes_from_prompt_to_answer),
		cmocka_unit_test(a_first_token_that_ends_it_touches_no_decode_worker),
		cmocka_unit_test(ignore_eos_goes_on),
		cmocka_unit_test(a_cancel_reaches_everyone_who_holds_something),
		cmocka_unit_test(a_cancel_stops_the_preparation),
		cmocka_unit_test(a_cancel_from_inside_a_delivery_is_a_cancel),
		cmocka_unit_test(more_requests_than_places_are_not_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
