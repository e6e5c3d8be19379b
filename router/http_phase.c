/* Where the request of a connection is: what may follow, and what holds there. */
#include "router/http_impl.h"

#include "common/base/clock.h"
#include "common/base/rng.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const uint8_t may_follow[HTTP__PHASES] = {
	[HTTP_IDLE] = MAY(HTTP_IDLE) | MAY(HTTP_HEAD),
	[HTTP_HEAD] = MAY(HTTP_BODY) | MAY(HTTP_REFUSED) | MAY(HTTP_IDLE),
	[HTTP_BODY] = MAY(HTTP_HANDED) | MAY(HTTP_REFUSED) | MAY(HTTP_IDLE),
	[HTTP_HANDED] = MAY(HTTP_IDLE),
	[HTTP_REFUSED] = MAY(HTTP_IDLE),
};

static void check(const struct http_req *req)
{
	bool begun = req->phase != HTTP_IDLE;

	assert(req->h != NULL && (req->id[0] != 0) == begun);
	/* Only a handler answers, and it was not asked yet. */
	assert(req->status == 0 && req->response == NULL && req->user == NULL);
	assert(!req->complete && !req->streaming && !req->aborted);
	assert(req->out.len == 0);
	/* may_enter adds some, once the head was read. */
	assert(req->header_text.len == 0 ||
		(req->phase != HTTP_IDLE && req->phase != HTTP_HEAD));
	assert((req->phase != HTTP_BODY && req->phase != HTTP_HANDED) ||
		(req->method != NULL && req->path != NULL));
	assert(begun || (!req->gone && req->body.len == 0));
}

void http_phase_set(struct http_req *req, enum http_phase phase)
{
	assert((may_follow[req->phase] & MAY(phase)) != 0);
	req->phase = phase;
	check(req);
}

void http_phase_reset(struct http_req *req)
{
	sink_release(&req->body);
	sink_release(&req->out);
	sink_release(&req->header_text);
	memset(&req->cut, 0, sizeof(*req) - offsetof(struct http_req, cut));
	req->since_ns = http_ran_ns();
	sink_init(&req->body, req->h->o.body_max);
	sink_init(&req->out, SIZE_MAX / 2);
	sink_init(&req->header_text, req->h->o.header_max);
	http_phase_set(req, HTTP_IDLE);
}

void http_phase_begin(struct http_req *req)
{
	http_phase_reset(req);
	snprintf(req->id, sizeof(req->id), "req-%016" PRIx64, rng_entropy64());
	req->begun_ns = clock_ns();
	req->spoke = true;
	http_phase_set(req, HTTP_HEAD);
}
