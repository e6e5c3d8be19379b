/* Whole answers. */
#include "router/reply.h"

#include "common/base/rng.h"
#include "router/dispatch.h"
#include "router/format.h"

#include <math.h>
#include <stdio.h>

#define RETRY_MAX_S  60
/* Where nobody has waited there is nothing to derive it from. */
#define RETRY_IDLE_S 2

/* Seconds until a place in the queue should be free, 1 to 60. */
static unsigned retry_after_s(struct router *rt)
{
	double wait = dispatch_wait_s(rt, requests_waiting(&rt->requests) + 1);
	/* Up to a quarter more, so that those who were turned away together do not come
	 * back together. */
	double spread = 1 + (double)(rng_entropy64() % 256) / 1024;

	if (wait <= 0)
		wait = RETRY_IDLE_S;
	return (unsigned)ceil(MIN(MAX(wait * spread, 1), RETRY_MAX_S));
}

void reply_error(
	struct router *rt, struct http_req *req, const struct api_error *e, bool no_retry)
{
	struct sink body;
	char text[16];

	sink_init(&body, 16384);
	format_error(&body, http_path(req), e);
	if (e->http == 503 && !no_retry) {
		snprintf(text, sizeof(text), "%u", retry_after_s(rt));
		http_header_add(req, "Retry-After", text);
	}
	if (no_retry)
		http_header_add(req, "x-should-retry", "false");
	if (rt->draining)
		http_header_add(req, "Connection", "close");
	/* Taken, so that one which did not fit becomes the answer that needs no memory.
	 */
	http_respond_take(req, e->http, "application/json", &body);
	sink_release(&body);
}

void reply_json(struct http_req *req, unsigned http_code, struct sink *body)
{
	http_respond_take(req, http_code, "application/json", body);
}
