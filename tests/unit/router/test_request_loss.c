/* A generation whose workers die, refuse, err or lie. */
#include "request_rig.h"

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
	assert_ptr_equal(list_first(&g.set.queued[0], struct request, node), r);
	assert_int_equal(g.set.queued[0].n, 2);
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
		rig_sent(&g, "release p0;");
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
	struct request_token t = {.token = 12};
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

/* It said adopted, but the prefill worker never heard that the pull was done. */
static void a_copy_that_was_not_given_back_is_released_at_the_end(void **state)
{
	struct msg_finished end = {.reason = FINISH_LENGTH};
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_DECODE);
	rig_move(r, EV_D_FINISHED, &end);
	rig_sent(&g, "release p0;");
	rig_free_all(&g, r);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_DECODE);
	request_freed(r, g.p, 1);
	rig_move(r, EV_D_FINISHED, &end);
	rig_sent(&g, "");
	rig_free_all(&g, r);
	rig_close(&g);
}

static void a_lease_that_nobody_can_pull_is_as_good_as_lost(void **state)
{
	struct msg_rejected m = {.reason = REJECT_SOURCE, .later = 1};
	struct request_route route;
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	g.set.max_replays = 1;
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_HANDOVER);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(r->state, RQ_HANDOVER);
		request_return(r, g.d, 1);
		rig_move(r, EV_D_LATER, &m);
		if (r->state != RQ_PLACE)
			break;
		route = (struct request_route){
			.d = g.d, .d_hold = request_decode_hold(r)};
		rig_move(r, EV_PLACED, &route);
	}
	assert_int_equal(r->state, RQ_QUEUED);
	assert_int_equal(r->attempt, 2);
	rig_sent(&g, "adopt d0;adopt d0;release p0;");
	request_cancel(r);
	rig_free_all(&g, r);
	rig_close(&g);
}

static void a_token_outside_the_vocabulary_is_no_answer(void **state)
{
	struct request_token t = {.token = 5000};
	struct wire_first first = {.token = UINT32_MAX};
	struct msg_prefilled m;
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_DECODE);
	rig_move(r, EV_TOKEN, &t);
	assert_string_equal(r->error.code, "worker_protocol");
	rig_free_all(&g, r);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_PREFILL);
	m = rig_prefilled(r, &first);
	rig_move(r, EV_PREFILLED, &m);
	assert_string_equal(r->error.code, "worker_protocol");
	assert_int_equal(g.n_delivered, 1); /* the good first token of the first one */
	rig_free_all(&g, r);
	rig_close(&g);
}

/* ---- replays ---- */

static void a_replay_prefills_prompt_and_answer_so_far(void **state)
{
	struct request_token t = {.token = 12};
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
	rig_sent(&g, "cancel d0;release p0;");
	assert_int_equal(r->state, RQ_QUEUED);
	request_freed(r, g.d, 1);
	assert_int_equal(r->state, RQ_QUEUED);
	request_freed(r, g.p, 1);
	request_cancel(r);
	rig_close(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
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
		cmocka_unit_test(a_copy_that_was_not_given_back_is_released_at_the_end),
		cmocka_unit_test(a_lease_that_nobody_can_pull_is_as_good_as_lost),
		cmocka_unit_test(a_token_outside_the_vocabulary_is_no_answer),
		cmocka_unit_test(a_replay_prefills_prompt_and_answer_so_far),
		cmocka_unit_test(
			an_eviction_is_replayed_after_the_worker_was_told_to_forget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
