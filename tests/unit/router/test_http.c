// labels: threads
/* The HTTP server over real sockets: whole answers, streams, clients that leave. */
#include "http_rig.h"

#include <sys/resource.h>

#define STREAMS 3000

static void keep_alive_and_pipelining_keep_order(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	int fd = connect_to(r);
	const char *t;

	(void)state;
	put(fd, "POST /ec%68o?a=x%20y HTTP/1.1\r\nHost: h\r\nContent-Length: "
		"3\r\n\r\nabc");
	t = take_until(fd, "abc");
	HAS(t, "HTTP/1.1 200 OK\r\n");
	HAS(t, "Content-Type: text/plain\r\n");
	HAS(t, "X-Method: POST\r\n");
	HAS(t, "X-Path: /echo\r\n");
	HAS(t, "X-Request-Id: req-");
	put(fd, "GET /later HTTP/1.1\r\nHost: h\r\nX-Request-Id: one\r\n\r\n"
		"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nsecon");
	t = take_until(fd, "secon");
	HAS(t, "X-Request-Id: one\r\n");
	assert_true(strstr(t, "late") < strstr(t, "secon"));
	close(fd);
	rig_until(&r->ends, 3);
	assert_int_equal(atomic_load(&r->delivered), 3);
	rig_stop(r);
}

static void head_has_the_headers_and_no_body(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	int fd = connect_to(r);
	const char *t;

	(void)state;
	put(fd, "HEAD /later HTTP/1.1\r\nHost: h\r\n\r\n"
		"GET /later HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
	t = take_until(fd, NULL);
	HAS(t, "Content-Length: 4\r\n");
	HAS(strstr(t, "\r\n\r\n"), "\r\n\r\nHTTP/1.1 200");
	HAS(t, "\r\n\r\nlate");
	close(fd);
	rig_stop(r);
}

static void a_request_id_that_is_not_printable_is_replaced(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	char text[512], id[200];
	const char *t;

	(void)state;
	t = ask(r, "GET /echo HTTP/1.1\r\nHost: h\r\nX-Request-Id: a b\r\n"
		   "Connection: close\r\n\r\n");
	HAS(t, "X-Request-Id: req-");
	for (int n = 128; n <= 129; n++) {
		memset(id, 'i', sizeof(id));
		id[n] = '\0';
		snprintf(text, sizeof(text),
			"GET /echo HTTP/1.1\r\nHost: h\r\nX-Request-Id: %s\r\n"
			"Connection: close\r\n\r\n",
			id);
		t = ask(r, text);
		HAS(t, n == 128 ? "X-Request-Id: iiii" : "X-Request-Id: req-");
	}
	rig_stop(r);
}

static void a_stream_comes_in_chunks(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	const char *t, *p;
	int n = 0;

	(void)state;
	t = ask(r, "GET /stream/7 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
	HAS(t, "Transfer-Encoding: chunked\r\n");
	HAS(t, "Content-Type: text/event-stream\r\n");
	for (p = t; (p = strstr(p, PIECE)) != NULL; p++)
		n++;
	assert_int_equal(n, 7);
	HAS(t, "\r\n12\r\n" PIECE "\r\n");
	HAS(t, "\r\n0\r\n\r\n");
	assert_int_equal(atomic_load(&r->delivered), 1);
	rig_stop(r);
}

static void an_http_1_0_client_gets_no_chunks(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	const char *t = ask(r, "GET /stream/2 HTTP/1.0\r\n\r\n");

	(void)state;
	assert_null(strstr(t, "chunked"));
	HAS(t, "\r\n\r\n" PIECE PIECE);
	rig_stop(r);
}

static void an_aborted_stream_has_no_end_mark(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	const char *t = ask(r, "GET /abort HTTP/1.1\r\nHost: h\r\n\r\n");

	(void)state;
	assert_null(strstr(t, "\r\n0\r\n"));
	rig_until(&r->ends, 1);
	assert_int_equal(atomic_load(&r->gone), 0);
	assert_int_equal(atomic_load(&r->delivered), 0);
	rig_stop(r);
}

/* The client leaves: while suspended without an answer, in the middle of a stream that
 * waits, in one that is being written, and before the body is there. */
static void a_client_that_leaves_is_told_once(void **state)
{
	static const char *const in[] = {
		"GET /never HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /open HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /stream/100000 HTTP/1.1\r\nHost: h\r\n\r\n",
		"POST /never HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nabGET",
	};
	struct rig *r = rig_start((struct http_options){0});

	(void)state;
	for (unsigned i = 0; i < COUNT(in); i++) {
		int fd = connect_to(r);
		uint64_t t0;

		put(fd, in[i]);
		rig_until(&r->requests, i + 1);
		if (i == 1 || i == 2)
			take_until(fd, "\r\n\r\n");
		t0 = clock_ns();
		close(fd);
		rig_until(&r->gone, i + 1);
		rig_until(&r->ends, i + 1);
		assert_true(clock_ns() - t0 < NS_PER_S);
	}
	rig_stop(r);
}

static void a_client_that_leaves_early_never_reaches_the_handler(void **state)
{
	static const char *const in[] = {
		"",
		"GET",
		"GET /echo HTTP/1.1\r\nHost:",
		"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc",
		"PUT / HTTP/1.1\r\nHost:h\r\nTransfer-Encoding:chunked\r\n\r\n5\r\nab",
	};
	struct rig *r = rig_start((struct http_options){0});

	(void)state;
	for (unsigned i = 0; i < COUNT(in); i++) {
		int fd = connect_to(r);

		if (in[i][0] != '\0')
			put(fd, in[i]);
		usleep(5000);
		close(fd);
	}
	for (int i = 0; i < 2000 && rig_connections(r) > 0; i++)
		usleep(1000);
	assert_int_equal(rig_connections(r), 0);
	assert_int_equal(atomic_load(&r->requests), 0);
	rig_stop(r);
}

static void a_half_closed_client_gets_its_answer(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	int fd = connect_to(r);

	(void)state;
	put(fd, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
	shutdown(fd, SHUT_WR);
	HAS(take_until(fd, NULL), "late");
	close(fd);
	assert_int_equal(atomic_load(&r->gone), 0);
	rig_stop(r);
}

static void a_reader_that_never_reads_is_cut(void **state)
{
	struct rig *r = rig_start((struct http_options){.drain_s = 1});
	int small = 4096, fd = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons(http_port(r->http)),
		.sin_addr = {htonl(INADDR_LOOPBACK)}};

	(void)state;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	put(fd, "GET /flood HTTP/1.1\r\nHost: h\r\n\r\n");
	rig_until(&r->requests, 1);
	usleep(500000);
	assert_int_equal(atomic_load(&r->gone), 0);
	rig_until(&r->gone, 1);
	rig_until(&r->ends, 1);
	close(fd);
	rig_stop(r);
}

static void a_stream_over_its_bound_is_cut(void **state)
{
	struct rig *r = rig_start((struct http_options){.stream_max = 1u << 20});
	int fd = connect_to(r);

	(void)state;
	put(fd, "GET /flood HTTP/1.1\r\nHost: h\r\n\r\n");
	rig_until(&r->gone, 1);
	rig_until(&r->ends, 1);
	close(fd);
	rig_stop(r);
}

/* As many suspended streams as descriptors allow, stopped while they are open. */
static void many_suspended_streams_survive_a_stop(void **state)
{
	static int fds[STREAMS];
	struct rlimit limit;
	unsigned n = STREAMS;
	struct rig *r;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur < 2 * STREAMS + 64)
		n = (unsigned)(limit.rlim_cur - 64) / 2;
	r = rig_start((struct http_options){.connections_max = STREAMS + 8});
	for (unsigned i = 0; i < n; i++) {
		fds[i] = connect_to(r);
		put(fds[i], i % 3 == 0 ? "GET /never HTTP/1.1\r\nHost: h\r\n\r\n"
				       : "GET /open HTTP/1.1\r\nHost: h\r\n\r\n");
	}
	rig_until(&r->requests, n);
	assert_int_equal(rig_connections(r), n);
	HAS(ask(r, "GET /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"),
		"200 OK");
	for (unsigned i = 0; i < n / 2; i++)
		close(fds[i]);
	rig_until(&r->gone, n / 2);
	rig_stop(r);
	for (unsigned i = n / 2; i < n; i++)
		close(fds[i]);
}

static uint64_t cpu_ms(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000 +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1000;
}

/* Suspended requests, half-read answers and departed clients wait without work. */
static void waiting_costs_no_processor_time(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	int fds[40];
	uint64_t before;

	(void)state;
	for (unsigned i = 0; i < COUNT(fds); i++) {
		fds[i] = connect_to(r);
		put(fds[i], i % 4 == 0   ? "GET /never HTTP/1.1\r\nHost: h\r\n\r\n"
			    : i % 4 == 1 ? "GET /open HTTP/1.1\r\nHost: h\r\n\r\n"
			    : i % 4 == 2 ? "GET /flood HTTP/1.1\r\nHost: h\r\n\r\n"
					 : "POST /never HTTP/1.1\r\nHost: h\r\n");
		if (i % 8 == 1)
			shutdown(fds[i], SHUT_WR);
	}
	rig_until(&r->requests, COUNT(fds) * 3 / 4);
	/* First the sockets get what they hold; a sanitizer takes its time for that. */
	for (int i = 0; i < 25; i++) {
		before = cpu_ms();
		usleep(200000);
		if (cpu_ms() - before < 20)
			break;
	}
	before = cpu_ms();
	usleep(500000);
	assert_true(cpu_ms() - before < 100);
	for (unsigned i = 0; i < COUNT(fds); i++)
		close(fds[i]);
	rig_stop(r);
}

static void draining_takes_no_connection_and_closes_after_answers(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	int fd = connect_to(r), late;
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons(http_port(r->http)),
		.sin_addr = {htonl(INADDR_LOOPBACK)}};

	(void)state;
	put(fd, "GET /echo HTTP/1.1\r\nHost: h\r\n\r\n");
	take_until(fd, "\r\n\r\n");
	atomic_store(&r->quiesce, 1);
	rig_signal(r);
	for (int i = 0; i < 2000 && atomic_load(&r->quiesce); i++)
		usleep(1000);
	assert_int_equal(atomic_load(&r->quiesce), 0);
	late = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(late, (struct sockaddr *)&a, sizeof(a)), -1);
	close(late);
	put(fd, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
	HAS(take_until(fd, NULL), "Connection: close\r\n");
	close(fd);
	rig_stop(r);
}

static void a_unix_socket_serves_too(void **state)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct rig *r;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	(void)state;
	snprintf(a.sun_path, sizeof(a.sun_path), "/tmp/baton-test-http-%d.sock",
		(int)getpid());
	r = rig_start((struct http_options){.unix_path = a.sun_path});
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	put(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nunix");
	HAS(take_until(fd, "unix"), "200 OK");
	put(fd, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
	take_until(fd, "\r\n0\r\n\r\n");
	close(fd);
	rig_until(&r->ends, 2);
	rig_stop(r);
	assert_int_equal(access(a.sun_path, F_OK), -1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(keep_alive_and_pipelining_keep_order),
		cmocka_unit_test(head_has_the_headers_and_no_body),
		cmocka_unit_test(a_request_id_that_is_not_printable_is_replaced),
		cmocka_unit_test(a_stream_comes_in_chunks),
		cmocka_unit_test(an_http_1_0_client_gets_no_chunks),
		cmocka_unit_test(an_aborted_stream_has_no_end_mark),
		cmocka_unit_test(a_client_that_leaves_is_told_once),
		cmocka_unit_test(a_client_that_leaves_early_never_reaches_the_handler),
		cmocka_unit_test(a_half_closed_client_gets_its_answer),
		cmocka_unit_test(a_reader_that_never_reads_is_cut),
		cmocka_unit_test(a_stream_over_its_bound_is_cut),
		cmocka_unit_test(many_suspended_streams_survive_a_stop),
		cmocka_unit_test(waiting_costs_no_processor_time),
		cmocka_unit_test(draining_takes_no_connection_and_closes_after_answers),
		cmocka_unit_test(a_unix_socket_serves_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
