/* From the queue to workers. A prefill and a decode worker are reserved together, so a
 * computed prompt does not wait at its prefill worker for room elsewhere. */
#include "router/dispatch.h"

#include "common/base/clock.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "router/link.h"

#include <inttypes.h>

/* A request that no worker can take is passed by later ones that fit. When it has waited
 * this long, room is kept for it. */
#define LATE_NS   (2 * NS_PER_S)
/* As many that do not fit are tried in a turn; who is behind them waits. */
#define STUCK_MAX 16u

/* Requests are many and stalls are rare. */
#define STALL_CHECK_NS (100 * NS_PER_MS)

static bool is_late(uint64_t since_ns, uint64_t now_ns)
{
	return now_ns - MIN(since_ns, now_ns) >= LATE_NS;
}

static struct sched_demand demand_p(const struct request *r, uint64_t now_ns)
{
	return (struct sched_demand){.key = r->seq,
		.tokens = r->n_ids,
		.pages = request_prefill_hold(r).pages,
		.late = is_late(r->queued_ns, now_ns)};
}

static struct sched_demand demand_d(const struct request *r, uint64_t now_ns)
{
	return (struct sched_demand){.key = r->seq,
		.tokens = r->n_prompt + r->max_tokens,
		.pages = request_decode_hold(r).pages,
		.late = is_late(
			r->state == RQ_PLACE ? r->place_ns : r->queued_ns, now_ns)};
}

static enum sched_why choose_p(struct router *rt, const struct request *r,
	uint64_t now_ns, struct request_route *route)
{
	struct sched_demand d = demand_p(r, now_ns);
	struct sched_worker w[FLEET_WORKERS_MAX];
	uint32_t index[FLEET_WORKERS_MAX];
	enum sched_why why;
	int i;

	route->p_hold = request_prefill_hold(r);
	i = sched_prefill(w,
		fleet_snapshot(rt->fleet, WIRE_PREFILL, clock_ran_ns(), w, index), &d,
		&why);
	route->p = i >= 0 ? fleet_at(rt->fleet, index[i]) : NULL;
	return why;
}

static enum sched_why choose_d(struct router *rt, const struct request *r,
	uint64_t now_ns, struct request_route *route)
{
	struct sched_demand d = demand_d(r, now_ns);
	struct sched_worker w[FLEET_WORKERS_MAX];
	uint32_t index[FLEET_WORKERS_MAX];
	enum sched_why why;
	int i;

	route->d_hold = request_decode_hold(r);
	i = sched_decode(w,
		fleet_snapshot(rt->fleet, WIRE_DECODE, clock_ran_ns(), w, index), &d,
		&why);
	route->d = i >= 0 ? fleet_at(rt->fleet, index[i]) : NULL;
	return why;
}

static void move(struct request *r, enum request_event ev, const void *what)
{
	struct err err;

	if (request_move(r, ev, what, &err) != ST_OK)
		log_error("req=%s %s", r->id, err.text);
}

static void end_waiting(struct router *rt, struct request *r, const char *code,
	enum metric_limit limit, const char *text)
{
	struct api_error e;

	rt->metrics.limit[limit]++;
	api_error_set(&e, 503, code, NULL, "%s", text);
	request_fail(r, &e, false);
}

/* A role without workers may come back for this long. */
static bool role_gone(const struct router *rt, uint8_t role, uint64_t now_ns)
{
	uint64_t since = rt->role_since_ns[role == WIRE_DECODE];
	uint64_t ran_ns = clock_ran_of(now_ns);

	return since != 0 && ran_ns - MIN(since, ran_ns) >= rt->conf->lost_ms * NS_PER_MS;
}

static bool too_late(const struct router *rt, const struct request *r, uint64_t now_ns)
{
	/* A replay may have begun after the turn's time was read. */
	uint64_t ran_ns = clock_ran_of(now_ns);
	uint64_t waited_ns = ran_ns - MIN(r->waits_ns, ran_ns);

	return (double)waited_ns >= rt->conf->queue_timeout_s * (double)NS_PER_S;
}

/* true: it was ended. */
static bool end_queued(struct router *rt, struct request *r, uint64_t now_ns)
{
	bool no_p = role_gone(rt, WIRE_PREFILL, now_ns);

	if (no_p || role_gone(rt, WIRE_DECODE, now_ns)) {
		end_waiting(rt, r, "no_workers", LIMIT_no_workers,
			no_p ? "No prefill worker is up." : "No decode worker is up.");
		return true;
	}
	if (!too_late(rt, r, now_ns))
		return false;
	end_waiting(rt, r, "overloaded", LIMIT_wait,
		"No worker had room for this request in time.");
	return true;
}

static bool end_placing(struct router *rt, struct request *r, uint64_t now_ns)
{
	if (role_gone(rt, WIRE_DECODE, now_ns)) {
		end_waiting(
			rt, r, "no_workers", LIMIT_no_workers, "No decode worker is up.");
		return true;
	}
	if (!too_late(rt, r, now_ns))
		return false;
	end_waiting(rt, r, "overloaded", LIMIT_wait,
		"No decode worker had room for this request in time.");
	return true;
}

static void place(struct router *rt, uint64_t now_ns)
{

	list_each (r, &rt->requests.placing, struct request, node) {
		struct request_route route = {0};

		if (end_placing(rt, r, now_ns) || now_ns < r->not_before_ns)
			continue;
		if (r->d != NULL)
			move(r, EV_PLACED, NULL);
		else if (choose_d(rt, r, now_ns, &route) == SCHED_OK)
			move(r, EV_PLACED, &route);
	}
}

/* The worker that it waits for takes no other until the end of this turn. */
static void keep_room(struct router *rt, uint8_t role, const struct sched_demand *d)
{
	struct sched_worker w[FLEET_WORKERS_MAX];
	uint32_t index[FLEET_WORKERS_MAX];
	int i = sched_keep(
		w, fleet_snapshot(rt->fleet, role, clock_ran_ns(), w, index), d);

	if (i >= 0)
		fleet_at(rt->fleet, index[i])->kept = true;
}

/* false: it stays. */
static bool dispatch(struct router *rt, struct request *r, uint64_t now_ns)
{
	struct request_route route = {0};
	struct sched_demand lacks = demand_p(r, now_ns);
	uint8_t role = WIRE_PREFILL;
	enum sched_why why;

	if (r->n_claims + 2 > REQUEST_CLAIMS_MAX)
		return false;
	why = choose_p(rt, r, now_ns, &route);
	if (why == SCHED_OK) {
		why = choose_d(rt, r, now_ns, &route);
		lacks = demand_d(r, now_ns);
		role = WIRE_DECODE;
	}
	if (why == SCHED_TOO_LONG) {
		end_waiting(rt, r, "no_workers", LIMIT_no_workers,
			"No worker that is up serves sequences of this length.");
		return true;
	}
	if (why != SCHED_OK) {
		if (lacks.late)
			keep_room(rt, role, &lacks);
		return false;
	}
	move(r, EV_DISPATCHED, &route);
	return true;
}

/* In order of arrival as far as workers have room: a large request waits for room that
 * small ones do not need, but they do not take it for ever. */
static void dispatch_queued(struct router *rt, uint64_t now_ns)
{
	uint32_t stuck = 0;

	list_each (r, &rt->requests.queued, struct request, node) {
		/* Its leader waits for it, too. */
		if (request_waits(r))
			continue;
		if (end_queued(rt, r, now_ns) || stuck == STUCK_MAX ||
			now_ns < r->not_before_ns)
			continue;
		stuck += !dispatch(rt, r, now_ns);
	}
	for (uint32_t i = 0; i < fleet_count(rt->fleet); i++)
		fleet_at(rt->fleet, i)->kept = false;
}

static void watch_roles(struct router *rt, uint64_t now_ns)
{
	static const uint8_t roles[] = {WIRE_PREFILL, WIRE_DECODE};

	for (unsigned i = 0; i < COUNT(roles); i++) {
		if (fleet_usable(rt->fleet, roles[i]) > 0)
			rt->role_since_ns[i] = 0;
		else if (rt->role_since_ns[i] == 0)
			rt->role_since_ns[i] = clock_ran_of(now_ns);
	}
}

void dispatch_losses(struct router *rt, uint64_t now_ns)
{
	uint64_t ran_ns = clock_ran_of(now_ns);
	struct worker_view *w;
	char why[80];

	while ((w = fleet_tick(rt->fleet, ran_ns)) != NULL) {
		snprintf(why, sizeof(why), "silent for %" PRIu64 " ms",
			(ran_ns - MIN(w->heard_ns, ran_ns)) / NS_PER_MS);
		link_lost(rt, w, why);
	}
	/* A loss sends messages, which may break another. */
	for (uint32_t i = 0; i < fleet_count(rt->fleet);) {
		w = fleet_at(rt->fleet, i++);
		if (!w->broken)
			continue;
		link_lost(rt, w, "a message to it could not be sent");
		i = 0;
	}
}

/* A worker may beat and yet not work; what it holds is not waited for without end. */
static void end_stalled(struct router *rt, uint64_t now_ns)
{
	uint64_t limit = (uint64_t)(rt->conf->stall_timeout_s * (double)NS_PER_S);
	uint64_t ran_ns = clock_ran_of(now_ns);
	struct api_error e;

	for (uint32_t i = 0; i < rt->requests.capacity; i++) {
		struct request *r = rt->requests.slot[i];

		if (r == NULL || (r->state != RQ_PREFILL && r->state != RQ_HANDOVER &&
					 r->state != RQ_DECODE))
			continue;
		if (ran_ns - MIN(request_moved_ns(r), ran_ns) < limit)
			continue;
		api_error_set(&e, 504, "timeout", NULL,
			"No worker made progress with this request for %.0f s, in state "
			"%s.",
			rt->conf->stall_timeout_s, request_state_name(r->state));
		request_fail(r, &e, false);
	}
}

void dispatch_turn(struct router *rt, uint64_t now_ns)
{
	watch_roles(rt, now_ns);
	if (rt->requests.placing.n > 0 && !fault_paused(FAULT_prefilled))
		place(rt, now_ns);
	if (rt->requests.queued.n > 0 && !fault_paused(FAULT_queued))
		dispatch_queued(rt, now_ns);
	if (now_ns >= rt->stall_check_ns) {
		rt->stall_check_ns = now_ns + STALL_CHECK_NS;
		end_stalled(rt, now_ns);
	}
	requests_reap(&rt->requests);
}

/* What keeps every worker of the role from any new work; SCHED_BUSY passes. */
static enum sched_why role_state(const struct router *rt, uint8_t role)
{
	static const struct sched_demand nothing = {0};
	struct sched_worker w[FLEET_WORKERS_MAX];
	uint32_t index[FLEET_WORKERS_MAX];
	enum sched_why why;

	sched_prefill(w, fleet_snapshot(rt->fleet, role, clock_ran_ns(), w, index),
		&nothing, &why);
	return why;
}

const char *dispatch_missing(const struct router *rt)
{
	static const struct {
		uint8_t role;
		const char *none, *drains, *stands;
	} roles[] = {
		{WIRE_PREFILL, "No prefill worker is up.",
			"Every prefill worker is draining.",
			"Every prefill worker is full and stands still."},
		{WIRE_DECODE, "No decode worker is up.",
			"Every decode worker is draining.",
			"Every decode worker is full and stands still."},
	};

	for (unsigned i = 0; i < COUNT(roles); i++) {
		switch (role_state(rt, roles[i].role)) {
		case SCHED_NO_WORKER:
			return roles[i].none;
		case SCHED_DRAINING:
			return roles[i].drains;
		case SCHED_STUCK:
			return roles[i].stands;
		case SCHED_OK:
		case SCHED_TOO_LONG:
		case SCHED_BUSY:
			break;
		}
	}
	return NULL;
}
