// labels: threads
/* What the HTTP server refuses by itself: framing, sizes, time. */
#include "http_rig.h"

#include "router/probe.h"

#define CLOSE "Connection: close\r\n"

static void a_chunked_body_arrives_whole(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	const char *t = ask(r, "POST /echo HTTP/1.1\r\nHost: h\r\n" CLOSE
			       "Transfer-Encoding: chunked\r\n\r\n"
			       "3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n");

	(void)state;
	HAS(t, "\r\n\r\nabcdefg");
	rig_stop(r);
}

static void a_large_body_arrives_whole(void **state)
{
	struct rig *r = rig_start((struct http_options){.body_max = 8u << 20});
	size_t n = 8u << 20, got = 0;
	char *body = malloc(n), head[128];
	int fd = connect_to(r);

	(void)state;
	memset(body, 'b', n);
	snprintf(head, sizeof(head),
		"POST /never HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n", n);
	put(fd, head);
	while (got < n) {
		ssize_t k = send(fd, body + got, n - got, MSG_NOSIGNAL);

		assert_true(k > 0);
		got += (size_t)k;
	}
	rig_until(&r->requests, 1);
	assert_int_equal(atomic_load(&r->body_bytes), n);
	close(fd);
	rig_until(&r->ends, 1);
	rig_stop(r);
	free(body);
}

/* Requests that two parsers could read in two ways end the connection, so that nothing
 * behind them is taken for a request. */
static void ambiguous_framing_is_refused_and_closes(void **state)
{
	static const struct {
		const char *headers;
		const char *status;
	} rows[] = {
		{"Host: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n", "400"},
		{"Host: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n", "400"},
		{"Host: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n", "400"},
		{"Host: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
			"400"},
		{"Host: h\r\nTransfer-Encoding: gzip\r\n", "501"},
		{"Content-Length: 3\r\n", "400"},
	};
	struct rig *r = rig_start((struct http_options){0});
	char text[512], want[32];

	(void)state;
	for (unsigned i = 0; i < COUNT(rows); i++) {
		const char *t;

		snprintf(text, sizeof(text),
			"POST /echo HTTP/1.1\r\n%s\r\n3\r\nabc\r\n0\r\n\r\n"
			"GET /echo HTTP/1.1\r\nHost: h\r\n\r\n",
			rows[i].headers);
		snprintf(want, sizeof(want), "HTTP/1.1 %s ", rows[i].status);
		t = ask(r, text);
		HAS(t, want);
		HAS(t, "Connection: close\r\n");
		HAS(t, "Content-Type: application/json\r\n");
		HAS(t, "{\"error\":{\"message\":\"");
		HAS(t, "X-Request-Id: ");
		assert_null(strstr(t + 1, "HTTP/1.1 2"));
	}
	HAS(ask(r, "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"
		   "0\r\n\r\n"),
		"HTTP/1.1 400 ");
	assert_int_equal(atomic_load(&r->requests), 0);
	assert_int_equal(atomic_load(&r->refused), COUNT(rows) + 1);
	rig_stop(r);
}

static void a_body_over_the_limit_is_413_before_it_is_read(void **state)
{
	struct rig *r = rig_start((struct http_options){.body_max = 1000});
	char text[4096];
	const char *t;
	int fd;

	(void)state;
	/* Announced: refused at once, the body need not come. */
	fd = connect_to(r);
	put(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n");
	t = take_until(fd, "}}");
	HAS(t, "HTTP/1.1 413 ");
	HAS(t, "1000 bytes");
	close(fd);
	/* Announced beyond 64 bits is not a small number. */
	t = ask(r, "POST /echo HTTP/1.1\r\nHost: h\r\n"
		   "Content-Length: 18446744073709551615\r\n\r\n");
	HAS(t, "HTTP/1.1 4");
	/* Waiting for our word: no 100, the refusal. */
	t = ask(r, "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
		   "Content-Length: 1001\r\n\r\n");
	HAS(t, "HTTP/1.1 413 ");
	assert_null(strstr(t, "100 Continue"));
	/* Not announced: refused where it passes the limit. */
	memset(text, 'a', sizeof(text));
	fd = connect_to(r);
	put(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
		"1000\r\n");
	assert_true(send(fd, text, sizeof(text), MSG_NOSIGNAL) > 0);
	t = take_until(fd, "}}");
	HAS(t, "HTTP/1.1 413 ");
	close(fd);
	/* Exactly the limit passes. */
	fd = connect_to(r);
	put(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n");
	assert_int_equal(send(fd, text, 1000, MSG_NOSIGNAL), 1000);
	HAS(take_until(fd, "aaaa"), "HTTP/1.1 200 ");
	close(fd);
	rig_until(&r->ends, 1);
	rig_stop(r);
}

static void expect_100_continue_is_answered(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	int fd = connect_to(r);

	(void)state;
	put(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
		"Content-Length: 2\r\n\r\n");
	HAS(take_until(fd, "\r\n\r\n"), "HTTP/1.1 100 Continue");
	put(fd, "ok");
	HAS(take_until(fd, "\r\n\r\nok"), "HTTP/1.1 200 OK");
	close(fd);
	rig_until(&r->ends, 1);
	rig_stop(r);
}

static void too_many_or_too_long_headers_are_431(void **state)
{
	struct rig *r =
		rig_start((struct http_options){.headers_max = 10, .header_max = 4096});
	char text[16384];
	size_t n;

	(void)state;
	n = (size_t)snprintf(text, sizeof(text), "GET /echo HTTP/1.1\r\nHost: h\r\n");
	for (int i = 0; i < 10; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "X-%d: y\r\n", i);
	snprintf(text + n, sizeof(text) - n, "\r\n");
	HAS(ask(r, text), "HTTP/1.1 431 ");
	n = (size_t)snprintf(
		text, sizeof(text), "GET /echo HTTP/1.1\r\nHost: h\r\nX-Long: ");
	memset(text + n, 'l', 5000);
	memcpy(text + n + 5000, "\r\n\r\n", 5);
	HAS(ask(r, text), "{\"error\":{\"message\":\"The head of the request has over 10 "
			  "lines or over 4096");
	assert_int_equal(atomic_load(&r->refused_code), 431);
	assert_int_equal(atomic_load(&r->requests), 0);
	rig_stop(r);
}

static size_t resident(void)
{
	size_t pages = 0, all = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%zu %zu", &all, &pages), 2);
	fclose(f);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* What a sanitizer keeps beside every block is not what this counts. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_MEMORY 0
#else
#define COUNTS_MEMORY 1
#endif

/* 40 KiB are libmicrohttpd's. */
static void a_connection_between_two_requests_costs_no_more_than_64_kib(void **state)
{
	struct rig *r;
	int fd[300];
	size_t before;

	(void)state;
	if (!COUNTS_MEMORY)
		skip();
	r = rig_start((struct http_options){0});
	fd[0] = connect_to(r);
	put(fd[0], "GET /echo HTTP/1.1\r\nHost: h\r\n\r\n");
	take_until(fd[0], "\r\n\r\n");
	before = resident();
	for (unsigned i = 1; i < COUNT(fd); i++) {
		fd[i] = connect_to(r);
		put(fd[i], "GET /echo HTTP/1.1\r\nHost: h\r\n\r\n");
		take_until(fd[i], "\r\n\r\n");
	}
	assert_int_equal(rig_connections(r), COUNT(fd));
	assert_in_range(resident() - before, 1, COUNT(fd) * (64u << 10));
	for (unsigned i = 0; i < COUNT(fd); i++)
		close(fd[i]);
	rig_stop(r);
}

/* 100 lines of 16 KiB in all, the limits, and an answer that repeats the path. */
static void a_head_at_both_limits_is_served(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	char text[20000];
	size_t n;

	(void)state;
	n = (size_t)snprintf(text, sizeof(text),
		"GET /echo HTTP/1.1\r\nHost: h\r\n"
		"Connection: close\r\n");
	for (int i = 0; i < 98; i++)
		n += (size_t)snprintf(
			text + n, sizeof(text) - n, "X-%02d: %0150d\r\n", i, i);
	snprintf(text + n, sizeof(text) - n, "\r\n");
	assert_true(n > 15500);
	HAS(ask(r, text), "HTTP/1.1 200 ");
	rig_stop(r);
}

/* A byte now and then does not keep a request alive. */
static void a_request_that_trickles_in_is_408(void **state)
{
	static const char *const in[] = {
		"GET /echo HTTP/1.1\r\nHost: h\r\nX-Slow: ",
		"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n",
	};
	struct rig *r = rig_start((struct http_options){.read_s = 1});

	(void)state;
	for (unsigned i = 0; i < COUNT(in); i++) {
		int fd = connect_to(r);
		uint64_t t0 = clock_ns();

		put(fd, in[i]);
		while (atomic_load(&r->refused) == i && clock_ns() - t0 < 5 * NS_PER_S) {
			usleep(100000);
			if (send(fd, "a", 1, MSG_NOSIGNAL) != 1)
				break;
		}
		HAS(take_until(fd, "}}"), "HTTP/1.1 408 ");
		assert_true(clock_ns() - t0 < 3 * NS_PER_S);
		close(fd);
	}
	assert_int_equal(atomic_load(&r->requests), 0);
	rig_stop(r);
}

static void an_idle_connection_is_closed(void **state)
{
	struct rig *r = rig_start((struct http_options){.idle_s = 1});
	int fd = connect_to(r);
	uint64_t t0;

	(void)state;
	put(fd, "GET /echo HTTP/1.1\r\nHost: h\r\n\r\n");
	take_until(fd, "\r\n\r\n");
	t0 = clock_ns();
	assert_string_equal(take_until(fd, NULL), "");
	assert_true(clock_ns() - t0 < 3 * NS_PER_S);
	close(fd);
	rig_stop(r);
}

static void garbage_closes_and_harms_nobody(void **state)
{
	static const char *const in[] = {
		"\r\n\r\n\r\n\r\n",
		"nonsense\r\n\r\n",
		"GET / HTTP/9.9\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: -5\r\n\r\n",
		"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n",
		"PUT / HTTP/1.1\r\nHost:h\r\nTransfer-Encoding:chunked\r\n\r\nzz\r\n",
	};
	struct rig *r = rig_start((struct http_options){.read_s = 1, .idle_s = 1});
	char blob[4096];

	(void)state;
	for (unsigned i = 0; i < COUNT(in); i++)
		assert_null(strstr(ask(r, in[i]), "HTTP/1.1 200"));
	srand(7);
	for (int i = 0; i < 50; i++) {
		int fd = connect_to(r);

		for (size_t k = 0; k < sizeof(blob); k++)
			blob[k] = (char)rand();
		(void)!send(fd, blob, sizeof(blob), MSG_NOSIGNAL);
		close(fd);
	}
	HAS(ask(r, "GET /echo HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "200 OK");
	assert_int_equal(atomic_load(&r->requests), 1);
	rig_stop(r);
}

/* Without request memory a body is refused, an answer becomes another that needs none,
 * a connection is cut, and all is well again afterwards. */
static void without_memory_requests_fail_and_the_server_lives(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	static char text[200000];
	const char *t;
	int fd;

	(void)state;
	memset(text, 'm', sizeof(text));
	mem_budget(mem_taken() + 100000);
	fd = connect_to(r);
	put(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n\r\n");
	(void)!send(fd, text, sizeof(text), MSG_NOSIGNAL);
	t = take_until(fd, "}}");
	HAS(t, "HTTP/1.1 503 ");
	HAS(t, "Retry-After: 2\r\n");
	close(fd);
	/* The body fits, its copy in the answer does not. */
	mem_budget(mem_taken() + 170000);
	fd = connect_to(r);
	put(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n");
	(void)!send(fd, text, 100000, MSG_NOSIGNAL);
	t = take_until(fd, NULL);
	HAS(t, "HTTP/1.1 503 ");
	HAS(t, "Retry-After: 2\r\n");
	HAS(t, "\"code\":\"overloaded\"}}");
	close(fd);
	rig_until(&r->ends, 1);
	assert_int_equal(atomic_load(&r->delivered), 1);
	mem_budget(1);
	t = ask(r, "GET /echo HTTP/1.1\r\nHost: h\r\n\r\n");
	HAS(t, "HTTP/1.1 503 ");
	HAS(t, "\"code\":\"overloaded\"}}");
	mem_budget(UINT64_C(1) << 30);
	HAS(ask(r, "GET /echo HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "200 OK");
	rig_stop(r);
}

static void an_address_in_use_is_said(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	struct http_handler handler = {
		.ctx = r,
		.on_request = rig_request,
		.on_gone = rig_gone,
		.on_end = rig_end,
	};
	struct http_options o = {
		.loop = r->loop, .host = "127.0.0.1", .port = http_port(r->http)};
	struct http *second;
	struct err err;

	(void)state;
	assert_int_equal(http_create(&second, &o, &handler, &err), ST_IO);
	HAS(err.text, "Address already in use");
	o.host = "localhost";
	assert_int_equal(http_create(&second, &o, &handler, &err), ST_INVALID);
	HAS(err.text, "\"localhost\" is no IP address");
	rig_stop(r);
}

static const char *probe_ask(struct rig *r, uint16_t port, const char *line)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	const char *t;

	(void)r;
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	put(fd, line);
	put(fd, " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
	t = take_until(fd, NULL);
	close(fd);
	return t;
}

static void probes_say_what_the_state_is(void **state)
{
	struct probe *p;
	struct err err;
	uint16_t port;

	(void)state;
	assert_int_equal(probe_create(&p, "127.0.0.1", 0, &err), ST_OK);
	port = probe_port(p);
	HAS(probe_ask(NULL, port, "GET /ready"), "HTTP/1.1 503 ");
	HAS(probe_ask(NULL, port, "GET /live"), "HTTP/1.1 200 ");
	probe_set(p, PROBE_READY);
	HAS(probe_ask(NULL, port, "GET /ready"), "{\"status\":\"ok\"}");
	HAS(probe_ask(NULL, port, "GET /health"), "HTTP/1.1 200 ");
	HAS(probe_ask(NULL, port, "HEAD /readyz"), "HTTP/1.1 200 ");
	probe_set(p, PROBE_DRAINING);
	HAS(probe_ask(NULL, port, "GET /readiness"), "\"reason\":\"draining\"");
	HAS(probe_ask(NULL, port, "GET /livez"), "HTTP/1.1 200 ");
	HAS(probe_ask(NULL, port, "GET /nothing"), "HTTP/1.1 404 ");
	HAS(probe_ask(NULL, port, "POST /ready"), "Allow: GET, HEAD");
	probe_stuck_after(p, 50);
	probe_beat(p);
	HAS(probe_ask(NULL, port, "GET /live"), "HTTP/1.1 200 ");
	usleep(80000);
	HAS(probe_ask(NULL, port, "GET /live"), "\"reason\":\"stuck\"");
	probe_destroy(p);
	assert_int_equal(mem_taken(), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_chunked_body_arrives_whole),
		cmocka_unit_test(a_large_body_arrives_whole),
		cmocka_unit_test(ambiguous_framing_is_refused_and_closes),
		cmocka_unit_test(a_body_over_the_limit_is_413_before_it_is_read),
		cmocka_unit_test(expect_100_continue_is_answered),
		cmocka_unit_test(too_many_or_too_long_headers_are_431),
		cmocka_unit_test(
			a_connection_between_two_requests_costs_no_more_than_64_kib),
		cmocka_unit_test(a_head_at_both_limits_is_served),
		cmocka_unit_test(a_request_that_trickles_in_is_408),
		cmocka_unit_test(an_idle_connection_is_closed),
		cmocka_unit_test(garbage_closes_and_harms_nobody),
		cmocka_unit_test(without_memory_requests_fail_and_the_server_lives),
		cmocka_unit_test(an_address_in_use_is_said),
		cmocka_unit_test(probes_say_what_the_state_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
