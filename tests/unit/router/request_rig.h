/* A request between two imaginary workers: what would be sent is written down. */
#ifndef TESTS_UNIT_ROUTER_REQUEST_RIG_H
#define TESTS_UNIT_ROUTER_REQUEST_RIG_H
#include "fleet_fixture.h"

#include "common/base/mem.h"
#include "router/requests.h"

#define RIG_STOP_ID 9u /* ends an answer */
#define RIG_HIT_ID  8u /* completes a stop string */

struct rig {
	struct requests set;
	struct fleet *fleet;
	struct worker_view *p, *d, *d2;
	struct sink log; /* "prefill p0;adopt d0;..." since the last take */
	uint32_t delivered[64], n_delivered;
	uint32_t ends;
	enum request_finish finish;
	struct request *fail_on_deliver;
};

static inline void rig_note(struct rig *g, const char *what, const struct worker_view *w)
{
	sink_fmt(&g->log, "%s %s;", what, w->id);
}

static inline void rig_send_prefill(void *self, struct request *r)
{
	rig_note(self, "prefill", r->p);
}

static inline void rig_send_adopt(void *self, struct request *r)
{
	rig_note(self, "adopt", r->d);
}

static inline void rig_send_cancel(void *self, struct request *r, struct worker_view *w)
{
	(void)r;
	rig_note(self, "cancel", w);
}

static inline void rig_send_release(void *self, struct request *r, struct worker_view *w)
{
	(void)r;
	rig_note(self, "release", w);
}

static inline void rig_stop_prepare(void *self, struct request *r)
{
	struct rig *g = self;

	r->prepare = NULL;
	sink_str(&g->log, "stop prepare;");
}

static inline bool rig_deliver(
	void *self, struct request *r, const struct request_token *t)
{
	struct rig *g = self;

	if (!t->ends)
		g->delivered[g->n_delivered++ % COUNT(g->delivered)] = t->token;
	if (r == g->fail_on_deliver)
		request_cancel(r);
	return t->token == RIG_HIT_ID;
}

static inline void rig_score(
	void *self, struct request *r, const struct msg_prompt_logprobs *m)
{
	struct rig *g = self;

	(void)r;
	sink_fmt(&g->log, "scores %u;", (unsigned)m->from);
}

static inline void rig_end(void *self, struct request *r)
{
	struct rig *g = self;

	g->ends++;
	g->finish = r->finish;
}

static const struct request_ops rig_ops = {
	.send_prefill = rig_send_prefill,
	.send_adopt = rig_send_adopt,
	.send_cancel = rig_send_cancel,
	.send_release = rig_send_release,
	.stop_prepare = rig_stop_prepare,
	.deliver = rig_deliver,
	.score = rig_score,
	.end = rig_end,
};

static inline void rig_open(struct rig *g)
{
	*g = (struct rig){.fleet = fleet_create(&fleet_defaults)};
	requests_init(&g->set, 16, &rig_ops, g);
	g->set.n_vocab = 5000;
	g->p = join(g->fleet, "p0", 1, WIRE_PREFILL, 0);
	g->d = join(g->fleet, "d0", 2, WIRE_DECODE, 0);
	g->d2 = join(g->fleet, "d1", 3, WIRE_DECODE, 0);
	sink_init(&g->log, 4096);
}

/* Everything was given back, and nothing is held of any worker. */
static inline void rig_close(struct rig *g)
{
	requests_reap(&g->set);
	assert_int_equal(g->set.n, 0);
	for (uint32_t i = 0; i < fleet_count(g->fleet); i++) {
		const struct worker_view *w = fleet_at(g->fleet, i);

		assert_int_equal(w->held_slots, 0);
		assert_int_equal(w->held_pages, 0);
		assert_int_equal(w->held_tokens, 0);
		assert_int_equal(w->held_queue, 0);
	}
	requests_release(&g->set);
	fleet_destroy(g->fleet);
	sink_release(&g->log);
	assert_int_equal(mem_taken(), 0);
}

static inline void rig_sent(struct rig *g, const char *want)
{
	assert_string_equal(sink_cstr(&g->log), want);
	sink_reset(&g->log);
}

/* 100 tokens of prompt: two pages. */
static inline struct request *rig_request(struct rig *g, uint32_t max_tokens)
{
	static const uint32_t stop_ids[] = {RIG_STOP_ID};
	struct request *r = requests_add(&g->set);

	assert_non_null(r);
	r->ids = mem_take(100, sizeof(*r->ids));
	for (uint32_t i = 0; i < 100; i++)
		r->ids[i] = i + 1000;
	r->n_ids = r->n_prompt = r->ids_cap = 100;
	r->max_tokens = max_tokens;
	r->stop_ids = stop_ids;
	r->n_stop_ids = COUNT(stop_ids);
	return r;
}

static inline void rig_move(struct request *r, enum request_event ev, const void *what)
{
	struct err err;

	if (request_move(r, ev, what, &err) != ST_OK)
		fail_msg("%s", err.text);
}

static inline struct request_route rig_route(struct rig *g, const struct request *r)
{
	return (struct request_route){
		.p = g->p,
		.d = g->d,
		.p_hold = request_prefill_hold(r),
		.d_hold = request_decode_hold(r),
	};
}

static inline struct msg_prefilled rig_prefilled(
	const struct request *r, const struct wire_first *first)
{
	static const uint32_t pages[8] = {3, 4, 5, 6, 7, 8, 9, 10};

	return (struct msg_prefilled){
		.router = 1,
		.seq = r->seq,
		.attempt = r->attempt,
		.lease = 77,
		.pages = {(const uint8_t *)pages,
			CEIL_DIV(r->n_ids, 64u) * sizeof(*pages)},
		.slot = 2,
		.n_tokens = r->n_ids,
		.first = {(const uint8_t *)first, sizeof(*first)},
	};
}

/* d lets it go between two steps. */
static inline struct msg_offered rig_offered(const struct request *r)
{
	static const uint32_t pages[8] = {13, 14, 15, 16, 17, 18, 19, 20};

	return (struct msg_offered){
		.router = 1,
		.seq = r->seq,
		.attempt = r->attempt,
		.lease = 99,
		.pages = {(const uint8_t *)pages,
			CEIL_DIV(r->n_ids - 1, 64u) * sizeof(*pages)},
		.slot = 3,
		.n_tokens = r->n_ids - 1,
	};
}

static const struct msg_adopted rig_adopted = {
	.bytes = 4096, .transport = {(const uint8_t *)"shm", 3}};

/* Events up to this state, first token 11. */
static inline void rig_drive(struct rig *g, struct request *r, enum request_state state)
{
	struct wire_first first = {.token = 11};
	struct request_route route = rig_route(g, r);
	struct msg_prefilled m;

	if (state >= RQ_QUEUED)
		rig_move(r, EV_PREPARED, NULL);
	if (state >= RQ_PREFILL)
		rig_move(r, EV_DISPATCHED, &route);
	if (state == RQ_PLACE) /* its decode worker goes away meanwhile */
		request_worker_lost(r, g->d, "d0 was lost");
	m = rig_prefilled(r, &first);
	if (state >= RQ_PLACE)
		rig_move(r, EV_PREFILLED, &m);
	if (state >= RQ_DECODE)
		rig_move(r, EV_ADOPTED, &rig_adopted);
	assert_int_equal(r->state, state);
	sink_reset(&g->log);
}

static inline void rig_free_all(struct rig *g, struct request *r)
{
	struct worker_view *all[] = {g->p, g->d, g->d2};

	for (size_t i = 0; i < COUNT(all); i++)
		for (uint32_t attempt = 1; attempt <= r->attempt; attempt++)
			request_freed(r, all[i], attempt);
}

#endif
