/* A loop with a watchdog. */
#ifndef TESTS_UNIT_LOOP_LOOP_FIXTURE_H
#define TESTS_UNIT_LOOP_LOOP_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/loop/loop.h"

#include <stdlib.h>

#define WATCHDOG_MS 30000

struct fixture {
	struct loop *loop;
	struct loop_timer watchdog;
};

static inline void on_watchdog(void *ctx)
{
	(void)ctx;
	/* A failure of cmocka jumps out of the loop, which could then not be closed. */
	print_error("the test did not end within %d ms\n", WATCHDOG_MS);
	abort();
}

static inline int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->loop = loop_create();
	loop_timer_start(f->loop, &f->watchdog, WATCHDOG_MS, 0, on_watchdog, f);
	*state = f;
	return 0;
}

/* loop_destroy asserts that no handle is left open. */
static inline int teardown(void **state)
{
	struct fixture *f = *state;

	loop_timer_stop(&f->watchdog);
	loop_destroy(f->loop);
	free(f);
	assert_int_equal(mem_taken(), 0);
	return 0;
}

static inline void stop_loop(void *ctx)
{
	loop_stop(ctx);
}

static inline void run_some_turns(struct loop *l)
{
	struct loop_timer end = {0};

	loop_timer_start(l, &end, 5, 0, stop_loop, l);
	loop_run(l);
}

struct hook {
	struct loop *loop;
	unsigned turns, stop_at;
};

static inline void count_turns(void *ctx)
{
	struct hook *h = ctx;

	if (++h->turns < h->stop_at)
		loop_keep_awake(h->loop);
	else
		loop_stop(h->loop);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
