// labels: threads
/* Two buses in one process over ipc: nothing lost or stuck, limits, opening, closing. */
#include "unit/loop/bus_fixture.h"

#include <fcntl.h>

#define N_ECHO 100000u
#define WINDOW 500u /* messages under way, so that no high-water mark is reached */

/* ---- nothing lost, nothing stuck ---- */

static void echo_back(
	void *ctx, struct bytes peer, uint8_t type, struct bytes body, int conn)
{
	struct side *s = ctx;

	(void)conn;
	s->received++;
	assert_int_equal(bus_send(s->bus, peer, type, body), ST_OK);
	s->sent++;
}

static void send_window(struct side *s)
{
	while (s->sent < N_ECHO && s->sent - s->received < WINDOW) {
		struct bytes body = {(const uint8_t *)&s->sent, sizeof(s->sent)};

		assert_int_equal(bus_send(s->bus, (struct bytes){0},
					 (uint8_t)(s->sent % 251), body),
			ST_OK);
		s->sent++;
	}
}

static void check_echo(
	void *ctx, struct bytes peer, uint8_t type, struct bytes body, int conn)
{
	struct side *s = ctx;
	uint32_t number;

	(void)conn;
	assert_int_equal(peer.len, 0);
	assert_int_equal(body.len, sizeof(number));
	memcpy(&number, body.at, sizeof(number));
	assert_int_equal(number, s->received);
	assert_int_equal(type, number % 251);
	s->received++;
	/* Refill in large steps: sends outside a receive eat edges of their own. */
	if (s->sent - s->received < WINDOW / 4)
		send_window(s);
	if (s->received == N_ECHO)
		loop_stop(s->loop);
}

static void begin_echo(void *ctx, int conn)
{
	(void)conn;
	send_window(ctx);
}

static void echoes(struct fixture *f, uint32_t batch)
{
	static const struct bus_events router = {.on_message = echo_back};
	static const struct bus_events dealer = {check_echo, begin_echo, NULL};

	open_pair(f, &router, &dealer, 1000, batch);
	loop_run(f->loop);
	assert_int_equal(f->router.received, N_ECHO);
	assert_int_equal(f->router.sent, N_ECHO);
	assert_int_equal(f->dealer.received, N_ECHO);
	assert_int_equal(f->router.malformed, 0);
}

static void all_messages_arrive_in_order_with_a_batch_of_three(void **state)
{
	echoes(*state, 3);
}

static void all_messages_arrive_in_order_with_a_large_batch(void **state)
{
	echoes(*state, 256);
}

/* ---- limits ---- */

static void a_full_peer_gives_limit_and_an_unknown_one_gives_peer(void **state)
{
	struct fixture *f = *state;
	struct bytes peer;
	uint8_t body[4096] = {0};
	status st = ST_OK;
	int n;

	f->dealer.stop_after_connects = 1;
	open_pair(f, &note_events, &note_events, 10, 8);
	assert_int_equal(
		bus_send(f->dealer.bus, (struct bytes){0}, 1, BYTES_STR("early")),
		ST_PEER);
	loop_run(f->loop);
	assert_int_equal(
		bus_send(f->dealer.bus, (struct bytes){0}, 1, BYTES_STR("hello")), ST_OK);
	loop_run(f->loop);
	assert_int_equal(f->router.received, 1);
	peer = (struct bytes){(const uint8_t *)f->router.peer, f->router.peer_len};
	assert_true(bytes_eq(peer, BYTES_STR("w0#1")));
	/* The loop does not run, so the dealer reads nothing: the mark of 10 on each side
	 * and the kernel's socket buffer fill up. */
	for (n = 0; n < 100000 && st == ST_OK; n++)
		st = bus_send(f->router.bus, peer, 2, (struct bytes){body, sizeof(body)});
	assert_int_equal(st, ST_LIMIT);
	assert_true(n > 10);
	assert_int_equal(
		bus_send(f->router.bus, BYTES_STR("nobody"), 2, BYTES_STR("x")), ST_PEER);
}

static void frames_over_the_limit_are_refused_on_both_sides(void **state)
{
	struct fixture *f = *state;
	uint8_t *body = calloc(1, BUS_FRAME_MAX);

	assert_non_null(body);
	f->dealer.stop_after_connects = 1;
	open_pair(f, &note_events, &note_events, 10, 8);
	loop_run(f->loop);
	assert_int_equal(bus_send(f->dealer.bus, (struct bytes){0}, 1,
				 (struct bytes){body, BUS_FRAME_MAX}),
		ST_INVALID);
	assert_int_equal(bus_send(f->dealer.bus, (struct bytes){0}, 1,
				 (struct bytes){body, BUS_FRAME_MAX - 1}),
		ST_OK);
	loop_run(f->loop);
	assert_int_equal(f->router.received, 1);
	free(body);
}

/* The loop has not run since the router went away, so nobody was told yet. */
static void nothing_is_queued_for_a_router_that_is_gone(void **state)
{
	struct fixture *f = *state;

	f->dealer.stop_after_connects = 1;
	open_pair(f, &note_events, &note_events, 10, 8);
	loop_run(f->loop);
	bus_close(f->router.bus);
	f->router.bus = NULL;
	usleep(100000);
	assert_int_equal(
		bus_send(f->dealer.bus, (struct bytes){0}, 1, BYTES_STR("x")), ST_PEER);
}

static void a_dealer_is_told_and_connects_again(void **state)
{
	struct fixture *f = *state;
	struct bus_options o = {.endpoint = f->endpoint,
		.high_water = 10,
		.batch = 8,
		.events = &note_events,
		.ctx = &f->router};
	struct err err;

	f->dealer.stop_after_connects = 1;
	open_pair(f, &note_events, &note_events, 10, 8);
	loop_run(f->loop);
	f->dealer.stop_after_disconnects = 1;
	bus_close(f->router.bus);
	f->router.bus = NULL;
	loop_run(f->loop);
	assert_int_equal(f->dealer.conn_disconnected, f->dealer.conn_connected);
	assert_int_equal(
		bus_send(f->dealer.bus, (struct bytes){0}, 1, BYTES_STR("x")), ST_PEER);
	f->dealer.stop_after_connects = 2;
	assert_int_equal(bus_bind(&f->router.bus, f->net, &o, &err), ST_OK);
	loop_run(f->loop);
	assert_int_equal(
		bus_send(f->dealer.bus, (struct bytes){0}, 1, BYTES_STR("x")), ST_OK);
	loop_run(f->loop);
	assert_int_equal(f->router.received, 1);
}

/* ---- opening and closing ---- */

static void close_both(
	void *ctx, struct bytes peer, uint8_t type, struct bytes body, int conn)
{
	struct fixture *f = container_of((struct side *)ctx, struct fixture, router);

	(void)peer;
	(void)conn;
	bus_close(f->router.bus);
	bus_close(f->dealer.bus);
	/* Borrowed bytes live until the callback returns. */
	assert_int_equal(type, 1);
	assert_true(bytes_eq(body, BYTES_STR("close")));
	f->router.bus = f->dealer.bus = NULL;
	f->router.received++;
	loop_stop(f->loop);
}

static void buses_may_be_closed_from_a_callback(void **state)
{
	struct fixture *f = *state;
	static const struct bus_events router = {.on_message = close_both};

	f->dealer.stop_after_connects = 1;
	open_pair(f, &router, &note_events, 10, 8);
	loop_run(f->loop);
	for (int i = 0; i < 3; i++)
		assert_int_equal(
			bus_send(f->dealer.bus, (struct bytes){0}, 1, BYTES_STR("close")),
			ST_OK);
	loop_run(f->loop);
	assert_int_equal(f->router.received, 1);
}

static void a_live_socket_is_not_taken_over_and_a_stale_one_is(void **state)
{
	struct fixture *f = *state;
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct bus_options o = {.endpoint = f->endpoint,
		.high_water = 10,
		.batch = 8,
		.events = &note_events,
		.ctx = &f->dealer};
	struct bus *second = NULL;
	struct err err;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	/* Bound and closed: the file stays, as after a kill. */
	snprintf(at.sun_path, sizeof(at.sun_path), "%s", f->endpoint + 6);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	close(fd);
	open_pair(f, &note_events, NULL, 10, 8);
	assert_int_equal(bus_bind(&second, f->net, &o, &err), ST_PEER);
	assert_non_null(strstr(err.text, "in use"));
	assert_null(second);
}

static void say_hello(struct fixture *f, struct bus *b, uint32_t so_far)
{
	assert_int_equal(bus_send(b, (struct bytes){0}, 1, BYTES_STR("x")), ST_OK);
	loop_run(f->loop);
	assert_int_equal(f->router.received, so_far + 1);
}

static void a_removed_file_is_bound_again_beside_the_connections(void **state)
{
	struct fixture *f = *state;
	struct side late = {.loop = f->loop, .stop_after_connects = 1};
	struct bus_options o = {.endpoint = f->endpoint,
		.id = BYTES_STR("late"),
		.high_water = 10,
		.batch = 8,
		.events = &note_events,
		.ctx = &late};
	struct err err;

	f->dealer.stop_after_connects = 1;
	open_pair(f, &note_events, &note_events, 10, 8);
	loop_run(f->loop);
	assert_true(bus_bound(f->router.bus) && bus_bound(f->dealer.bus));
	for (uint32_t binds = 1; binds < BUS_BINDS_MAX; binds++) {
		assert_int_equal(unlink(f->endpoint + 6), 0);
		assert_false(bus_bound(f->router.bus));
		assert_int_equal(bus_bind_again(f->router.bus, &err), ST_OK);
		assert_true(bus_bound(f->router.bus));
	}
	say_hello(f, f->dealer.bus, 0);
	assert_int_equal(f->dealer.disconnects, 0);
	assert_int_equal(bus_connect(&late.bus, f->net, &o, &err), ST_OK);
	loop_run(f->loop);
	say_hello(f, late.bus, 1);
	assert_int_equal(bus_bind_again(f->router.bus, &err), ST_LIMIT);
	bus_close(late.bus);
}

static void a_file_that_another_process_took_is_left_alone(void **state)
{
	struct fixture *f = *state;
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct err err;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	open_pair(f, &note_events, NULL, 10, 8);
	assert_int_equal(unlink(f->endpoint + 6), 0);
	snprintf(at.sun_path, sizeof(at.sun_path), "%s", f->endpoint + 6);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_false(bus_bound(f->router.bus));
	assert_int_equal(bus_bind_again(f->router.bus, &err), ST_PEER);
	assert_non_null(strstr(err.text, "in use"));
	close(fd);
	assert_int_equal(bus_bind_again(f->router.bus, &err), ST_OK);
	assert_true(bus_bound(f->router.bus));
}

static void its_file_goes_with_the_bus_and_that_of_another_stays(void **state)
{
	struct fixture *f = *state;
	struct bus_options o = {.endpoint = f->endpoint,
		.high_water = 10,
		.batch = 8,
		.events = &note_events,
		.ctx = &f->router};
	const char *path = f->endpoint + 6;
	struct err err;
	int fd;

	assert_int_equal(bus_bind(&f->router.bus, f->net, &o, &err), ST_OK);
	assert_int_equal(access(path, F_OK), 0);
	bus_close(f->router.bus);
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_equal(bus_bind(&f->router.bus, f->net, &o, &err), ST_OK);
	assert_int_equal(unlink(path), 0);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	bus_close(f->router.bus);
	f->router.bus = NULL;
	assert_int_equal(access(path, F_OK), 0);
}

static void endpoints_that_would_be_open_to_others_are_refused(void **state)
{
	struct fixture *f = *state;
	static const char *const bad[] = {"tcp://0.0.0.0:7000", "tcp://10.0.0.1:7000",
		"tcp://*:7000", "tcp://example.org:7000", "tcp://[::]:7000",
		"tcp://127.0.0.1", "ipc://relative", "ipc://@abstract", "inproc://x",
		"pgm://eth0;239.1.1.1:7", "",
		"ipc:///tmp/"
		"0123456789012345678901234567890123456789012345678901234567890123456789"
		"0123456789012345678901234567890123456789"};
	struct bus_options o = {
		.high_water = 10, .batch = 8, .events = &note_events, .ctx = &f->router};
	struct err err;

	for (size_t i = 0; i < COUNT(bad); i++) {
		struct bus *b = NULL;

		o.endpoint = bad[i];
		assert_int_equal(bus_bind(&b, f->net, &o, &err), ST_INVALID);
		assert_non_null(strstr(err.text, bad[i]));
	}
	o.endpoint = "tcp://127.0.0.1:*";
	assert_int_equal(bus_bind(&f->router.bus, f->net, &o, &err), ST_OK);
	assert_null(strchr(bus_endpoint(f->router.bus), '*'));
	o.endpoint = bus_endpoint(f->router.bus);
	o.id = BYTES_STR("w");
	o.ctx = &f->dealer;
	f->dealer.stop_after_connects = 1;
	assert_int_equal(bus_connect(&f->dealer.bus, f->net, &o, &err), ST_OK);
	loop_run(f->loop);
	assert_int_equal(f->dealer.connects, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(all_messages_arrive_in_order_with_a_batch_of_three),
		T(all_messages_arrive_in_order_with_a_large_batch),
		T(a_full_peer_gives_limit_and_an_unknown_one_gives_peer),
		T(frames_over_the_limit_are_refused_on_both_sides),
		T(nothing_is_queued_for_a_router_that_is_gone),
		T(a_dealer_is_told_and_connects_again),
		T(buses_may_be_closed_from_a_callback),
		T(a_live_socket_is_not_taken_over_and_a_stale_one_is),
		T(a_removed_file_is_bound_again_beside_the_connections),
		T(a_file_that_another_process_took_is_left_alone),
		T(its_file_goes_with_the_bus_and_that_of_another_stays),
		T(endpoints_that_would_be_open_to_others_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
