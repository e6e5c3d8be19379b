/* The move table of a generation. */
#include "router/request_impl.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/mem.h"

#include <assert.h>
#include <string.h>

/* A request that was sent back is not sent again at once, or two sides that disagree
 * would talk in circles. */
#define AGAIN_NS        (50 * NS_PER_MS)
#define AGAIN_SPREAD_NS (500 * NS_PER_MS) /* a beat */

/* Workers that are lost while they work on one request, before it is given up. */
#define DEATHS_MAX 2u

/* Tries to pull one lease, before the prompt is prefilled again. */
#define PULLS_MAX 3u

static const struct request_ops *ops_of(const struct request *r)
{
	return r->set->ops;
}

uint32_t request_generated(const struct request *r)
{
	return r->n_ids - r->n_prompt;
}

/* ---- tokens ---- */

static bool is_stop_id(const struct request *r, uint32_t token)
{
	for (uint32_t i = 0; i < r->n_stop_ids; i++)
		if (r->stop_ids[i] == token)
			return true;
	return false;
}

bool request_append(struct request *r, uint32_t token)
{
	struct api_error e;

	if (token >= r->set->n_vocab) {
		r->set->breaches++;
		api_error_set(&e, 500, "worker_protocol", NULL,
			"A worker sent token %u; the vocabulary has %u.", token,
			r->set->n_vocab);
		request_fire(r, EV_FAILED, &e);
		return false;
	}
	if (r->n_ids == r->ids_cap) {
		uint32_t cap = r->ids_cap + MAX(r->ids_cap / 2, 64u);
		uint32_t *grown = mem_regrow(r->ids, (size_t)cap * sizeof(*grown));

		if (grown == NULL) {
			api_error_set(&e, 503, "overloaded", NULL,
				"The router has no memory left for this answer.");
			request_fire(r, EV_FAILED, &e);
			return false;
		}
		r->ids = grown;
		r->ids_cap = cap;
	}
	r->ids[r->n_ids++] = token;
	return true;
}

enum request_finish request_add_token(struct request *r, const struct request_token *t)
{
	struct request_token last = *t;

	last.ends = is_stop_id(r, t->token);
	if (ops_of(r)->deliver(r->set->self, r, &last) || last.ends)
		return REQUEST_STOP;
	return request_generated(r) >= r->max_tokens ? REQUEST_LENGTH : REQUEST_OPEN;
}

static void take_token(struct request *r, const void *what)
{
	const struct request_token *t = what;

	/* More than was asked for is not passed on; the count in d's last word then
	 * differs from ours, which ends the request as a breach. */
	if (request_generated(r) >= r->max_tokens)
		return;
	/* d alone ends the sequence, by the same rules: its word follows. */
	if (request_append(r, t->token))
		request_add_token(r, t);
}

static void first_ends(struct request *r, const void *what)
{
	(void)what;
	request_let_go(r);
	request_end(r, r->finish);
}

/* ---- workers ---- */

static void dispatched(struct request *r, const void *what)
{
	const struct request_route *route = what;

	r->p = route->p;
	r->d = route->d;
	request_claim(r, r->p, &route->p_hold);
	request_claim(r, r->d, &route->d_hold);
	r->dispatched_ns = clock_ns();
	r->n_final = 0;
	fleet_name(r->p, r->p_name);
	request_claim_told(r, r->p);
	ops_of(r)->send_prefill(r->set->self, r);
}

/* what NULL: d was reserved at dispatch. */
static void placed(struct request *r, const void *what)
{
	const struct request_route *route = what;

	if (route != NULL) {
		request_unreserve(r);
		r->d = route->d;
		request_claim(r, r->d, &route->d_hold);
	}
	r->source = r->p->key;
	r->loss = LOSS_WORKER;
	r->adopt_sent = true;
	r->adopt_ns = clock_ns();
	fleet_name(r->d, r->d_name);
	request_claim_told(r, r->d);
	ops_of(r)->send_adopt(r->set->self, r);
}

static void adopted(struct request *r, const void *what)
{
	const struct msg_adopted *m = what;
	size_t n = MIN(m->transport.len, sizeof(r->transport) - 1);

	r->adopted_ns = clock_ns();
	r->handover_bytes += m->bytes;
	if (n > 0)
		memcpy(r->transport, m->transport.at, n);
	r->transport[n] = 0;
	r->giver = r->p; /* NULL: it is gone, or has given it back already */
	r->p = NULL;
	r->leased = false;
}

static void nothing(struct request *r, const void *what)
{
	(void)r;
	(void)what;
}

static void note_queued(struct request *r, const void *what)
{
	(void)what;
	r->queued_ns = clock_ns();
	r->waits_ns = clock_ran_of(r->queued_ns);
}

/* w NULL: it is gone; m NULL: it did not say why. Routers that found the same worker full
 * wait for the same beat of it, so each lets another time pass. */
static uint64_t pause_of(const struct request *r, const struct worker_view *w,
	const struct msg_rejected *m)
{
	uint64_t spread;

	if (w == NULL || w->n_routers <= 1 || m == NULL || m->reason != REJECT_FULL)
		return AGAIN_NS;
	spread = hash64_u64(hash64_u64(r->set->salt, r->seq), clock_ns());
	return AGAIN_NS + spread % AGAIN_SPREAD_NS;
}

/* p does not want it now: as if it had never been sent, but for the waiting. */
static void requeue(struct request *r, const void *what)
{
	(void)what;
	r->not_before_ns = clock_ns() + pause_of(r, r->p, what);
	r->p = NULL;
	request_unreserve(r);
	r->dispatched_ns = 0;
}

/* It may be what they died of. true: it ended. */
static bool ended_by_deaths(struct request *r)
{
	struct api_error e;

	if (r->deaths < DEATHS_MAX)
		return false;
	api_error_set(&e, 503, "worker_lost", NULL,
		"%s while it worked on this request, and so was another worker before: "
		"it is not tried on a third.",
		r->lost_text);
	r->no_retry = true;
	request_fire(r, EV_FAILED, &e);
	return true;
}

static bool may_begin_again(const struct request *r)
{
	static const bool counts[] = {
#define X(name, code, counts_) counts_,
		REQUEST_LOSS_MAP(X)
#undef X
	};

	return counts[r->loss] ? r->replays < r->set->max_replays
			       : r->set->max_replays > 0;
}

static void fail_lost(struct request *r)
{
	static const char *const codes[] = {
#define X(name, code, counts) code,
		REQUEST_LOSS_MAP(X)
#undef X
	};
	struct api_error e;

	api_error_set(&e, 503, codes[r->loss], NULL,
		"%s while it served this request, which was not begun again "
		"(%u of at most %u times were used).",
		r->lost_text, r->replays, r->set->max_replays);
	r->no_retry = r->loss != LOSS_DRAIN;
	request_fire(r, EV_FAILED, &e);
}

/* Only in QUEUED, where every replay begins. */
static void replay(struct request *r, const void *what)
{
	(void)what;
	request_let_go(r);
	if (ended_by_deaths(r))
		return;
	if (!may_begin_again(r)) {
		fail_lost(r);
		return;
	}
	r->replays += r->loss == LOSS_WORKER;
	r->loss = LOSS_WORKER;
	r->set->replays++;
	r->attempt++;
	r->queued_ns = clock_ns();
	r->waits_ns = clock_ran_of(r->queued_ns);
	r->dispatched_ns = r->prefilled_ns = r->adopt_ns = r->adopted_ns = 0;
}

/* Those that took its pages go on meanwhile: the more often it came to that, the longer
 * it lets them. The one that has come furthest is never evicted, so all come to an end.
 */
static void evicted(struct request *r, const void *what)
{
	r->loss = LOSS_PAGES;
	replay(r, what);
	r->not_before_ns = clock_ns() + (AGAIN_NS << MIN(r->evictions, 6u));
	r->evictions++;
}

/* d is gone, does not want it now, or could not pull it. A lease that nobody can pull
 * is as good as lost. One that is gone may come back, with this attempt begun or ended:
 * what is adopted next has another number. */
static void place_again(struct request *r, const void *what)
{
	const struct msg_rejected *m = what; /* NULL: d is gone */

	r->not_before_ns = clock_ns() + pause_of(r, r->d, m);
	r->d = NULL;
	r->adopt_sent = false;
	r->attempt += m == NULL;
	if (ended_by_deaths(r))
		return;
	if (m != NULL && (m->reason == REJECT_SOURCE || m->reason == REJECT_LEASE))
		r->pulls_failed++;
	if (!r->leased || r->pulls_failed >= PULLS_MAX)
		request_fire(r, EV_P_LOST, NULL);
}

struct row {
	enum request_state next;
	void (*act)(struct request *r, const void *what);
};

/* No row: nobody can cause the pair. A peer's event reaches a request only while the
 * peer serves it (r->p, or r->d with adopt_sent). */
static const struct row rows[RQ__STATES][EV__EVENTS] =
	{
		[RQ_PREPARE] =
			{
				[EV_PREPARED] = {RQ_QUEUED, note_queued},
				[EV_CANCELLED] = {RQ_DONE, request_end_unwanted},
				[EV_FAILED] = {RQ_DONE, request_end_unprepared},
			},
		[RQ_QUEUED] =
			{
				[EV_DISPATCHED] = {RQ_PREFILL, dispatched},
				[EV_SHARED] = {RQ_PLACE, request_shared},
				[EV_CANCELLED] = {RQ_DONE, request_end_cancelled},
				[EV_FAILED] = {RQ_DONE, request_end_failed},
			},
		[RQ_PREFILL] =
			{
				[EV_PREFILLED] = {RQ_PLACE, request_prefilled},
				[EV_P_FINISHED] = {RQ_DONE, request_end_p_finished},
				[EV_P_LATER] = {RQ_QUEUED, requeue},
				[EV_P_REJECTED] = {RQ_DONE, request_end_p_rejected},
				[EV_P_LOST] = {RQ_QUEUED, replay},
				[EV_D_LOST] = {RQ_PREFILL, nothing},
				[EV_CANCELLED] = {RQ_DONE, request_end_cancelled},
				[EV_FAILED] = {RQ_DONE, request_end_failed},
			},
		[RQ_PLACE] =
			{
				[EV_PREFILLED] = {RQ_DONE, request_end_breach},
				[EV_FIRST_ENDS] = {RQ_DONE, first_ends},
				[EV_PLACED] = {RQ_HANDOVER, placed},
				[EV_P_FINISHED] = {RQ_DONE, request_end_p_finished},
				[EV_P_LATER] = {RQ_DONE, request_end_breach},
				[EV_P_REJECTED] = {RQ_DONE, request_end_breach},
				[EV_P_LOST] = {RQ_QUEUED, replay},
				[EV_D_LOST] = {RQ_PLACE, nothing},
				[EV_CANCELLED] = {RQ_DONE, request_end_cancelled},
				[EV_FAILED] = {RQ_DONE, request_end_failed},
			},
		[RQ_HANDOVER] =
			{
				[EV_PREFILLED] = {RQ_DONE, request_end_breach},
				[EV_ADOPTED] = {RQ_DECODE, adopted},
				[EV_TOKEN] = {RQ_DONE, request_end_breach},
				[EV_OFFERED] = {RQ_DONE, request_end_breach},
				[EV_P_FINISHED] = {RQ_DONE, request_end_p_finished},
				[EV_D_FINISHED] = {RQ_DONE, request_end_d_finished},
				[EV_P_LATER] = {RQ_DONE, request_end_breach},
				[EV_D_LATER] = {RQ_PLACE, place_again},
				[EV_P_REJECTED] = {RQ_DONE, request_end_breach},
				[EV_D_REJECTED] = {RQ_DONE, request_end_d_rejected},
				[EV_P_LOST] = {RQ_HANDOVER,
					nothing}, /* d's word decides */
				[EV_D_LOST] = {RQ_PLACE, place_again},
				[EV_EVICTED] = {RQ_QUEUED, evicted},
				[EV_CANCELLED] = {RQ_DONE, request_end_cancelled},
				[EV_FAILED] = {RQ_DONE, request_end_failed},
			},
		[RQ_DECODE] =
			{
				[EV_ADOPTED] = {RQ_DONE, request_end_breach},
				[EV_TOKEN] = {RQ_DECODE, take_token},
				[EV_OFFERED] = {RQ_PLACE, request_offered},
				[EV_D_FINISHED] = {RQ_DONE, request_end_d_finished},
				[EV_D_LATER] = {RQ_DONE, request_end_breach},
				[EV_D_REJECTED] = {RQ_DONE, request_end_breach},
				[EV_D_LOST] = {RQ_QUEUED, replay},
				[EV_EVICTED] = {RQ_QUEUED, evicted},
				[EV_CANCELLED] = {RQ_DONE, request_end_cancelled},
				[EV_FAILED] = {RQ_DONE, request_end_failed},
			},
};

bool request_move_known(enum request_state state, enum request_event ev)
{
	return rows[state][ev].act != NULL;
}

/* What the header promises of each state. */
static void check(const struct request *r)
{
	switch (r->state) {
	case RQ_PREPARE:
		assert(r->p == NULL && r->d == NULL && r->n_claims == 0);
		break;
	case RQ_QUEUED:
		assert(r->p == NULL && r->d == NULL && !r->leased);
		assert(r->giver == NULL && r->prepare == NULL);
		break;
	case RQ_PREFILL:
		assert(r->p != NULL && !r->leased && !r->adopt_sent);
		break;
	case RQ_PLACE:
		assert(r->p != NULL && r->leased && !r->adopt_sent);
		break;
	case RQ_HANDOVER:
		assert(r->d != NULL && r->adopt_sent && (r->p != NULL) == r->leased);
		break;
	case RQ_DECODE:
		assert(r->d != NULL && r->adopt_sent && r->p == NULL && !r->leased);
		break;
	case RQ_DONE:
		assert(r->p == NULL && r->d == NULL && r->giver == NULL);
		assert(r->finish != REQUEST_OPEN);
		break;
	case RQ__STATES:
		assert(r->state < RQ__STATES);
	}
}

status request_move(
	struct request *r, enum request_event ev, const void *what, struct err *err)
{
	const struct row *row = &rows[r->state][ev];
	enum request_state from = r->state;

	if (!request_move_known(from, ev))
		return err_set(err, ST_PEER, "%s in state %s", request_event_name(ev),
			request_state_name(r->state));
	r->front = row->next == RQ_QUEUED && ev != EV_PREPARED;
	r->state = row->next;
	r->moved_ns = clock_ran_ns();
	requests_moved(r->set, r, from);
	row->act(r, what);
	check(r);
	return ST_OK;
}

void request_fire(struct request *r, enum request_event ev, const void *what)
{
	struct err err;
	status st = request_move(r, ev, what, &err);

	assert(st == ST_OK);
}

void request_cancel(struct request *r)
{
	if (r->state != RQ_DONE)
		request_fire(r, EV_CANCELLED, NULL);
}

void request_fail(struct request *r, const struct api_error *e, bool no_retry)
{
	if (r->state == RQ_DONE)
		return;
	r->no_retry = no_retry;
	request_fire(r, EV_FAILED, e);
}

/* ---- names ---- */

const char *request_state_name(enum request_state state)
{
	static const char *const names[] = {
#define X(name, text) text,
		REQUEST_STATE_MAP(X)
#undef X
	};

	return names[state];
}

const char *request_event_name(enum request_event ev)
{
	static const char *const names[] = {
#define X(name, who) #name,
		REQUEST_EVENT_MAP(X)
#undef X
	};

	return names[ev];
}
