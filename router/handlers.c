/* Messages in: found in one table, decoded within their bounds, and given to the request
 * or worker that they are about. What crossed on the wire is normal and no error. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "router/control.h"
#include "router/link.h"

#include <inttypes.h>
#include <string.h>

/* w: the worker that sent it; NULL only where the row lets anybody speak. */
struct sender {
	struct bytes peer;
	int conn;
	struct worker_view *w;
};

typedef status handler_fn(
	struct router *rt, struct sender *from, const void *msg, struct err *err);

/* ---- workers ---- */

static status on_hello(
	struct router *rt, struct sender *from, const void *msg, struct err *err)
{
	const struct msg_hello *m = msg;
	bool known =
		fleet_heard(rt->fleet, from->peer, from->conn, clock_ran_ns()) != NULL;
	enum wire_refusal code;
	struct worker_view *w;
	struct err why;
	char name[80];

	(void)err;
	if (m->role == WIRE_CTL)
		return ST_OK;
	if (fleet_hello(rt->fleet, from->peer, from->conn, m, clock_ran_ns(), &w, &code,
		    &why) != ST_OK) {
		link_refuse(rt, from->peer, code, "%s", why.text);
		return ST_OK;
	}
	fleet_name(w, name);
	log_info("worker %s role=%s gpus=%s pages=%u slots=%u len_max=%u pid=%u "
		 "build=%s%s",
		name, w->role == WIRE_PREFILL ? "prefill" : "decode", w->gpus, w->pages,
		w->slots, w->len_max, w->pid, w->build, known ? " says hello again" : "");
	/* One that took us for lost has ended what it held: it answers the beat. */
	link_hello(rt, w);
	link_beat(rt, w);
	router_wake(rt);
	return ST_OK;
}

static status on_beat(
	struct router *rt, struct sender *from, const void *msg, struct err *err)
{
	const struct msg_beat *m = msg;
	bool said = from->w->says_draining;

	if (m->incarnation != from->w->incarnation)
		return err_set(err, ST_INVALID,
			"a beat of incarnation %016" PRIx64 " on the link of %016" PRIx64,
			m->incarnation, from->w->incarnation);
	fleet_beat(from->w, m, clock_ran_ns());
	/* It waits for the word that nothing more is placed there. */
	if (from->w->says_draining && !said)
		link_beat(rt, from->w);
	router_wake(rt);
	return ST_OK;
}

static status on_peer_gone(
	struct router *rt, struct sender *from, const void *msg, struct err *err)
{
	const struct msg_peer_gone *m = msg;

	(void)err;
	rt->peers_gone++;
	log_info("worker %s has unmapped %.*s#%016" PRIx64, from->w->id, (int)m->id.len,
		(const char *)m->id.at, m->incarnation);
	return ST_OK;
}

static status on_drained(
	struct router *rt, struct sender *from, const void *msg, struct err *err)
{
	const struct msg_drained *m = msg;

	(void)rt;
	(void)err;
	from->w->draining = from->w->drained = true;
	log_info("worker %s is drained clean=%u", from->w->id, (unsigned)m->clean);
	return ST_OK;
}

/* Its connection ends in a moment; nobody is sent there meanwhile. */
static status on_failed(
	struct router *rt, struct sender *from, const void *msg, struct err *err)
{
	const struct msg_failed *m = msg;
	char why[320];

	(void)err;
	snprintf(why, sizeof(why), "its device failed: %.*s", (int)MIN(m->text.len, 256),
		(const char *)m->text.at);
	fleet_failed(from->w);
	link_lost(rt, from->w, why);
	return ST_OK;
}

/* ---- requests ---- */

/* The request, if the sender works on this attempt of it. */
static struct request *find(
	struct router *rt, const struct sender *from, struct wire_request id)
{
	struct request *r;

	if (id.router != rt->incarnation)
		return NULL;
	r = requests_find(&rt->requests, id.seq);
	if (r == NULL || r->attempt != id.attempt)
		return NULL;
	return r->p == from->w || (r->d == from->w && r->adopt_sent) ? r : NULL;
}

/* The same for what a worker says of work that it goes on with: it must not hold what no
 * record here claims. */
static struct request *find_or_end(
	struct router *rt, const struct sender *from, struct wire_request id)
{
	struct request *r = find(rt, from, id);
	struct request *holder = requests_find(&rt->requests, id.seq);

	if (r == NULL && id.router == rt->incarnation &&
		(holder == NULL || !request_claims(holder, from->w, id.attempt)))
		link_end_unknown(rt, from->w, id);
	return r;
}

static status move(struct router *rt, struct request *r, enum request_event ev,
	const void *msg, struct err *err)
{
	router_wake(rt);
	return request_move(r, ev, msg, err);
}

static status on_progress(
	struct router *rt, struct sender *from, const void *msg, struct err *err)
{
	const struct msg_progress *m = msg;
	struct request *r = find_or_end(rt, from, wire_request_of(m));

	(void)err;
	if (r != NULL && r->p == from->w)
		request_progress(r, m->tokens_final);
	return ST_OK; /* no early adopts */
}

static status on_prefilled(
	struct router *rt, struct sender *from, const void *msg, struct err *err)
{
	const struct msg_prefilled *m = msg;
	struct request *r = find_or_end(rt, from, wire_request_of(m));

	if (r == NULL || r->p != from->w)
		return ST_OK; /* a cancel is on its way to it */
	rt->metrics
		.counter[r->computed ? COUNTER_replayed_tokens : COUNTER_prompt_tokens] +=
		m->n_tokens;
	return move(rt, r, EV_PREFILLED, m, err);
}

static status on_prompt_logprobs(
	struct router *rt, struct sender *from, const void *msg, struct err *err)
{
	const struct msg_prompt_logprobs *m = msg;
	struct request *r = find_or_end(rt, from, wire_request_of(m));

	(void)err;
	if (r != NULL && r->p == from->w)
		request_scores(r, m);
	return ST_OK;
}

static status on_adopted(
	struct router *rt, struct sender *from, const void *msg, struct err *err)
{
	const struct msg_adopted *m = msg;
	struct request *r = find_or_end(rt, from, wire_request_of(m));

	metrics_handover(&rt->metrics, m->transport, m->copy, m->bytes, m->copy_ns);
	if (r == NULL || r->d != from->w)
		return ST_OK;
	pairs_worked(&rt->pairs, r->source, r->d->key);
	return move(rt, r, EV_ADOPTED, m, err);
}

/* A pull that failed is about both ends of it. */
static void note_pull_failed(
	struct router *rt, const struct request *r, const struct msg_rejected *m)
{
	if (r->state == RQ_HANDOVER && r->p != NULL && m->reason == REJECT_SOURCE)
		pairs_failed(&rt->pairs, (struct pair_end){r->p->key, r->p->id},
			(struct pair_end){r->d->key, r->d->id}, m->text, clock_ran_ns());
}

static status on_rejected(
	struct router *rt, struct sender *from, const void *msg, struct err *err)
{
	const struct msg_rejected *m = msg;
	struct request *r = find(rt, from, wire_request_of(m));
	struct request *holder = requests_find(&rt->requests, m->seq);
	bool by_p = r != NULL && r->p == from->w;

	if (m->reason < REJECT__COUNT)
		rt->metrics.reject[m->reason]++;
	if (m->reason == REJECT_FULL)
		from->w->full = true;
	if (m->reason == REJECT_DRAINING)
		from->w->draining = true;
	if (holder != NULL && m->router == rt->incarnation)
		request_return(holder, from->w, (uint32_t)m->attempt);
	if (r == NULL)
		return ST_OK;
	log_info("req=%s rejected by %s reason='%s' later=%u: %.*s", r->id, from->w->id,
		wire_reject_text((unsigned)m->reason), (unsigned)m->later,
		(int)MIN(m->text.len, 200), (const char *)m->text.at);
	if (!by_p)
		note_pull_failed(rt, r, m);
	if (!m->later)
		return move(rt, r, by_p ? EV_P_REJECTED : EV_D_REJECTED, m, err);
	rt->metrics.counter[COUNTER_requeued]++;
	snprintf(r->lost_text, sizeof(r->lost_text), "Worker %s could not go on",
		from->w->id);
	return move(rt, r, by_p ? EV_P_LATER : EV_D_LATER, m, err);
}

static status on_tokens(
	struct router *rt, struct sender *from, const void *msg, struct err *err)
{
	const struct msg_tokens *m = msg;
	size_t n = wire_count(m->records, struct wire_token);
	size_t n_tops = wire_count(m->tops, struct wire_logprob), at = 0;
	status st = ST_OK;

	if (n > 0)
		metrics_observe(&rt->metrics, HIST_rows, (double)n);
	for (size_t i = 0; i < n; i++) {
		struct request_token token;
		struct wire_token t;
		struct request *r;

		wire_get(m->records, i, &t, sizeof(t));
		if (t.n_tops > n_tops - at)
			return err_set(err, ST_INVALID,
				"tokens: record %zu has %u entries, %zu are left", i,
				t.n_tops, n_tops - at);
		token = (struct request_token){.token = t.token,
			.logprob = t.logprob,
			.tops = {m->tops.at + at * sizeof(struct wire_logprob),
				t.n_tops * sizeof(struct wire_logprob)}};
		at += t.n_tops;
		r = find_or_end(
			rt, from, (struct wire_request){m->router, t.seq, t.attempt});
		/* Nobody who waits gets a place by a token. */
		if (r != NULL && r->d == from->w &&
			request_move(r, EV_TOKEN, &token, err) != ST_OK)
			st = ST_PEER;
	}
	return st;
}

static status on_finished(
	struct router *rt, struct sender *from, const void *msg, struct err *err)
{
	const struct msg_finished *m = msg;
	struct request *r = find(rt, from, wire_request_of(m));

	if (r == NULL)
		return ST_OK; /* the end of what was cancelled */
	if (m->reason == FINISH_NAN)
		rt->metrics.counter[COUNTER_corrupted]++;
	if (m->has_text)
		log_warn("req=%s ended by %s reason='%s': %.*s", r->id, from->w->id,
			wire_finish_text((unsigned)m->reason), (int)MIN(m->text.len, 300),
			(const char *)m->text.at);
	if (m->reason == FINISH_DRAINED) {
		request_cut(r, from->w);
		router_wake(rt);
		return ST_OK;
	}
	return move(rt, r, r->p == from->w ? EV_P_FINISHED : EV_D_FINISHED, m, err);
}

static status on_evicted(
	struct router *rt, struct sender *from, const void *msg, struct err *err)
{
	const struct msg_evicted *m = msg;
	struct request *r = find(rt, from, wire_request_of(m));

	rt->metrics.counter[COUNTER_preemptions]++;
	if (r == NULL || r->d != from->w)
		return ST_OK;
	snprintf(r->lost_text, sizeof(r->lost_text),
		"The decode worker %s had no memory left", from->w->id);
	return move(rt, r, EV_EVICTED, NULL, err);
}

static status on_offered(
	struct router *rt, struct sender *from, const void *msg, struct err *err)
{
	const struct msg_offered *m = msg;
	struct request *r = find_or_end(rt, from, wire_request_of(m));

	if (r == NULL || r->d != from->w)
		return ST_OK; /* a cancel is on its way to it */
	rt->metrics.counter[COUNTER_migrations]++;
	return move(rt, r, EV_OFFERED, m, err);
}

static status on_freed(
	struct router *rt, struct sender *from, const void *msg, struct err *err)
{
	const struct msg_freed *m = msg;
	struct request *r = requests_find(&rt->requests, m->seq);

	(void)err;
	from->w->full = false;
	if (r == NULL || m->router != rt->incarnation)
		return ST_OK;
	request_freed(r, from->w, (uint32_t)m->attempt);
	router_wake(rt);
	return ST_OK;
}

/* Whoever has the record hears of it as if the worker had given it up. */
static status on_absent(
	struct router *rt, struct sender *from, const void *msg, struct err *err)
{
	const struct msg_absent *m = msg;
	struct request *r = requests_find(&rt->requests, m->seq);

	(void)err;
	if (r == NULL || m->router != rt->incarnation ||
		!request_absent(r, from->w, (uint32_t)m->attempt, m->number))
		return ST_OK;
	rt->metrics.counter[COUNTER_absent]++;
	log_warn("req=%s worker %s holds nothing of attempt %u any more", r->id,
		from->w->id, (unsigned)m->attempt);
	router_wake(rt);
	return ST_OK;
}

/* ---- batonctl ---- */

static status on_ask(
	struct router *rt, struct sender *from, const void *msg, struct err *err)
{
	(void)err;
	control_ask(rt, from->peer, msg);
	return ST_OK;
}

static status on_answer(
	struct router *rt, struct sender *from, const void *msg, struct err *err)
{
	(void)from;
	(void)err;
	control_answer(rt, msg);
	return ST_OK;
}

static status on_order(
	struct router *rt, struct sender *from, const void *msg, struct err *err)
{
	(void)err;
	control_order(rt, from->peer, msg);
	return ST_OK;
}

/* anybody: the sender need not be a worker of the fleet. */
static const struct {
	uint8_t type;
	bool anybody;
	handler_fn *fn;
} handlers[] = {
	{MSG_hello, true, on_hello},
	{MSG_beat, false, on_beat},
	{MSG_progress, false, on_progress},
	{MSG_prefilled, false, on_prefilled},
	{MSG_prompt_logprobs, false, on_prompt_logprobs},
	{MSG_adopted, false, on_adopted},
	{MSG_rejected, false, on_rejected},
	{MSG_tokens, false, on_tokens},
	{MSG_finished, false, on_finished},
	{MSG_evicted, false, on_evicted},
	{MSG_offered, false, on_offered},
	{MSG_freed, false, on_freed},
	{MSG_absent, false, on_absent},
	{MSG_peer_gone, false, on_peer_gone},
	{MSG_drained, false, on_drained},
	{MSG_failed, false, on_failed},
	{MSG_ask, true, on_ask},
	{MSG_answer, false, on_answer},
	{MSG_order, true, on_order},
};

static status decode(struct router *rt, const struct wire_msg *m, uint8_t type,
	struct bytes body, struct err *err)
{
	if (m == NULL)
		return err_set(err, ST_INVALID, "no message has type %u", type);
	if (!(m->to & WIRE_ROUTER))
		return err_set(err, ST_INVALID, "%s is not for a router", m->name);
	return wire_decode(m, body, rt->msg, err);
}

/* ST_AGAIN: the sender is no worker of the fleet, or a lost one. */
static status handle(
	struct router *rt, struct sender *from, const struct wire_msg *m, struct err *err)
{
	for (size_t i = 0; i < COUNT(handlers); i++) {
		if (handlers[i].type != m->type)
			continue;
		if (!handlers[i].anybody) {
			from->w = fleet_heard(
				rt->fleet, from->peer, from->conn, clock_ran_ns());
			if (from->w == NULL)
				return ST_AGAIN;
			if (!(m->from & from->w->role))
				return err_set(err, ST_INVALID,
					"%s does not come from this role", m->name);
		}
		return handlers[i].fn(rt, from, rt->msg, err);
	}
	return err_set(err, ST_INVALID, "%s has no meaning for a router", m->name);
}

void handlers_message(
	void *router, struct bytes peer, uint8_t type, struct bytes body, int conn)
{
	struct router *rt = router;
	const struct wire_msg *m = wire_find(type);
	struct sender from = {.peer = peer, .conn = conn};
	struct err err;
	status st = decode(rt, m, type, body, &err);

	clock_look(); /* what is heard after a sleep is not heard before it */
	if (st == ST_OK)
		st = handle(rt, &from, m, &err);
	if (st == ST_OK)
		return;
	if (st == ST_AGAIN) {
		rt->metrics.counter[COUNTER_strangers]++;
		link_refuse(rt, peer, REFUSED_LOST,
			"%s of an incarnation that this router does not know (any more)",
			m->name);
		return;
	}
	rt->metrics.counter[COUNTER_malformed]++;
	/* A request in the wrong state ended as it could; what the worker says next may
	 * be right again. Bytes that cannot be read come from another version. */
	if (st == ST_PEER)
		log_warn("message of %.*s: %s", (int)MIN(peer.len, 64),
			(const char *)peer.at, err.text);
	else
		link_refuse(rt, peer, REFUSED_MALFORMED, "%s", err.text);
}
