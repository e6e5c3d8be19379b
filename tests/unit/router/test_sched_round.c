/* The policy of the queue, on traces in virtual time: the bounds of sched_round.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/attr.h"
#include "router/sched_round.h"

#include <math.h>
#include <stdlib.h>

#define REQUESTS_MAX 3000
#define TICK_MS      20u
#define LATE_MS      2000u

enum sim_state { COMING, WAITS, RUNS, ENDED };

struct sim_request {
	uint32_t comes_ms, takes_ms; /* what it runs for */
	uint64_t pages;
	enum sim_state state;
	uint32_t begun_ms;
	int worker;
	uint64_t round;
};

struct sim {
	struct sched_fair fair;
	struct sim_request r[REQUESTS_MAX];
	uint32_t n, n_workers, now_ms;
	uint64_t pages; /* of a worker */
	uint64_t rounds;
	struct sched_worker d[2];
	uint32_t kept_ms; /* since when room is kept */
	uint64_t kept_for;
};

static uint32_t add(struct sim *s, uint32_t comes_ms, uint64_t pages, uint32_t takes_ms)
{
	assert_true(s->n < REQUESTS_MAX);
	s->r[s->n] = (struct sim_request){
		.comes_ms = comes_ms, .pages = pages, .takes_ms = takes_ms};
	return s->n++;
}

static struct sim *sim_new(uint32_t n_workers, uint64_t pages)
{
	struct sim *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	s->n_workers = n_workers;
	s->pages = pages;
	return s;
}

static void snapshot(struct sim *s, struct sched_worker *p)
{
	*p = (struct sched_worker){.key = 99,
		.alive = true,
		.slots = 4096,
		.slots_all = 4096,
		.pages = 100000,
		.pages_all = 100000,
		.queue = 4096,
		.len_max = 1u << 20};
	for (uint32_t i = 0; i < s->n_workers; i++)
		s->d[i] = (struct sched_worker){.key = i + 1,
			.alive = true,
			.untouched = true,
			.slots = 256,
			.slots_free = 256,
			.slots_all = 256,
			.pages = s->pages,
			.pages_free = s->pages,
			.pages_all = s->pages,
			.queue = 4096,
			.len_max = 1u << 20};
	for (uint32_t i = 0; i < s->n; i++) {
		struct sim_request *r = &s->r[i];
		struct sched_worker *w = &s->d[r->worker];

		if (r->state == COMING && r->comes_ms <= s->now_ms)
			r->state = WAITS;
		if (r->state == RUNS && r->begun_ms + r->takes_ms <= s->now_ms)
			r->state = ENDED;
		if (r->state != RUNS)
			continue;
		assert_true(w->pages >= r->pages && w->slots > 0);
		w->slots--;
		w->slots_free--;
		w->pages -= r->pages;
		w->pages_free -= r->pages;
		w->untouched = false;
		if (r->begun_ms <= s->kept_ms)
			w->pages_old += r->pages;
	}
}

static struct sim_request *first_waiting(struct sim *s, unsigned c)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (s->r[i].state == WAITS && s->r[i].round != s->rounds &&
			sched_class(s->r[i].pages) == c)
			return &s->r[i];
	return NULL;
}

static void try_one(struct sim *s, struct sched_round *round, struct sim_request *r)
{
	struct sched_demand d = {.key = (uint64_t)(r - s->r) + 1,
		.tokens = (uint32_t)r->pages * 64,
		.pages = r->pages,
		.late = s->now_ms - r->comes_ms >= LATE_MS};
	struct sched_ask ask = {.demand = {d, d},
		.since_ns = r->comes_ms,
		.size_class = sched_class(r->pages)};
	int at[SCHED__ROLES];

	r->round = s->rounds;
	if (sched_round_try(round, &ask, at) != SCHED_OK)
		return;
	r->state = RUNS;
	r->begun_ms = s->now_ms;
	r->worker = at[SCHED_DECODE];
}

static void tick(struct sim *s)
{
	struct sched_worker p;
	struct sched_round round = {.w = {&p, s->d}, .n = {1, s->n_workers}};
	bool tries[SCHED_CLASSES], looked[SCHED_CLASSES] = {false};
	int c;

	snapshot(s, &p);
	s->rounds++;
	for (unsigned k = 0; k < SCHED_CLASSES; k++)
		tries[k] = first_waiting(s, k) != NULL;
	sched_round_begin(&round, &s->fair, tries);
	while ((c = sched_round_class(&round, tries)) >= 0) {
		struct sim_request *r = first_waiting(s, (unsigned)c);

		tries[c] = r != NULL &&
			   (!looked[c] || sched_round_open(&round, (unsigned)c));
		looked[c] = true;
		if (tries[c])
			try_one(s, &round, r);
	}
	sched_round_end(&round);
	if (s->fair.keep[SCHED_DECODE].request != s->kept_for)
		s->kept_ms = s->now_ms;
	s->kept_for = s->fair.keep[SCHED_DECODE].request;
	s->now_ms += TICK_MS;
}

static bool over(const struct sim *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (s->r[i].state != ENDED)
			return false;
	return true;
}

static void run(struct sim *s, uint32_t limit_ms)
{
	while (!over(s) && s->now_ms < limit_ms)
		tick(s);
	assert_true(over(s));
}

static uint32_t waited(const struct sim *s, uint32_t i)
{
	assert_true(s->r[i].state >= RUNS);
	return s->r[i].begun_ms - s->r[i].comes_ms;
}

/* 1,000 large ones wait, each as large as the worker and a second long; now and then a
 * small one comes. It waits for one large one, not for all. */
static void a_small_request_waits_for_one_large_one(void **state)
{
	struct sim *s = sim_new(1, 100);
	uint32_t small[100];

	(void)state;
	for (uint32_t i = 0; i < 1000; i++)
		add(s, 0, 100, 1000);
	for (uint32_t i = 0; i < COUNT(small); i++)
		small[i] = add(s, 500 + 9730 * i, 1, 200);
	run(s, 2000 * 1000);
	for (uint32_t i = 0; i < COUNT(small); i++)
		assert_in_range(waited(s, small[i]), 0, 1000 + 2 * TICK_MS);
	free(s);
}

/* 900 small and 100 large, all at once: between two large ones the small ones get as many
 * pages as a large one has. */
static void of_1000_that_wait_the_small_ones_are_given_half_of_the_pages(void **state)
{
	struct sim *s = sim_new(1, 100);
	uint32_t n_large = 0, last_small = 0;

	(void)state;
	for (uint32_t i = 0; i < 100; i++)
		add(s, 0, 90, 1000);
	for (uint32_t i = 0; i < 900; i++)
		add(s, 0, 1, 200);
	run(s, 300 * 1000);
	for (uint32_t i = 100; i < 1000; i++)
		last_small = MAX(last_small, s->r[i].begun_ms);
	for (uint32_t i = 0; i < 100; i++)
		n_large += s->r[i].begun_ms <= last_small;
	assert_in_range(n_large, 1, 900 / 90 + 1);
	free(s);
}

/* Small ones enough to keep the worker full for ever. Of a worker of 100 pages where
 * nothing runs longer than D, a large request has what it needs D + 2 D (ln P + 1)
 * after it is late, and the tick in which every step is rounded up to. */
static void a_large_request_is_served_in_time_however_many_small_ones_come(void **state)
{
	static const uint64_t sizes[] = {50, 90, 100};

	(void)state;
	for (size_t k = 0; k < COUNT(sizes); k++) {
		struct sim *s = sim_new(1, 100);
		uint32_t large, small_ms = 0;
		const uint32_t d_ms = 1000;

		for (uint32_t i = 0; i < 100; i++) /* they end one by one */
			add(s, 0, 1, 10 * (i + 1));
		large = add(s, 5, sizes[k], d_ms);
		for (uint32_t i = 0; i < 2800; i++)
			add(s, i * 8, 1, d_ms);
		while (s->r[large].state < RUNS && s->now_ms < 60000)
			tick(s);
		assert_in_range(waited(s, large), LATE_MS,
			LATE_MS + d_ms + 2 * (d_ms + TICK_MS) * (log(100) + 1));
		/* And half of what came free went to them. */
		for (uint32_t i = large + 1; i < s->n; i++)
			small_ms += s->r[i].state >= RUNS &&
				    s->r[i].begun_ms > LATE_MS + TICK_MS;
		assert_true(small_ms >= sizes[k] - 50);
		free(s);
	}
}

/* One that waits for an answer of 11 s does not close the room that is there. */
static void room_that_is_free_is_open_to_small_ones_while_a_large_one_waits(void **state)
{
	struct sim *s = sim_new(1, 100);
	uint32_t large, first;

	(void)state;
	add(s, 0, 60, 11000);
	large = add(s, 20, 60, 1000);
	first = s->n;
	for (uint32_t i = 0; i < 300; i++)
		add(s, 100 + 50 * i, 1, 500);
	run(s, 60000);
	assert_in_range(waited(s, large), 10900, 11100);
	for (uint32_t i = first; i < s->n; i++)
		assert_in_range(waited(s, i), 0, 2 * TICK_MS);
	free(s);
}

/* Room is kept at one worker; the other is as open as ever. */
static void other_workers_are_not_touched_by_room_that_is_kept(void **state)
{
	struct sim *s = sim_new(2, 100);
	uint32_t large, first;

	(void)state;
	add(s, 0, 95, 8000);
	add(s, 0, 80, 8000);
	large = add(s, 20, 90, 1000);
	first = s->n;
	for (uint32_t i = 0; i < 200; i++)
		add(s, 100 + 20 * i, 1, 200);
	run(s, 60000);
	assert_in_range(waited(s, large), 7900, 8200);
	for (uint32_t i = first; i < s->n; i++)
		assert_in_range(waited(s, i), 0, 2 * TICK_MS);
	free(s);
}

static void room_is_given_up_with_its_request_or_its_worker(void **state)
{
	struct sched_worker w = {.key = 1,
		.alive = true,
		.slots = 4,
		.slots_all = 4,
		.pages = 10,
		.pages_all = 100,
		.queue = 8,
		.len_max = 1u << 20};
	struct sched_worker p = w, d = w;
	struct sched_fair fair = {0};
	struct sched_round round = {.fair = &fair, .w = {&p, &d}, .n = {1, 1}};
	struct sched_demand small = {.key = 5, .pages = 1, .tokens = 1};
	struct sched_demand large = {.key = 6, .pages = 90, .tokens = 1, .late = true};
	struct sched_ask ask = {.demand = {small, large}};
	bool waits[SCHED_CLASSES] = {true};
	int at[SCHED__ROLES];

	(void)state;
	sched_round_begin(&round, &fair, waits);
	assert_int_equal(sched_round_try(&round, &ask, at), SCHED_BUSY);
	sched_round_end(&round);
	assert_int_equal(fair.keep[SCHED_DECODE].request, 6);
	sched_round_begin(&round, &fair, waits);
	assert_int_equal(d.kept_pages, 5);
	sched_round_end(&round);
	sched_forget(&fair, 5);
	assert_int_equal(fair.keep[SCHED_DECODE].request, 6);
	sched_forget(&fair, 6);
	assert_int_equal(fair.keep[SCHED_DECODE].request, 0);
	fair.keep[SCHED_DECODE] =
		(struct sched_keep){.request = 6, .worker = 1, .need = 90};
	d.draining = true;
	sched_round_begin(&round, &fair, waits);
	assert_int_equal(fair.keep[SCHED_DECODE].request, 0);
}

static void classes_are_powers_of_four(void **state)
{
	(void)state;
	assert_int_equal(sched_class(0), 0);
	assert_int_equal(sched_class(3), 0);
	assert_int_equal(sched_class(4), 1);
	assert_int_equal(sched_class(15), 1);
	assert_int_equal(sched_class(16), 2);
	assert_int_equal(sched_class(16383), 6);
	assert_int_equal(sched_class(16384), 7);
	assert_int_equal(sched_class(UINT64_MAX), 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_small_request_waits_for_one_large_one),
		cmocka_unit_test(
			of_1000_that_wait_the_small_ones_are_given_half_of_the_pages),
		cmocka_unit_test(
			a_large_request_is_served_in_time_however_many_small_ones_come),
		cmocka_unit_test(
			room_that_is_free_is_open_to_small_ones_while_a_large_one_waits),
		cmocka_unit_test(other_workers_are_not_touched_by_room_that_is_kept),
		cmocka_unit_test(room_is_given_up_with_its_request_or_its_worker),
		cmocka_unit_test(classes_are_powers_of_four),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
