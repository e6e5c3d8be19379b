/* Workers known to this router. */
#include "router/fleet.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/mem.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A worker that has nothing free and does nothing for so long takes no request. Passes of
 * a busy one end, or are under way, in every beat. */
#define STUCK_NS (5 * NS_PER_S)

struct fleet {
	struct fleet_options options;
	struct worker_view *w[FLEET_WORKERS_MAX]; /* the first n are in use */
	uint32_t n;
	uint64_t grave[FLEET_GRAVES_MAX]; /* keys of lost incarnations, a ring */
	uint32_t n_graves;
};

static const uint8_t may_follow[WORKER__STATES] = {
	[WORKER_UNUSED] = MAY(WORKER_KNOWN),
	[WORKER_KNOWN] = MAY(WORKER_KNOWN) | MAY(WORKER_SILENT) | MAY(WORKER_LOST),
	[WORKER_SILENT] = MAY(WORKER_KNOWN) | MAY(WORKER_SILENT) | MAY(WORKER_LOST),
	[WORKER_LOST] = MAY(WORKER_UNUSED),
};

/* What holds of a worker in each state. */
static void check(const struct worker_view *w)
{
	assert(w->state != WORKER_UNUSED ||
		(w->held_slots == 0 && w->held_queue == 0 && w->held_pages == 0 &&
			w->held_tokens == 0));
	assert(w->state == WORKER_UNUSED || w->id[0] != 0);
	assert(w->draining == (w->says_draining || w->told));
	assert(w->says_draining || (!w->drained && !w->ends));
}

static void set_state(struct worker_view *w, enum worker_state state)
{
	assert((may_follow[w->state] & MAY(state)) != 0);
	w->state = state;
	check(w);
}

struct fleet *fleet_create(const struct fleet_options *options)
{
	struct fleet *f = mem_alloc(1, sizeof(*f));

	f->options = *options;
	for (uint32_t i = 0; i < FLEET_WORKERS_MAX; i++)
		f->w[i] = mem_alloc(1, sizeof(*f->w[i]));
	return f;
}

void fleet_destroy(struct fleet *f)
{
	if (f == NULL)
		return;
	for (uint32_t i = 0; i < FLEET_WORKERS_MAX; i++)
		mem_free(f->w[i]);
	mem_free(f);
}

static uint64_t key_of(struct bytes id, uint64_t incarnation)
{
	return hash64(id.at, id.len, incarnation);
}

/* Printable ASCII: it is shown in logs, metrics and JSON. */
static void copy_text(char *out, size_t size, struct bytes text)
{
	size_t n = MIN(text.len, size - 1);

	for (size_t i = 0; i < n; i++)
		out[i] = text.at[i] >= 0x20 && text.at[i] < 0x7F ? (char)text.at[i] : '?';
	out[n] = 0;
}

static bool is_id(struct bytes id)
{
	for (size_t i = 0; i < id.len; i++)
		if (id.at[i] <= 0x20 || id.at[i] >= 0x7F || id.at[i] == '#')
			return false;
	return id.len > 0 && id.len <= FLEET_ID_MAX;
}

static bool is_grave(const struct fleet *f, uint64_t key)
{
	for (uint32_t i = 0; i < MIN(f->n_graves, FLEET_GRAVES_MAX); i++)
		if (f->grave[i] == key)
			return true;
	return false;
}

static void unbury(struct fleet *f, uint64_t key)
{
	for (uint32_t i = 0; i < MIN(f->n_graves, FLEET_GRAVES_MAX); i++)
		if (f->grave[i] == key)
			f->grave[i] = 0;
}

/* What makes a hello unacceptable whoever sends it. */
static status check_hello(const struct fleet *f, const struct msg_hello *m,
	enum wire_refusal *code, struct err *err)
{
	if (m->proto_min > WIRE_PROTO_MAX || m->proto_max < WIRE_PROTO_MIN) {
		*code = REFUSED_PROTOCOL;
		return err_set(err, ST_PEER,
			"protocol %" PRIu64 "..%" PRIu64 " of %.*s, ours is %u..%u",
			m->proto_min, m->proto_max, (int)m->id.len,
			(const char *)m->id.at, WIRE_PROTO_MIN, WIRE_PROTO_MAX);
	}
	*code = REFUSED_MALFORMED;
	if (m->role != WIRE_PREFILL && m->role != WIRE_DECODE)
		return err_set(err, ST_PEER, "role %" PRIu64 " is no worker", m->role);
	if (!is_id(m->id))
		return err_set(err, ST_PEER,
			"an id has 1 to %u printable characters without space and '#'",
			FLEET_ID_MAX);
	if (!m->reconciles)
		return err_set(err, ST_PEER,
			"a worker that does not answer what beats name as held");
	if (!m->has_compat_hash || !m->has_model_hash || !m->has_tokenizer_hash ||
		!m->has_pages || !m->has_slots || !m->has_link_path || !m->has_len_max)
		return err_set(err, ST_PEER, "a worker's hello without its capacities");
	if (m->tokenizer_hash != f->options.tokenizer_hash) {
		*code = REFUSED_TOKENIZER;
		return err_set(err, ST_PEER,
			"tokenizer hash %016" PRIx64
			" of %.*s, this router's is %016" PRIx64,
			m->tokenizer_hash, (int)m->id.len, (const char *)m->id.at,
			f->options.tokenizer_hash);
	}
	return ST_OK;
}

/* One peer speaks for one worker, and nobody else does. */
static status check_peer(const struct worker_view *w, struct bytes peer,
	const struct msg_hello *m, enum wire_refusal *code, struct err *err)
{
	bool same_peer =
		bytes_eq(peer, (struct bytes){(const uint8_t *)w->peer, w->n_peer});
	bool same =
		w->incarnation == m->incarnation && bytes_eq(m->id, bytes_of_str(w->id));

	if (same == same_peer || w->state == WORKER_LOST)
		return ST_OK;
	*code = REFUSED_ID_IN_USE;
	return err_set(err, ST_PEER,
		same ? "%s of incarnation %016" PRIx64 " is connected as another peer"
		     : "this peer is %s of incarnation %016" PRIx64 " already",
		w->id, w->incarnation);
}

static status refuse_compat(
	const struct worker_view *w, const struct msg_hello *m, struct err *err)
{
	if (w->model_hash != m->model_hash)
		return err_set(err, ST_PEER,
			"weights %016" PRIx64 " of %.*s, those of %s are %016" PRIx64
			" (another checkpoint, or one that was changed since)",
			m->model_hash, (int)m->id.len, (const char *)m->id.at, w->id,
			w->model_hash);
	return err_set(err, ST_PEER,
		"compat hash %016" PRIx64 " of %.*s, that of %s is %016" PRIx64
		" (another page size or state type)",
		m->compat_hash, (int)m->id.len, (const char *)m->id.at, w->id,
		w->compat_hash);
}

/* Against the workers that live: one model, one holder of an id. */
static status check_others(const struct fleet *f, struct bytes peer,
	const struct msg_hello *m, enum wire_refusal *code, struct err *err)
{
	for (uint32_t i = 0; i < f->n; i++) {
		const struct worker_view *w = f->w[i];

		if (bytes_eq(m->id, bytes_of_str(w->id)) &&
			w->incarnation != m->incarnation) {
			*code = REFUSED_ID_IN_USE;
			return err_set(err, ST_PEER,
				"id %s is in use by incarnation %016" PRIx64
				", this one is %016" PRIx64,
				w->id, w->incarnation, m->incarnation);
		}
		if (check_peer(w, peer, m, code, err) != ST_OK)
			return ST_PEER;
		if (w->compat_hash != m->compat_hash) {
			*code = REFUSED_COMPAT;
			return refuse_compat(w, m, err);
		}
	}
	return ST_OK;
}

static void fill(struct worker_view *w, struct bytes peer, int conn,
	const struct msg_hello *m, uint64_t now_ns)
{
	copy_text(w->id, sizeof(w->id), m->id);
	w->incarnation = m->incarnation;
	w->n_peer = (uint32_t)peer.len;
	memcpy(w->peer, peer.at, peer.len);
	w->conn = conn;
	w->role = (uint8_t)m->role;
	w->says_draining = w->draining = m->draining != 0;
	w->told = w->drained = w->ends = false;
	w->heard_ns = w->moved_ns = now_ns;
	w->key = key_of(m->id, m->incarnation);
	w->slots = (uint32_t)m->slots;
	w->pages = (uint32_t)m->pages;
	w->len_max = (uint32_t)m->len_max;
	w->pid = (uint32_t)m->pid;
	w->compat_hash = m->compat_hash;
	w->model_hash = m->model_hash;
	copy_text(w->link_path, sizeof(w->link_path), m->link_path);
	copy_text(w->gpus, sizeof(w->gpus), m->gpus);
	copy_text(w->transport, sizeof(w->transport), m->transport);
	copy_text(w->build, sizeof(w->build), m->build);
	set_state(w, WORKER_KNOWN);
}

status fleet_hello(struct fleet *f, struct bytes peer, int conn,
	const struct msg_hello *m, uint64_t now_ns, struct worker_view **out,
	enum wire_refusal *code, struct err *err)
{
	struct worker_view *w;
	status st;

	assert(peer.len <= BUS_PEER_ID_MAX);
	st = check_hello(f, m, code, err);
	if (st == ST_OK)
		st = check_others(f, peer, m, code, err);
	if (st != ST_OK)
		return st;
	for (uint32_t i = 0; i < f->n; i++)
		if (f->w[i]->incarnation == m->incarnation &&
			bytes_eq(m->id, bytes_of_str(f->w[i]->id))) {
			fill(f->w[i], peer, conn, m, now_ns);
			*out = f->w[i];
			return ST_OK;
		}
	if (f->n == FLEET_WORKERS_MAX) {
		*code = REFUSED_ID_IN_USE; /* retried by the worker: a place may come free
					    */
		return err_set(err, ST_LIMIT,
			"%u workers are connected, no more are taken", FLEET_WORKERS_MAX);
	}
	w = f->w[f->n++];
	memset(w, 0, sizeof(*w));
	fill(w, peer, conn, m, now_ns);
	w->hello_ns = now_ns;
	w->slots_free = w->slots;
	w->pages_free = w->pages;
	unbury(f, w->key);
	*out = w;
	return ST_OK;
}

struct worker_view *fleet_heard(
	struct fleet *f, struct bytes peer, int conn, uint64_t now_ns)
{
	for (uint32_t i = 0; i < f->n; i++) {
		struct worker_view *w = f->w[i];

		if (w->state == WORKER_LOST || w->n_peer != peer.len ||
			memcmp(w->peer, peer.at, peer.len) != 0)
			continue;
		w->heard_ns = now_ns;
		w->conn = conn;
		set_state(w, WORKER_KNOWN);
		return w;
	}
	return NULL;
}

void fleet_beat(struct worker_view *w, const struct msg_beat *m, uint64_t now_ns)
{
	size_t n = MIN(wire_count(m->stats, uint64_t), (size_t)STAT__COUNT);

	if ((m->slots_free > 0 && m->pages_free > 0) || m->step != w->step ||
		m->oldest_ms > 0)
		w->moved_ns = now_ns;
	if (m->step != w->step)
		w->worked_ns = now_ns;
	w->beat = m->number;
	w->step = m->step;
	w->oldest_ms = m->oldest_ms;
	w->slots_free = (uint32_t)m->slots_free;
	w->pages_free = (uint32_t)m->pages_free;
	w->running = (uint32_t)m->running;
	w->queued = (uint32_t)m->queued;
	w->queued_tokens = m->queued_tokens;
	w->n_routers = m->routers;
	w->full = false;
	w->says_draining = m->draining != 0;
	w->told = w->told && !w->says_draining;
	w->draining = w->says_draining || w->told;
	w->drained = w->says_draining && m->drained != 0;
	w->ends = w->says_draining && m->ends != 0;
	if (m->has_transport && m->transport.len > 0)
		copy_text(w->transport, sizeof(w->transport), m->transport);
	for (size_t i = 0; i < n; i++)
		wire_get(m->stats, i, &w->stats.v[i], sizeof(uint64_t));
}

struct worker_view *fleet_find(struct fleet *f, struct bytes id)
{
	for (uint32_t i = 0; i < f->n; i++)
		if (bytes_eq(id, bytes_of_str(f->w[i]->id)))
			return f->w[i];
	return NULL;
}

void fleet_told_to_drain(struct worker_view *w)
{
	w->told = !w->says_draining;
	w->draining = true;
}

enum fleet_shown fleet_shown(const struct worker_view *w)
{
	if (w->state == WORKER_LOST)
		return SHOWN_lost;
	if (w->state == WORKER_SILENT)
		return SHOWN_silent;
	if (!w->draining)
		return SHOWN_up;
	return w->drained ? SHOWN_drained : SHOWN_draining;
}

const char *fleet_shown_name(enum fleet_shown shown)
{
	static const char *const names[] = {
#define X(name) #name,
		FLEET_SHOWN_MAP(X)
#undef X
	};

	assert(shown < SHOWN__COUNT);
	return names[shown];
}

struct worker_view *fleet_tick(struct fleet *f, uint64_t now_ns)
{
	for (uint32_t i = 0; i < f->n; i++) {
		struct worker_view *w = f->w[i];
		uint64_t quiet = now_ns - MIN(w->heard_ns, now_ns);

		if (w->state == WORKER_LOST)
			continue;
		if (w->broken || quiet >= f->options.lost_ns) {
			set_state(w, WORKER_LOST);
			return w;
		}
		set_state(
			w, quiet >= f->options.silent_ns ? WORKER_SILENT : WORKER_KNOWN);
	}
	return NULL;
}

void fleet_failed(struct worker_view *w)
{
	set_state(w, WORKER_LOST);
}

struct worker_view *fleet_disconnected(struct fleet *f, int conn)
{
	for (uint32_t i = 0; i < f->n; i++)
		if (f->w[i]->conn == conn && conn >= 0 && f->w[i]->state != WORKER_LOST) {
			set_state(f->w[i], WORKER_LOST);
			return f->w[i];
		}
	return NULL;
}

void fleet_bury(struct fleet *f, struct worker_view *w)
{
	set_state(w, WORKER_UNUSED);
	if (!is_grave(f, w->key))
		f->grave[f->n_graves++ % FLEET_GRAVES_MAX] = w->key;
	for (uint32_t i = 0; i < f->n; i++) {
		if (f->w[i] != w)
			continue;
		memmove(&f->w[i], &f->w[i + 1], (f->n - i - 1) * sizeof(f->w[0]));
		f->w[--f->n] = w;
		return;
	}
}

uint32_t fleet_count(const struct fleet *f)
{
	return f->n;
}

struct worker_view *fleet_at(struct fleet *f, uint32_t i)
{
	assert(i < f->n);
	return f->w[i];
}

uint32_t fleet_usable(const struct fleet *f, uint8_t role)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->n; i++)
		n += f->w[i]->role == role && f->w[i]->state == WORKER_KNOWN &&
		     !f->w[i]->draining;
	return n;
}

/* With one router its own book is exact and newer than any beat; with several, a
 * router may count on its share of what the worker last said was free. */
static uint64_t credit(
	uint64_t total, uint64_t held, uint64_t free_now, uint64_t n_routers)
{
	uint64_t mine = total - MIN(held, total);

	return n_routers <= 1 ? mine : MIN(mine, free_now / n_routers);
}

uint32_t fleet_snapshot(const struct fleet *f, uint8_t role, uint64_t now_ns,
	struct sched_worker out[FLEET_WORKERS_MAX], uint32_t index[FLEET_WORKERS_MAX])
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->n; i++) {
		const struct worker_view *w = f->w[i];

		if (w->role != role)
			continue;
		index[n] = i;
		out[n++] = (struct sched_worker){
			.key = w->key,
			.alive = w->state == WORKER_KNOWN,
			.stuck = now_ns - MIN(w->moved_ns, now_ns) >= STUCK_NS,
			.draining = w->draining,
			.untouched = w->held_slots == 0,
			.slots = (uint32_t)credit(
				w->slots, w->held_slots, w->slots_free, w->n_routers),
			.slots_free = MIN(w->slots_free, w->slots),
			.slots_all = w->slots,
			.pages = credit(
				w->pages, w->held_pages, w->pages_free, w->n_routers),
			.pages_free = MIN(w->pages_free, w->pages),
			.pages_all = w->pages,
			.pages_old = w->old_pages,
			.outstanding = MAX(w->held_tokens, w->queued_tokens),
			.queue = w->full ? 0
					 : f->options.queue_max -
						   MIN(w->held_queue,
							   f->options.queue_max),
			.len_max = w->len_max,
		};
	}
	return n;
}

void fleet_hold(struct worker_view *w, const struct fleet_hold *h)
{
	w->held_slots += h->slots;
	w->held_queue += h->queue;
	w->held_pages += h->pages;
	w->held_tokens += h->tokens;
	w->requests++;
}

void fleet_age(struct worker_view *w, uint64_t round)
{
	w->old_pages = w->held_pages;
	w->old_round = round;
}

void fleet_unhold(struct worker_view *w, const struct fleet_hold *h)
{
	assert(w->held_slots >= h->slots && w->held_pages >= h->pages);
	assert(w->held_tokens >= h->tokens && w->held_queue >= h->queue);
	if (h->round <= w->old_round)
		w->old_pages -= MIN(w->old_pages, h->pages);
	w->held_slots -= h->slots;
	w->held_queue -= h->queue;
	w->held_pages -= h->pages;
	w->held_tokens -= h->tokens;
}

void fleet_name(const struct worker_view *w, char out[80])
{
	snprintf(out, 80, "%s#%016" PRIx64, w->id, w->incarnation);
}
