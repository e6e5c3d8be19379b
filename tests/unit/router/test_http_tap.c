// labels: threads
// wrap: MHD_run
/* Where libmicrohttpd does not read through the router, nothing is served. */
#include "http_rig.h"

#include <microhttpd.h>

enum MHD_Result __real_MHD_run(struct MHD_Daemon *d);
enum MHD_Result __wrap_MHD_run(struct MHD_Daemon *d);

static atomic_int reads_elsewhere;

/* Or not at all: the same to who waits for its reads. */
enum MHD_Result __wrap_MHD_run(struct MHD_Daemon *d)
{
	return atomic_load(&reads_elsewhere) ? MHD_YES : __real_MHD_run(d);
}

static void reads_that_pass_elsewhere_are_refused_at_start(void **state)
{
	struct http_handler handler = {.on_request = rig_request,
		.on_gone = rig_gone,
		.on_end = rig_end,
		.on_refused = rig_refused,
		.on_half_closed = rig_half_closed};
	struct http_options o = {.loop = loop_create(), .host = "127.0.0.1"};
	struct http *http;
	struct err err;

	(void)state;
	atomic_store(&reads_elsewhere, 1);
	assert_int_equal(http_create(&http, &o, &handler, &err), ST_IO);
	HAS(err.text, "libmicrohttpd does not read through this program's recv(2)");
	atomic_store(&reads_elsewhere, 0);
	loop_destroy(o.loop);
}

static void reads_that_pass_here_are_served(void **state)
{
	struct rig *r = rig_start((struct http_options){0});

	(void)state;
	HAS(ask(r, "GET /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"),
		"HTTP/1.1 200 ");
	rig_stop(r);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_that_pass_elsewhere_are_refused_at_start),
		cmocka_unit_test(reads_that_pass_here_are_served),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
