/* Worker choice: tables of snapshots, and the spread of ties. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/attr.h"
#include "router/sched.h"

#define WORKERS_MAX 4

#define UP .alive = true, .slots = 4, .pages = 100, .queue = 8, .len_max = 1000

struct table_row {
	const char *what;
	struct sched_worker w[WORKERS_MAX];
	uint32_t n;
	struct sched_demand d;
	int want; /* index, or -1 */
	enum sched_why why;
};

#define DEMAND .d = {.key = 7, .tokens = 500, .pages = 10}

static const struct table_row prefill_rows[] = {
	{"nobody", .n = 0, DEMAND, .want = -1, .why = SCHED_NO_WORKER},
	{"silent", {{.key = 1, .slots = 4, .pages = 100, .queue = 8, .len_max = 1000}},
		.n = 1, DEMAND, .want = -1, .why = SCHED_NO_WORKER},
	{"draining", {{.key = 1, UP, .draining = true}}, .n = 1, DEMAND, .want = -1,
		.why = SCHED_DRAINING},
	{"too long for it", {{.key = 1, UP}}, .n = 1,
		.d = {.key = 7, .tokens = 1001, .pages = 10}, .want = -1,
		.why = SCHED_TOO_LONG},
	{"as long as it serves", {{.key = 1, UP}}, .n = 1,
		.d = {.key = 7, .tokens = 1000, .pages = 10}, .want = 0},
	{"all pages", {{.key = 1, UP}}, .n = 1,
		.d = {.key = 7, .tokens = 500, .pages = 100}, .want = 0},
	{"one page too many", {{.key = 1, UP}}, .n = 1,
		.d = {.key = 7, .tokens = 500, .pages = 101}, .want = -1,
		.why = SCHED_BUSY},
	{"no slot",
		{{.key = 1, .alive = true, .pages = 100, .queue = 8, .len_max = 1000}},
		.n = 1, DEMAND, .want = -1, .why = SCHED_BUSY},
	{"no queue place",
		{{.key = 1, .alive = true, .slots = 4, .pages = 100, .len_max = 1000}},
		.n = 1, DEMAND, .want = -1, .why = SCHED_BUSY},
	{"busy hides draining",
		{{.key = 1, UP, .draining = true},
			{.key = 2, .alive = true, .len_max = 1000, .pages = 100}},
		.n = 2, DEMAND, .want = -1, .why = SCHED_BUSY},
	{"least outstanding",
		{{.key = 1, UP, .outstanding = 30}, {.key = 2, UP, .outstanding = 10},
			{.key = 3, UP, .outstanding = 20}},
		.n = 3, DEMAND, .want = 1},
	{"least outstanding of those that fit",
		{{.key = 1, UP, .outstanding = 30},
			{.key = 2, UP, .draining = true, .outstanding = 10},
			{.key = 3, UP, .outstanding = 20}},
		.n = 3, DEMAND, .want = 2},
	{"slots do not matter",
		{{.key = 1, UP, .outstanding = 5}, {.key = 2,
							   .alive = true,
							   .slots = 90,
							   .pages = 100,
							   .queue = 8,
							   .len_max = 1000,
							   .outstanding = 6}},
		.n = 2, DEMAND, .want = 0},
};

static const struct table_row decode_rows[] = {
	{"most slots",
		{{.key = 1, UP}, {.key = 2,
					 .alive = true,
					 .slots = 5,
					 .pages = 50,
					 .queue = 8,
					 .len_max = 1000}},
		.n = 2, DEMAND, .want = 1},
	{"then most pages",
		{{.key = 1, UP}, {.key = 2,
					 .alive = true,
					 .slots = 4,
					 .pages = 101,
					 .queue = 8,
					 .len_max = 1000}},
		.n = 2, DEMAND, .want = 1},
	{"outstanding does not matter",
		{{.key = 1, UP, .outstanding = 90}, {.key = 2,
							    .alive = true,
							    .slots = 3,
							    .pages = 100,
							    .queue = 8,
							    .len_max = 1000}},
		.n = 2, DEMAND, .want = 0},
	{"none", .n = 0, DEMAND, .want = -1, .why = SCHED_NO_WORKER},
	{"kept for another", {{.key = 1, UP, .kept_for = 8, .kept_pages = 91}}, .n = 1,
		DEMAND, .want = -1, .why = SCHED_BUSY},
	{"what is not kept is for all", {{.key = 1, UP, .kept_for = 8, .kept_pages = 90}},
		.n = 1, DEMAND, .want = 0},
	{"a kept slot", {{.key = 1, UP, .kept_for = 8, .kept_slots = 4}}, .n = 1, DEMAND,
		.want = -1, .why = SCHED_BUSY},
	{"kept for it",
		{{.key = 1, UP, .kept_for = 7, .kept_pages = 91, .kept_slots = 4}},
		.n = 1, DEMAND, .want = 0},
};

/* A worker of which this router's share is too small for the demand. */
#define SMALL_SHARE                                                                      \
	.alive = true, .slots = 2, .slots_all = 4, .pages = 9, .pages_all = 20,          \
	.queue = 8, .len_max = 1000
/* The same of slots. */
#define NO_SHARE                                                                         \
	.alive = true, .slots_all = 1, .pages = 50, .pages_free = 100, .pages_all = 100, \
	.queue = 8, .len_max = 1000

static const struct table_row beyond_rows[] = {
	{"into what is free, for one that holds nothing there",
		{{.key = 1,
			SMALL_SHARE,
			.untouched = true,
			.slots_free = 4,
			.pages_free = 10}},
		.n = 1, DEMAND, .want = 0},
	{"not when it holds something there",
		{{.key = 1, SMALL_SHARE, .slots_free = 4, .pages_free = 20}}, .n = 1,
		DEMAND, .want = -1, .why = SCHED_BUSY},
	{"not into pages that others have",
		{{.key = 1,
			SMALL_SHARE,
			.untouched = true,
			.slots_free = 4,
			.pages_free = 9}},
		.n = 1, DEMAND, .want = -1, .why = SCHED_BUSY},
	{"into the only slot", {{.key = 1, NO_SHARE, .untouched = true, .slots_free = 1}},
		.n = 1, DEMAND, .want = 0},
	{"not into a slot that others have", {{.key = 1, NO_SHARE, .untouched = true}},
		.n = 1, DEMAND, .want = -1, .why = SCHED_BUSY},
	{"a late one waits at the worker", {{.key = 1, SMALL_SHARE, .untouched = true}},
		.n = 1, .d = {.key = 7, .tokens = 500, .pages = 20, .late = true},
		.want = 0},
	{"but no second one", {{.key = 1, SMALL_SHARE}}, .n = 1,
		.d = {.key = 7, .tokens = 500, .pages = 20, .late = true}, .want = -1,
		.why = SCHED_BUSY},
	{"nor one that it cannot hold", {{.key = 1, SMALL_SHARE, .untouched = true}},
		.n = 1, .d = {.key = 7, .tokens = 500, .pages = 21, .late = true},
		.want = -1, .why = SCHED_BUSY},
	{"a share comes first",
		{{.key = 1,
			 SMALL_SHARE,
			 .untouched = true,
			 .slots_free = 4,
			 .pages_free = 20},
			{.key = 2, UP}},
		.n = 2, DEMAND, .want = 1},
};

static void walk(const struct table_row *rows, size_t n,
	int (*choose)(const struct sched_worker *, uint32_t, const struct sched_demand *,
		enum sched_why *))
{
	for (size_t i = 0; i < n; i++) {
		enum sched_why why;
		int got = choose(rows[i].w, rows[i].n, &rows[i].d, &why);

		if (got != rows[i].want || why != rows[i].why)
			fail_msg("%s: worker %d, why %d; wanted %d, why %d", rows[i].what,
				got, (int)why, rows[i].want, (int)rows[i].why);
	}
}

static void prefill_goes_where_least_is_outstanding(void **state)
{
	(void)state;
	walk(prefill_rows, COUNT(prefill_rows), sched_prefill);
}

static void decode_goes_where_most_is_free(void **state)
{
	(void)state;
	walk(decode_rows, COUNT(decode_rows), sched_decode);
}

static void one_request_may_go_beyond_the_share(void **state)
{
	(void)state;
	walk(beyond_rows, COUNT(beyond_rows), sched_decode);
}

#define OWN .alive = true, .len_max = 1000, .slots_all = 4, .pages_all = 20

static void room_is_kept_where_most_is_free_and_it_would_fit(void **state)
{
	const struct sched_worker w[] = {
		{.key = 1, OWN, .pages = 3},
		{.key = 2, OWN, .pages = 5},
		{.key = 3, OWN, .pages = 5, .slots = 1},
		{.key = 4, OWN, .pages = 9, .stuck = true},
		{.key = 5, OWN, .pages = 9, .draining = true},
		{.key = 6, .len_max = 1000, .slots_all = 4, .pages_all = 20, .pages = 9},
		{.key = 7,
			.alive = true,
			.len_max = 10,
			.slots_all = 4,
			.pages_all = 20,
			.pages = 9},
		{.key = 8,
			.alive = true,
			.len_max = 1000,
			.slots_all = 4,
			.pages_all = 19,
			.pages = 9},
	};
	struct sched_demand d = {.key = 7, .tokens = 500, .pages = 20};

	(void)state;
	assert_int_equal(sched_keep(w, COUNT(w), &d), 2);
	assert_int_equal(sched_keep(w, 1, &d), 0);
	d.pages = 21;
	assert_int_equal(sched_keep(w, COUNT(w), &d), -1);
}

/* Binomial(3000, 1/3): a share outside 850..1150 is 5.8 deviations off. */
static void ties_are_shared_evenly(void **state)
{
	const struct sched_worker w[3] = {
		{.key = 11, UP}, {.key = 22, UP}, {.key = 33, UP}};
	uint32_t count[3] = {0};

	(void)state;
	for (uint64_t key = 0; key < 3000; key++) {
		struct sched_demand d = {.key = key, .tokens = 1, .pages = 1};
		enum sched_why why;
		int i = sched_prefill(w, 3, &d, &why);

		assert_in_range(i, 0, 2);
		count[i]++;
	}
	for (int i = 0; i < 3; i++)
		assert_in_range(count[i], 850, 1150);
}

/* Whoever loses a worker moves only the requests that were its own. */
static void ties_do_not_move_when_another_worker_comes(void **state)
{
	const struct sched_worker w[3] = {
		{.key = 11, UP}, {.key = 22, UP}, {.key = 33, UP}};
	uint32_t n_new = 0;

	(void)state;
	for (uint64_t key = 0; key < 1000; key++) {
		struct sched_demand d = {.key = key, .tokens = 1, .pages = 1};
		enum sched_why why;
		int before = sched_decode(w, 2, &d, &why);
		int after = sched_decode(w, 3, &d, &why);

		if (after == 2)
			n_new++;
		else
			assert_int_equal(before, after);
	}
	assert_in_range(n_new, 200, 470);
}

static void the_order_of_the_snapshot_does_not_matter(void **state)
{
	const struct sched_worker w[2] = {{.key = 11, UP}, {.key = 22, UP}};
	const struct sched_worker swapped[2] = {{.key = 22, UP}, {.key = 11, UP}};

	(void)state;
	for (uint64_t key = 0; key < 100; key++) {
		struct sched_demand d = {.key = key, .tokens = 1, .pages = 1};
		enum sched_why why;

		assert_int_equal(sched_decode(w, 2, &d, &why),
			1 - sched_decode(swapped, 2, &d, &why));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prefill_goes_where_least_is_outstanding),
		cmocka_unit_test(decode_goes_where_most_is_free),
		cmocka_unit_test(one_request_may_go_beyond_the_share),
		cmocka_unit_test(room_is_kept_where_most_is_free_and_it_would_fit),
		cmocka_unit_test(ties_are_shared_evenly),
		cmocka_unit_test(ties_do_not_move_when_another_worker_comes),
		cmocka_unit_test(the_order_of_the_snapshot_does_not_matter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
