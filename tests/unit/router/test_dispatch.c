/* Who of those that wait gets a worker: order, overtaking, and other routers. */
#include "wired_rig.h"

/* 2000 tokens of answer: 32 pages of a decode worker's 100. */
static struct request *add_large(struct wired *x)
{
	struct request *r = add_request(x);

	r->max_tokens = 2000;
	return r;
}

static const struct fleet_hold most = {.slots = 1, .queue = 1, .pages = 90};

static void what_fits_passes_what_does_not(void **state)
{
	struct wired *x = *state;
	struct request *large, *small;

	both_join(x);
	fleet_hold(fleet_at(x->rt.fleet, 1), &most);
	large = add_large(x);
	small = add_request(x);
	dispatch_turn(&x->rt, large->queued_ns + MS(1900));
	assert_int_equal(large->state, RQ_QUEUED);
	assert_int_equal(small->state, RQ_PREFILL);
}

static const struct fleet_hold half = {.slots = 1, .queue = 1, .pages = 50};

/* Of the 10 pages that are free at d0, 5 are kept, and of the 50 that come free, 25. */
static void half_of_the_room_is_kept_for_what_was_passed_long_enough(void **state)
{
	struct wired *x = *state;
	struct request *large, *small[7];
	struct worker_view *d;

	both_join(x);
	d = fleet_at(x->rt.fleet, 1);
	fleet_at(x->rt.fleet, 0)->slots = d->slots = 40;
	fleet_hold(d, &most);
	large = add_large(x);
	large->n_prompt = 2000; /* 63 pages in all */
	dispatch_turn(&x->rt, large->queued_ns + MS(2000));
	for (int i = 0; i < 7; i++)
		small[i] = add_request(x);
	dispatch_turn(&x->rt, large->queued_ns + MS(2100));
	assert_int_equal(large->state, RQ_QUEUED);
	for (int i = 0; i < 7; i++)
		assert_int_equal(small[i]->state, i < 5 ? RQ_PREFILL : RQ_QUEUED);
	fleet_unhold(d, &most);
	fleet_hold(d, &half);
	dispatch_turn(&x->rt, large->queued_ns + MS(2200));
	assert_int_equal(large->state, RQ_QUEUED);
	assert_int_equal(small[6]->state, RQ_PREFILL);
	fleet_unhold(d, &half);
	dispatch_turn(&x->rt, large->queued_ns + MS(2300));
	assert_int_equal(large->state, RQ_PREFILL);
}

/* More than sixteen that fit nowhere hide nobody. */
static void any_number_that_does_not_fit_is_passed(void **state)
{
	struct wired *x = *state;
	struct request *small;

	both_join(x);
	fleet_hold(fleet_at(x->rt.fleet, 1), &most);
	for (int i = 0; i < 40; i++)
		add_large(x)->max_tokens = 1500 + 30 * (uint32_t)i;
	small = add_request(x);
	dispatch_turn(&x->rt, small->queued_ns);
	assert_int_equal(small->state, RQ_PREFILL);
}

/* Its share is 20 pages; what is free would do. */
static void one_request_larger_than_the_share_is_sent_at_a_time(void **state)
{
	struct wired *x = *state;
	struct request *first, *second;
	struct worker_view *d;

	both_join(x);
	d = fleet_at(x->rt.fleet, 1);
	d->n_routers = 2;
	d->pages_free = 40;
	first = add_large(x);
	second = add_large(x);
	dispatch_turn(&x->rt, clock_ns());
	assert_int_equal(first->state, RQ_PREFILL);
	assert_int_equal(second->state, RQ_QUEUED);
	dispatch_turn(&x->rt, second->queued_ns + MS(3000));
	assert_int_equal(second->state, RQ_QUEUED);
}

/* Others take what comes free before a beat can tell: the worker's own queue is fair. */
static void a_late_request_waits_at_a_worker_that_others_keep_busy(void **state)
{
	struct wired *x = *state;
	struct worker_view *d;
	struct request *r;

	both_join(x);
	d = fleet_at(x->rt.fleet, 1);
	d->n_routers = 2;
	d->pages_free = d->slots_free = 0;
	r = add_request(x);
	dispatch_turn(&x->rt, r->queued_ns + MS(1900));
	assert_int_equal(r->state, RQ_QUEUED);
	dispatch_turn(&x->rt, r->queued_ns + MS(2000));
	assert_int_equal(r->state, RQ_PREFILL);
	assert_ptr_equal(r->d, d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WIRED(what_fits_passes_what_does_not),
		WIRED(half_of_the_room_is_kept_for_what_was_passed_long_enough),
		WIRED(any_number_that_does_not_fit_is_passed),
		WIRED(one_request_larger_than_the_share_is_sent_at_a_time),
		WIRED(a_late_request_waits_at_a_worker_that_others_keep_busy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
