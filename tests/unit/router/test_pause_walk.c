/* Random pauses of the router and of workers, alone and together: each request ends once,
 * and when all have run for a while again nothing is held on either side. */
#include "pause_sim.h"

#include "common/base/log.h"

#define WALK_NS   (60 * NS_PER_S)
#define WALKS     24u
#define SETTLE_NS (15 * NS_PER_S)
#define OPEN_MAX  24u

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

/* ---- in place of the router's socket and of its start ---- */

void router_wake(struct router *rt)
{
	(void)rt; /* every step looks at those that wait */
}

enum probe_state router_readiness(const struct router *rt)
{
	return dispatch_missing(rt) == NULL ? PROBE_READY : PROBE_NO_WORKERS;
}

uint32_t router_len_max(const struct router *rt)
{
	return rt->model_len;
}

const char *router_model_name(const struct router *rt, const char *asked)
{
	(void)rt;
	return asked;
}

status bus_send(struct bus *b, struct bytes peer, uint8_t type, struct bytes body)
{
	(void)b;
	for (uint32_t i = 0; i < SIM_WORKERS; i++)
		if (bytes_eq(peer, bytes_of_str(the_sim->w[i].peer))) {
			queue_put(&the_sim->w[i].in, type, body);
			return ST_OK;
		}
	return ST_PEER;
}

status bus_bind(struct bus **out, struct bus_net *net, const struct bus_options *o,
	struct err *err)
{
	(void)out;
	(void)net;
	(void)o;
	return err_set(err, ST_INVALID, "no socket here");
}

status bus_bind_again(struct bus *b, struct err *err)
{
	(void)b;
	return err_set(err, ST_INVALID, "no socket here");
}

bool bus_bound(const struct bus *b)
{
	(void)b;
	return true;
}

void bus_close(struct bus *b)
{
	(void)b;
}

const char *bus_endpoint(const struct bus *b)
{
	(void)b;
	return "";
}

/* ---- the router ---- */

static bool deliver(void *self, struct request *r, const struct request_token *token)
{
	(void)self;
	(void)r;
	(void)token;
	return false;
}

static void end(void *self, struct request *r)
{
	(void)self;
	the_sim->ends++;
	the_sim->right += r->finish == REQUEST_LENGTH;
	assert_int_not_equal(r->finish, REQUEST_OPEN);
}

static const struct request_ops sim_ops = {
	.send_prefill = link_send_prefill,
	.send_adopt = link_send_adopt,
	.send_cancel = link_send_cancel,
	.send_release = link_send_release,
	.deliver = deliver,
	.end = end,
};

static void open_sim(struct sim *x, uint32_t max_replays)
{
	static const char *const ids[SIM_WORKERS] = {"p0", "d0", "d1"};
	struct router *rt = &x->rt;

	*x = (struct sim){.conf = {.id = "r0",
				  .lost_ms = 4000,
				  .worker_wait_s = 4,
				  .queue_timeout_s = 20,
				  .stall_timeout_s = 300}};
	the_sim = x;
	rt->conf = &x->conf;
	rt->incarnation = 0xABC;
	rt->fleet = fleet_create(&fleet_defaults);
	requests_init(&rt->requests, 64, &sim_ops, rt);
	rt->requests.n_vocab = 5000;
	rt->requests.max_replays = max_replays;
	rt->msg = mem_alloc(1, wire_size_max());
	sink_init(&rt->out, WIRE_MAX_BYTES);
	sink_init(&rt->held, WIRE_MAX_BYTES);
	sink_init(&x->encoded, WIRE_MAX_BYTES);
	x->msg = mem_alloc(1, wire_size_max());
	for (uint32_t i = 0; i < SIM_WORKERS; i++) {
		struct sim_worker *w = &x->w[i];

		snprintf(w->id, sizeof(w->id), "%s", ids[i]);
		snprintf(w->peer, sizeof(w->peer), "%s#%u", ids[i], i);
		w->incarnation = 100 + i;
		w->role = i == 0 ? WIRE_PREFILL : WIRE_DECODE;
		sim_hello(x, w);
	}
}

static void close_sim(struct sim *x)
{
	for (uint32_t i = 0; i < SIM_WORKERS; i++) {
		queue_drop(&x->w[i].in);
		queue_drop(&x->w[i].out);
	}
	requests_release(&x->rt.requests);
	fleet_destroy(x->rt.fleet);
	sink_release(&x->rt.out);
	sink_release(&x->rt.held);
	sink_release(&x->encoded);
	mem_free(x->rt.msg);
	mem_free(x->msg);
	assert_int_equal(mem_taken(), 0);
}

static void add_one(struct router *rt, uint64_t leader, uint32_t choice, uint32_t n,
	uint32_t max_tokens)
{
	struct request *r = requests_add(&rt->requests);
	struct err err;

	assert_non_null(r);
	r->ids = mem_take(3, sizeof(*r->ids));
	memcpy(r->ids, (uint32_t[]){11, 12, 13}, 3 * sizeof(*r->ids));
	r->n_ids = r->n_prompt = r->ids_cap = 3;
	r->max_tokens = max_tokens;
	r->choice = choice;
	r->n_choices = n;
	r->leader = leader;
	if (request_move(r, EV_PREPARED, NULL, &err) != ST_OK)
		fail_msg("%s", err.text);
}

/* One prompt with one choice or three. */
static uint32_t add_call(struct router *rt, uint64_t *s)
{
	uint32_t n = below(s, 4) == 0 ? CHOICES_MAX : 1;
	uint32_t max_tokens = 1 + below(s, 150);
	uint64_t leader = rt->requests.last_seq + 1;

	for (uint32_t k = 0; k < n; k++)
		add_one(rt, k == 0 ? 0 : leader, k, k == 0 ? n : 1, max_tokens);
	return n;
}

static void router_step(struct sim *x)
{
	struct router *rt = &x->rt;
	struct note *n;

	if (x->paused_until_ns > sim_now_ns)
		return;
	clock_look();
	for (uint32_t i = 0; i < SIM_WORKERS; i++)
		while ((n = queue_take(&x->w[i].out)) != NULL) {
			handlers_message(rt, bytes_of_str(x->w[i].peer), n->type,
				(struct bytes){n->body, n->len}, (int)i);
			free(n);
		}
	dispatch_losses(rt, sim_now_ns);
	dispatch_turn(rt, sim_now_ns);
	if (sim_now_ns - x->beat_ns >= BEAT) {
		x->beat_ns = sim_now_ns;
		link_beat_all(rt);
	}
}

static void step(struct sim *x)
{
	sim_now_ns += STEP;
	router_step(x);
	for (uint32_t i = 0; i < SIM_WORKERS; i++)
		sim_worker_step(x, &x->w[i]);
}

static void pause_somebody(struct sim *x, uint64_t *s)
{
	static const uint64_t lengths[] = {MS(1000), MS(3000), MS(6000), MS(10000)};
	uint64_t until = sim_now_ns + lengths[below(s, COUNT(lengths))];
	uint32_t who = below(s, SIM_WORKERS + 2);

	for (uint32_t i = 0; i < SIM_WORKERS; i++)
		if (who == i || who == SIM_WORKERS + 1)
			x->w[i].paused_until_ns = until;
	if (who >= SIM_WORKERS)
		x->paused_until_ns = until;
}

static bool somebody_sleeps(const struct sim *x)
{
	bool sleeps = x->paused_until_ns > sim_now_ns;

	for (uint32_t i = 0; i < SIM_WORKERS; i++)
		sleeps = sleeps || x->w[i].paused_until_ns > sim_now_ns;
	return sleeps;
}

/* How many requests were asked. */
static uint64_t walk(struct sim *x, uint64_t *s)
{
	uint64_t until = sim_now_ns + WALK_NS, asked = 0;

	while (sim_now_ns < until) {
		struct requests *all = &x->rt.requests;
		struct request *any = all->slot[below(s, all->capacity)];

		if (x->paused_until_ns <= sim_now_ns && below(s, 5) == 0 &&
			requests_live(all) < OPEN_MAX)
			asked += add_call(&x->rt, s);
		if (any != NULL && below(s, 20) == 0)
			request_cancel(any);
		if (!somebody_sleeps(x) && below(s, 100) == 0)
			pause_somebody(x, s);
		step(x);
	}
	while (somebody_sleeps(x))
		step(x);
	for (until = sim_now_ns + SETTLE_NS; sim_now_ns < until;)
		step(x);
	return asked;
}

/* What is still held somewhere. */
static uint32_t leaked(const struct sim *x)
{
	uint32_t n = x->rt.requests.n;

	for (uint32_t i = 0; i < SIM_WORKERS; i++)
		n += sim_held(&x->w[i]);
	for (uint32_t i = 0; i < fleet_count(x->rt.fleet); i++)
		n += fleet_at(x->rt.fleet, i)->held_slots;
	return n;
}

static void after_pauses_nothing_is_held_and_each_request_has_ended(void **state)
{
	uint64_t seed = UINT64_C(0x9E3779B97F4A7C15), asked = 0, right = 0;

	(void)state;
	for (uint32_t i = 0; i < WALKS; i++) {
		struct sim x;
		uint64_t n;

		open_sim(&x, i % 3);
		n = walk(&x, &seed);
		assert_int_equal(x.ends, n);
		assert_int_equal(leaked(&x), 0);
		assert_null(dispatch_missing(&x.rt));
		assert_int_equal(x.rt.requests.breaches, 0);
		assert_int_equal(x.rt.metrics.counter[COUNTER_malformed], 0);
		asked += n;
		right += x.right;
		close_sim(&x);
	}
	/* Most are served: the walk is about pauses, not about failing. */
	assert_true(asked > 100u * WALKS && right > asked / 3);
}

/* The walk sees what it is for: workers that do not read what beats name keep leases and
 * sequences of a router that slept. */
static void without_the_comparison_the_walk_finds_what_is_lost(void **state)
{
	uint64_t seed = UINT64_C(0x9E3779B97F4A7C15);
	uint32_t lost = 0;

	(void)state;
	for (uint32_t i = 0; i < WALKS / 4; i++) {
		struct sim x;

		open_sim(&x, 0);
		x.deaf = true;
		walk(&x, &seed);
		lost += leaked(&x) > 0;
		close_sim(&x);
	}
	assert_true(lost > 0);
}

static void slept_together_loses_nothing(void **state)
{
	uint64_t seed = 7, asked = 0;
	struct sim x;

	(void)state;
	open_sim(&x, 0);
	for (uint32_t i = 0; i < 100; i++)
		step(&x);
	for (uint32_t round = 0; round < 5; round++) {
		for (uint32_t i = 0; i < 8; i++)
			asked += add_call(&x.rt, &seed);
		for (uint32_t i = 0; i < 10 * round; i++)
			step(&x);
		x.paused_until_ns = sim_now_ns + 40 * NS_PER_S;
		for (uint32_t i = 0; i < SIM_WORKERS; i++)
			x.w[i].paused_until_ns = x.paused_until_ns;
		while (somebody_sleeps(&x))
			step(&x);
		for (uint32_t i = 0; i < 500; i++)
			step(&x);
	}
	assert_int_equal(x.ends, asked);
	assert_int_equal(x.right, asked);
	assert_int_equal(leaked(&x), 0);
	close_sim(&x);
}

static int start_clock(void **state)
{
	(void)state;
	sim_now_ns = NS_PER_S;
	clock_replace(sim_clock);
	log_level_set(LOG_ERROR); /* losses are many */
	return 0;
}

static int stop_clock(void **state)
{
	(void)state;
	clock_replace(NULL);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(after_pauses_nothing_is_held_and_each_request_has_ended),
		cmocka_unit_test(without_the_comparison_the_walk_finds_what_is_lost),
		cmocka_unit_test(slept_together_loses_nothing),
	};

	return cmocka_run_group_tests(tests, start_clock, stop_clock);
}
