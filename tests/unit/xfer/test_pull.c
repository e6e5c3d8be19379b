// labels: threads
/* Pulls between two workers in one process: what arrives, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/xfer/digest.h"
#include "unit/xfer/pair.h"
#include <fcntl.h>
#include <inttypes.h>

static void every_parallelism_moves_every_byte(void **state)
{
	static const uint32_t tps[] = {1, 2, 4, 8};

	(void)state;
	for (size_t a = 0; a < COUNT(tps); a++)
		for (size_t b = 0; b < COUNT(tps); b++) {
			struct pair *t = pair_new(&small_model, tps[a], tps[b]);

			one_pull(t, 500, 11, false);
			one_pull(t, 64, 12, true);
			one_pull(t, 1, 13, true);
			assert_true(loop_until(t->loop, no_leases, t, 20000));
			assert_int_equal(
				NODE_PAGES - 1, pool_count(t->p.pages, POOL_FREE));
			assert_int_equal(
				NODE_SLOTS - 1, pool_count(t->p.slots, POOL_FREE));
			assert_int_equal(1, importer_peers(t->d.importer));
			assert_int_equal(1, exporter_links(t->p.exporter));
			pair_release(t);
		}
}

static void refused(
	struct pair *t, const struct pull *what, status code, const char *text)
{
	struct puller p;

	start_pull(&t->d, what, &p);
	wait_done(t->loop, &p);
	assert_int_equal(code, p.result.code);
	says(&p.result.err, text);
	assert_int_equal(0, p.result.bytes);
}

static void stale_and_wrong_claims_are_refused_with_the_reason(void **state)
{
	struct pair *t = *state;
	struct place src, dst;
	uint64_t lease = node_grant(&t->p, &src, 100, 5);
	struct pull what;

	node_take(&t->d, &dst, 100);
	what = pull_from(&t->p, &src, lease + 7, &dst);
	refused(t, &what, ST_INVALID, "no lease 8 (the newest is 1)");
	what.lease = lease;
	what.n_tokens = 99;
	refused(t, &what, ST_INVALID, "covers 100 tokens, the claim wants 99");
	what.n_tokens = 100;
	what.src_slot = NODE_SLOTS;
	refused(t, &what, ST_INVALID, "slot 20 of p0 into slot 1");
	what.src_slot = src.slot;
	what.src_pages = (const uint32_t[]){1, NODE_PAGES};
	refused(t, &what, ST_INVALID, "page 1 of the source is id 24");
	what.src_pages = src.pages;
	/* The refusals have given the claim back, and the link lives. */
	loop_for(t->loop, 5);
	assert_int_equal(0, lease_find(t->p.leases, lease)->claimer);
	assert_int_equal(1, exporter_links(t->p.exporter));
	assert_true(lease_release(t->p.leases, lease));
	refused(t, &what, ST_INVALID, "no lease 1");
	one_pull(t, 100, 6, true);
	assert_int_equal(0, t->p.malformed);
	assert_int_equal(0, t->d.malformed);
	node_give(&t->d, &dst);
}

static void nonsense_requests_are_refused_at_once(void **state)
{
	struct pair *t = *state;
	struct place src, dst;
	uint64_t lease = node_grant(&t->p, &src, 100, 5), handle = 0;
	struct pull what;
	struct puller p;
	char long_path[200];
	struct err err;

	node_take(&t->d, &dst, 100);
	what = pull_from(&t->p, &src, lease, &dst);
	what.n_pages = 1;
	assert_int_equal(ST_INVALID,
		importer_pull(t->d.importer, &what, note_done, &p, &handle, &err));
	says(&err, "a pull of 100 tokens names 1 pages behind 0, not 2 in all");
	what.n_pages = 2;
	memset(long_path, 'x', sizeof(long_path));
	long_path[sizeof(long_path) - 1] = 0;
	what.link_path = long_path;
	assert_int_equal(ST_INVALID,
		importer_pull(t->d.importer, &what, note_done, &p, &handle, &err));
	says(&err, "link path of 199 bytes");
	assert_int_equal(0, handle);
	assert_int_equal(0, importer_pulls(t->d.importer));
	node_give(&t->d, &dst);
}

static void wrong_incarnation_is_refused_with_both(void **state)
{
	struct pair *t = *state;
	struct place src, dst;
	uint64_t lease = node_grant(&t->p, &src, 100, 5);
	struct pull what;
	char text[40];

	node_take(&t->d, &dst, 100);
	what = pull_from(&t->p, &src, lease, &dst);
	what.incarnation = 0x1234;
	refused(t, &what, ST_INVALID, "the importer wants 0000000000001234");
	snprintf(text, sizeof(text), "incarnation %016" PRIx64, t->p.side.incarnation);
	refused(t, &what, ST_INVALID, text);
	assert_int_equal(0, lease_find(t->p.leases, lease)->claimer);
	assert_int_equal(0, importer_peers(t->d.importer));
	one_pull(t, 30, 2, false);
	node_give(&t->d, &dst);
}

static void another_layout_is_refused_with_both_hashes(void **state)
{
	struct pair *t = *state;
	struct geometry other = small_model;
	struct node q;
	struct place src, dst;
	struct pull what;
	uint64_t lease;
	char text[64];

	other.kv = DT_F32;
	node_init(&q, t->loop, "p1", t->dir, &other, 1);
	node_export(&q);
	lease = node_grant(&q, &src, 100, 5);
	node_take(&t->d, &dst, 100);
	what = pull_from(&q, &src, lease, &dst);
	snprintf(text, sizeof(text), "layout of p1 is %016" PRIx64,
		layout_compat_hash(&q.side.layout));
	refused(t, &what, ST_INVALID, text);
	snprintf(text, sizeof(text), "the importer's is %016" PRIx64,
		layout_compat_hash(&t->d.side.layout));
	refused(t, &what, ST_INVALID, text);
	node_give(&t->d, &dst);
	node_release(&q);
}

static void nobody_there_is_a_lost_peer(void **state)
{
	struct pair *t = *state;
	struct place src, dst;
	uint64_t lease = node_grant(&t->p, &src, 100, 5);
	struct pull what;
	struct puller p;
	char path[128];

	node_take(&t->d, &dst, 100);
	what = pull_from(&t->p, &src, lease, &dst);
	snprintf(path, sizeof(path), "%s/none.link", t->dir);
	what.link_path = path;
	start_pull(&t->d, &what, &p);
	loop_for(t->loop, 30);
	assert_int_equal(0, p.n_done);
	clock_offset += 6 * NS_PER_S;
	wait_done(t->loop, &p);
	assert_int_equal(ST_PEER, p.result.code);
	says(&p.result.err, "not within 5000 ms: connect to");
	says(&p.result.err, "No such file");
	close(open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600));
	refused(t, &what, ST_PEER, "onnection refused");
	node_give(&t->d, &dst);
}

static void a_second_pull_of_the_same_lease_is_refused(void **state)
{
	struct pair *t = *state;
	struct place src, dst;
	uint64_t lease = node_grant(&t->p, &src, 100, 5);
	struct pull what;
	struct puller p, q;
	struct err err;

	node_take(&t->d, &dst, 100);
	what = pull_from(&t->p, &src, lease, &dst);
	start_pull(&t->d, &what, &p);
	assert_int_equal(ST_INVALID,
		importer_pull(t->d.importer, &what, note_done, &q, &q.handle, &err));
	says(&err, "lease 1 of p0 is being pulled already");
	wait_done(t->loop, &p);
	assert_int_equal(ST_OK, p.result.code);
	node_give(&t->d, &dst);
}

static void a_changed_source_fails_the_digest(void **state)
{
	struct pair *t = *state;
	struct place src, dst;
	uint64_t lease = node_grant(&t->p, &src, 100, 5);
	struct pull what;
	struct puller p;
	uint8_t *byte;
	char go[128];
	struct err err;

	needs_faults();
	node_take(&t->d, &dst, 100);
	assert_int_equal(ST_OK, fault_configure("pause@pull", t->dir, &err));
	what = pull_from(&t->p, &src, lease, &dst);
	what.digest = true;
	start_pull(&t->d, &what, &p);
	loop_for(t->loop, 100);
	assert_int_equal(0, p.n_done);
	assert_int_not_equal(0, lease_find(t->p.leases, lease)->claimer);
	byte = (uint8_t *)t->p.side.arena[0] +
	       layout_page_offset(&t->p.side.layout, src.pages[1]) + 77;
	*byte ^= 1;
	snprintf(go, sizeof(go), "%s/fault.pull.go", t->dir);
	close(open(go, O_CREAT | O_RDWR | O_CLOEXEC, 0600));
	wait_done(t->loop, &p);
	assert_int_equal(ST_INVALID, p.result.code);
	says(&p.result.err, "digest of the pulled state");
	/* The claim was given back, not done: another attempt is possible. */
	loop_for(t->loop, 5);
	assert_int_equal(0, lease_find(t->p.leases, lease)->claimer);
	node_give(&t->d, &dst);
}

/* Every replica of a KV head is compared, not only the first. */
static void digest_sees_every_replica(void **state)
{
	struct pair *t = pair_new(&small_model, 1, 8);
	struct place src;
	struct state_view v;
	struct plan_refs refs;
	atomic_bool cancel = false;
	uint64_t whole, got;
	struct err err;

	(void)state;
	node_take(&t->d, &src, 100);
	v = node_view(&t->d, &src);
	state_write(&v, 9);
	refs = (struct plan_refs){.pages = src.pages,
		.n_pages = src.n_pages,
		.slot = src.slot,
		.arena_pages = NODE_PAGES};
	assert_int_equal(4, digest_variants(&t->d.side.layout));
	CHECK_OK(digest_compute(&t->d.side, &refs, 0, &cancel, &whole, &err), err);
	for (uint32_t i = 0; i < 4; i++) {
		uint8_t *byte = (uint8_t *)t->d.side.arena[4 + i] +
				layout_page_offset(&t->d.side.layout, src.pages[0]);

		CHECK_OK(digest_compute(&t->d.side, &refs, i, &cancel, &got, &err), err);
		assert_int_equal(whole, got);
		*byte ^= 1;
		CHECK_OK(digest_compute(&t->d.side, &refs, i, &cancel, &got, &err), err);
		assert_int_not_equal(whole, got);
		*byte ^= 1;
	}
	cancel = true;
	assert_int_equal(
		ST_CANCELLED, digest_compute(&t->d.side, &refs, 0, &cancel, &got, &err));
	node_give(&t->d, &src);
	pair_release(t);
}

static void too_many_pulls_are_refused(void **state)
{
	struct pair *t = *state;
	struct place src, dst;
	uint64_t handle;
	struct puller *p = test_calloc(IMPORTER_PULLS_MAX, sizeof(*p));
	struct pull what;
	struct err err;

	(void)node_grant(&t->p, &src, 10, 5);
	node_take(&t->d, &dst, 10);
	what = pull_from(&t->p, &src, 0, &dst);
	for (uint32_t i = 0; i < IMPORTER_PULLS_MAX; i++) {
		what.lease = 1000 + i;
		start_pull(&t->d, &what, &p[i]);
	}
	what.lease = 1;
	assert_int_equal(ST_LIMIT,
		importer_pull(t->d.importer, &what, note_done, p, &handle, &err));
	says(&err, "256 pulls are under way");
	for (uint32_t i = 0; i < IMPORTER_PULLS_MAX; i++) {
		wait_done(t->loop, &p[i]);
		assert_int_equal(ST_INVALID, p[i].result.code);
	}
	start_pull(&t->d, &what, p);
	wait_done(t->loop, p);
	assert_int_equal(ST_OK, p[0].result.code);
	test_free(p);
	node_give(&t->d, &dst);
}

static void an_unknown_transport_is_refused(void **state)
{
	struct pair *t = *state;
	struct xfer_side side = t->d.side;
	struct importer *m = NULL;
	struct place src, dst;
	struct pull what;
	struct puller p;
	struct err err;

	side.transport = "pigeon";
	assert_int_equal(ST_INVALID, importer_create(&m, &side, &err));
	says(&err, "transport 'pigeon' is none of");
	/* One that exists but is impossible here is refused by name, not replaced. */
	side.transport = "cuda_host";
	CHECK_OK(importer_create(&m, &side, &err), err);
	what = pull_from(&t->p, &src, node_grant(&t->p, &src, 10, 5), &dst);
	node_take(&t->d, &dst, 10);
	what.dst_slot = dst.slot;
	p = (struct puller){0};
	CHECK_OK(importer_pull(m, &what, note_done, &p, &p.handle, &err), err);
	wait_done(t->loop, &p);
	assert_int_equal(ST_INVALID, p.result.code);
	says(&p.result.err, "transport cuda_host from cpu:0");
	importer_destroy(m);
	node_give(&t->d, &dst);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_parallelism_moves_every_byte),
		WITH(stale_and_wrong_claims_are_refused_with_the_reason),
		WITH(nonsense_requests_are_refused_at_once),
		WITH(wrong_incarnation_is_refused_with_both),
		WITH(another_layout_is_refused_with_both_hashes),
		WITH(nobody_there_is_a_lost_peer),
		WITH(a_second_pull_of_the_same_lease_is_refused),
		WITH(a_changed_source_fails_the_digest),
		cmocka_unit_test(digest_sees_every_replica),
		WITH(too_many_pulls_are_refused),
		WITH(an_unknown_transport_is_refused),
	};

	log_level_set(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
