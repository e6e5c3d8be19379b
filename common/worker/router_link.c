/* The life of one connection: hello until it is answered, beats, silence, refusals.
 * Only move() writes the state. */
#include "common/worker/router_link.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/worker/dispatch.h"
#include "common/worker/held.h"
#include "common/worker/worker.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/* All times follow the beat, so that tests scale them with one key. At the default of
 * 500 ms: an unanswered hello and "id in use" are repeated each second, the latter for
 * 10 s. */
#define HELLO_BEATS  2
#define BARRED_BEATS 20
#define HIGH_WATER   4096
#define BATCH        64
/* Leases are renewed at most this part of their life late. */
#define RENEW_PART   50

static uint64_t beats_ns(const struct router_link *l, uint64_t n)
{
	return n * l->set->w->conf->beat_ms * NS_PER_MS;
}

static const uint8_t may_follow[] = {
	[LINK_DOWN] = MAY(LINK_DOWN) | MAY(LINK_HELLO),
	[LINK_HELLO] =
		MAY(LINK_DOWN) | MAY(LINK_HELLO) | MAY(LINK_LIVE) | MAY(LINK_BARRED),
	[LINK_LIVE] = MAY(LINK_DOWN) | MAY(LINK_HELLO) | MAY(LINK_BARRED),
	[LINK_BARRED] =
		MAY(LINK_DOWN) | MAY(LINK_HELLO) | MAY(LINK_LIVE) | MAY(LINK_BARRED),
};

/* What holds of a connection in each state. */
static void check(const struct router_link *l)
{
	bool live = l->state == LINK_LIVE;

	assert(l->bus != NULL);
	assert(live || (l->incarnation == 0 && !l->full && !l->says_placed));
	assert(l->state != LINK_BARRED || l->barred_ns != 0);
	assert(!live || l->barred_ns == 0);
}

static void move(struct router_link *l, enum link_state next, const char *why)
{
	static const char *const names[] = {"down", "hello", "live", "barred"};
	uint64_t gone = l->state == LINK_LIVE && next != LINK_LIVE ? l->incarnation : 0;

	if (l->state != next)
		log_info("router %s: %s -> %s: %s", l->name, names[l->state], names[next],
			why);
	assert((may_follow[l->state] & MAY(next)) != 0);
	l->state = next;
	l->full = false;
	l->says_placed = false;
	if (next != LINK_LIVE)
		l->incarnation = 0;
	check(l);
	if (gone != 0)
		jobs_router_lost(l->set->w->jobs, gone);
}

bool router_link_send(struct router_link *l, uint8_t type, const void *msg)
{
	struct sink *out = &l->set->out;
	struct err err;
	status st;

	sink_reset(out);
	st = wire_encode(wire_find(type), msg, out, &err);
	if (st != ST_OK) {
		log_error("router %s: %s", l->name, err.text);
		return false;
	}
	st = bus_send(l->bus, (struct bytes){0}, type, sink_bytes(out));
	if (st == ST_LIMIT)
		l->full = true;
	return st == ST_OK;
}

static void say_hello(struct router_link *l, uint64_t now_ns)
{
	struct worker *w = l->set->w;
	struct msg_hello m = {.proto_min = WIRE_PROTO_MIN,
		.proto_max = WIRE_PROTO_MAX,
		.build = BYTES_STR(BATON_VERSION),
		.id = bytes_of_str(w->conf->id),
		.incarnation = w->incarnation,
		.role = (uint64_t)w->role->party,
		.boot_id = bytes_of_str(w->boot_id),
		.has_compat_hash = true,
		.compat_hash = layout_compat_hash(w->layout),
		.has_model_hash = true,
		.model_hash = w->layout->model_hash,
		.has_tokenizer_hash = true,
		.tokenizer_hash = tokenizer_hash(w->tokenizer),
		.has_pages = true,
		.pages = pool_size(w->pages),
		.has_slots = true,
		.slots = pool_size(w->slots),
		.has_link_path = true,
		.link_path = bytes_of_str(exporter_path(w->exporter)),
		.has_len_max = true,
		.len_max = w->len_max,
		.has_pid = true,
		.pid = (uint64_t)getpid(),
		.has_transport = w->transport[0] != 0,
		.transport = bytes_of_str(w->transport),
		.has_gpus = true,
		.gpus = bytes_of_str(w->conf->gpus),
		.has_draining = true,
		.draining = !service_accepts(w),
		.has_reconciles = true,
		.reconciles = 1};

	router_link_send(l, MSG_hello, &m);
	l->hello_due_ns = now_ns + beats_ns(l, HELLO_BEATS);
}

/* Requests and leases know their router by its incarnation alone. */
static bool is_connected(const struct routers *s, uint64_t incarnation)
{
	for (uint32_t i = 0; i < ROUTERS_MAX; i++)
		if (s->link[i].state == LINK_LIVE &&
			s->link[i].incarnation == incarnation)
			return true;
	return false;
}

static void on_hello(struct router_link *l, const struct msg_hello *m)
{
	struct worker *w = l->set->w;

	if (m->role != WIRE_ROUTER) {
		log_warn("router %s: hello of role %llu ignored", l->name,
			(unsigned long long)m->role);
		return;
	}
	if (m->proto_min > WIRE_PROTO_MAX || m->proto_max < WIRE_PROTO_MIN) {
		log_error("router %s speaks protocol %llu to %llu, this worker %u to %u",
			l->name, (unsigned long long)m->proto_min,
			(unsigned long long)m->proto_max, WIRE_PROTO_MIN, WIRE_PROTO_MAX);
		worker_end(w, EXIT_PEER);
		return;
	}
	if (l->state == LINK_LIVE && l->incarnation == m->incarnation)
		return; /* it answers a hello that was repeated */
	if (l->state == LINK_LIVE)
		move(l, LINK_HELLO, "another incarnation answers");
	if (is_connected(l->set, m->incarnation)) {
		log_warn("router %s says that it is incarnation %016llx, which is "
			 "connected already: ignored",
			l->name, (unsigned long long)m->incarnation);
		return;
	}
	l->barred_ns = 0;
	l->renewed_ns = 0;
	l->incarnation = m->incarnation;
	move(l, LINK_LIVE, "hello answered");
}

static void on_refused(
	struct router_link *l, const struct msg_refused *m, uint64_t now_ns)
{
	bool in_use = m->code == REFUSED_ID_IN_USE;

	if (m->code == REFUSED_LOST) {
		move(l, LINK_HELLO, "declared lost");
		return;
	}
	if (in_use && l->barred_ns == 0)
		l->barred_ns = now_ns;
	if (in_use && now_ns - l->barred_ns < beats_ns(l, BARRED_BEATS)) {
		move(l, LINK_BARRED, "id in use");
		return;
	}
	log_error("router %s refuses this worker: %s: %.*s", l->name,
		wire_refusal_text((unsigned)m->code), (int)m->text.len, m->text.at);
	worker_end(l->set->w, EXIT_PEER);
}

static void on_beat(struct router_link *l, const struct msg_beat *m)
{
	if (m->incarnation != l->incarnation) {
		move(l, LINK_HELLO, "a beat of another incarnation");
		return;
	}
	if (m->has_seen && m->has_placed) {
		l->says_placed = true;
		l->seen = m->seen;
		l->placed = m->placed;
	}
	held_compare(l->set->w, l->incarnation, m);
}

/* Decodes into set->msg; NULL when it was refused (and logged). */
static const struct wire_msg *decode(
	struct router_link *l, uint8_t type, struct bytes body)
{
	struct worker *w = l->set->w;
	const struct wire_msg *wm = wire_find(type);
	struct err err;
	status st;

	if (wm == NULL)
		st = err_set(&err, ST_INVALID, "no message has type %u", type);
	else if (!(wm->from & WIRE_ROUTER) || !(wm->to & (unsigned)w->role->party))
		st = err_set(&err, ST_INVALID, "%s is not for a %s worker", wm->name,
			w->role->name);
	else
		st = wire_decode(wm, body, l->set->msg, &err);
	if (st == ST_OK)
		return wm;
	w->stats.v[STAT_malformed]++;
	log_warn("router %s: message refused: %s", l->name, err.text);
	return NULL;
}

static void on_message(
	void *ctx, struct bytes peer, uint8_t type, struct bytes body, int conn)
{
	struct router_link *l = ctx;
	const struct wire_msg *wm = decode(l, type, body);

	(void)peer;
	(void)conn;
	/* What is left of a connection that ended speaks for nobody. */
	if (wm == NULL || l->state == LINK_DOWN)
		return;
	clock_look(); /* what is heard after a sleep is not heard before it */
	l->heard_ns = clock_ran_ns();
	if (type == MSG_hello)
		on_hello(l, l->set->msg);
	else if (type == MSG_refused)
		on_refused(l, l->set->msg, clock_ns());
	else if (l->state != LINK_LIVE)
		log_debug("router %s: %s before hello ignored", l->name, wm->name);
	else if (type == MSG_beat)
		on_beat(l, l->set->msg);
	else
		dispatch_message(l->set->w, l->incarnation, wm, l->set->msg);
}

static void on_connect(void *ctx, int conn)
{
	struct router_link *l = ctx;

	(void)conn;
	l->heard_ns = clock_ran_ns();
	move(l, LINK_HELLO, "connected");
	say_hello(l, clock_ns());
}

static void on_disconnect(void *ctx, int conn)
{
	(void)conn;
	move(ctx, LINK_DOWN, "the connection ended");
}

static const struct bus_events events = {
	.on_message = on_message,
	.on_connect = on_connect,
	.on_disconnect = on_disconnect,
};

static struct router_link *free_place(struct routers *s)
{
	for (uint32_t i = 0; i < ROUTERS_MAX; i++)
		if (s->link[i].bus == NULL)
			return &s->link[i];
	return NULL;
}

status router_link_open(
	struct routers *s, const char *name, const char *endpoint, struct err *err)
{
	struct router_link *l = free_place(s);
	char id[80];
	int n = snprintf(
		id, sizeof(id), "%s#%016" PRIx64, s->w->conf->id, s->w->incarnation);

	if (l == NULL)
		return err_set(err, ST_LIMIT, "router %s: there are %u already", name,
			ROUTERS_MAX);
	*l = (struct router_link){.set = s};
	if (snprintf(l->name, sizeof(l->name), "%s", name) >= (int)sizeof(l->name))
		return err_set(
			err, ST_INVALID, "router socket name '%s' is too long", name);
	return bus_connect(&l->bus, s->net,
		&(struct bus_options){.endpoint = endpoint,
			.id = {(const uint8_t *)id, (size_t)n},
			.high_water = HIGH_WATER,
			.batch = BATCH,
			.events = &events,
			.ctx = l,
			.malformed = &s->w->stats.v[STAT_malformed]},
		err);
}

void router_link_close(struct router_link *l)
{
	if (l->bus == NULL)
		return;
	move(l, LINK_DOWN, "closed");
	bus_close(l->bus);
	l->bus = NULL;
}

void router_link_turn(struct router_link *l, uint64_t now_ns)
{
	const struct worker *w = l->set->w;
	uint64_t lease_ns = w->conf->lease_ms * NS_PER_MS;
	uint64_t lost_ns = w->conf->lost_ms * NS_PER_MS;

	if (l->bus == NULL)
		return;
	if (l->state == LINK_LIVE && l->full)
		move(l, LINK_HELLO, "its queue is full");
	if (l->state == LINK_LIVE && clock_ran_since(l->heard_ns) > lost_ns)
		move(l, LINK_HELLO, "silent");
	if (l->state == LINK_LIVE &&
		l->heard_ns - l->renewed_ns > lease_ns / RENEW_PART) {
		l->renewed_ns = l->heard_ns;
		lease_renew_owner(w->leases, l->incarnation, lease_ns);
	}
	if ((l->state == LINK_HELLO || l->state == LINK_BARRED) &&
		now_ns >= l->hello_due_ns)
		say_hello(l, now_ns);
}

bool router_link_owes(const struct router_link *l)
{
	return l->state == LINK_LIVE && l->says_placed &&
	       (l->seen < l->set->drain_beat || l->placed > 0);
}
