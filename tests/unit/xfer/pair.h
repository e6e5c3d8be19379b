/* A prefill and a decode worker on one loop. Include cmocka first. */
#ifndef TESTS_UNIT_XFER_PAIR_H
#define TESTS_UNIT_XFER_PAIR_H
#include "common/base/fault.h"
#include "unit/xfer/xfer_fixture.h"

struct pair {
	struct loop *loop;
	const char *dir;
	struct node p, d; /* prefill, decode */
	uint64_t taken;
};

static inline void pair_init_of(
	struct pair *t, const struct geometry *g, uint32_t p_ranks, uint32_t d_ranks)
{
	t->loop = loop_create();
	t->dir = make_dir();
	node_init(&t->p, t->loop, "p0", t->dir, g, p_ranks);
	node_init(&t->d, t->loop, "d0", t->dir, g, d_ranks);
	node_export(&t->p);
	node_import(&t->d);
}

static inline void pair_release(struct pair *t)
{
	pool_check(t->p.pages);
	pool_check(t->d.pages);
	node_release(&t->d);
	node_release(&t->p);
	loop_destroy(t->loop);
	remove_dir(t->dir);
	clock_replace(NULL);
	clock_offset = 0;
	assert_int_equal(t->taken, mem_taken());
	test_free(t);
}

static inline struct pair *pair_new(
	const struct geometry *g, uint32_t p_ranks, uint32_t d_ranks)
{
	struct pair *t = test_calloc(1, sizeof(*t));

	t->taken = mem_taken();
	clock_replace(shifted_clock);
	pair_init_of(t, g, p_ranks, d_ranks);
	return t;
}

static inline int set_up(void **state)
{
	*state = pair_new(&small_model, 1, 1);
	return 0;
}

static inline int set_up_large(void **state)
{
	*state = pair_new(&large_model, 1, 1);
	return 0;
}

static inline int tear_down(void **state)
{
	struct err err;

	assert_int_equal(ST_OK, fault_configure("", "/tmp", &err));
	pair_release(*state);
	return 0;
}

static inline void one_pull(
	struct pair *t, uint32_t n_tokens, uint64_t sequence, bool digest)
{
	struct place src, dst;
	uint64_t lease = node_grant(&t->p, &src, n_tokens, sequence);
	struct pull what;
	struct puller p;
	struct state_view v;

	node_take(&t->d, &dst, n_tokens);
	what = pull_from(&t->p, &src, lease, &dst);
	what.digest = digest;
	start_pull(&t->d, &what, &p);
	wait_done(t->loop, &p);
	CHECK_OK(p.result.code, p.result.err);
	assert_int_equal(place_bytes(&t->d, &dst), p.result.bytes);
	assert_string_equal("shm", p.result.transport);
	v = node_view(&t->d, &dst);
	assert_int_equal(0, state_wrong(&v, sequence));
	node_give(&t->d, &dst);
}

static inline bool no_leases(void *ctx)
{
	const struct pair *t = ctx;

	return lease_count(t->p.leases) == 0;
}

#define WITH(test)  cmocka_unit_test_setup_teardown(test, set_up, tear_down)
#define LARGE(test) cmocka_unit_test_setup_teardown(test, set_up_large, tear_down)

#endif
