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

static void room_is_kept_for_what_was_passed_long_enough(void **state)
{
	struct wired *x = *state;
	struct request *large, *small;
	struct worker_view *d;

	both_join(x);
	d = fleet_at(x->rt.fleet, 1);
	fleet_hold(d, &most);
	large = add_large(x);
	small = add_request(x);
	dispatch_turn(&x->rt, large->queued_ns + MS(2000));
	assert_int_equal(large->state, RQ_QUEUED);
	assert_int_equal(small->state, RQ_QUEUED);
	assert_false(d->kept);
	fleet_unhold(d, &most);
	dispatch_turn(&x->rt, large->queued_ns + MS(2100));
	assert_int_equal(large->state, RQ_PREFILL);
	assert_int_equal(small->state, RQ_PREFILL);
}

/* A second decode worker takes the small one while the first is kept. */
static void kept_room_holds_nobody_back_elsewhere(void **state)
{
	static const struct fleet_hold more = {.slots = 1, .queue = 1, .pages = 95};
	struct wired *x = *state;
	struct request *large, *small;
	struct worker_view *d, *d2;

	both_join(x);
	d = fleet_at(x->rt.fleet, 1);
	d2 = join(x->rt.fleet, "d1", 9, WIRE_DECODE, clock_ns());
	fleet_hold(d, &most);
	fleet_hold(d2, &more);
	large = add_large(x);
	small = add_request(x);
	dispatch_turn(&x->rt, large->queued_ns + MS(2000));
	assert_int_equal(large->state, RQ_QUEUED);
	assert_int_equal(small->state, RQ_PREFILL);
	assert_ptr_equal(small->d, d2);
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
		WIRED(room_is_kept_for_what_was_passed_long_enough),
		WIRED(kept_room_holds_nobody_back_elsewhere),
		WIRED(one_request_larger_than_the_share_is_sent_at_a_time),
		WIRED(a_late_request_waits_at_a_worker_that_others_keep_busy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
