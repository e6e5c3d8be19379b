/* The router's socket and what goes out through it. */
#include "router/link.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Per worker and direction; a worker whose queue is full is treated as lost. */
#define HIGH_WATER 16384
#define BATCH      256
#define CHECK_NS   (1 * NS_PER_S)
#define HELD_MAX   65536u /* schema.def, beat.held */

static void on_disconnect(void *ctx, int conn)
{
	struct router *rt = ctx;
	struct worker_view *w = fleet_disconnected(rt->fleet, conn);

	if (w != NULL)
		link_lost(rt, w, "its connection ended");
}

static const struct bus_events events = {
	.on_message = handlers_message,
	.on_disconnect = on_disconnect,
};

status link_open(struct router *rt, struct err *err)
{
	char path[RUNTIME_PATH_BYTES];
	char endpoint[RUNTIME_PATH_BYTES + 8];
	status st =
		runtime_path(&rt->runtime, path, err, "routers/%s.sock", rt->conf->id);

	if (st != ST_OK)
		return st;
	snprintf(endpoint, sizeof(endpoint), "ipc://%s", path);
	return bus_bind(&rt->bus, rt->net,
		&(struct bus_options){.endpoint = endpoint,
			.high_water = HIGH_WATER,
			.batch = BATCH,
			.events = &events,
			.ctx = rt,
			.malformed = &rt->metrics.counter[COUNTER_malformed]},
		err);
}

void link_close(struct router *rt)
{
	bus_close(rt->bus);
	rt->bus = NULL;
}

/* Files of /tmp that look old are removed by cleaners. */
void link_check(struct router *rt, uint64_t now_ns)
{
	struct runtime runtime;
	struct err err;
	status st;

	if (now_ns < rt->socket_check_ns)
		return;
	rt->socket_check_ns = now_ns + CHECK_NS;
	if (bus_bound(rt->bus)) {
		rt->socket_lost = false;
		return;
	}
	/* The directory may be gone as well. */
	st = runtime_open(&runtime, rt->conf->runtime_dir, &err);
	if (st == ST_OK)
		st = bus_bind_again(rt->bus, &err);
	if (st == ST_OK) {
		rt->metrics.counter[COUNTER_rebound]++;
		log_error("socket %s was removed by somebody; it is bound anew and "
			  "workers can join again; keep cleaners of old files out of %s",
			bus_endpoint(rt->bus), rt->runtime.dir);
	} else if (!rt->socket_lost) {
		log_error("socket %s was removed by somebody and cannot be bound anew: "
			  "%s; workers that are connected stay, no others can join until "
			  "this is mended or the router is started again",
			bus_endpoint(rt->bus), err.text);
	}
	rt->socket_lost = st != ST_OK;
}

bool link_send(struct router *rt, struct bytes peer, uint8_t type, const void *msg)
{
	const struct wire_msg *m = wire_find(type);
	struct err err;
	status st;

	sink_reset(&rt->out);
	st = wire_encode(m, msg, &rt->out, &err);
	if (st == ST_OK) {
		st = bus_send(rt->bus, peer, type, sink_bytes(&rt->out));
		if (st == ST_OK)
			return true;
		err_set(&err, st, "%s", status_name(st));
	}
	rt->metrics.counter[COUNTER_unsent]++;
	log_warn("%s to %.*s was not sent: %s", m->name, (int)MIN(peer.len, 64),
		(const char *)peer.at, err.text);
	return false;
}

void link_send_worker(
	struct router *rt, struct worker_view *w, uint8_t type, const void *msg)
{
	struct bytes peer = {(const uint8_t *)w->peer, w->n_peer};

	if (!w->broken)
		w->broken = !link_send(rt, peer, type, msg);
}

void link_refuse(struct router *rt, struct bytes peer, enum wire_refusal code,
	const char *fmt, ...)
{
	char text[512];
	struct msg_refused m = {.code = code};
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	m.text = (struct bytes){
		(const uint8_t *)text, MIN((size_t)MAX(n, 0), sizeof(text) - 1)};
	log_warn("refused %.*s: %s: %s", (int)MIN(peer.len, 64), (const char *)peer.at,
		wire_refusal_text(code), text);
	link_send(rt, peer, MSG_refused, &m);
}

void link_hello(struct router *rt, struct worker_view *w)
{
	struct msg_hello m = {
		.proto_min = WIRE_PROTO_MIN,
		.proto_max = WIRE_PROTO_MAX,
		.build = BYTES_STR(BATON_VERSION),
		.id = bytes_of_str(rt->conf->id),
		.incarnation = rt->incarnation,
		.role = WIRE_ROUTER,
		.boot_id = bytes_of_str(rt->boot_id),
	};

	link_send_worker(rt, w, MSG_hello, &m);
}

/* Without memory for what is held the beat does not say it: the next one will. */
void link_beat(struct router *rt, struct worker_view *w)
{
	struct msg_beat m = {.incarnation = rt->incarnation,
		.has_number = true,
		.number = ++rt->requests.beat,
		.has_seen = true,
		.seen = w->beat,
		.has_placed = true};
	uint32_t n_placed;

	sink_reset(&rt->held);
	requests_held(&rt->requests, w, &rt->held, &n_placed);
	m.placed = n_placed;
	m.held = sink_bytes(&rt->held);
	m.has_held = !rt->held.full && wire_count(m.held, struct wire_held) <= HELD_MAX;
	link_send_worker(rt, w, MSG_beat, &m);
}

void link_beat_all(struct router *rt)
{
	for (uint32_t i = 0; i < fleet_count(rt->fleet); i++)
		link_beat(rt, fleet_at(rt->fleet, i));
}

/* ---- messages about a request ---- */

#define REQUEST_OF(rt, r)                                                                \
	.router = (rt)->incarnation, .seq = (r)->seq, .attempt = (r)->attempt

void link_send_prefill(void *router, struct request *r)
{
	struct router *rt = router;
	struct msg_prefill m = {
		REQUEST_OF(rt, r),
		.ids = {(const uint8_t *)r->ids, r->n_ids * sizeof(*r->ids)},
		.n_prompt = r->n_prompt,
		.draw = r->draw,
		.n = request_asks(r),
		.has_choice = r->choice > 0,
		.choice = r->choice,
		.has_prompt_logprobs = request_wants_scores(r),
		.prompt_logprobs = r->score_top,
		.has_trace = r->trace[0] != 0,
		.trace = bytes_of_str(r->trace),
	};

	log_debug("prefill req=%s seq=%llu attempt=%u to=%s tokens=%u", r->id,
		(unsigned long long)r->seq, r->attempt, r->p_name, r->n_ids);
	link_send_worker(rt, r->p, MSG_prefill, &m);
}

/* u16 length (little-endian) and bytes of each. */
static struct bytes put_stops(const struct stop_set *stop, uint8_t *out)
{
	size_t n = 0;

	for (uint32_t i = 0; i < stop->n; i++) {
		out[n++] = (uint8_t)stop->len[i];
		out[n++] = (uint8_t)(stop->len[i] >> 8);
		memcpy(out + n, stop->text[i], stop->len[i]);
		n += stop->len[i];
	}
	return (struct bytes){out, n};
}

void link_send_adopt(void *router, struct request *r)
{
	struct router *rt = router;
	uint8_t stops[STOP_STRINGS_MAX * (STOP_BYTES_MAX + 2)];
	uint32_t n_generated = r->n_ids - r->n_prompt;
	struct msg_adopt m = {
		REQUEST_OF(rt, r),
		.source_id = bytes_of_str(r->p->id),
		.source_incarnation = r->p->incarnation,
		.link_path = bytes_of_str(r->p->link_path),
		.lease = r->lease,
		.pages = {(const uint8_t *)r->pages, r->n_pages * sizeof(*r->pages)},
		.slot = r->p_slot,
		.n_tokens = r->n_state,
		.generated = {(const uint8_t *)(r->ids + r->n_prompt),
			n_generated * sizeof(*r->ids)},
		.n_prompt = r->n_prompt,
		.max_tokens = r->max_tokens,
		.stop_ids = {(const uint8_t *)r->stop_ids,
			r->n_stop_ids * sizeof(*r->stop_ids)},
		.final = 1,
		.has_shared = r->lease_group != 0,
		.shared = r->lease_group,
		.choice = r->choice,
		.has_prompt = r->draw.repetition != 0 && r->draw.repetition != 1,
		.prompt = {(const uint8_t *)r->ids, r->n_prompt * sizeof(*r->ids)},
		.draw = r->draw,
		.has_trace = r->trace[0] != 0,
		.trace = bytes_of_str(r->trace),
	};

	if (r->stop != NULL && r->stop->n > 0) {
		m.has_stop_strings = true;
		m.stop_strings = put_stops(r->stop, stops);
	}
	log_debug("adopt req=%s seq=%llu attempt=%u from=%s to=%s", r->id,
		(unsigned long long)r->seq, r->attempt, r->p_name, r->d_name);
	link_send_worker(rt, r->d, MSG_adopt, &m);
}

void link_end_unknown(struct router *rt, struct worker_view *w, struct wire_request id)
{
	struct msg_cancel m = {.router = id.router, .seq = id.seq, .attempt = id.attempt};

	link_send_worker(rt, w, MSG_cancel, &m);
}

void link_send_cancel(void *router, struct request *r, struct worker_view *w)
{
	struct router *rt = router;
	struct msg_cancel m = {REQUEST_OF(rt, r)};

	link_send_worker(rt, w, MSG_cancel, &m);
}

void link_send_release(void *router, struct request *r, struct worker_view *w)
{
	struct router *rt = router;
	struct msg_release m = {.router = rt->incarnation,
		.seq = r->lease_seq,
		.attempt = r->lease_attempt,
		.lease = r->lease};

	link_send_worker(rt, w, MSG_release, &m);
}

/* ---- loss ---- */

static void move_requests(struct router *rt, struct worker_view *w, const char *text)
{
	for (uint32_t i = 0; i < rt->requests.capacity; i++)
		if (rt->requests.slot[i] != NULL)
			request_worker_lost(rt->requests.slot[i], w, text);
	router_wake(rt);
}

void link_lost(struct router *rt, struct worker_view *w, const char *why)
{
	struct msg_peer_down m = {
		.id = bytes_of_str(w->id), .incarnation = w->incarnation};
	char name[80], text[160];

	fleet_name(w, name);
	log_warn("worker %s is lost: %s", name, why);
	rt->metrics.counter[COUNTER_workers_lost]++;
	snprintf(text, sizeof(text), "The %s worker %s was lost",
		w->role == WIRE_PREFILL ? "prefill" : "decode", w->id);
	for (uint32_t i = 0; i < fleet_count(rt->fleet); i++) {
		struct worker_view *other = fleet_at(rt->fleet, i);

		if (other != w)
			link_send_worker(rt, other, MSG_peer_down, &m);
	}
	move_requests(rt, w, text);
	pairs_forget(&rt->pairs, w->key);
	fleet_bury(rt->fleet, w);
}
