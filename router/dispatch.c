/* From the queue to workers. A prefill and a decode worker are reserved together, so a
 * computed prompt does not wait at its prefill worker for room elsewhere. */
#include "router/dispatch.h"

#include "common/base/clock.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "router/link.h"

#include <inttypes.h>
#include <string.h>

/* A request that no worker can take is passed by later ones that fit. When it has waited
 * this long, room is kept for it (sched_round.h). */
#define LATE_NS (2 * NS_PER_S)

/* Requests are many; stalls and waits that were too long are rare. */
#define STALL_CHECK_NS (100 * NS_PER_MS)

/* So many may wait however slowly the queue moves: what is measured then says little. */
#define WAIT_FREE 256u

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

_Static_assert(FLEET_WORKERS_MAX <= 64, "sched_worker.apart has a bit for each");

/* Of the n decode workers those that p's state is not given to now; never to itself. */
static uint64_t apart_from(
	const struct router *rt, uint64_t p, const struct sched_worker *d, uint32_t n)
{
	uint64_t apart = 0;

	for (uint32_t i = 0; i < n; i++)
		if (d[i].key == p ||
			(rt->pairs.n > 0 &&
				pairs_avoided(&rt->pairs, p, d[i].key, clock_ran_ns())))
			apart |= UINT64_C(1) << i;
	return apart;
}

static bool takes_work(const struct worker_view *w, uint8_t role)
{
	return w->role == role && w->state == WORKER_KNOWN && !w->draining;
}

/* What keeps p from handing over to any decode worker that takes work: every one of them
 * has failed with it for long. NULL: nothing does. */
static const struct pair *parted(const struct router *rt, const struct worker_view *p)
{
	const struct pair *why = NULL;

	for (uint32_t i = 0; i < fleet_count(rt->fleet) && rt->pairs.n > 0; i++) {
		const struct worker_view *d = fleet_at(rt->fleet, i);

		if (!takes_work(d, WIRE_DECODE))
			continue;
		why = pairs_avoided(&rt->pairs, p->key, d->key, clock_ran_ns());
		if (why == NULL || !pair_lasting(why))
			return NULL;
	}
	return why;
}

/* The same of all prefill workers that take work. */
static const struct pair *all_parted(const struct router *rt)
{
	const struct pair *why = NULL;

	for (uint32_t i = 0; i < fleet_count(rt->fleet) && rt->pairs.n > 0; i++) {
		const struct worker_view *p = fleet_at(rt->fleet, i);

		if (!takes_work(p, WIRE_PREFILL))
			continue;
		why = parted(rt, p);
		if (why == NULL)
			return NULL;
	}
	return why;
}

static enum sched_why choose_d(struct router *rt, const struct request *r,
	uint64_t now_ns, struct request_route *route)
{
	struct sched_demand d = demand_d(r, now_ns);
	struct sched_worker w[FLEET_WORKERS_MAX];
	uint32_t index[FLEET_WORKERS_MAX], n;
	enum sched_why why;
	int i;

	route->d_hold = request_decode_hold(r);
	n = fleet_snapshot(rt->fleet, WIRE_DECODE, clock_ran_ns(), w, index);
	d.apart = apart_from(rt, r->p->key, w, n);
	i = sched_decode(w, n, &d, &why);
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

	return since != 0 && (double)(ran_ns - MIN(since, ran_ns)) >=
				     rt->conf->worker_wait_s * (double)NS_PER_S;
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
	const struct pair *pair;

	if (no_p || role_gone(rt, WIRE_DECODE, now_ns)) {
		end_waiting(rt, r, "no_workers", LIMIT_no_workers,
			no_p ? "No prefill worker is up." : "No decode worker is up.");
		return true;
	}
	pair = all_parted(rt);
	if (pair != NULL) {
		end_waiting(rt, r, "no_workers", LIMIT_no_workers, pair->text);
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

/* A lease that no decode worker can pull is as good as lost. */
static bool nobody_pulls(struct router *rt, struct request *r)
{
	const struct pair *pair = parted(rt, r->p);

	if (pair != NULL)
		snprintf(r->lost_text, sizeof(r->lost_text), "%.*s",
			(int)strcspn(pair->text, ":"), pair->text);
	return pair != NULL;
}

static void place(struct router *rt, uint64_t now_ns)
{
	list_each (r, &rt->requests.placing, struct request, node) {
		struct request_route route = {0};

		if (end_placing(rt, r, now_ns) || now_ns < r->not_before_ns)
			continue;
		if (r->d != NULL) {
			move(r, EV_PLACED, NULL);
		} else if (r->n_claims == REQUEST_CLAIMS_MAX) {
			continue; /* until a worker gives something back */
		} else if (nobody_pulls(rt, r)) {
			move(r, EV_P_LOST, NULL);
		} else if (choose_d(rt, r, now_ns, &route) == SCHED_OK) {
			pairs_tried(&rt->pairs, r->p->key, route.d->key, clock_ran_ns());
			move(r, EV_PLACED, &route);
		}
	}
}

/* A round over the queue, and where it is in each class. */
struct walk {
	struct router *rt;
	uint64_t now_ns;
	struct sched_round round;
	struct sched_worker w[SCHED__ROLES][FLEET_WORKERS_MAX];
	uint32_t index[SCHED__ROLES][FLEET_WORKERS_MAX];
	struct request *next[SCHED_CLASSES];
	bool tries[SCHED_CLASSES];
	/* The first one of a class is looked at in any case, for room may have to be kept
	 * for it; the others while there could be room, which is asked again whenever
	 * some was given out. */
	bool looked[SCHED_CLASSES], open[SCHED_CLASSES];
};

static void walk_begin(struct walk *x, struct router *rt, uint64_t now_ns)
{
	static const uint8_t role[SCHED__ROLES] = {WIRE_PREFILL, WIRE_DECODE};

	*x = (struct walk){.rt = rt, .now_ns = now_ns};
	rt->requests.rounds++;
	for (unsigned i = 0; i < SCHED__ROLES; i++) {
		uint64_t kept_for = rt->fair.keep[i].request;
		const struct request *r = requests_find(&rt->requests, kept_for);

		if (kept_for != 0 && (r == NULL || r->state != RQ_QUEUED))
			sched_forget(&rt->fair, kept_for);
		x->round.w[i] = x->w[i];
		x->round.n[i] = fleet_snapshot(
			rt->fleet, role[i], clock_ran_ns(), x->w[i], x->index[i]);
	}
	for (unsigned c = 0; c < SCHED_CLASSES; c++) {
		x->next[c] = list_first(&rt->requests.queued[c], struct request, node);
		x->tries[c] = x->next[c] != NULL;
	}
	for (uint32_t i = 0; i < x->round.n[SCHED_PREFILL]; i++)
		x->w[SCHED_PREFILL][i].apart = apart_from(rt, x->w[SCHED_PREFILL][i].key,
			x->w[SCHED_DECODE], x->round.n[SCHED_DECODE]);
	sched_round_begin(&x->round, &rt->fair, x->tries);
}

/* NULL: there is none left in class c that could go now. */
static struct request *walk_next(struct walk *x, unsigned c)
{
	const struct list *l = &x->rt->requests.queued[c];
	struct request *r = x->next[c];

	/* The requests of a call end together: this one may have left. */
	if (r != NULL && r->node.in != l)
		r = list_first(l, struct request, node);
	/* Its leader waits for it, too. */
	while (r != NULL && (r->tried == x->rt->requests.rounds || request_waits(r) ||
				    x->now_ns < r->not_before_ns ||
				    r->n_claims + 2 > REQUEST_CLAIMS_MAX))
		r = list_next(r, struct request, node);
	x->tries[c] = r != NULL;
	x->next[c] = r != NULL ? list_next(r, struct request, node) : NULL;
	return r;
}

/* A pair that failed before is tried by one request. */
static void note_tried(struct walk *x, const int at[SCHED__ROLES])
{
	struct sched_worker *p = &x->w[SCHED_PREFILL][at[SCHED_PREFILL]];

	pairs_tried(&x->rt->pairs, p->key, x->w[SCHED_DECODE][at[SCHED_DECODE]].key,
		clock_ran_ns());
	p->apart =
		apart_from(x->rt, p->key, x->w[SCHED_DECODE], x->round.n[SCHED_DECODE]);
}

static void dispatch(struct walk *x, struct request *r)
{
	struct sched_ask ask = {
		.demand = {demand_p(r, x->now_ns), demand_d(r, x->now_ns)},
		.since_ns = r->queued_ns,
		.size_class = r->size_class};
	struct request_route route = {
		.p_hold = request_prefill_hold(r), .d_hold = request_decode_hold(r)};
	struct fleet *f = x->rt->fleet;
	int at[SCHED__ROLES];

	r->tried = x->rt->requests.rounds;
	switch (sched_round_try(&x->round, &ask, at)) {
	case SCHED_OK:
		route.p = fleet_at(f, x->index[SCHED_PREFILL][at[SCHED_PREFILL]]);
		route.d = fleet_at(f, x->index[SCHED_DECODE][at[SCHED_DECODE]]);
		note_tried(x, at);
		move(r, EV_DISPATCHED, &route);
		memset(x->open, 0, sizeof(x->open));
		break;
	case SCHED_TOO_LONG:
		end_waiting(x->rt, r, "no_workers", LIMIT_no_workers,
			"No worker that is up serves sequences of this length.");
		break;
	case SCHED_NO_WORKER:
	case SCHED_DRAINING:
	case SCHED_STUCK:
	case SCHED_BUSY:
		break;
	}
}

/* Who runs when room begins to be kept may run for long. */
static void walk_end(struct walk *x)
{
	struct router *rt = x->rt;
	const bool kept[SCHED__ROLES] = {
		rt->fair.keep[0].request != 0, rt->fair.keep[1].request != 0};

	sched_round_end(&x->round);
	for (unsigned i = 0; i < SCHED__ROLES; i++)
		for (uint32_t k = 0; k < x->round.n[i]; k++)
			if (!kept[i] && rt->fair.keep[i].request != 0 &&
				x->w[i][k].key == rt->fair.keep[i].worker)
				fleet_age(fleet_at(rt->fleet, x->index[i][k]),
					rt->requests.rounds);
}

static void dispatch_queued(struct router *rt, uint64_t now_ns)
{
	struct request *r;
	struct walk x;
	int c;

	walk_begin(&x, rt, now_ns);
	while ((c = sched_round_class(&x.round, x.tries)) >= 0) {
		if (x.looked[c] && !x.open[c]) {
			x.open[c] = x.tries[c] = sched_round_open(&x.round, (unsigned)c);
			continue;
		}
		x.looked[c] = true;
		r = walk_next(&x, (unsigned)c);
		if (r != NULL)
			dispatch(&x, r);
	}
	walk_end(&x);
}

static void end_waited(struct router *rt, uint64_t now_ns)
{
	for (unsigned c = 0; c < SCHED_CLASSES; c++) {
		struct list *l = &rt->requests.queued[c];
		struct request *r = list_first(l, struct request, node), *next;

		for (; r != NULL; r = next) {
			next = list_next(r, struct request, node);
			if (!request_waits(r) && end_queued(rt, r, now_ns) &&
				next != NULL && next->node.in != l)
				next = list_first(l, struct request, node);
		}
	}
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

	/* A loss sends messages, which may break another. */
	while ((w = fleet_tick(rt->fleet, ran_ns)) != NULL) {
		snprintf(why, sizeof(why), "silent for %" PRIu64 " ms",
			(ran_ns - MIN(w->heard_ns, ran_ns)) / NS_PER_MS);
		link_lost(rt, w, w->broken ? "a message to it could not be sent" : why);
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
	if (rt->requests.count[RQ_QUEUED] > 0 && !fault_paused(FAULT_queued))
		dispatch_queued(rt, now_ns);
	if (now_ns >= rt->stall_check_ns) {
		rt->stall_check_ns = now_ns + STALL_CHECK_NS;
		end_waited(rt, now_ns);
		end_stalled(rt, now_ns);
	}
	pace_note(&rt->pace, requests_waiting(&rt->requests), rt->requests.taken,
		clock_ran_of(now_ns));
	requests_reap(&rt->requests);
}

const char *dispatch_crowded(const struct router *rt, uint32_t n)
{
	uint64_t waiting = (uint64_t)requests_waiting(&rt->requests) + n;

	if (waiting > rt->conf->max_queued)
		return "The request queue is full.";
	if (waiting > WAIT_FREE &&
		dispatch_wait_s(rt, (uint32_t)waiting) > rt->conf->queue_timeout_s)
		return "The request queue moves too slowly for another request.";
	return NULL;
}

double dispatch_wait_s(const struct router *rt, uint32_t n)
{
	return pace_wait_s(&rt->pace, n);
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

	const struct pair *pair;

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
	pair = all_parted(rt);
	return pair != NULL ? pair->text : NULL;
}
