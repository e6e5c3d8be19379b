// labels: threads
/* What libmicrohttpd reads while a request is answered, as it does once other connections
 * are open: the next request, a broken one, or the end. The first keeps its answer. */
#include "http_rig.h"

#define HOST "Host: h\r\n"
#define BAD  "GET /echo HTTP/1.1\r\n" HOST "Host: other\r\n\r\n"

static const char *const paths[] = {"/later", "/echo", "/stream/20"};
/* What each of them answers ends so. */
static const char *const ends[] = {"late", "\r\n\r\n", PIECE};

static void get(int fd, const char *path)
{
	char text[128];

	snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\n" HOST "\r\n", path);
	put(fd, text);
}

struct beside {
	struct rig *r;
	int idle[3];
};

static struct beside begin(void)
{
	struct beside b = {.r = rig_start((struct http_options){0})};

	for (unsigned i = 0; i < COUNT(b.idle); i++)
		b.idle[i] = connect_to(b.r);
	get(b.idle[1], "/echo");   /* idle after a request */
	put(b.idle[2], "GET /ha"); /* half a head */
	take_until(b.idle[1], "\r\n\r\n");
	return b;
}

static void end(struct beside *b)
{
	for (unsigned i = 0; i < COUNT(b->idle); i++)
		close(b->idle[i]);
	for (int i = 0; i < 2000 && rig_connections(b->r) > 0; i++)
		usleep(1000);
	assert_int_equal(rig_connections(b->r), 0);
	rig_stop(b->r);
}

/* together: in one packet; else the broken one comes while the first is answered. */
static void answered_then_refused(struct beside *b, unsigned i, bool together)
{
	char text[512];
	const char *answer;
	int fd = connect_to(b->r);

	snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\n" HOST "\r\n%s", paths[i],
		together ? BAD : "");
	put(fd, text);
	if (!together) {
		usleep(4000);
		put(fd, BAD);
	}
	answer = take_until(fd, NULL);
	HAS(answer, "HTTP/1.1 200 OK");
	HAS(answer, ends[i]);
	HAS(strstr(answer, "HTTP/1.1 200 OK"), "HTTP/1.1 400 ");
	close(fd);
}

static void a_broken_request_waits_for_the_answer_before_it(void **state)
{
	struct beside b = begin();

	(void)state;
	for (unsigned n = 0; n < 10; n++)
		for (unsigned i = 0; i < COUNT(paths); i++)
			answered_then_refused(&b, i, n % 2 == 0);
	rig_until(&b.r->delivered, 31);
	assert_int_equal(atomic_load(&b.r->gone), 0);
	end(&b);
}

static void several_whole_ones_are_answered_before_a_broken_one(void **state)
{
	struct beside b = begin();
	const char *answer;
	int fd = connect_to(b.r);

	(void)state;
	put(fd, "GET /later HTTP/1.1\r\n" HOST "\r\nGET /later HTTP/1.1\r\n" HOST
		"\r\nGET /later HTTP/1.1\r\n" HOST "\r\n" BAD);
	answer = take_until(fd, NULL);
	for (unsigned i = 0; i < 3; i++) {
		HAS(answer, "late");
		answer = strstr(answer, "late") + 1;
	}
	HAS(answer, "HTTP/1.1 400 ");
	close(fd);
	end(&b);
}

/* The end is seen before, while and after the answer is made; the connection ends with
 * the last one. */
static void a_client_that_half_closes_gets_its_answers(void **state)
{
	struct beside b = begin();

	(void)state;
	for (unsigned n = 0; n < 30; n++) {
		unsigned i = n % COUNT(paths);
		bool twice = n >= 15;
		uint64_t t0 = clock_ns();
		const char *answer;
		int fd = connect_to(b.r);

		get(fd, paths[i]);
		if (twice)
			get(fd, "/later");
		usleep(n % 5 * 2000);
		shutdown(fd, SHUT_WR);
		answer = take_until(fd, NULL);
		HAS(answer, "HTTP/1.1 200 OK");
		HAS(answer, twice ? "late" : ends[i]);
		assert_true(clock_ns() - t0 < 3 * NS_PER_S);
		close(fd);
	}
	assert_int_equal(atomic_load(&b.r->gone), 0);
	end(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_broken_request_waits_for_the_answer_before_it),
		cmocka_unit_test(several_whole_ones_are_answered_before_a_broken_one),
		cmocka_unit_test(a_client_that_half_closes_gets_its_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
