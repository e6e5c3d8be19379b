/* What a router believes to be at a worker, and what is there: named in beats, answered,
 * and ended on the side that has too much. */
#include "wired_rig.h"

static struct wire_held held_at(const struct msg_beat *beat, size_t i)
{
	struct wire_held h;

	wire_get(beat->held, i, &h, sizeof(h));
	return h;
}

/* The next beat to the peer, after what else comes with it. */
static struct msg_beat beat_to(struct wired *x, struct peer *p, struct worker_view *w)
{
	struct msg_beat got = {0};

	link_beat(&x->rt, w);
	listen_for(x, 1);
	read_newest(p, MSG_beat, &got);
	return got;
}

static struct worker_view *p0(struct wired *x)
{
	return fleet_find(x->rt.fleet, BYTES_STR("p0"));
}

static struct worker_view *d0(struct wired *x)
{
	return fleet_find(x->rt.fleet, BYTES_STR("d0"));
}

static void say_absent(struct peer *p, const struct request *r, uint64_t number)
{
	struct msg_absent m = {
		.router = 0xABC, .seq = r->seq, .attempt = r->attempt, .number = number};

	say(p, MSG_absent, &m);
}

/* Until the router has read what a said before: it answers an unknown type. */
static void settle(struct wired *x)
{
	say_bytes(&x->a, 99, (struct bytes){(const uint8_t *)"\x80", 1});
	listen_for(x, 1);
	assert_int_equal(newest(&x->a), MSG_refused);
}

static void a_beat_names_what_the_worker_knows_and_counts_what_will_come(void **state)
{
	struct wired *x = *state;
	struct msg_beat beat;
	struct request *r;

	both_join(x);
	start_request(x, &r);
	beat = beat_to(x, &x->a, p0(x));
	assert_int_equal(wire_count(beat.held, struct wire_held), 1);
	assert_int_equal(held_at(&beat, 0).seq, r->seq);
	assert_int_equal(held_at(&beat, 0).attempt, r->attempt);
	assert_int_equal(beat.placed, 0);
	beat = beat_to(x, &x->b, d0(x));
	assert_int_equal(wire_count(beat.held, struct wire_held), 0);
	assert_int_equal(beat.placed, 1);
	say_prefilled(x, r);
	listen_for(x, 1); /* adopt */
	beat = beat_to(x, &x->b, d0(x));
	assert_int_equal(wire_count(beat.held, struct wire_held), 1);
	assert_int_equal(beat.placed, 0);
}

static void what_a_worker_does_not_hold_is_begun_again(void **state)
{
	struct wired *x = *state;
	struct msg_beat beat;
	struct request *r;

	both_join(x);
	x->rt.requests.max_replays = 1;
	start_request(x, &r);
	beat = beat_to(x, &x->a, p0(x));
	say_absent(&x->a, r, beat.number);
	settle(x);
	assert_int_equal(r->state, RQ_QUEUED);
	assert_int_equal(r->replays, 1);
	assert_int_equal(p0(x)->held_slots, 0);
	assert_int_equal(d0(x)->held_slots, 0);
	assert_int_equal(x->rt.metrics.counter[COUNTER_absent], 1);
}

/* The answer to an older beat may cross what the worker was told after it. */
static void an_answer_to_a_beat_before_the_message_says_nothing(void **state)
{
	struct wired *x = *state;
	struct msg_beat beat;
	struct request *r;

	both_join(x);
	beat = beat_to(x, &x->a, p0(x));
	start_request(x, &r);
	say_absent(&x->a, r, beat.number);
	say_absent(&x->b, r, beat.number + 1000); /* never told */
	settle(x);
	assert_int_equal(r->state, RQ_PREFILL);
	assert_int_equal(p0(x)->held_slots, 1);
	assert_int_equal(d0(x)->held_slots, 1);
}

/* A worker that took this router for lost may have kept some of it. */
static void a_second_hello_is_answered_with_what_is_held(void **state)
{
	struct wired *x = *state;
	struct msg_hello m = hello_of("p0", 7, WIRE_PREFILL);
	struct msg_beat beat = {0};
	struct request *r;

	both_join(x);
	start_request(x, &r);
	say(&x->a, MSG_hello, &m);
	listen_for(x, 2);
	assert_int_equal(x->a.heard[x->a.n_heard - 2], MSG_hello);
	read_newest(&x->a, MSG_beat, &beat);
	assert_int_equal(wire_count(beat.held, struct wire_held), 1);
	assert_int_equal(r->state, RQ_PREFILL);
	assert_int_equal(fleet_count(x->rt.fleet), 2);
	say_absent(&x->a, r, beat.number);
	settle(x);
	assert_int_equal(r->state, RQ_DONE);
	assert_string_equal(r->error.code, "worker_lost");
	assert_int_equal(p0(x)->held_slots, 0);
}

static void a_message_about_an_unknown_request_is_answered_with_cancel(void **state)
{
	struct wired *x = *state;
	struct request unknown = {.seq = 4711, .attempt = 2};
	struct msg_cancel cancel = {0};
	struct wire_token token = {.seq = 4711, .attempt = 2};
	struct msg_tokens tokens = {
		.router = 0xABC, .records = {(const uint8_t *)&token, sizeof(token)}};

	both_join(x);
	say_prefilled(x, &unknown);
	listen_for(x, 1);
	read_newest(&x->a, MSG_cancel, &cancel);
	assert_int_equal(cancel.seq, 4711);
	assert_int_equal(cancel.attempt, 2);
	say(&x->b, MSG_tokens, &tokens);
	listen_for(x, 1);
	read_newest(&x->b, MSG_cancel, &cancel);
	assert_int_equal(cancel.seq, 4711);
}

/* Its drain ends when nobody owes it anything: the answer does not wait for a beat. */
static void a_worker_that_drains_is_told_at_once_what_is_placed_there(void **state)
{
	struct wired *x = *state;
	struct msg_beat says = {.incarnation = 8,
		.has_draining = true,
		.draining = 1,
		.has_number = true,
		.number = 33};
	struct msg_beat got = {0};
	struct request *r;

	both_join(x);
	start_request(x, &r);
	say(&x->b, MSG_beat, &says);
	listen_for(x, 1);
	read_newest(&x->b, MSG_beat, &got);
	assert_int_equal(got.seen, 33);
	assert_int_equal(got.placed, 1);
}

static void a_worker_is_known_by_one_peer_and_a_peer_as_one_worker(void **state)
{
	struct wired *x = *state;
	struct msg_hello as_p0 = hello_of("p0", 7, WIRE_PREFILL);
	struct msg_hello as_d1 = hello_of("d1", 9, WIRE_DECODE);

	both_join(x);
	say(&x->b, MSG_hello, &as_p0);
	listen_for(x, 1);
	check_refused(&x->b, REFUSED_ID_IN_USE);
	say(&x->b, MSG_hello, &as_d1);
	listen_for(x, 1);
	check_refused(&x->b, REFUSED_ID_IN_USE);
	assert_int_equal(fleet_count(x->rt.fleet), 2);
	assert_int_equal(p0(x)->n_peer, 4);
	assert_memory_equal(p0(x)->peer, "p0#7", 4);
}

/* Full workers that work are busy, and that passes. */
static void no_worker_that_stands_still_makes_this_router_ready(void **state)
{
	struct wired *x = *state;
	uint64_t now = clock_ran_ns();
	struct msg_beat full = {.slots_free = 0, .pages_free = 9, .step = 5};

	both_join(x);
	assert_null(dispatch_missing(&x->rt));
	fleet_beat(p0(x), &full, now - MS(5001)); /* its step moved then */
	fleet_beat(p0(x), &full, now);
	assert_non_null(dispatch_missing(&x->rt));
	assert_non_null(strstr(dispatch_missing(&x->rt), "prefill worker is full"));
	full.step++;
	fleet_beat(p0(x), &full, now);
	assert_null(dispatch_missing(&x->rt));
	fleet_beat(p0(x), &full, now - MS(5001));
	p0(x)->moved_ns = now - MS(5001);
	full.oldest_ms = 3; /* a pass is under way */
	fleet_beat(p0(x), &full, now);
	assert_null(dispatch_missing(&x->rt));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WIRED(a_beat_names_what_the_worker_knows_and_counts_what_will_come),
		WIRED(what_a_worker_does_not_hold_is_begun_again),
		WIRED(an_answer_to_a_beat_before_the_message_says_nothing),
		WIRED(a_second_hello_is_answered_with_what_is_held),
		WIRED(a_message_about_an_unknown_request_is_answered_with_cancel),
		WIRED(a_worker_that_drains_is_told_at_once_what_is_placed_there),
		WIRED(a_worker_is_known_by_one_peer_and_a_peer_as_one_worker),
		WIRED(no_worker_that_stands_still_makes_this_router_ready),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
