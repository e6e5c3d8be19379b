/* Random lives: workers say anything that a serving worker can say, at any time, die and
 * give things back late. Whatever they do, each request ends once, and nothing stays
 * held. */
#include "request_rig.h"

#define LIVES 20000u
#define STEPS 60u

static uint64_t draw(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static uint32_t below(uint64_t *s, uint32_t n)
{
	return (uint32_t)(draw(s) >> 20) % n;
}

/* What p may say: the handlers let nobody else speak for it. */
static void p_speaks(struct request *r, uint64_t *s)
{
	static const enum wire_finish reasons[] = {
		FINISH_NAN, FINISH_ERROR, FINISH_CANCELLED, FINISH_STOP_TOKEN};
	struct msg_finished finished = {.reason = reasons[below(s, COUNT(reasons))]};
	struct msg_rejected rejected = {.reason = below(s, REJECT__COUNT)};
	struct wire_first first = {.token = below(s, 40)};
	struct msg_prefilled m = rig_prefilled(r, &first);

	switch (below(s, 12)) {
	case 0:
		rig_move(r, EV_P_FINISHED, &finished);
		break;
	case 1:
		request_return(r, r->p, r->attempt);
		rig_move(r, EV_P_LATER, &rejected);
		break;
	case 2:
		request_return(r, r->p, r->attempt);
		rig_move(r, EV_P_REJECTED, &rejected);
		break;
	case 3:
		request_freed(r, r->p, r->attempt);
		break;
	default:
		m.n_tokens += below(s, 20) == 0;
		rig_move(r, EV_PREFILLED, &m);
	}
}

static void d_speaks(struct request *r, uint64_t *s)
{
	struct msg_finished finished = {.reason = below(s, FINISH__COUNT + 1)};
	struct msg_rejected rejected = {.reason = below(s, REJECT__COUNT)};
	struct request_token t = {.token = below(s, 40)};
	struct msg_offered offered = rig_offered(r);

	switch (below(s, 16)) {
	case 0:
		rig_move(r, EV_D_FINISHED, &finished);
		break;
	case 1:
		request_return(r, r->d, r->attempt);
		rig_move(r, EV_D_LATER, &rejected);
		break;
	case 2:
		request_return(r, r->d, r->attempt);
		rig_move(r, EV_D_REJECTED, &rejected);
		break;
	case 3:
		request_freed(r, r->d, r->attempt);
		break;
	case 4:
		rig_move(r, EV_EVICTED, NULL);
		break;
	case 5:
		offered.n_tokens += below(s, 10) == 0;
		rig_move(r, EV_OFFERED, &offered);
		break;
	default:
		if (r->state == RQ_HANDOVER && below(s, 30) != 0)
			rig_move(r, EV_ADOPTED, &rig_adopted);
		else
			rig_move(r, EV_TOKEN, &t);
	}
}

static void we_act(struct rig *g, struct request *r, uint64_t *s)
{
	struct request_route route = rig_route(g, r);
	struct api_error e;

	if (below(s, 2) == 0)
		route.d = g->d2;
	switch (r->state) {
	case RQ_PREPARE:
		rig_move(r, EV_PREPARED, NULL);
		break;
	case RQ_QUEUED:
		rig_move(r, EV_DISPATCHED, &route);
		break;
	case RQ_PLACE:
		rig_move(r, EV_PLACED, r->d != NULL ? NULL : &route);
		break;
	case RQ_PREFILL:
	case RQ_HANDOVER:
	case RQ_DECODE:
	case RQ_DONE:
	case RQ__STATES:
		break;
	}
	if (below(s, 50) == 0)
		request_cancel(r);
	api_error_set(&e, 503, "test", NULL, "The test gives up.");
	if (below(s, 50) == 0)
		request_fail(r, &e, false);
}

static void step(struct rig *g, struct request *r, uint64_t *s)
{
	struct worker_view *all[] = {g->p, g->d, g->d2};
	struct worker_view *w = all[below(s, 3)];

	switch (below(s, 12)) {
	case 0:
	case 1:
	case 2:
		we_act(g, r, s);
		break;
	case 3:
		request_freed(r, w, 1 + below(s, r->attempt));
		break;
	case 4:
		if (below(s, 4) == 0) /* it comes back with nothing */
			request_worker_lost(r, w, "It was lost");
		break;
	default:
		if (r->p != NULL && below(s, 2) == 0)
			p_speaks(r, s);
		else if (r->d != NULL && r->adopt_sent)
			d_speaks(r, s);
	}
}

static void whatever_workers_do_a_request_ends_once_and_nothing_stays_held(void **state)
{
	uint64_t seed = UINT64_C(0x9E3779B97F4A7C15);
	uint64_t finishes[5] = {0};
	struct rig g;

	(void)state;
	rig_open(&g);
	g.set.max_replays = 2;
	for (uint32_t life = 0; life < LIVES; life++) {
		struct request *r = rig_request(&g, 1 + below(&seed, 30));

		g.ends = 0;
		g.fail_on_deliver = below(&seed, 20) == 0 ? r : NULL;
		for (uint32_t i = 0; i < STEPS; i++)
			step(&g, r, &seed);
		request_cancel(r);
		assert_int_equal(g.ends, 1);
		finishes[r->finish]++;
		rig_free_all(&g, r);
		sink_reset(&g.log);
		requests_reap(&g.set);
		assert_int_equal(g.set.n, 0);
	}
	/* The walk reaches every kind of end. */
	for (int i = REQUEST_STOP; i <= REQUEST_CANCELLED; i++)
		assert_true(finishes[i] > 100);
	assert_true(g.set.replays > 100);
	rig_close(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			whatever_workers_do_a_request_ends_once_and_nothing_stays_held),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
