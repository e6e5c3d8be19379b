// labels: threads
/* Jobs on several threads, and turns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/parallel.h"

#include <stdatomic.h>

#define N_JOBS 1000u

static _Atomic uint32_t done[N_JOBS];

static void count_job(void *arg, uint32_t i)
{
	_Atomic uint32_t *counts = arg;

	atomic_fetch_add(&counts[i], 1);
}

static void every_job_is_done_once_by_any_number_of_threads(void **state)
{
	static const uint32_t threads[] = {0, 1, 2, 7, 1000};

	(void)state;
	for (uint32_t t = 0; t < 5; t++) {
		parallel_run(threads[t], N_JOBS, count_job, done);
		for (uint32_t i = 0; i < N_JOBS; i++)
			assert_int_equal(atomic_load(&done[i]), t + 1);
	}
	parallel_run(4, 0, count_job, NULL);
	assert_true(parallel_processors() >= 1);
}

/* Begun by whoever comes first, so it ends only when two threads are at work. */
static void meet(void *arg, uint32_t i)
{
	_Atomic uint32_t *arrived = arg;

	(void)i;
	atomic_fetch_add(arrived, 1);
	while (atomic_load(arrived) < 2)
		;
}

static void two_jobs_run_side_by_side(void **state)
{
	_Atomic uint32_t arrived = 0;

	(void)state;
	parallel_run(2, 2, meet, &arrived);
	assert_int_equal(atomic_load(&arrived), 2);
}

struct till {
	struct turn *turn;
	uint64_t sum; /* of whoever has the turn */
};

static void add(void *arg, uint32_t i)
{
	struct till *t = arg;

	turn_take(t->turn);
	t->sum += i;
	turn_give(t->turn);
}

static void a_turn_has_one_holder(void **state)
{
	struct till t = {.turn = turn_create()};

	(void)state;
	parallel_run(8, N_JOBS, add, &t);
	assert_int_equal(t.sum, N_JOBS * (N_JOBS - 1) / 2);
	turn_destroy(t.turn);
	/* Nobody else: no turn is needed. */
	t = (struct till){.turn = NULL};
	parallel_run(1, N_JOBS, add, &t);
	assert_int_equal(t.sum, N_JOBS * (N_JOBS - 1) / 2);
	turn_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_job_is_done_once_by_any_number_of_threads),
		cmocka_unit_test(two_jobs_run_side_by_side),
		cmocka_unit_test(a_turn_has_one_holder),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
