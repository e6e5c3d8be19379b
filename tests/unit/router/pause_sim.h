/* A router's real request side between model workers: real messages in queues instead of
 * sockets, a clock that the test moves, and parties that stop for a while. The model
 * keeps the rules of common/worker/README.md and nothing else of a worker: what it holds,
 * for whom, and until when. */
#ifndef TESTS_UNIT_ROUTER_PAUSE_SIM_H
#define TESTS_UNIT_ROUTER_PAUSE_SIM_H
#include "request_rig.h"

#include "router/dispatch.h"
#include "router/link.h"

#include <stdlib.h>

#define STEP         MS(20) /* a tick of the programs */
#define BEAT         MS(500)
#define HELLO_AGAIN  MS(1000)
#define SILENT       MS(4000)
#define LEASE        MS(10000)
#define CLAIM        MS(5000)
#define SIM_SLOTS    8u
#define SIM_JOBS     16u
#define SIM_WORKERS  3u
#define CHOICES_MAX  3u
#define PREFILL_STEP 3u /* steps of the clock that a prompt takes */

/* A message under way. */
struct note {
	struct note *next;
	uint8_t type;
	size_t len;
	uint8_t body[];
};
struct queue {
	struct note *first, **end;
};

static inline void queue_put(struct queue *q, uint8_t type, struct bytes body)
{
	struct note *n = calloc(1, sizeof(*n) + body.len);

	assert_non_null(n);
	n->type = type;
	n->len = body.len;
	if (body.len > 0)
		memcpy(n->body, body.at, body.len);
	if (q->first == NULL)
		q->end = &q->first;
	*q->end = n;
	q->end = &n->next;
}

/* The caller frees it; NULL: empty. */
static inline struct note *queue_take(struct queue *q)
{
	struct note *n = q->first;

	if (n != NULL)
		q->first = n->next;
	return n;
}

static inline void queue_drop(struct queue *q)
{
	struct note *n;

	while ((n = queue_take(q)) != NULL)
		free(n);
}

enum sim_state { SIM_GONE, SIM_FILLING, SIM_EXPORTED, SIM_PULLING, SIM_RUNNING };

struct sim_job {
	enum sim_state state;
	struct wire_request r;
	uint64_t named, began_ns, expires_ns; /* on the worker's own clock */
	uint32_t n_steps, n_tokens;
	/* p */
	uint32_t n_choices, n_pages;
	uint64_t lease;            /* of the first choice; never 0 */
	bool offered[CHOICES_MAX]; /* the lease has not ended */
	bool disowned;
	/* d */
	uint64_t source_lease;
	uint32_t max_tokens, n_generated;
	bool told;
};

struct sim_worker {
	char id[8], peer[16];
	uint64_t incarnation, ran_ns; /* its clock stands while it does */
	uint8_t role;
	bool live;
	uint64_t heard_ns, hello_ns, beat_ns, beats;
	uint64_t paused_until_ns;
	struct sim_job job[SIM_JOBS];
	struct queue in, out;
};

struct sim {
	struct router rt;
	struct router_conf conf;
	struct sim_worker w[SIM_WORKERS];
	uint64_t paused_until_ns, beat_ns, last_lease, ends, right;
	bool deaf; /* workers do not read what beats name */
	void *msg;
	struct sink encoded;
};

static struct sim *the_sim; /* of bus_send, which knows only a bus */
static uint64_t sim_now_ns;

static inline uint64_t sim_clock(void)
{
	return sim_now_ns;
}

/* ---- what a worker does ---- */

static inline void sim_say(
	struct sim *x, struct sim_worker *w, uint8_t type, const void *msg)
{
	struct err err;

	if (!w->live && type != MSG_hello)
		return;
	sink_reset(&x->encoded);
	if (wire_encode(wire_find(type), msg, &x->encoded, &err) != ST_OK)
		fail_msg("%s", err.text);
	queue_put(&w->out, type, sink_bytes(&x->encoded));
}

#define SIM_REQUEST(id) .router = (id).router, .seq = (id).seq, .attempt = (id).attempt

static inline void sim_hello(struct sim *x, struct sim_worker *w)
{
	struct msg_hello m = hello_of(w->id, w->incarnation, w->role);

	m.slots = SIM_SLOTS;
	w->hello_ns = w->ran_ns;
	sim_say(x, w, MSG_hello, &m);
}

static inline struct sim_job *sim_find(struct sim_worker *w, struct wire_request r)
{
	for (uint32_t i = 0; i < SIM_JOBS; i++)
		if (w->job[i].state != SIM_GONE && w->job[i].r.router == r.router &&
			w->job[i].r.seq == r.seq && w->job[i].r.attempt == r.attempt)
			return &w->job[i];
	return NULL;
}

static inline uint32_t sim_held(const struct sim_worker *w)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < SIM_JOBS; i++)
		n += w->job[i].state != SIM_GONE;
	return n;
}

static inline void sim_freed(struct sim *x, struct sim_worker *w, struct wire_request r)
{
	struct msg_freed m = {SIM_REQUEST(r)};

	sim_say(x, w, MSG_freed, &m);
}

static inline void sim_end(struct sim *x, struct sim_worker *w, struct sim_job *j,
	enum wire_finish reason, bool say)
{
	struct msg_finished m = {
		SIM_REQUEST(j->r), .reason = reason, .n_generated = j->n_generated};

	if (say)
		sim_say(x, w, MSG_finished, &m);
	j->state = SIM_GONE;
	sim_freed(x, w, j->r);
}

static inline void sim_lease_end(
	struct sim *x, struct sim_worker *p, struct sim_job *j, uint32_t k)
{
	j->offered[k] = false;
	for (uint32_t i = 0; i < j->n_choices; i++)
		if (j->offered[i])
			return;
	sim_end(x, p, j, FINISH_CANCELLED, false);
}

/* Somebody does not want it any more. */
static inline void sim_cancel(struct sim *x, struct sim_worker *w, struct sim_job *j)
{
	if (j->state != SIM_EXPORTED) {
		sim_end(x, w, j, FINISH_CANCELLED, true);
		return;
	}
	for (uint32_t k = 0; k < j->n_choices && j->state != SIM_GONE; k++)
		sim_lease_end(x, w, j, k);
}

/* It took its router for lost, or was. */
static inline void sim_forget(struct sim *x, struct sim_worker *w)
{
	w->live = false;
	for (uint32_t i = 0; i < SIM_JOBS; i++)
		if (w->job[i].state != SIM_GONE && w->job[i].state != SIM_EXPORTED)
			w->job[i].state = SIM_GONE;
	sim_hello(x, w);
}

static inline void sim_beat(struct sim *x, struct sim_worker *w)
{
	struct msg_beat m = {.incarnation = w->incarnation,
		.has_number = true,
		.number = ++w->beats,
		.has_slots_free = true,
		.slots_free = SIM_SLOTS - MIN(sim_held(w), SIM_SLOTS),
		.has_pages_free = true,
		.pages_free = 100};

	w->beat_ns = w->ran_ns;
	sim_say(x, w, MSG_beat, &m);
}

/* ---- what it is told ---- */

static inline struct sim_job *sim_take_job(
	struct sim *x, struct sim_worker *w, struct wire_request r)
{
	struct msg_rejected m = {SIM_REQUEST(r), .reason = REJECT_FULL, .later = 1};

	for (uint32_t i = 0; i < SIM_JOBS && sim_held(w) < SIM_SLOTS; i++)
		if (w->job[i].state == SIM_GONE) {
			w->job[i] = (struct sim_job){.r = r, .began_ns = w->ran_ns};
			return &w->job[i];
		}
	sim_say(x, w, MSG_rejected, &m);
	return NULL;
}

static inline void sim_on_prefill(
	struct sim *x, struct sim_worker *w, const struct msg_prefill *m)
{
	struct sim_job *j = sim_take_job(x, w, wire_request_of(m));

	if (j == NULL)
		return;
	j->state = SIM_FILLING;
	j->n_tokens = (uint32_t)wire_count(m->ids, uint32_t);
	j->n_choices = (uint32_t)m->n;
	j->n_steps = PREFILL_STEP;
}

static inline void sim_on_adopt(
	struct sim *x, struct sim_worker *w, const struct msg_adopt *m)
{
	struct sim_job *j = sim_take_job(x, w, wire_request_of(m));

	if (j == NULL)
		return;
	j->state = SIM_PULLING;
	j->source_lease = m->lease;
	j->max_tokens = (uint32_t)m->max_tokens;
	j->n_generated = (uint32_t)wire_count(m->generated, uint32_t);
}

static inline void sim_on_beat(
	struct sim *x, struct sim_worker *w, const struct msg_beat *m)
{
	for (size_t i = 0; i < wire_count(m->held, struct wire_held); i++) {
		struct msg_absent absent = {
			.router = m->incarnation, .number = m->number};
		struct wire_held h;
		struct sim_job *j;

		wire_get(m->held, i, &h, sizeof(h));
		j = sim_find(w, (struct wire_request){m->incarnation, h.seq, h.attempt});
		absent.seq = h.seq;
		absent.attempt = h.attempt;
		if (j == NULL)
			sim_say(x, w, MSG_absent, &absent);
		else
			j->named = m->number;
		if (j != NULL && !h.wanted)
			sim_cancel(x, w, j);
	}
	for (uint32_t i = 0; i < SIM_JOBS; i++) {
		struct sim_job *j = &w->job[i];

		if (j->state == SIM_GONE || j->named == m->number)
			continue;
		j->disowned = true;
		if (j->state != SIM_EXPORTED)
			sim_cancel(x, w, j);
	}
}

static inline void sim_on_release(
	struct sim *x, struct sim_worker *w, const struct msg_release *m)
{
	struct sim_job *j = sim_find(w, wire_request_of(m));

	if (j == NULL)
		sim_freed(x, w, wire_request_of(m));
	else if (j->state == SIM_EXPORTED && m->lease - j->lease < j->n_choices)
		sim_lease_end(x, w, j, (uint32_t)(m->lease - j->lease));
}

static inline void sim_on_cancel(
	struct sim *x, struct sim_worker *w, const struct msg_cancel *m)
{
	struct sim_job *j = sim_find(w, wire_request_of(m));

	if (j == NULL)
		sim_freed(x, w, wire_request_of(m));
	else
		sim_cancel(x, w, j);
}

static inline void sim_hear(struct sim *x, struct sim_worker *w, const struct note *n)
{
	struct bytes body = {n->body, n->len};
	struct err err;

	if (wire_decode(wire_find(n->type), body, x->msg, &err) != ST_OK)
		fail_msg("%s", err.text);
	w->heard_ns = w->ran_ns;
	if (n->type == MSG_hello)
		w->live = true;
	else if (n->type == MSG_refused)
		sim_forget(x, w);
	else if (!w->live)
		return;
	else if (n->type == MSG_prefill)
		sim_on_prefill(x, w, x->msg);
	else if (n->type == MSG_adopt)
		sim_on_adopt(x, w, x->msg);
	else if (n->type == MSG_release)
		sim_on_release(x, w, x->msg);
	else if (n->type == MSG_cancel)
		sim_on_cancel(x, w, x->msg);
	else if (n->type == MSG_beat && !x->deaf)
		sim_on_beat(x, w, x->msg);
}

/* ---- its work ---- */

static inline void sim_prefilled(struct sim *x, struct sim_worker *w, struct sim_job *j)
{
	static const uint32_t pages[4] = {1, 2, 3, 4};
	struct wire_first first[CHOICES_MAX] = {
		{.token = 21}, {.token = 22}, {.token = 23}};
	struct msg_prefilled m = {SIM_REQUEST(j->r), .lease = x->last_lease + 1,
		.pages = {(const uint8_t *)pages,
			CEIL_DIV(j->n_tokens, 64u) * sizeof(*pages)},
		.slot = 1, .n_tokens = j->n_tokens,
		.first = {(const uint8_t *)first, j->n_choices * sizeof(*first)}};

	j->lease = m.lease;
	x->last_lease += j->n_choices;
	for (uint32_t k = 0; k < j->n_choices; k++)
		j->offered[k] = true;
	j->expires_ns = w->ran_ns + LEASE;
	j->state = SIM_EXPORTED;
	sim_say(x, w, MSG_prefilled, &m);
}

/* The lease's place at its worker; NULL: it has ended. */
static inline struct sim_job *sim_lease(struct sim_worker *p, uint64_t lease)
{
	for (uint32_t i = 0; i < SIM_JOBS; i++)
		if (p->job[i].state == SIM_EXPORTED &&
			lease - p->job[i].lease < p->job[i].n_choices &&
			p->job[i].offered[lease - p->job[i].lease])
			return &p->job[i];
	return NULL;
}

static inline void sim_pull(struct sim *x, struct sim_worker *d, struct sim_job *j)
{
	struct msg_rejected no = {SIM_REQUEST(j->r), .reason = REJECT_SOURCE, .later = 1};
	struct msg_adopted m = {SIM_REQUEST(j->r), .transport = BYTES_STR("shm")};
	struct sim_worker *p = &x->w[0];
	struct sim_job *source = sim_lease(p, j->source_lease);

	if (p->paused_until_ns > sim_now_ns && d->ran_ns - j->began_ns < CLAIM)
		return; /* it does not answer yet */
	if (source == NULL || p->paused_until_ns > sim_now_ns) {
		j->state = SIM_GONE;
		sim_say(x, d, MSG_rejected, &no);
		return;
	}
	j->state = SIM_RUNNING;
	sim_say(x, d, MSG_adopted, &m);
	sim_lease_end(x, p, source, (uint32_t)(j->source_lease - source->lease));
}

static inline void sim_run(struct sim *x, struct sim_worker *d, struct sim_job *j)
{
	struct wire_token token = {
		.seq = j->r.seq, .attempt = (uint32_t)j->r.attempt, .token = 30};
	struct msg_tokens m = {.router = j->r.router,
		.records = {(const uint8_t *)&token, sizeof(token)}};

	if (j->n_generated < j->max_tokens) {
		j->n_generated++;
		sim_say(x, d, MSG_tokens, &m);
	}
	if (j->n_generated >= j->max_tokens)
		sim_end(x, d, j, FINISH_LENGTH, true);
}

static inline void sim_work(struct sim *x, struct sim_worker *w)
{
	for (uint32_t i = 0; i < SIM_JOBS; i++) {
		struct sim_job *j = &w->job[i];

		if (j->state == SIM_FILLING && j->n_steps-- == 0)
			sim_prefilled(x, w, j);
		else if (j->state == SIM_PULLING)
			sim_pull(x, w, j);
		else if (j->state == SIM_RUNNING)
			sim_run(x, w, j);
		else if (j->state == SIM_EXPORTED && w->live && !j->disowned)
			j->expires_ns = w->heard_ns + LEASE;
		if (j->state == SIM_EXPORTED && w->ran_ns >= j->expires_ns)
			sim_cancel(x, w, j);
	}
}

static inline void sim_worker_step(struct sim *x, struct sim_worker *w)
{
	struct note *n;

	if (w->paused_until_ns > sim_now_ns)
		return;
	w->ran_ns += STEP;
	while ((n = queue_take(&w->in)) != NULL) {
		sim_hear(x, w, n);
		free(n);
	}
	if (w->live && w->ran_ns - w->heard_ns > SILENT)
		sim_forget(x, w);
	else if (!w->live && w->ran_ns - w->hello_ns >= HELLO_AGAIN)
		sim_hello(x, w);
	sim_work(x, w);
	if (w->ran_ns - w->beat_ns >= BEAT)
		sim_beat(x, w);
}

#endif
