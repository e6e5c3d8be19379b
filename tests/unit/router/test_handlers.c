/* Messages in and out over a real socket: what workers say, and must not say. */
#include "wired_rig.h"

/* ---- who may speak ---- */

static void whoever_said_no_hello_is_told_to(void **state)
{
	struct wired *x = *state;
	struct msg_beat beat = {.incarnation = 7};

	say(&x->a, MSG_beat, &beat);
	listen_for(x, 1);
	check_refused(&x->a, REFUSED_LOST);
	assert_int_equal(x->rt.metrics.counter[COUNTER_strangers], 1);
}

static void a_bad_hello_is_answered_with_the_reason(void **state)
{
	struct wired *x = *state;
	struct msg_hello m = hello_of("p0", 7, WIRE_PREFILL);

	m.tokenizer_hash++;
	say(&x->a, MSG_hello, &m);
	listen_for(x, 1);
	check_refused(&x->a, REFUSED_TOKENIZER);
	assert_int_equal(fleet_count(x->rt.fleet), 0);
}

static void what_cannot_be_read_is_counted_and_refused(void **state)
{
	static const struct {
		uint8_t type;
		struct bytes body;
	} rows[] = {
		{99, {(const uint8_t *)"\x80", 1}},       /* no such message */
		{MSG_beat, {(const uint8_t *)"", 0}},     /* no map */
		{MSG_beat, {(const uint8_t *)"\x80", 1}}, /* a field is missing */
		{MSG_freed, {(const uint8_t *)"\xdf\xff\xff\xff\xff", 5}}, /* a bomb */
		{MSG_prefill, {(const uint8_t *)"\x80", 1}}, /* not for a router */
		{MSG_claim, {(const uint8_t *)"\x80", 1}},   /* of another channel */
	};
	struct wired *x = *state;

	both_join(x);
	for (size_t i = 0; i < COUNT(rows); i++) {
		say_bytes(&x->a, rows[i].type, rows[i].body);
		listen_for(x, 1);
		check_refused(&x->a, REFUSED_MALFORMED);
		assert_int_equal(x->rt.metrics.counter[COUNTER_malformed], i + 1);
	}
}

static void a_role_may_not_speak_for_another(void **state)
{
	struct wired *x = *state;
	struct msg_evicted m = {.router = 0xABC, .seq = 1, .attempt = 1};

	both_join(x);
	say(&x->a, MSG_evicted, &m); /* of a prefill worker */
	listen_for(x, 1);
	check_refused(&x->a, REFUSED_MALFORMED);
}

static void a_beat_must_be_of_the_incarnation_that_said_hello(void **state)
{
	struct wired *x = *state;
	struct msg_beat beat = {.incarnation = 1000};

	both_join(x);
	say(&x->a, MSG_beat, &beat);
	listen_for(x, 1);
	check_refused(&x->a, REFUSED_MALFORMED);
}

/* ---- a request over the wire ---- */

static void a_request_is_led_from_one_worker_to_the_other(void **state)
{
	struct wired *x = *state;
	struct request *r;
	struct msg_adopt adopt = {0};
	struct msg_cancel cancel = {0};

	both_join(x);
	start_request(x, &r);
	say_prefilled(x, r);
	listen_for(x, 1);
	read_newest(&x->b, MSG_adopt, &adopt);
	assert_int_equal(adopt.lease, 77);
	assert_true(bytes_eq(adopt.source_id, BYTES_STR("p0")));
	assert_int_equal(adopt.source_incarnation, 7);
	assert_int_equal(adopt.n_tokens, 3);
	assert_int_equal(wire_count(adopt.generated, uint32_t), 1);
	assert_int_equal(wire_u32(adopt.generated, 0), 21);
	assert_int_equal(adopt.max_tokens, 5);
	assert_int_equal(adopt.final, 1);
	request_cancel(r);
	listen_for(x, 2); /* cancel to d0, release to p0 */
	read_newest(&x->b, MSG_cancel, &cancel);
	assert_int_equal(cancel.seq, r->seq);
	assert_int_equal(newest(&x->a), MSG_release);
}

/* Only the worker that serves a request is heard about it. */
static void another_worker_has_no_say_in_a_request(void **state)
{
	struct wired *x = *state;
	struct wire_token t = {.attempt = 1, .token = 30};
	struct msg_tokens tokens = {
		.router = 0xABC, .records = {(const uint8_t *)&t, sizeof(t)}};
	struct msg_finished finished = {.router = 0xABC, .attempt = 1};
	struct msg_freed freed = {.router = 0xABC, .attempt = 1};
	struct msg_ask ask = {.what = BYTES_STR("x"), .tag = 1};
	struct request *r;

	both_join(x);
	start_request(x, &r);
	t.seq = finished.seq = freed.seq = r->seq;
	say(&x->b, MSG_tokens, &tokens); /* d0 was not told of it yet */
	say(&x->b, MSG_finished, &finished);
	freed.attempt = 9;
	say(&x->a, MSG_freed, &freed); /* of an attempt that never was */
	finished.router = 0xDEF;
	say(&x->a, MSG_finished, &finished); /* of another router */
	say(&x->b, MSG_ask, &ask); /* any question is answered: the rest was read */
	listen_for(x, 1);
	assert_int_equal(newest(&x->b), MSG_answer);
	assert_int_equal(r->state, RQ_PREFILL);
	assert_int_equal(x->rig.n_delivered, 0);
	assert_int_equal(x->rt.metrics.counter[COUNTER_malformed], 0);
}

static void a_refusal_for_want_of_room_waits_and_the_worker_is_spared(void **state)
{
	struct wired *x = *state;
	struct msg_rejected m = {.router = 0xABC,
		.attempt = 1,
		.reason = REJECT_FULL,
		.later = 1,
		.text = BYTES_STR("no")};
	struct msg_beat beat = {.incarnation = 7, .has_routers = true, .routers = 1};
	struct msg_ask ask = {.what = BYTES_STR("x"), .tag = 1};
	struct request *r;

	both_join(x);
	start_request(x, &r);
	m.seq = r->seq;
	say(&x->a, MSG_rejected, &m);
	say(&x->a, MSG_ask, &ask);
	listen_for(x, 1);
	assert_int_equal(r->state, RQ_QUEUED);
	assert_int_equal(x->rt.metrics.reject[REJECT_FULL], 1);
	r->not_before_ns = 0;
	dispatch_turn(&x->rt, clock_ns());
	assert_int_equal(r->state, RQ_QUEUED);
	say(&x->a, MSG_beat, &beat);
	say(&x->a, MSG_ask, &ask);
	listen_for(x, 1);
	dispatch_turn(&x->rt, clock_ns());
	assert_int_equal(r->state, RQ_PREFILL);
}

/* ---- loss ---- */

static void the_end_of_a_connection_is_told_to_the_others(void **state)
{
	struct wired *x = *state;
	struct msg_peer_down down = {0};
	struct request *r;

	both_join(x);
	start_request(x, &r);
	bus_close(x->a.bus);
	x->a.bus = NULL;
	listen_for(x, 1);
	read_newest(&x->b, MSG_peer_down, &down);
	assert_true(bytes_eq(down.id, BYTES_STR("p0")));
	assert_int_equal(down.incarnation, 7);
	assert_int_equal(r->state, RQ_DONE);
	assert_string_equal(r->error.code, "worker_lost");
	assert_non_null(strstr(r->error.message, "prefill worker p0"));
	assert_int_equal(fleet_count(x->rt.fleet), 1);
}

static void a_worker_that_says_that_its_device_failed_is_lost_at_once(void **state)
{
	struct wired *x = *state;
	struct msg_failed failed = {.text = BYTES_STR("it hangs")};
	struct request *r;

	both_join(x);
	start_request(x, &r);
	say(&x->a, MSG_failed, &failed);
	listen_for(x, 1); /* peer_down */
	assert_int_equal(r->state, RQ_DONE);
	assert_string_equal(r->error.code, "worker_lost");
	assert_int_equal(fleet_count(x->rt.fleet), 1);
}

static void a_worker_that_cannot_be_reached_is_lost(void **state)
{
	struct wired *x = *state;
	struct worker_view *w;

	both_join(x);
	w = fleet_at(x->rt.fleet, 0);
	w->n_peer = 3; /* a routing id that nobody has */
	link_beat_all(&x->rt);
	assert_true(w->broken);
	dispatch_losses(&x->rt, clock_ns());
	assert_int_equal(fleet_count(x->rt.fleet), 1);
	assert_true(x->rt.metrics.counter[COUNTER_unsent] >= 1);
}

/* ---- waiting ---- */

static void a_queue_without_workers_ends_when_none_came_back(void **state)
{
	struct wired *x = *state;
	uint64_t now = clock_ns();
	struct request *r = add_request(x);

	dispatch_turn(&x->rt, now);
	dispatch_turn(&x->rt, now + MS(3999));
	assert_int_equal(r->state, RQ_QUEUED);
	dispatch_turn(&x->rt, now + MS(4099)); /* looked at every 100 ms */
	assert_int_equal(r->state, RQ_DONE);
	assert_string_equal(r->error.code, "no_workers");
}

static void nobody_waits_longer_than_the_queue_allows(void **state)
{
	struct wired *x = *state;
	struct request *r;

	both_join(x);
	fleet_at(x->rt.fleet, 0)->full = true;
	r = add_request(x);
	dispatch_turn(&x->rt, r->queued_ns + 59 * NS_PER_S);
	assert_int_equal(r->state, RQ_QUEUED);
	dispatch_turn(&x->rt, r->queued_ns + 60 * NS_PER_S);
	assert_int_equal(r->state, RQ_DONE);
	assert_string_equal(r->error.code, "overloaded");
	assert_int_equal(r->error.http, 503);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WIRED(whoever_said_no_hello_is_told_to),
		WIRED(a_bad_hello_is_answered_with_the_reason),
		WIRED(what_cannot_be_read_is_counted_and_refused),
		WIRED(a_role_may_not_speak_for_another),
		WIRED(a_beat_must_be_of_the_incarnation_that_said_hello),
		WIRED(a_request_is_led_from_one_worker_to_the_other),
		WIRED(another_worker_has_no_say_in_a_request),
		WIRED(a_refusal_for_want_of_room_waits_and_the_worker_is_spared),
		WIRED(the_end_of_a_connection_is_told_to_the_others),
		WIRED(a_worker_that_says_that_its_device_failed_is_lost_at_once),
		WIRED(a_worker_that_cannot_be_reached_is_lost),
		WIRED(a_queue_without_workers_ends_when_none_came_back),
		WIRED(nobody_waits_longer_than_the_queue_allows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
