// labels: threads
/* How requests are read: what two parsers could read in two ways is refused and ends the
 * connection, what is rare and clear is served. */
#include "http_rig.h"

/* With its length, since a NUL may be in it. */
static const char *ask_bytes(struct rig *r, const char *at, size_t len)
{
	int fd = connect_to(r);
	const char *answer;

	assert_int_equal(send(fd, at, len, MSG_NOSIGNAL), len);
	answer = take_until(fd, NULL);
	close(fd);
	return answer;
}

#define POST "POST /echo HTTP/1.1\r\n"
#define HOST "Host: h\r\n"
#define NEXT "GET /echo HTTP/1.1\r\nHost: h\r\n\r\n"
#define CASE(text, status)                                                               \
	{                                                                                \
		text, sizeof(text) - 1, status                                           \
	}

static const struct {
	const char *text;
	size_t len;
	const char *status;
} refused[] = {
	/* header lines */
	CASE(POST HOST "Host: h\r\n\r\n" NEXT, "400"),
	CASE(POST HOST "Host: other\r\n\r\n" NEXT, "400"),
	CASE(POST HOST "X: a\0b\r\n\r\n" NEXT, "400"),
	CASE(POST HOST "X\0: a\r\n\r\n" NEXT, "400"),
	CASE(POST HOST "X: a\rb\r\n\r\n" NEXT, "400"),
	CASE(POST HOST "X: a\rY: b\r\n\r\n" NEXT, "400"),
	CASE(POST HOST "X: a\x01\r\n\r\n" NEXT, "400"),
	CASE(POST HOST "X: a\r\n folded\r\n\r\n" NEXT, "400"),
	CASE(POST HOST "no colon\r\n\r\n" NEXT, "400"),
	CASE(POST HOST ": no name\r\n\r\n" NEXT, "400"),
	CASE(POST HOST "X : a\r\n\r\n" NEXT, "400"),
	CASE(POST "Host : h\r\n\r\n" NEXT, "400"),
	CASE(POST "\r\n" NEXT, "400"),
	/* lengths */
	CASE(POST HOST "Content-Length : 5\r\n\r\nhello" NEXT, "400"),
	CASE(POST HOST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" NEXT, "400"),
	CASE(POST HOST "Content-Length: 5\r\nTransfer-Encoding : chunked\r\n\r\n"
		       "0\r\n\r\n" NEXT,
		"400"),
	CASE(POST HOST "Content-Length: +5\r\n\r\nhello" NEXT, "400"),
	CASE(POST HOST "Content-Length: 5, 5\r\n\r\nhello" NEXT, "400"),
	CASE(POST HOST "Content-Length: 0x5\r\n\r\nhello" NEXT, "400"),
	CASE(POST HOST "Content-Length:\r\n\r\nhello" NEXT, "400"),
	CASE(POST HOST "Content-Length: 99999999999999999999\r\n\r\nhello", "400"),
	CASE(POST HOST "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n" NEXT, "501"),
	/* chunks */
	CASE(POST HOST "Transfer-Encoding: chunked\r\n\r\nx\r\n" NEXT, "400"),
	CASE(POST HOST "Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n" NEXT,
		"400"),
	CASE(POST HOST "Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n" NEXT,
		"400"),
	CASE(POST HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n" NEXT,
		"400"),
	CASE(POST HOST "Transfer-Encoding: chunked\r\n\r\n1000000000000000\r\n", "400"),
	/* request lines */
	CASE("GET  /echo HTTP/1.1\r\n" HOST "\r\n" NEXT, "400"),
	CASE("GET /echo\r\n" HOST "\r\n" NEXT, "400"),
	CASE("GET /echo HTTP/2.0\r\n" HOST "\r\n" NEXT, "400"),
	CASE("GET /a b HTTP/1.1\r\n" HOST "\r\n" NEXT, "400"),
	CASE("GET /echo%00x HTTP/1.1\r\n" HOST "\r\n" NEXT, "400"),
	CASE("G\0T /echo HTTP/1.1\r\n" HOST "\r\n" NEXT, "400"),
	CASE("\r\rGET /echo HTTP/1.1\r\n" HOST "\r\n" NEXT, "400"),
	CASE("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400"),
};

static void what_could_be_read_in_two_ways_is_400_and_closes(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	char want[32];

	(void)state;
	for (unsigned i = 0; i < COUNT(refused); i++) {
		const char *t = ask_bytes(r, refused[i].text, refused[i].len);

		snprintf(want, sizeof(want), "HTTP/1.1 %s ", refused[i].status);
		if (strncmp(t, want, strlen(want)) != 0)
			fail_msg("row %u: %s", i, t);
		HAS(t, "Connection: close\r\n");
		HAS(t, "Content-Type: application/json\r\n");
		HAS(t, "{\"error\":{\"message\":\"");
		HAS(t, "X-Request-Id: req-");
		if (strstr(t + 1, "HTTP/1.1 2") != NULL)
			fail_msg("row %u: %s", i, t);
	}
	assert_int_equal(atomic_load(&r->requests), 0);
	assert_int_equal(atomic_load(&r->refused), COUNT(refused));
	rig_stop(r);
}

/* However the bytes are cut. */
static void bytes_one_by_one_are_read_as_together(void **state)
{
	static const char *const in[] = {
		POST HOST "Connection: close\r\nContent-Length: 5\r\n\r\nhello",
		POST HOST "Connection: close\r\nTransfer-Encoding: Chunked\r\n\r\n"
			  "02;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nT: x\r\n\r\n",
		POST HOST "X: a\rb\r\n\r\n",
	};
	struct rig *r = rig_start((struct http_options){0});

	(void)state;
	for (unsigned i = 0; i < COUNT(in); i++) {
		int fd = connect_to(r);

		for (size_t k = 0; k < strlen(in[i]); k++) {
			if (send(fd, in[i] + k, 1, MSG_NOSIGNAL) != 1)
				break;
			usleep(300);
		}
		HAS(take_until(fd, NULL), i < 2 ? "\r\n\r\nhello" : "HTTP/1.1 400 ");
		close(fd);
	}
	rig_until(&r->ends, 2);
	rig_stop(r);
}

/* The answers come in the order of the requests, the refusal last. */
static void what_came_whole_before_a_bad_request_is_answered(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	const char *t = ask(r, POST HOST "Content-Length: 3\r\n\r\none" POST HOST
					 "Transfer-Encoding: chunked\r\n\r\n"
					 "3\r\ntwo\r\n0\r\n\r\n" POST HOST
					 "Content-Length : 5\r\n\r\nthree" NEXT);
	const char *one = strstr(t, "\r\n\r\none"), *two = strstr(t, "\r\n\r\ntwo");
	const char *bad = strstr(t, "HTTP/1.1 400 ");

	(void)state;
	if (one == NULL || two == NULL || bad == NULL)
		fail_msg("%s", t);
	assert_true(one < two && two < bad);
	assert_int_equal(atomic_load(&r->requests), 2);
	rig_until(&r->ends, 2);
	rig_stop(r);
}

static void targets_with_scheme_and_host_are_served(void **state)
{
	static const char *const in[] = {
		"GET http://h/echo?a=7 HTTP/1.1\r\n",
		"GET HTTP://h:80/echo?a=7 HTTP/1.1\r\n",
		"GET https://h/echo?a=7 HTTP/1.1\r\n",
	};
	struct rig *r = rig_start((struct http_options){0});
	char text[256];

	(void)state;
	for (unsigned i = 0; i < COUNT(in); i++) {
		snprintf(
			text, sizeof(text), "%s" HOST "Connection: close\r\n\r\n", in[i]);
		HAS(ask(r, text), "X-Path: /echo\r\n");
	}
	HAS(ask(r, "GET http://h HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n"),
		"HTTP/1.1 404 ");
	rig_until(&r->ends, COUNT(in) + 1);
	rig_stop(r);
}

static void lines_that_end_with_lf_alone_and_empty_lines_before_are_read(void **state)
{
	struct rig *r = rig_start((struct http_options){0});

	(void)state;
	HAS(ask(r, "\r\n\r\nGET /echo HTTP/1.1\nHost: h\nConnection: close\n\n"),
		"HTTP/1.1 200 ");
	rig_until(&r->ends, 1);
	rig_stop(r);
}

static void ids_that_would_break_a_log_line_are_replaced(void **state)
{
	static const struct {
		const char *id;
		bool kept;
	} rows[] = {{"abc-1", true}, {"a=b/c+d==", true}, {"a\"b", false}, {"a b", false},
		{"a\\b", false}, {"a\xc3\xa4", false}};
	struct rig *r = rig_start((struct http_options){0});
	char text[256];

	(void)state;
	for (unsigned i = 0; i < COUNT(rows); i++) {
		snprintf(text, sizeof(text),
			"GET /echo HTTP/1.1\r\n" HOST
			"Connection: close\r\nX-Request-Id: %s\r\n\r\n",
			rows[i].id);
		snprintf(text + 200, 50, "X-Request-Id: %s\r\n",
			rows[i].kept ? rows[i].id : "req-");
		if (!rows[i].kept)
			text[200 + strlen("X-Request-Id: req-")] = 0;
		HAS(ask(r, text), text + 200);
	}
	rig_until(&r->ends, COUNT(rows));
	rig_stop(r);
}

/* A client that is there and one that is gone look the same until we write. */
static void a_client_that_half_closes_is_told_from_one_that_left(void **state)
{
	static const char *const in[] = {
		"GET /never HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /open HTTP/1.1\r\nHost: h\r\n\r\n",
	};
	struct rig *r = rig_start((struct http_options){0});
	int there[2], gone[2];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		there[i] = connect_to(r);
		gone[i] = connect_to(r);
		put(there[i], in[i]);
		put(gone[i], in[i]);
	}
	rig_until(&r->requests, 4);
	usleep(50000);
	for (unsigned i = 0; i < 2; i++) {
		shutdown(there[i], SHUT_WR);
		close(gone[i]);
	}
	rig_until(&r->gone, 2);
	usleep(600000);
	assert_int_equal(atomic_load(&r->gone), 2);
	close(there[0]);
	close(there[1]);
	rig_stop(r);
}

/* The answer is there long before the end of what the client sends. */
static void a_body_beyond_the_limit_is_refused_where_it_passes_it(void **state)
{
	static char block[1 << 16];
	struct rig *r = rig_start((struct http_options){.body_max = 1u << 20});
	int fd = connect_to(r);
	size_t sent = 0;
	char line[32];

	(void)state;
	memset(block, 'x', sizeof(block));
	put(fd, POST HOST "Transfer-Encoding: chunked\r\n\r\n");
	snprintf(line, sizeof(line), "%x\r\n", 600u << 20);
	put(fd, line);
	while (sent < (600u << 20)) {
		ssize_t n = send(fd, block, sizeof(block), MSG_NOSIGNAL);

		if (n <= 0)
			break;
		sent += (size_t)n;
	}
	/* The limit, what is thrown away while the answer is on its way, and buffers. */
	assert_true(sent < (40u << 20));
	assert_int_equal(atomic_load(&r->refused_code), 413);
	close(fd);
	rig_stop(r);
}

static void silence_and_garbage_are_closed_and_a_slow_client_is_not(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	int silent = connect_to(r), stuck = connect_to(r), slow = connect_to(r);
	int body = connect_to(r);
	uint64_t t0 = clock_ns();

	(void)state;
	put(stuck, "GET /ec");
	put(body, POST HOST "Content-Length: 100\r\n\r\nabc");
	put(slow, POST HOST "Connection: close\r\nContent-Length: 14\r\n\r\n");
	for (int i = 0; i < 14; i++) {
		usleep(850000);
		put(slow, "s");
	}
	assert_string_equal(take_until(silent, NULL), "");
	HAS(take_until(stuck, NULL), "HTTP/1.1 408 ");
	HAS(take_until(body, NULL), "HTTP/1.1 408 ");
	HAS(take_until(slow, NULL), "\r\n\r\nssssssssssssss");
	assert_true(clock_ns() - t0 < 13 * NS_PER_S);
	close(silent);
	close(stuck);
	close(body);
	close(slow);
	rig_until(&r->ends, 1);
	rig_stop(r);
}

/* Of all places taken, two idle: those go first, oldest first; then only probes come in.
 */
static void probes_find_room_and_idle_connections_make_it(void **state)
{
	struct rig *r = rig_start((struct http_options){.connections_max = 4});
	int fd[4], late[2];

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		fd[i] = connect_to(r);
		put(fd[i], i < 2 ? NEXT : "GET /never HTTP/1.1\r\nHost: h\r\n\r\n");
		if (i < 2)
			HAS(take_until(fd[i], "\r\n\r\n"), "HTTP/1.1 200 ");
		rig_until(&r->requests, i + 1);
	}
	for (unsigned i = 0; i < 2; i++) {
		late[i] = connect_to(r);
		put(late[i], "GET /never HTTP/1.1\r\nHost: h\r\n\r\n");
		rig_until(&r->requests, 5 + i);
		assert_string_equal(take_until(fd[i], NULL), "");
		close(fd[i]);
	}
	for (unsigned i = 0; i < 40; i++) {
		const char *t = ask(r, NEXT);

		HAS(t, "HTTP/1.1 503 ");
		HAS(t, "Every connection is taken.");
		HAS(t, "Retry-After: ");
		t = ask(r, "GET /live HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
		HAS(t, "HTTP/1.1 404 "); /* of this rig's handler */
	}
	assert_int_equal(atomic_load(&r->gone), 0);
	for (unsigned i = 0; i < 2; i++) {
		close(fd[2 + i]);
		close(late[i]);
	}
	rig_stop(r);
}

static void many_new_connections_push_each_other_out(void **state)
{
	struct rig *r = rig_start((struct http_options){.connections_max = 4});
	int fd[64];

	(void)state;
	for (int round = 0; round < 10; round++) {
		for (unsigned i = 0; i < COUNT(fd); i++)
			fd[i] = connect_to(r);
		for (unsigned i = 0; i < COUNT(fd); i++)
			close(fd[i]);
		while (rig_connections(r) > 0)
			usleep(1000);
		HAS(ask(r, "GET /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"),
			"HTTP/1.1 200 ");
	}
	rig_until(&r->ends, 10);
	rig_stop(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_could_be_read_in_two_ways_is_400_and_closes),
		cmocka_unit_test(bytes_one_by_one_are_read_as_together),
		cmocka_unit_test(what_came_whole_before_a_bad_request_is_answered),
		cmocka_unit_test(targets_with_scheme_and_host_are_served),
		cmocka_unit_test(
			lines_that_end_with_lf_alone_and_empty_lines_before_are_read),
		cmocka_unit_test(ids_that_would_break_a_log_line_are_replaced),
		cmocka_unit_test(a_client_that_half_closes_is_told_from_one_that_left),
		cmocka_unit_test(a_body_beyond_the_limit_is_refused_where_it_passes_it),
		cmocka_unit_test(probes_find_room_and_idle_connections_make_it),
		cmocka_unit_test(many_new_connections_push_each_other_out),
		cmocka_unit_test(silence_and_garbage_are_closed_and_a_slow_client_is_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
