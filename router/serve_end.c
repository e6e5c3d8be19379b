/* The end: readiness falls at once, new requests are refused (after drain_delay_s, in
 * which balancers see that), running ones go on until they are done or time is up; then
 * what is left is cut with an error, never silently. Done is what its client has: an
 * answer that still waits for a slow reader is open. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/loop/notify.h"
#include "router/routes.h"
#include "router/serve.h"

/* After a cut, and for the last words of workers: answers and cancels get this long. */
#define FLUSH_NS (1 * NS_PER_S)

static void finish(struct router *rt, int code)
{
	if (rt->exit_code >= 0)
		return;
	rt->exit_code = code;
	loop_stop(rt->loop);
}

/* When new requests begin to be refused. */
static uint64_t closes_ns(const struct router *rt)
{
	return rt->drain_ns + (uint64_t)(rt->conf->drain_delay_s * (double)NS_PER_S);
}

bool router_refuses(const struct router *rt)
{
	return rt->draining && (rt->cut_ns != 0 || clock_ns() >= closes_ns(rt));
}

static void cut(struct router *rt, uint64_t now_ns)
{
	struct api_error e;

	if (rt->cut_ns != 0)
		return;
	rt->cut_ns = now_ns;
	rt->cut = http_requests(rt->http) > 0;
	if (rt->cut)
		log_warn("cutting %u requests", http_requests(rt->http));
	api_error_set(&e, 503, "draining", NULL,
		"This router was stopped before the answer was complete.");
	routes_cut_all(rt, &e);
}

void serve_signal(void *router, unsigned count)
{
	struct router *rt = router;
	uint64_t now = clock_ns();

	if (count > 1) {
		rt->draining = true;
		cut(rt, now);
		return;
	}
	log_info("draining: %u requests are open", http_requests(rt->http));
	notify_stopping();
	rt->draining = true;
	rt->drain_ns = now;
	if (rt->probe != NULL)
		probe_set(rt->probe, PROBE_DRAINING);
}

/* Answers of every kind are out. Workers get a moment to give back what they held, no
 * more: a lease or sequence of a router that is gone ends by itself. */
static bool all_done(struct router *rt, uint64_t now_ns)
{
	if (http_requests(rt->http) > 0)
		rt->idle_ns = 0;
	else if (rt->idle_ns == 0)
		rt->idle_ns = now_ns;
	return rt->idle_ns != 0 &&
	       (rt->requests.n == 0 || now_ns - rt->idle_ns >= FLUSH_NS);
}

void serve_end_turn(struct router *rt, uint64_t now_ns)
{
	double patience_ns = rt->conf->shutdown_timeout * (double)NS_PER_S;
	uint64_t closed_ns = now_ns - MIN(closes_ns(rt), now_ns); /* since then */
	uint64_t settled_ns = closes_ns(rt) + rt->conf->settle_ms * NS_PER_MS;
	bool done = all_done(rt, now_ns);

	if (rt->cut_ns == 0 && !done && now_ns >= closes_ns(rt) &&
		(double)closed_ns >= patience_ns)
		cut(rt, now_ns);
	if ((done && (rt->cut_ns != 0 || now_ns >= settled_ns)) ||
		(rt->cut_ns != 0 && now_ns - rt->cut_ns >= FLUSH_NS))
		finish(rt, rt->cut ? EXIT_CUT : EXIT_CLEAN);
}
