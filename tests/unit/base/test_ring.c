// labels: threads
/* Ring and channel between two threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/ring.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#define N_SLOTS 64u
#define N_ITEMS 1000000u

/* 24 bytes: not a power of two, and each word is checked. */
struct item {
	uint64_t number, inverse, thrice;
};

static struct item item_of(uint64_t i)
{
	return (struct item){i, ~i, 3 * i};
}

static void check_item(const struct item *it, uint64_t i)
{
	struct item want = item_of(i);

	assert_memory_equal(it, &want, sizeof(want));
}

static void a_ring_holds_as_many_as_it_has_slots_and_keeps_order(void **state)
{
	struct ring *r = ring_create(4, sizeof(struct item));
	uint64_t in = 0, out = 0;
	struct item it;

	(void)state;
	assert_false(ring_pop(r, &it));
	/* Fill levels drift so that the indices wrap at every offset. */
	for (int round = 0; round < 50; round++) {
		for (it = item_of(in); ring_push(r, &it); it = item_of(in))
			in++;
		assert_int_equal(in - out, 4);
		for (int k = 0; k < 1 + round % 4; k++) {
			assert_true(ring_pop(r, &it));
			check_item(&it, out++);
		}
	}
	ring_destroy(r);
}

static void *write_ring(void *ctx)
{
	for (uint64_t i = 0; i < N_ITEMS;) {
		struct item it = item_of(i);

		if (ring_push(ctx, &it))
			i++;
		else
			sched_yield();
	}
	return NULL;
}

static void a_reader_gets_what_a_writer_thread_pushes(void **state)
{
	struct ring *r = ring_create(N_SLOTS, sizeof(struct item));
	pthread_t writer;
	struct item it;

	(void)state;
	assert_int_equal(pthread_create(&writer, NULL, write_ring, r), 0);
	for (uint64_t i = 0; i < N_ITEMS;)
		if (ring_pop(r, &it))
			check_item(&it, i++);
		else
			sched_yield();
	pthread_join(writer, NULL);
	assert_false(ring_pop(r, &it));
	ring_destroy(r);
}

static void *write_chan(void *ctx)
{
	for (uint64_t i = 0; i < N_ITEMS / 4;) {
		struct item it = item_of(i);

		if (chan_push(ctx, &it))
			i++;
		else
			sched_yield();
	}
	return NULL;
}

/* No time limit in the wait: a lost wake-up hangs and the test's time-out finds it. */
static void a_sleeping_reader_misses_no_push(void **state)
{
	struct chan *c = chan_create(N_SLOTS, sizeof(struct item));
	pthread_t writer;
	struct item it;

	(void)state;
	assert_int_equal(pthread_create(&writer, NULL, write_chan, c), 0);
	for (uint64_t i = 0; i < N_ITEMS / 4;) {
		chan_wait(c, -1);
		while (chan_pop(c, &it))
			check_item(&it, i++);
	}
	pthread_join(writer, NULL);
	chan_destroy(c);
}

static bool is_readable(const struct chan *c)
{
	struct pollfd p = {.fd = chan_fd(c), .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static void the_descriptor_is_readable_from_a_push_to_the_acknowledgement(void **state)
{
	struct chan *c = chan_create(2, sizeof(struct item));
	struct item it = item_of(1);

	(void)state;
	assert_false(is_readable(c));
	assert_true(chan_push(c, &it));
	assert_true(chan_push(c, &it));
	assert_false(chan_push(c, &it));
	assert_true(is_readable(c));
	chan_ack(c);
	assert_false(is_readable(c));
	chan_ack(c); /* does not block */
	assert_true(chan_pop(c, &it));
	assert_true(chan_pop(c, &it));
	assert_false(chan_pop(c, &it));
	chan_destroy(c);
}

static void a_wait_returns_at_once_for_what_is_left_and_times_out_else(void **state)
{
	struct chan *c = chan_create(4, sizeof(struct item));
	struct item it = item_of(1);
	uint64_t start;

	(void)state;
	assert_true(chan_push(c, &it));
	assert_true(chan_push(c, &it));
	chan_wait(c, -1);
	assert_true(chan_pop(c, &it));
	chan_wait(c, -1); /* one is left, although its wake-up is gone */
	assert_true(chan_pop(c, &it));
	chan_ack(c);
	start = clock_ns();
	chan_wait(c, 20);
	assert_true(clock_ns() - start >= 19 * NS_PER_MS);
	chan_destroy(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_ring_holds_as_many_as_it_has_slots_and_keeps_order),
		cmocka_unit_test(a_reader_gets_what_a_writer_thread_pushes),
		cmocka_unit_test(a_sleeping_reader_misses_no_push),
		cmocka_unit_test(
			the_descriptor_is_readable_from_a_push_to_the_acknowledgement),
		cmocka_unit_test(
			a_wait_returns_at_once_for_what_is_left_and_times_out_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
