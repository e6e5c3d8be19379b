/* What the server refuses by itself has the shape of errors of the path, as far as the
 * path was seen. */
#include "http_rig.h"

#define MINE(path, status) "{\"mine\":{\"path\":\"" path "\",\"status\":" status "}}"

static void what_is_refused_has_the_shape_of_its_path(void **state)
{
	static const struct {
		const char *text, *answer;
	} rows[] = {
		{"POST /mine HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n"
		 "Content-Length: 4\r\n\r\nabc",
			MINE("/mine", "400")},
		{"POST /mine/x?a=1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n"
		 "\r\n",
			MINE("/mine/x", "501")},
		{"POST http://h/mine?a HTTP/1.1\r\nA : b\r\n\r\n", MINE("/mine", "400")},
		{"POST /mine HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n",
			MINE("/mine", "413")},
		{"POST /mine HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
		 "Content-Length: 1001\r\n\r\n",
			MINE("/mine", "413")},
		{"POST /mine HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
		 "zz\r\n",
			MINE("/mine", "400")},
		{"GET /mine HTTP/1.1\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\n\r\n",
			MINE("/mine", "431")},
		{"POST /other HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n",
			"{\"error\":{"},
		{"GARBAGE\r\n\r\n", "{\"error\":{"},
	};
	struct rig *r =
		rig_start((struct http_options){.body_max = 1000, .headers_max = 3});

	(void)state;
	for (unsigned i = 0; i < COUNT(rows); i++)
		HAS(ask(r, rows[i].text), rows[i].answer);
	/* The one before is answered first, and does not lend its path. */
	HAS(ask(r, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n"
		   "GET /mine HTTP/1.1\r\nHost : h\r\n\r\n"),
		MINE("/mine", "400"));
	rig_stop(r);
}

static void without_memory_too(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	static char text[200000];
	int fd;

	(void)state;
	memset(text, 'm', sizeof(text));
	mem_budget(mem_taken() + 100000);
	fd = connect_to(r);
	put(fd, "POST /mine HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n\r\n");
	(void)!send(fd, text, sizeof(text), MSG_NOSIGNAL);
	HAS(take_until(fd, "}}"), MINE("/mine", "503"));
	close(fd);
	/* Not even the record of a connection. */
	mem_budget(1);
	HAS(ask(r, "GET /mine HTTP/1.1\r\nHost: h\r\n\r\n"), MINE("/mine", "503"));
	mem_budget(UINT64_C(1) << 30);
	rig_stop(r);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_refused_has_the_shape_of_its_path),
		cmocka_unit_test(without_memory_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
