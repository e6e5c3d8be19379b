/* Accounts of pages: each rule once, then a model-based random walk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/rng.h"
#include "common/state/pool.h"
#include <stdbool.h>

static void a_fresh_pool_gives_neighbours_and_never_the_dead_one(void **state)
{
	struct pool *p = pool_create("page", 9);
	uint32_t ids[8];

	(void)state;
	assert_int_equal(8, pool_size(p));
	assert_int_equal(8, pool_count(p, POOL_FREE));
	assert_int_equal(ST_OK, pool_take(p, ids, 8));
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(i + 1, ids[i]);
	pool_check(p);
	pool_destroy(p);
}

static void an_exhausted_pool_gives_limit_and_takes_nothing(void **state)
{
	struct pool *p = pool_create("slot", 4);
	uint32_t ids[4] = {77, 77, 77, 77};

	(void)state;
	assert_int_equal(ST_LIMIT, pool_take(p, ids, 4));
	assert_int_equal(77, ids[0]);
	assert_int_equal(3, pool_count(p, POOL_FREE));
	assert_int_equal(ST_OK, pool_take(p, ids, 3));
	assert_int_equal(ST_LIMIT, pool_take(p, ids + 3, 1));
	assert_int_equal(ST_OK, pool_take(p, ids, 0));
	pool_give(p, ids + 1, 1);
	assert_int_equal(ST_OK, pool_take(p, ids + 1, 1));
	pool_check(p);
	pool_destroy(p);
}

static void states_follow_holders(void **state)
{
	struct pool *p = pool_create("page", 2);
	uint32_t id;

	(void)state;
	assert_int_equal(POOL_FREE, pool_state(p, 1));
	assert_int_equal(ST_OK, pool_take(p, &id, 1));
	assert_int_equal(POOL_FILLING, pool_state(p, id));
	pool_lease(p, &id, 1); /* an early lease of a page that is still filled */
	assert_int_equal(POOL_EXPORTED, pool_state(p, id));
	pool_unlease(p, &id, 1);
	assert_int_equal(POOL_FILLING, pool_state(p, id));
	pool_fill_done(p, &id, 1);
	assert_int_equal(POOL_LIVE, pool_state(p, id));
	pool_share(p, &id, 1);
	pool_give(p, &id, 1);
	assert_int_equal(POOL_LIVE, pool_state(p, id));
	pool_lease(p, &id, 1);
	pool_give(p, &id, 1);
	assert_int_equal(POOL_EXPORTED, pool_state(p, id));
	assert_int_equal(1, pool_count(p, POOL_EXPORTED));
	pool_unlease(p, &id, 1);
	assert_int_equal(POOL_FREE, pool_state(p, id));
	pool_check(p);
	pool_destroy(p);
}

/* A second account in the plainest form: per object how many of each holder. */
struct twin {
	uint32_t sequences, leases;
	bool filling;
};

static enum pool_state twin_state(const struct twin *t)
{
	if (t->leases > 0)
		return POOL_EXPORTED;
	if (t->sequences == 0)
		return POOL_FREE;
	return t->filling ? POOL_FILLING : POOL_LIVE;
}

enum { WALK_OBJECTS = 33, WALK_STEPS = 200000 };

static void compare(const struct pool *p, const struct twin *twins)
{
	uint32_t count[POOL__STATES] = {0};

	for (uint32_t id = 1; id < WALK_OBJECTS; id++) {
		count[twin_state(&twins[id])]++;
		assert_int_equal(twin_state(&twins[id]), pool_state(p, id));
	}
	for (int s = 0; s < POOL__STATES; s++)
		assert_int_equal(count[s], pool_count(p, (enum pool_state)s));
	pool_check(p);
}

static void take_some(struct pool *p, struct twin *twins, uint32_t n)
{
	uint32_t ids[WALK_OBJECTS], n_free = pool_count(p, POOL_FREE);
	status st = pool_take(p, ids, n);

	assert_int_equal(n <= n_free ? ST_OK : ST_LIMIT, st);
	if (st != ST_OK)
		return;
	for (uint32_t i = 0; i < n; i++) {
		struct twin *t = &twins[ids[i]];

		assert_int_equal(POOL_FREE, twin_state(t));
		t->sequences = 1;
		t->filling = true;
	}
}

/* One random legal operation on one object. */
static void change_one(struct pool *p, struct twin *t, uint32_t id, uint32_t choice)
{
	switch (choice) {
	case 0:
		if (t->sequences > 0) {
			pool_fill_done(p, &id, 1);
			t->filling = false;
		}
		break;
	case 1:
		if (twin_state(t) != POOL_FREE && !t->filling) {
			pool_share(p, &id, 1);
			t->sequences++;
		}
		break;
	case 2:
	case 3:
		if (t->sequences > 0) {
			pool_give(p, &id, 1);
			t->sequences--;
		}
		break;
	case 4:
		if (twin_state(t) != POOL_FREE) {
			pool_lease(p, &id, 1);
			t->leases++;
		}
		break;
	default:
		if (t->leases > 0) {
			pool_unlease(p, &id, 1);
			t->leases--;
		}
		break;
	}
}

static void random_walk_agrees_with_the_twin(void **state)
{
	struct pool *p = pool_create("page", WALK_OBJECTS);
	struct twin twins[WALK_OBJECTS] = {0};
	uint64_t seen[POOL__STATES] = {0};

	(void)state;
	for (uint64_t step = 0; step < WALK_STEPS; step++) {
		struct philox r = philox4x32(20240601, step, 0);
		uint32_t id = 1 + r.v[1] % (WALK_OBJECTS - 1);

		if (r.v[0] % 8 == 7)
			take_some(p, twins, r.v[2] % 5);
		else
			change_one(p, &twins[id], id, r.v[0] % 8);
		seen[pool_state(p, id)]++;
		compare(p, twins);
	}
	/* The walk was everywhere, or it showed nothing. */
	for (int s = 0; s < POOL__STATES; s++)
		assert_true(seen[s] > WALK_STEPS / 100);
	pool_destroy(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_fresh_pool_gives_neighbours_and_never_the_dead_one),
		cmocka_unit_test(an_exhausted_pool_gives_limit_and_takes_nothing),
		cmocka_unit_test(states_follow_holders),
		cmocka_unit_test(random_walk_agrees_with_the_twin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
