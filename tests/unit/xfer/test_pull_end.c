// labels: threads
/* How pulls end other than by success, how they share, and what is left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/xfer/digest.h"
#include "unit/xfer/pair.h"
#include <fcntl.h>
#include <inttypes.h>
#include <semaphore.h>

/* Sixteen pulls of three work items each. */
struct crowd {
	struct pair *t;
	struct place src[16], dst[16];
	struct pull_result result[16];
	uint32_t n_done;
	uint64_t least_then; /* bytes of the slowest when the first was done */
};

static void note_one_of_crowd(void *ctx, const struct pull_result *r)
{
	struct crowd *c = ctx;

	if (c->n_done == 0) {
		c->least_then = UINT64_MAX;
		for (uint32_t i = 0; i < IMPORTER_PULLS_MAX; i++)
			if (c->t->d.importer->pulls[i].state != PULL_UNUSED)
				c->least_then = MIN(c->least_then,
					c->t->d.importer->pulls[i].result.bytes);
	}
	c->result[c->n_done++] = *r;
}

/* Jobs that hold threads of the pool until they are let go. */
#define POOL_THREADS 4u
struct holdup {
	sem_t go;
	uint32_t n_over;
};

static void hold_up(void *ctx)
{
	struct holdup *h = ctx;

	while (sem_wait(&h->go) < 0)
		;
}

static void held_up(void *ctx)
{
	struct holdup *h = ctx;

	h->n_over++;
}

static bool nothing_is_held_up(void *ctx)
{
	const struct holdup *h = ctx;

	return h->n_over == POOL_THREADS;
}

static bool all_are_queued(void *ctx)
{
	const struct crowd *c = ctx;
	uint32_t n = 0;

	for (uint32_t i = 0; i < IMPORTER_PULLS_MAX; i++)
		n += c->t->d.importer->pulls[i].state == PULL_COPYING;
	return n == 16;
}

static bool crowd_done(void *ctx)
{
	const struct crowd *c = ctx;

	return c->n_done == 16;
}

/* The bytes are not looked at, so none are written. */
static uint64_t grant_blank(struct node *n, struct place *p, uint32_t n_tokens)
{
	struct lease terms;
	uint64_t lease = 0;

	node_take(n, p, n_tokens);
	pool_fill_done(n->pages, p->pages, p->n_pages);
	pool_fill_done(n->slots, &p->slot, 1);
	terms = (struct lease){.n_tokens = n_tokens,
		.pages = p->pages,
		.n_pages = p->n_pages,
		.slot = p->slot};
	assert_int_equal(ST_OK, lease_grant(n->leases, &terms, NODE_LEASE_NS, 1, &lease));
	return lease;
}

static void concurrent_pulls_take_turns(void **state)
{
	struct pair *t = *state;
	struct crowd *c = test_calloc(1, sizeof(*c));
	struct holdup h = {0};
	uint64_t handle;
	struct err err;

	one_pull(t, 1, 1, false); /* the link is open: all claims go out together */
	c->t = t;
	sem_init(&h.go, 0, 0);
	for (uint32_t i = 0; i < POOL_THREADS; i++)
		assert_int_equal(ST_OK, loop_work(t->loop, hold_up, held_up, &h));
	for (uint32_t i = 0; i < 16; i++) {
		uint64_t lease = grant_blank(&t->p, &c->src[i], 64);
		struct pull what;

		node_take(&t->d, &c->dst[i], 64);
		what = pull_from(&t->p, &c->src[i], lease, &c->dst[i]);
		CHECK_OK(importer_pull(t->d.importer, &what, note_one_of_crowd, c,
				 &handle, &err),
			err);
	}
	assert_int_equal(16, importer_pulls(t->d.importer));
	/* All wait in the queue when one thread begins to serve it: what is done when
	 * depends on the order alone. */
	assert_true(loop_until(t->loop, all_are_queued, c, 60000));
	assert_int_equal(0, c->n_done);
	sem_post(&h.go);
	assert_true(loop_until(t->loop, crowd_done, c, 60000));
	for (uint32_t i = 1; i < POOL_THREADS; i++)
		sem_post(&h.go);
	assert_true(loop_until(t->loop, nothing_is_held_up, &h, 60000));
	sem_destroy(&h.go);
	for (uint32_t i = 0; i < 16; i++) {
		assert_int_equal(ST_OK, c->result[i].code);
		assert_int_equal(place_bytes(&t->d, &c->dst[i]), c->result[i].bytes);
		node_give(&t->d, &c->dst[i]);
	}
	/* The first was done in its third turn: everyone had had the first one. */
	if (c->least_then < transport_shm.item_bytes)
		fail_msg("the slowest had %" PRIu64 " bytes", c->least_then);
	test_free(c);
}

static bool half_copied(void *ctx)
{
	const struct pair *t = ctx;

	for (uint32_t i = 0; i < IMPORTER_PULLS_MAX; i++)
		if (t->d.importer->pulls[i].state == PULL_COPYING &&
			t->d.importer->pulls[i].result.bytes > 0)
			return true;
	return false;
}

/* Starts a pull of 200 MiB and stops in the middle of it. */
static uint64_t start_half(struct pair *t, struct place *dst, struct puller *p)
{
	struct place src;
	uint64_t lease = grant_blank(&t->p, &src, 640);
	struct pull what;

	node_take(&t->d, dst, 640);
	what = pull_from(&t->p, &src, lease, dst);
	start_pull(&t->d, &what, p);
	assert_true(loop_until(t->loop, half_copied, t, 20000));
	assert_int_equal(0, p->n_done);
	return lease;
}

static void cancel_in_the_middle_gives_the_claim_back(void **state)
{
	struct pair *t = *state;
	struct place dst;
	struct puller p;
	uint64_t lease = start_half(t, &dst, &p);

	importer_cancel(t->d.importer, p.handle);
	importer_cancel(t->d.importer, p.handle);
	importer_cancel(t->d.importer, p.handle + 1);
	assert_int_equal(0, p.n_done);
	wait_done(t->loop, &p);
	assert_int_equal(ST_CANCELLED, p.result.code);
	assert_true(p.result.bytes < place_bytes(&t->d, &dst));
	assert_int_equal(0, importer_pulls(t->d.importer));
	SOON(t->loop, lease_find(t->p.leases, lease)->claimer == 0);
	node_give(&t->d, &dst);
}

/* In every phase that a pull can be caught in before it copies. */
static void cancel_before_copying(void **state)
{
	struct pair *t = *state;
	struct place src, dst;
	uint64_t lease = node_grant(&t->p, &src, 100, 5);
	struct pull what;
	struct puller p;
	struct err err;

	needs_faults();
	node_take(&t->d, &dst, 100);
	what = pull_from(&t->p, &src, lease, &dst);
	start_pull(&t->d, &what, &p); /* not connected yet */
	importer_cancel(t->d.importer, p.handle);
	assert_int_equal(0, p.n_done);
	wait_done(t->loop, &p);
	assert_int_equal(ST_CANCELLED, p.result.code);
	/* The link comes up all the same. */
	SOON(t->loop, t->d.importer->peers[0].state == PEER_READY);

	start_pull(&t->d, &what, &p); /* claim sent, not answered */
	assert_int_equal(PULL_CLAIMING, t->d.importer->pulls[0].state);
	importer_cancel(t->d.importer, p.handle);
	wait_done(t->loop, &p);
	assert_int_equal(ST_CANCELLED, p.result.code);
	SOON(t->loop, lease_find(t->p.leases, lease)->claimer == 0);
	assert_int_equal(PULL_UNUSED, t->d.importer->pulls[0].state);

	assert_int_equal(ST_OK, fault_configure("pause@claim", t->dir, &err));
	start_pull(&t->d, &what, &p);
	SOON(t->loop, t->d.importer->pulls[0].state == PULL_HELD);
	assert_int_equal(1, fault_hits(FAULT_claim));
	importer_cancel(t->d.importer, p.handle);
	wait_done(t->loop, &p);
	assert_int_equal(ST_CANCELLED, p.result.code);

	assert_int_equal(ST_OK, fault_configure("", t->dir, &err));
	start_pull(&t->d, &what, &p);
	wait_done(t->loop, &p);
	CHECK_OK(p.result.code, p.result.err);
	node_give(&t->d, &dst);
}

static void revoke_cancels_and_a_released_lease_is_freed(void **state)
{
	struct pair *t = *state;
	struct place dst;
	struct puller p;
	uint64_t lease = start_half(t, &dst, &p);

	exporter_revoke(t->p.exporter, lease + 1); /* nobody's */
	assert_true(lease_release(t->p.leases, lease));
	assert_non_null(lease_find(t->p.leases, lease));
	exporter_revoke(t->p.exporter, lease);
	wait_done(t->loop, &p);
	assert_int_equal(ST_CANCELLED, p.result.code);
	says(&p.result.err, "p0 withdrew lease 1");
	assert_true(loop_until(t->loop, no_leases, t, 20000));
	assert_int_equal(NODE_PAGES - 1, pool_count(t->p.pages, POOL_FREE));
	node_give(&t->d, &dst);
}

struct gone {
	uint32_t n;
	uint32_t peers_then, maps_then;
	const struct importer *m;
};

static void note_gone(void *ctx, const char *id, uint64_t incarnation)
{
	struct gone *g = ctx;

	assert_string_equal("p0", id);
	assert_int_not_equal(0, incarnation);
	g->n++;
	g->peers_then = importer_peers(g->m);
	g->maps_then = count_arena_maps();
}

static bool is_gone(void *ctx)
{
	const struct gone *g = ctx;

	return g->n > 0;
}

static void peer_down_ends_pulls_then_unmaps_then_tells(void **state)
{
	struct pair *t = *state;
	struct gone g = {.m = t->d.importer}, h = g;
	uint32_t own_maps = count_arena_maps();
	struct place dst;
	struct puller p;
	uint64_t lease = start_half(t, &dst, &p);

	assert_int_equal(own_maps + 1, count_arena_maps());
	importer_peer_down(t->d.importer, "p0", t->p.side.incarnation + 1, note_gone, &h);
	importer_peer_down(t->d.importer, "p0", t->p.side.incarnation, note_gone, &g);
	assert_int_equal(0, h.n + g.n); /* never from inside */
	wait_done(t->loop, &p);
	assert_int_equal(ST_PEER, p.result.code);
	says(&p.result.err, "was declared lost");
	assert_true(loop_until(t->loop, is_gone, &g, 20000));
	assert_int_equal(1, g.n);
	assert_int_equal(1, h.n); /* nothing was open of that one */
	assert_int_equal(0, g.peers_then);
	assert_int_equal(own_maps, g.maps_then);
	SOON(t->loop, lease_find(t->p.leases, lease)->claimer == 0);
	SOON(t->loop, exporter_links(t->p.exporter) == 0);
	node_give(&t->d, &dst);
}

static void importer_destroyed_in_the_middle(void **state)
{
	struct pair *t = *state;
	struct place dst;
	struct puller p;
	uint64_t lease = start_half(t, &dst, &p);

	importer_destroy(t->d.importer);
	t->d.importer = NULL;
	assert_int_equal(1, p.n_done);
	assert_int_equal(ST_CANCELLED, p.result.code);
	SOON(t->loop, lease_find(t->p.leases, lease)->claimer == 0);
	SOON(t->loop, exporter_links(t->p.exporter) == 0);
	node_give(&t->d, &dst);
}

static void exporter_destroyed_in_the_middle(void **state)
{
	struct pair *t = *state;
	struct place dst;
	struct puller p;
	uint64_t lease = start_half(t, &dst, &p);

	exporter_destroy(t->p.exporter);
	t->p.exporter = NULL;
	assert_int_equal(0, lease_find(t->p.leases, lease)->claimer);
	wait_done(t->loop, &p);
	assert_int_equal(ST_PEER, p.result.code);
	says(&p.result.err, "link to p0");
	SOON(t->loop, importer_peers(t->d.importer) == 0);
	node_give(&t->d, &dst);
}

static void exporter_destroyed_while_it_digests(void **state)
{
	struct pair *t = *state;
	struct place src, dst;
	uint64_t lease = node_grant(&t->p, &src, 640, 3);
	struct pull what;
	struct puller p;

	node_take(&t->d, &dst, 640);
	one_pull(t, 64, 1, false); /* the link is open */
	what = pull_from(&t->p, &src, lease, &dst);
	what.digest = true;
	start_pull(&t->d, &what, &p);
	loop_for(t->loop, 3);
	assert_int_equal(0, p.n_done);
	exporter_destroy(t->p.exporter);
	t->p.exporter = NULL;
	wait_done(t->loop, &p);
	assert_int_equal(ST_PEER, p.result.code);
	node_give(&t->d, &dst);
}

/* Two hundred pulls, each over a new link, half of them of new incarnations. */
static void two_hundred_links_leave_nothing(void **state)
{
	struct pair *t = *state;
	uint32_t fds = 0, maps = 0;
	uint64_t taken = 0;

	for (uint32_t i = 0; i < 200; i++) {
		one_pull(t, 130, i, i % 3 == 0);
		if (i % 2 == 0) {
			exporter_destroy(t->p.exporter);
			t->p.side.incarnation++;
			node_export(&t->p);
		} else {
			importer_destroy(t->d.importer);
			node_import(&t->d);
		}
		SOON(t->loop, importer_peers(t->d.importer) == 0);
		SOON(t->loop, exporter_links(t->p.exporter) == 0);
		if (i == 10) {
			loop_for(t->loop, 20);
			fds = count_fds();
			maps = count_arena_maps();
			taken = mem_taken();
		}
	}
	SOON(t->loop, count_fds() == fds);
	SOON(t->loop, count_arena_maps() == maps);
	assert_int_equal(2, maps);
	assert_true(mem_taken() <= taken + 4096); /* malloc rounds, a link leaves more */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		LARGE(concurrent_pulls_take_turns),
		LARGE(cancel_in_the_middle_gives_the_claim_back),
		WITH(cancel_before_copying),
		LARGE(revoke_cancels_and_a_released_lease_is_freed),
		LARGE(peer_down_ends_pulls_then_unmaps_then_tells),
		LARGE(importer_destroyed_in_the_middle),
		LARGE(exporter_destroyed_in_the_middle),
		LARGE(exporter_destroyed_while_it_digests),
		WITH(two_hundred_links_leave_nothing),
	};

	log_level_set(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
