/* Pairs of workers that fail: avoided for growing pauses, tried by one request at a time,
 * forgotten with the worker; and the router that knows of them. */
#include "wired_rig.h"

static const struct pair_end p = {1, "p0"}, d = {2, "d0"}, other = {3, "d1"};

static void fail_at(struct pairs *s, uint64_t now_ns)
{
	pairs_failed(s, p, d, bytes_of_str("no room"), now_ns);
}

static void a_pair_that_fails_is_avoided_twice_as_long_each_time_up_to_a_minute(
	void **state)
{
	struct pairs s = {0};
	uint64_t now = MS(5), pause = MS(100);

	(void)state;
	for (int i = 1; i < 40; i++) {
		fail_at(&s, now);
		assert_non_null(pairs_avoided(&s, 1, 2, now + pause - 1));
		assert_null(pairs_avoided(&s, 1, 2, now + pause));
		assert_null(pairs_avoided(&s, 1, 3, now));
		assert_int_equal(pair_lasting(&s.pair[0]), i >= 3);
		now += pause;
		pause = MIN(2 * pause, MS(60000));
	}
	assert_string_equal(s.pair[0].text,
		"Decode worker d0 cannot take over from prefill worker p0: no room.");
}

static void one_request_tries_it_after_the_pause(void **state)
{
	struct pairs s = {0};

	(void)state;
	fail_at(&s, 0);
	assert_null(pairs_avoided(&s, 1, 2, MS(100)));
	pairs_tried(&s, 1, 2, MS(100));
	assert_non_null(pairs_avoided(&s, 1, 2, MS(199)));
	assert_null(pairs_avoided(&s, 1, 2, MS(200)));
	pairs_tried(&s, 1, 3, MS(100));
	assert_int_equal(s.n, 1);
}

static void pulls_that_fail_together_count_once(void **state)
{
	struct pairs s = {0};

	(void)state;
	for (int i = 0; i < 9; i++)
		fail_at(&s, MS(i));
	assert_int_equal(s.pair[0].failures, 1);
	assert_null(pairs_avoided(&s, 1, 2, MS(100)));
}

static void a_success_or_the_end_of_a_worker_forgets_it(void **state)
{
	struct pairs s = {0};

	(void)state;
	fail_at(&s, 0);
	pairs_failed(&s, p, other, bytes_of_str("no room"), 0);
	pairs_worked(&s, 1, 2);
	assert_null(pairs_avoided(&s, 1, 2, 0));
	assert_non_null(pairs_avoided(&s, 1, 3, 0));
	fail_at(&s, 0);
	pairs_forget(&s, 1);
	assert_int_equal(s.n, 0);
}

static void beyond_the_table_the_one_that_is_due_first_is_forgotten(void **state)
{
	struct pairs s = {0};

	(void)state;
	for (uint64_t i = 0; i <= PAIRS_MAX; i++)
		pairs_failed(&s, (struct pair_end){i + 10, "p"}, d,
			bytes_of_str("no room"), MS(i));
	assert_int_equal(s.n, PAIRS_MAX);
	assert_null(pairs_avoided(&s, 10, 2, 0));
	assert_non_null(pairs_avoided(&s, PAIRS_MAX + 10, 2, 0));
}

/* ---- in the router ---- */

static void fail_both(struct wired *x, int times)
{
	struct worker_view *p0 = fleet_at(x->rt.fleet, 0), *d0 = fleet_at(x->rt.fleet, 1);

	for (int i = 0; i < times; i++) {
		pairs_tried(&x->rt.pairs, p0->key, d0->key, clock_ran_ns());
		pairs_failed(&x->rt.pairs, (struct pair_end){p0->key, p0->id},
			(struct pair_end){d0->key, d0->id}, bytes_of_str("mmap failed"),
			clock_ran_ns());
	}
}

static void without_a_pair_that_works_it_is_not_ready_and_says_why(void **state)
{
	struct wired *x = *state;
	struct request *r;

	both_join(x);
	fail_both(x, 2);
	assert_null(dispatch_missing(&x->rt));
	fail_both(x, 10);
	assert_non_null(strstr(dispatch_missing(&x->rt),
		"d0 cannot take over from prefill worker p0: mmap failed"));
	r = add_request(x);
	dispatch_turn(&x->rt, clock_ns());
	assert_int_equal(r->state, RQ_DONE);
	assert_int_equal(r->error.http, 503);
	assert_non_null(strstr(r->error.message, "mmap failed"));
	pairs_forget(&x->rt.pairs, fleet_at(x->rt.fleet, 1)->key);
	assert_null(dispatch_missing(&x->rt));
}

static void a_request_waits_out_a_pause_that_may_pass(void **state)
{
	struct wired *x = *state;
	struct request *r;

	both_join(x);
	fail_both(x, 1);
	r = add_request(x);
	dispatch_turn(&x->rt, clock_ns());
	assert_int_equal(r->state, RQ_QUEUED);
	x->rt.pairs.pair[0].until_ns = 0;
	dispatch_turn(&x->rt, clock_ns());
	assert_int_equal(r->state, RQ_PREFILL);
}

static void a_prompt_whose_pair_failed_goes_to_another_prefill_worker(void **state)
{
	struct sched_worker w = {.alive = true,
		.slots = 4,
		.pages = 9,
		.queue = 4,
		.len_max = 99,
		.slots_all = 4,
		.pages_all = 9};
	struct sched_worker ps[2] = {w, w}, ds[1] = {w};
	struct sched_fair fair = {0};
	struct sched_round round = {.w = {ps, ds}, .n = {2, 1}};
	struct sched_demand need = {.key = 5, .tokens = 5, .pages = 1};
	struct sched_ask ask = {.demand = {need, need}};
	int at[SCHED__ROLES];
	bool waits[SCHED_CLASSES] = {true};

	(void)state;
	ps[0].key = 1;
	ps[1].key = 2;
	ps[1].outstanding = 50;
	ps[0].apart = 1;
	sched_round_begin(&round, &fair, waits);
	assert_int_equal(sched_round_try(&round, &ask, at), SCHED_OK);
	assert_int_equal(at[SCHED_PREFILL], 1);
	ps[1].apart = 1;
	assert_int_equal(sched_round_try(&round, &ask, at), SCHED_BUSY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			a_pair_that_fails_is_avoided_twice_as_long_each_time_up_to_a_minute),
		cmocka_unit_test(one_request_tries_it_after_the_pause),
		cmocka_unit_test(pulls_that_fail_together_count_once),
		cmocka_unit_test(a_success_or_the_end_of_a_worker_forgets_it),
		cmocka_unit_test(beyond_the_table_the_one_that_is_due_first_is_forgotten),
		WIRED(without_a_pair_that_works_it_is_not_ready_and_says_why),
		WIRED(a_request_waits_out_a_pause_that_may_pass),
		cmocka_unit_test(
			a_prompt_whose_pair_failed_goes_to_another_prefill_worker),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
