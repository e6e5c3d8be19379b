// labels: threads
/* A server that did not run for a while blames none of its clients for that time. */
#include "http_rig.h"

#include "router/probe.h"

#include <time.h>

#define GAP_NS (3600 * NS_PER_S)

static _Atomic uint64_t ahead_ns;

static uint64_t clock_with_gaps(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec +
	       atomic_load(&ahead_ns);
}

static int set_up(void **state)
{
	(void)state;
	clock_replace(clock_with_gaps);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	clock_replace(NULL);
	return 0;
}

/* And time for the sweeps that would judge by it. */
static void sleep_through(void)
{
	atomic_fetch_add(&ahead_ns, GAP_NS);
	usleep(700000);
}

static void a_reader_is_cut_for_what_it_did_not_take_while_we_ran(void **state)
{
	struct rig *r = rig_start((struct http_options){.drain_s = 2});
	int fd = connect_to(r);

	(void)state;
	put(fd, "GET /flood HTTP/1.1\r\nHost: h\r\n\r\n");
	take_until(fd, "\r\n\r\n");
	usleep(500000); /* until the sockets hold what they can */
	sleep_through();
	assert_int_equal(atomic_load(&r->gone), 0);
	rig_until(&r->gone, 1);
	close(fd);
	rig_stop(r);
}

static void a_request_goes_on_after_a_gap(void **state)
{
	static const char *const first[] = {"POST /echo HT",
		"POST /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
		"Content-Length: 5\r\n\r\nhe"};
	static const char *const rest[] = {
		"TP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 5\r\n\r\n"
		"hello",
		"llo"};
	struct rig *r = rig_start((struct http_options){.read_s = 5});
	int fd[COUNT(first)];

	(void)state;
	for (unsigned i = 0; i < COUNT(first); i++) {
		fd[i] = connect_to(r);
		put(fd[i], first[i]);
	}
	usleep(20000);
	sleep_through();
	assert_int_equal(atomic_load(&r->refused), 0);
	for (unsigned i = 0; i < COUNT(first); i++) {
		put(fd[i], rest[i]);
		HAS(take_until(fd[i], NULL), "\r\n\r\nhello");
		close(fd[i]);
	}
	rig_stop(r);
}

static void an_idle_connection_outlives_a_gap_and_no_more(void **state)
{
	struct rig *r = rig_start((struct http_options){.idle_s = 2});
	int fd = connect_to(r);

	(void)state;
	for (int i = 0; i < 2; i++) {
		put(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nok");
		HAS(take_until(fd, "\r\n\r\nok"), "HTTP/1.1 200 ");
		sleep_through();
	}
	assert_string_equal(take_until(fd, NULL), "");
	close(fd);
	rig_stop(r);
}

static const char *probe_live(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	const char *t;

	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	put(fd, "GET /live HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
	t = take_until(fd, NULL);
	close(fd);
	return t;
}

static void *beat_soon(void *p)
{
	usleep(100000);
	probe_beat(p);
	return NULL;
}

/* The probe's thread runs again before the loop's. */
static void a_loop_that_wakes_is_not_stuck(void **state)
{
	struct probe *p;
	struct err err;
	pthread_t loop;

	(void)state;
	assert_int_equal(probe_create(&p, "127.0.0.1", 0, &err), ST_OK);
	probe_stuck_after(p, 60000);
	probe_beat(p);
	HAS(probe_live(probe_port(p)), "HTTP/1.1 200 ");
	atomic_fetch_add(&ahead_ns, GAP_NS);
	assert_int_equal(pthread_create(&loop, NULL, beat_soon, p), 0);
	HAS(probe_live(probe_port(p)), "HTTP/1.1 200 ");
	pthread_join(loop, NULL);
	/* One that does not wake is, and that is not waited for twice. */
	atomic_fetch_add(&ahead_ns, GAP_NS);
	HAS(probe_live(probe_port(p)), "\"reason\":\"stuck\"");
	HAS(probe_live(probe_port(p)), "\"reason\":\"stuck\"");
	probe_beat(p);
	HAS(probe_live(probe_port(p)), "HTTP/1.1 200 ");
	probe_destroy(p);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reader_is_cut_for_what_it_did_not_take_while_we_ran),
		cmocka_unit_test(a_request_goes_on_after_a_gap),
		cmocka_unit_test(an_idle_connection_outlives_a_gap_and_no_more),
		cmocka_unit_test(a_loop_that_wakes_is_not_stuck),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
