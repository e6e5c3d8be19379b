/* Serving, draining, drained; signals and exit codes. */
#include "common/worker/service.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/loop/notify.h"
#include "common/worker/worker.h"

#include <assert.h>
#include <stdio.h>

/* After a cut: rows leave the engine within a step; longer is a device that hangs. */
#define CUT_GRACE_NS (2 * NS_PER_S)

static const uint8_t may_follow[] = {
	[SERVING] = MAY(DRAINING),
	[DRAINING] = MAY(DRAINED) | MAY(SERVING),
	[DRAINED] = MAY(SERVING),
};

static void set_state(struct service *s, enum service_state state)
{
	assert((may_follow[s->state] & MAY(state)) != 0);
	s->state = state;
	/* Nothing of a drain is left once it is undone. */
	assert(state != SERVING ||
		(!s->exits && !s->cut && s->deadline_ns == 0 && s->give_up_ns == 0));
}

bool service_accepts(const struct worker *w)
{
	return w->service.state == SERVING;
}

bool service_takes(const struct worker *w, uint64_t router)
{
	return service_accepts(w) ||
	       (w->service.state == DRAINING && w->service.give_up_ns == 0 &&
		       routers_owes(w->routers, router));
}

static bool idle(const struct worker *w)
{
	return w->jobs->order.n == 0 && !routers_owe(w->routers);
}

static void begin(struct worker *w, uint64_t timeout_ms, const char *reason)
{
	struct service *s = &w->service;

	s->give_up_ns = 0;
	s->deadline_ns = timeout_ms > 0 ? clock_ns() + timeout_ms * NS_PER_MS : 0;
	snprintf(s->reason, sizeof(s->reason), "%s", reason);
	if (s->state == SERVING) {
		set_state(s, DRAINING);
		routers_drain(w->routers);
	} else {
		routers_beat(w->routers); /* it may end now */
	}
	log_info("draining reason='%s' timeout_ms=%llu migrate=%d", reason,
		(unsigned long long)timeout_ms, s->migrates);
	notify_status("draining: %s", reason);
}

bool service_migrates(const struct worker *w)
{
	return w->service.state == DRAINING && w->service.migrates &&
	       w->service.give_up_ns == 0;
}

void service_drain(
	struct worker *w, uint64_t timeout_ms, bool migrate, const char *reason)
{
	if (w->service.exits)
		return; /* the end is decided already */
	w->service.cut = false;
	w->service.migrates = migrate;
	begin(w, timeout_ms, reason);
}

void service_undrain(struct worker *w)
{
	struct service *s = &w->service;

	if (s->exits || s->state == SERVING) {
		log_info("undrain ignored: %s",
			s->exits ? "the process is ending" : "not draining");
		return;
	}
	*s = (struct service){.state = s->state};
	set_state(s, SERVING);
	log_info("serving again");
	notify_status("serving");
	routers_beat(w->routers);
}

static void cut(struct worker *w, const char *why)
{
	struct service *s = &w->service;

	s->give_up_ns = clock_ns() + CUT_GRACE_NS;
	s->deadline_ns = 0;
	if (idle(w))
		return;
	s->cut = true;
	log_warn("cutting the work that is left: %s", why);
	jobs_cut(w->jobs, why);
}

static void shut_down(struct worker *w, int exit_code, const char *reason)
{
	double ms = w->conf->shutdown_timeout * 1e3;

	w->service.exits = true;
	w->service.exit_code = exit_code;
	notify_stopping();
	begin(w, (uint64_t)ms, reason);
	if (ms < 1)
		cut(w, "shutdown_timeout is 0");
}

void service_signal(void *worker, unsigned count)
{
	struct worker *w = worker;

	if (count == 1 && !w->service.exits) {
		shut_down(w, EXIT_DRAINED, "signal");
		return;
	}
	w->service.exits = true;
	if (w->service.give_up_ns == 0)
		cut(w, "a second signal");
	else
		worker_end(w, EXIT_CUT);
}

void service_condemn(struct worker *w, int exit_code, const char *reason)
{
	if (w->service.exits)
		return;
	log_error("out of service: %s", reason);
	shut_down(w, exit_code, reason);
}

static void say_drained(struct worker *w)
{
	struct msg_drained m = {.clean = !w->service.cut};

	set_state(&w->service, DRAINED);
	log_info("drained clean=%d", !w->service.cut);
	notify_status("drained: ready to stop");
	routers_broadcast(w->routers, MSG_drained, &m);
}

void service_turn(struct worker *w, uint64_t now_ns)
{
	struct service *s = &w->service;
	bool empty;

	if (s->state == SERVING)
		return;
	if (s->deadline_ns != 0 && now_ns >= s->deadline_ns)
		cut(w, "the time for draining is over");
	empty = s->give_up_ns != 0 ? w->jobs->order.n == 0 : idle(w);
	if (s->state == DRAINING &&
		(empty || (s->give_up_ns != 0 && now_ns >= s->give_up_ns)))
		say_drained(w);
	if (s->state == DRAINED && s->exits)
		worker_end(w, s->cut ? EXIT_CUT : s->exit_code);
}
