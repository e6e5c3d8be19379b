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

static void a_request_goes_from_prompt_to_answer(void **state)
{
	struct msg_finished end = {.reason = FINISH_STOP_TOKEN};
	struct wire_first first = {.token = 11};
	struct wire_token t = {.token = 12};
	struct msg_prefilled m;
	struct request_route route;
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	route = rig_route(&g, r);
	rig_move(r, EV_PREPARED, NULL);
	assert_int_equal(g.set.queued.n, 1);
	rig_move(r, EV_DISPATCHED, &route);
	rig_sent(&g, "prefill p0;");
	assert_int_equal(g.set.queued.n, 0);
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
	r->ignore_eos = true;
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
		[RQ_DECODE] = "cancel d0;",
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

/* ---- loss, without replays ---- */

static void a_lost_prefill_worker_ends_what_only_it_had(void **state)
{
	(void)state;
	for (unsigned s = RQ_PREFILL; s <= RQ_PLACE; s++) {
		struct rig g;
		struct request *r;

		rig_open(&g);
		r = rig_request(&g, 5);
		rig_drive(&g, r, s);
		request_worker_lost(r, g.p, "p0 was lost");
		rig_sent(&g, "");
		assert_int_equal(g.finish, REQUEST_FAILED);
		assert_int_equal(r->error.http, 503);
		assert_string_equal(r->error.code, "worker_lost");
		assert_non_null(strstr(r->error.message, "p0 was lost"));
		assert_true(r->no_retry);
		rig_close(&g);
	}
}

static void in_a_handover_the_decode_worker_has_the_last_word(void **state)
{
	struct msg_rejected later = {.reason = REJECT_SOURCE, .later = 1};
	struct rig g;
	struct request *r;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5); /* it had pulled all before p died */
	rig_drive(&g, r, RQ_HANDOVER);
	request_worker_lost(r, g.p, "p0 was lost");
	assert_int_equal(r->state, RQ_HANDOVER);
	rig_move(r, EV_ADOPTED, &rig_adopted);
	assert_int_equal(r->state, RQ_DECODE);
	request_cancel(r);
	rig_free_all(&g, r);

	r = rig_request(&g, 5); /* it had not */
	rig_drive(&g, r, RQ_HANDOVER);
	request_worker_lost(r, g.p, "p0 was lost");
	request_return(r, g.d, 1);
	rig_move(r, EV_D_LATER, &later);
	assert_int_equal(r->state, RQ_DONE);
	assert_string_equal(r->error.code, "worker_lost");
	rig_close(&g);
}

static void a_decode_worker_lost_before_it_was_told_is_replaced(void **state)
{
	struct wire_first first = {.token = 11};
	struct request_route route;
	struct msg_prefilled m;
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_PREFILL);
	request_worker_lost(r, g.d, "d0 was lost");
	assert_int_equal(r->state, RQ_PREFILL);
	m = rig_prefilled(r, &first);
	rig_move(r, EV_PREFILLED, &m);
	assert_int_equal(r->state, RQ_PLACE);
	assert_int_equal(g.set.placing.n, 1);
	rig_sent(&g, "");
	route = (struct request_route){.d = g.d2, .d_hold = request_decode_hold(r)};
	rig_move(r, EV_PLACED, &route);
	rig_sent(&g, "adopt d1;");
	request_cancel(r);
	rig_free_all(&g, r);
	rig_close(&g);
}

static void the_same_lease_goes_to_another_decode_worker(void **state)
{
	struct msg_rejected later = {.reason = REJECT_FULL, .later = 1};
	struct request_route route;
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_HANDOVER);
	request_worker_lost(r, g.d, "d0 was lost");
	assert_int_equal(r->state, RQ_PLACE);
	assert_true(r->leased);
	assert_true(r->not_before_ns > 0);
	route = (struct request_route){.d = g.d2, .d_hold = request_decode_hold(r)};
	rig_move(r, EV_PLACED, &route);
	assert_int_equal(r->lease, 77);
	request_return(r, g.d2, 1);
	rig_move(r, EV_D_LATER, &later);
	assert_int_equal(r->state, RQ_PLACE);
	rig_sent(&g, "adopt d1;");
	request_cancel(r);
	rig_sent(&g, "release p0;");
	rig_free_all(&g, r);
	rig_close(&g);
}

static void a_decode_worker_lost_while_it_writes_ends_it(void **state)
{
	struct rig g;
	struct request *r;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_DECODE);
	request_worker_lost(r, g.p, "p0 was lost");
	assert_int_equal(r->state, RQ_DECODE); /* it has what it needs */
	request_worker_lost(r, g.d, "d0 was lost");
	assert_int_equal(g.finish, REQUEST_FAILED);
	rig_sent(&g, "");
	rig_close(&g);
}

static void a_worker_that_gives_up_the_state_unasked_is_as_good_as_lost(void **state)
{
	struct rig g;
	struct request *r;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_PLACE);
	request_freed(r, g.p, 1); /* its lease ran out */
	assert_string_equal(r->error.code, "worker_lost");
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_DECODE);
	request_freed(r, g.d, 1);
	assert_string_equal(r->error.code, "worker_lost");
	rig_free_all(&g, r);
	rig_close(&g);
}

/* ---- sent back, refused, ended badly ---- */

static void a_prompt_sent_back_waits_at_the_head_of_the_queue(void **state)
{
	struct msg_rejected later = {.reason = REJECT_FULL, .later = 1};
	struct request *r, *other;
	struct rig g;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_PREFILL);
	other = rig_request(&g, 5);
	rig_move(other, EV_PREPARED, NULL);
	request_return(r, g.p, 1);
	rig_move(r, EV_P_LATER, &later);
	assert_ptr_equal(g.set.queued.first, r);
	assert_int_equal(g.set.queued.n, 2);
	assert_int_equal(r->replays, 0);
	assert_int_equal(r->n_claims, 0);
	rig_sent(&g, "");
	request_cancel(r);
	request_cancel(other);
	rig_close(&g);
}

static void a_final_rejection_is_the_end(void **state)
{
	struct msg_rejected m = {
		.reason = REJECT_TOO_LONG, .text = BYTES_STR("5000 tokens")};
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_PREFILL);
	request_return(r, g.p, 1);
	rig_move(r, EV_P_REJECTED, &m);
	rig_sent(&g, "");
	assert_int_equal(r->error.http, 500);
	assert_non_null(strstr(r->error.message, "5000 tokens"));
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_HANDOVER);
	request_return(r, g.d, 1);
	rig_move(r, EV_D_REJECTED, &m);
	rig_sent(&g, "release p0;");
	rig_free_all(&g, r);
	rig_close(&g);
}

static void nan_and_errors_never_look_like_an_answer(void **state)
{
	static const struct {
		enum wire_finish reason;
		unsigned http;
		const char *code;
	} rows[] = {
		{FINISH_NAN, 500, "nan_logits"},
		{FINISH_ERROR, 500, "worker_error"},
		{FINISH_DRAINED, 503, "draining"},
		{FINISH_CANCELLED, 500, "worker_protocol"},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct msg_finished m = {.reason = rows[i].reason};
		struct request *r;
		struct rig g;

		rig_open(&g);
		r = rig_request(&g, 5);
		rig_drive(&g, r, RQ_PREFILL);
		rig_move(r, EV_P_FINISHED, &m);
		assert_int_equal(r->finish, REQUEST_FAILED);
		assert_int_equal(r->error.http, rows[i].http);
		assert_string_equal(r->error.code, rows[i].code);
		rig_free_all(&g, r);
		r = rig_request(&g, 5);
		rig_drive(&g, r, RQ_DECODE);
		rig_move(r, EV_D_FINISHED, &m);
		assert_string_equal(r->error.code, rows[i].code);
		rig_sent(&g, "");
		rig_free_all(&g, r);
		rig_close(&g);
	}
}

static void a_state_of_another_length_is_never_handed_on(void **state)
{
	struct wire_first first = {.token = 11};
	struct msg_prefilled m;
	struct request *r;
	struct rig g;

	(void)state;
	for (int spoil = 0; spoil < 4; spoil++) {
		rig_open(&g);
		r = rig_request(&g, 5);
		rig_drive(&g, r, RQ_PREFILL);
		m = rig_prefilled(r, &first);
		if (spoil == 0)
			m.n_tokens--;
		else if (spoil == 1)
			m.pages.len -= sizeof(uint32_t);
		else if (spoil == 2)
			m.first.len = 0;
		else
			m.lease = 0;
		rig_move(r, EV_PREFILLED, &m);
		assert_string_equal(r->error.code, "worker_protocol");
		assert_int_equal(g.set.breaches, 1);
		rig_sent(&g, "cancel p0;");
		rig_free_all(&g, r);
		rig_close(&g);
	}
}

static void words_out_of_turn_end_the_request(void **state)
{
	struct wire_token t = {.token = 12};
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_HANDOVER);
	rig_move(r, EV_TOKEN, &t); /* before it adopted */
	assert_string_equal(r->error.code, "worker_protocol");
	rig_sent(&g, "cancel d0;release p0;");
	rig_free_all(&g, r);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_DECODE);
	rig_move(r, EV_ADOPTED, &rig_adopted);
	assert_string_equal(r->error.code, "worker_protocol");
	rig_free_all(&g, r);
	rig_close(&g);
}

/* ---- replays ---- */

static void a_replay_prefills_prompt_and_answer_so_far(void **state)
{
	struct wire_token t = {.token = 12};
	struct wire_first first = {.token = 13};
	struct request_route route;
	struct msg_prefilled m;
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	g.set.max_replays = 1;
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_DECODE);
	rig_move(r, EV_TOKEN, &t);
	request_worker_lost(r, g.d, "d0 was lost");
	assert_int_equal(r->state, RQ_QUEUED);
	assert_int_equal(r->attempt, 2);
	assert_int_equal(r->n_ids, 102);
	assert_int_equal(r->n_prompt, 100);
	assert_int_equal(g.p->held_slots, 1); /* attempt 1 is still to be freed there */
	route = rig_route(&g, r);
	route.d = g.d2;
	rig_move(r, EV_DISPATCHED, &route);
	request_freed(r, g.p, 1);
	assert_int_equal(r->state, RQ_PREFILL); /* news of the first attempt */
	assert_int_equal(g.p->held_slots, 1);
	m = rig_prefilled(r, &first);
	rig_move(r, EV_PREFILLED, &m);
	rig_move(r, EV_ADOPTED, &rig_adopted);
	assert_int_equal(r->ids[100], 11);
	assert_int_equal(r->ids[101], 12);
	assert_int_equal(r->ids[102], 13);
	assert_int_equal(g.n_delivered, 3); /* each once */
	assert_int_equal(g.set.replays, 1);
	request_worker_lost(r, g.d2, "d1 was lost");
	assert_string_equal(r->error.code, "worker_lost");
	assert_true(r->no_retry);
	rig_free_all(&g, r);
	rig_close(&g);
}

static void an_eviction_is_replayed_after_the_worker_was_told_to_forget(void **state)
{
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	g.set.max_replays = 2;
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_DECODE);
	rig_move(r, EV_EVICTED, NULL);
	rig_sent(&g, "cancel d0;");
	assert_int_equal(r->state, RQ_QUEUED);
	request_freed(r, g.d, 1);
	assert_int_equal(r->state, RQ_QUEUED);
	request_freed(r, g.p, 1);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_state_can_be_cancelled_and_can_fail),
		cmocka_unit_test(whatever_a_serving_worker_says_has_a_row),
		cmocka_unit_test(an_impossible_pair_changes_nothing),
		cmocka_unit_test(a_request_goes_from_prompt_to_answer),
		cmocka_unit_test(a_first_token_that_ends_it_touches_no_decode_worker),
		cmocka_unit_test(ignore_eos_goes_on),
		cmocka_unit_test(a_cancel_reaches_everyone_who_holds_something),
		cmocka_unit_test(a_cancel_stops_the_preparation),
		cmocka_unit_test(a_cancel_from_inside_a_delivery_is_a_cancel),
		cmocka_unit_test(a_lost_prefill_worker_ends_what_only_it_had),
		cmocka_unit_test(in_a_handover_the_decode_worker_has_the_last_word),
		cmocka_unit_test(a_decode_worker_lost_before_it_was_told_is_replaced),
		cmocka_unit_test(the_same_lease_goes_to_another_decode_worker),
		cmocka_unit_test(a_decode_worker_lost_while_it_writes_ends_it),
		cmocka_unit_test(
			a_worker_that_gives_up_the_state_unasked_is_as_good_as_lost),
		cmocka_unit_test(a_prompt_sent_back_waits_at_the_head_of_the_queue),
		cmocka_unit_test(a_final_rejection_is_the_end),
		cmocka_unit_test(nan_and_errors_never_look_like_an_answer),
		cmocka_unit_test(a_state_of_another_length_is_never_handed_on),
		cmocka_unit_test(words_out_of_turn_end_the_request),
		cmocka_unit_test(a_replay_prefills_prompt_and_answer_so_far),
		cmocka_unit_test(
			an_eviction_is_replayed_after_the_worker_was_told_to_forget),
		cmocka_unit_test(more_requests_than_places_are_not_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
