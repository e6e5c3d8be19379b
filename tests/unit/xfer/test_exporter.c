/* The exporter against an importer that a test drives by hand: order of messages,
 * refusals, and that nothing a peer sends harms another one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/xfer/exporter_impl.h"
#include "unit/xfer/raw_peer.h"
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>

struct world {
	struct loop *loop;
	const char *dir;
	struct node p;
	struct raw_peer a, b;
	uint64_t taken;
	uint32_t fds;
};

static int set_up_ranks(void **state, uint32_t ranks)
{
	struct world *w = test_calloc(1, sizeof(*w));

	w->taken = mem_taken();
	clock_replace(shifted_clock);
	w->loop = loop_create();
	w->dir = make_dir();
	node_init(&w->p, w->loop, "p0", w->dir, &small_model, ranks);
	node_export(&w->p);
	loop_for(w->loop, 1);
	w->fds = count_fds();
	w->a = w->b = (struct raw_peer){.fd = -1, .got_fd = -1};
	*state = w;
	return 0;
}

static int set_up(void **state)
{
	return set_up_ranks(state, 1);
}

static int tear_down(void **state)
{
	struct world *w = *state;

	raw_close(&w->a);
	raw_close(&w->b);
	SOON(w->loop, exporter_links(w->p.exporter) == 0);
	SOON(w->loop, count_fds() == w->fds);
	pool_check(w->p.pages);
	node_release(&w->p);
	loop_destroy(w->loop);
	remove_dir(w->dir);
	clock_replace(NULL);
	clock_offset = 0;
	assert_int_equal(w->taken, mem_taken());
	test_free(w);
	return 0;
}

static struct msg_open an_open(const struct world *w)
{
	return (struct msg_open){.id = BYTES_STR("d0"),
		.incarnation = 77,
		.source_incarnation = w->p.side.incarnation,
		.compat_hash = layout_compat_hash(&w->p.side.layout)};
}

static void open_as(struct world *w, struct raw_peer *p)
{
	struct msg_open open = an_open(w);
	struct msg_arena arena;

	raw_connect(p, exporter_path(w->p.exporter));
	raw_send(p->fd, MSG_open, &open, NULL, 0);
	for (uint32_t r = 0; r < w->p.side.n_ranks; r++) {
		raw_expect(w->loop, p, MSG_arena, &arena);
		assert_int_equal(r, arena.rank);
	}
}

/* ok: whether it must be granted. */
static void claim_as(
	struct world *w, struct raw_peer *p, uint64_t lease, uint32_t n_tokens, bool ok)
{
	struct msg_claim claim = {.lease = lease, .n_tokens = n_tokens};
	struct msg_claimed claimed;

	raw_send(p->fd, MSG_claim, &claim, NULL, 0);
	raw_expect(w->loop, p, MSG_claimed, &claimed);
	assert_int_equal(lease, claimed.lease);
	assert_int_equal(ok, claimed.ok);
	assert_int_equal(!ok, claimed.has_text);
}

static void expect_denied(struct world *w, struct raw_peer *p, const char *text)
{
	struct msg_denied denied;
	struct err got;

	raw_expect(w->loop, p, MSG_denied, &denied);
	(void)err_set(&got, ST_INVALID, "%.*s", (int)denied.text.len,
		(const char *)denied.text.at);
	says(&got, text);
	raw_expect_end(w->loop, p);
}

static void the_socket_is_where_and_as_private_as_promised(void **state)
{
	struct world *w = *state;
	char path[128];
	struct stat sb;

	snprintf(path, sizeof(path), "%s/p0.%016" PRIx64 ".link", w->dir,
		w->p.side.incarnation);
	assert_string_equal(path, exporter_path(w->p.exporter));
	assert_int_equal(0, lstat(path, &sb));
	assert_true(S_ISSOCK(sb.st_mode));
	assert_int_equal(0600, sb.st_mode & 0777);
	exporter_destroy(w->p.exporter);
	w->p.exporter = NULL;
	assert_int_equal(-1, lstat(path, &sb));
	node_export(&w->p);
}

static void a_path_too_long_is_refused(void **state)
{
	struct world *w = *state;
	struct xfer_side side = w->p.side;
	struct exporter *x = NULL;
	char dir[128];
	struct err err;

	memset(dir, 'd', sizeof(dir) - 1);
	dir[0] = '/';
	dir[sizeof(dir) - 1] = 0;
	side.runtime_dir = dir;
	assert_int_equal(
		ST_INVALID, exporter_create(&x, &side, w->p.leases, NODE_LEASE_NS, &err));
	says(&err, "has 152 bytes, at most 107");
	side.runtime_dir = "/nonexistent";
	assert_int_equal(
		ST_IO, exporter_create(&x, &side, w->p.leases, NODE_LEASE_NS, &err));
	assert_null(x);
}

static void tickets_describe_every_rank(void **state)
{
	struct world *w;
	void *two;

	(void)state;
	set_up_ranks(&two, 2);
	w = two;
	for (uint32_t r = 0; r < 2; r++)
		memset(w->p.side.arena[r], (int)(r + 7), 16);
	raw_connect(&w->a, exporter_path(w->p.exporter));
	{
		struct msg_open open = an_open(w);

		raw_send(w->a.fd, MSG_open, &open, NULL, 0);
	}
	for (uint32_t r = 0; r < 2; r++) {
		struct msg_arena arena;
		struct layout l;
		struct err err;
		uint8_t *at;

		raw_expect(w->loop, &w->a, MSG_arena, &arena);
		assert_int_equal(r, arena.rank);
		assert_int_equal(2, arena.ranks);
		assert_int_equal(TICKET_MEMFD, arena.kind);
		assert_int_equal(NODE_PAGES, arena.pages);
		assert_int_equal(NODE_SLOTS, arena.slots);
		assert_int_equal(w->p.side.arena_bytes, arena.bytes);
		CHECK_OK(layout_get(&l, arena.layout, &err), err);
		assert_memory_equal(&w->p.side.layout, &l, sizeof(l));
		at = mmap(NULL, arena.bytes, PROT_READ, MAP_SHARED, w->a.got_fd, 0);
		assert_true(at != MAP_FAILED);
		assert_int_equal(r + 7, at[15]);
		munmap(at, arena.bytes);
	}
	tear_down(&two);
}

static void opens_that_do_not_fit_are_refused_with_both_values(void **state)
{
	struct world *w = *state;
	struct msg_open open = an_open(w);
	char text[160];

	open.source_incarnation = 5;
	raw_connect(&w->a, exporter_path(w->p.exporter));
	raw_send(w->a.fd, MSG_open, &open, NULL, 0);
	snprintf(text, sizeof(text),
		"p0 is incarnation %016" PRIx64 ", the importer wants 0000000000000005",
		w->p.side.incarnation);
	expect_denied(w, &w->a, text);
	raw_close(&w->a);

	open = an_open(w);
	open.compat_hash = 9;
	raw_connect(&w->a, exporter_path(w->p.exporter));
	raw_send(w->a.fd, MSG_open, &open, NULL, 0);
	snprintf(text, sizeof(text),
		"layout of p0 is %016" PRIx64 ", the importer's is 0000000000000009",
		layout_compat_hash(&w->p.side.layout));
	expect_denied(w, &w->a, text);
}

static void messages_out_of_order_end_the_link(void **state)
{
	struct world *w = *state;
	struct msg_claim claim = {.lease = 1, .n_tokens = 100};
	struct msg_done done = {.lease = 1, .ok = 1};
	struct msg_open open = an_open(w);
	struct place src;
	uint64_t lease = node_grant(&w->p, &src, 100, 1);

	raw_connect(&w->a, exporter_path(w->p.exporter));
	raw_send(w->a.fd, MSG_claim, &claim, NULL, 0);
	expect_denied(w, &w->a, "claim came before open");
	raw_close(&w->a);

	open_as(w, &w->a);
	raw_send(w->a.fd, MSG_open, &open, NULL, 0);
	expect_denied(w, &w->a, "open came twice");
	raw_close(&w->a);

	open_as(w, &w->a);
	raw_send(w->a.fd, MSG_done, &done, NULL, 0);
	expect_denied(w, &w->a, "done of lease 1 by link 3, claimed by link 0");
	raw_close(&w->a);

	/* The link that lies loses its claim; the lease stays. */
	open_as(w, &w->a);
	claim_as(w, &w->a, lease, 100, true);
	done.lease = 2;
	raw_send(w->a.fd, MSG_done, &done, NULL, 0);
	expect_denied(w, &w->a, "done of lease 2: no such lease");
	assert_int_equal(0, lease_find(w->p.leases, lease)->claimer);
	assert_int_equal(4, w->p.malformed);
}

static void a_peer_that_never_opens_is_cut(void **state)
{
	struct world *w = *state;

	raw_connect(&w->a, exporter_path(w->p.exporter));
	open_as(w, &w->b);
	SOON(w->loop, exporter_links(w->p.exporter) == 2);
	clock_offset += 6 * NS_PER_S;
	expect_denied(w, &w->a, "no open within 5000 ms");
	assert_int_equal(1, exporter_links(w->p.exporter));
}

static void claims_pass_from_link_to_link(void **state)
{
	struct world *w = *state;
	struct place src;
	uint64_t lease = node_grant(&w->p, &src, 100, 1);
	struct msg_done done = {.lease = lease, .ok = 0};
	struct msg_revoke revoke;

	open_as(w, &w->a);
	open_as(w, &w->b);
	claim_as(w, &w->a, lease, 100, true);
	claim_as(w, &w->a, lease, 100, false);
	claim_as(w, &w->b, lease, 100, false);
	raw_send(w->a.fd, MSG_done, &done, NULL, 0); /* given back */
	SOON(w->loop, lease_find(w->p.leases, lease)->claimer == 0);
	claim_as(w, &w->b, lease, 100, true);
	exporter_revoke(w->p.exporter, lease);
	raw_expect(w->loop, &w->b, MSG_revoke, &revoke);
	assert_int_equal(lease, revoke.lease);
	raw_close(&w->b); /* dies with the claim */
	SOON(w->loop, lease_find(w->p.leases, lease)->claimer == 0);
	claim_as(w, &w->a, lease, 100, true);
	done.ok = 1;
	raw_send(w->a.fd, MSG_done, &done, NULL, 0);
	SOON(w->loop, lease_count(w->p.leases) == 0);
	assert_int_equal(NODE_PAGES - 1, pool_count(w->p.pages, POOL_FREE));
	assert_int_equal(0, w->p.malformed);
}

static bool is_unclaimed(void *ctx)
{
	struct world *w = ctx;

	return lease_find(w->p.leases, 1)->claimer == 0;
}

static void a_lost_link_gives_its_lease_a_fresh_life(void **state)
{
	struct world *w = *state;
	struct place src;
	uint64_t lease = node_grant(&w->p, &src, 100, 1);
	struct lease *l = lease_find(w->p.leases, lease);

	open_as(w, &w->a);
	claim_as(w, &w->a, lease, 100, true);
	clock_offset += 60 * NS_PER_S;
	assert_int_equal(0, lease_expire(w->p.leases, clock_ns()));
	close(w->a.fd);
	w->a.fd = -1;
	assert_true(loop_until(w->loop, is_unclaimed, w, 20000));
	assert_true(l->expires_ns > clock_ns() + 9 * NS_PER_S);
	assert_int_equal(0, lease_expire(w->p.leases, clock_ns()));
	clock_offset += 11 * NS_PER_S;
	assert_int_equal(1, lease_expire(w->p.leases, clock_ns()));
}

/* Frames that begin well and are bent: whatever comes, another importer's claim stays,
 * and memory and descriptors come back. */
static void bent_frames_harm_nobody_else(void **state)
{
	struct world *w = *state;
	struct place src;
	uint64_t lease = node_grant(&w->p, &src, 100, 1);
	uint8_t frame[LINK_FRAME_MAX];

	open_as(w, &w->b);
	claim_as(w, &w->b, lease, 100, true);
	for (uint64_t round = 0; round < 400; round++) {
		struct msg_open open = an_open(w);
		struct msg_claim claim = {.lease = 50, .n_tokens = 64};
		struct raw_peer p;
		size_t len;

		raw_connect(&p, exporter_path(w->p.exporter));
		raw_send(p.fd, MSG_open, &open, NULL, 0);
		len = round % 2 == 0 ? raw_frame(MSG_open, &open, frame)
				     : raw_frame(MSG_claim, &claim, frame);
		for (uint64_t k = 0; k <= round % 4; k++) {
			struct philox r = philox4x32(99, round, k);

			frame[r.v[0] % len] = (uint8_t)r.v[1];
			if (r.v[2] % 8 == 0)
				len = 1 + r.v[3] % len;
		}
		raw_send_bytes(p.fd, frame, len, NULL, 0);
		if (round % 8 == 0)
			loop_for(w->loop, 2);
		raw_close(&p);
	}
	SOON(w->loop, exporter_links(w->p.exporter) == 1);
	assert_true(w->p.malformed > 100); /* they were there */
	assert_int_not_equal(0, lease_find(w->p.leases, lease)->claimer);
	claim_as(w, &w->b, lease + 1, 100, false);
}

static void more_links_than_there_is_room_for(void **state)
{
	struct world *w = *state;
	struct raw_peer *many = test_calloc(EXPORTER_LINKS_MAX + 3, sizeof(*many));

	for (uint32_t i = 0; i < EXPORTER_LINKS_MAX; i++)
		open_as(w, &many[i]);
	for (uint32_t i = EXPORTER_LINKS_MAX; i < EXPORTER_LINKS_MAX + 3; i++) {
		raw_connect(&many[i], exporter_path(w->p.exporter));
		raw_expect_end(w->loop, &many[i]);
	}
	assert_int_equal(EXPORTER_LINKS_MAX, exporter_links(w->p.exporter));
	raw_close(&many[5]);
	SOON(w->loop, exporter_links(w->p.exporter) == EXPORTER_LINKS_MAX - 1);
	raw_close(&many[EXPORTER_LINKS_MAX]);
	open_as(w, &many[EXPORTER_LINKS_MAX]);
	for (uint32_t i = 0; i < EXPORTER_LINKS_MAX + 3; i++)
		raw_close(&many[i]);
	test_free(many);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(the_socket_is_where_and_as_private_as_promised),
		WITH(a_path_too_long_is_refused),
		cmocka_unit_test(tickets_describe_every_rank),
		WITH(opens_that_do_not_fit_are_refused_with_both_values),
		WITH(messages_out_of_order_end_the_link),
		WITH(a_peer_that_never_opens_is_cut),
		WITH(claims_pass_from_link_to_link),
		WITH(a_lost_link_gives_its_lease_a_fresh_life),
		WITH(bent_frames_harm_nobody_else),
		WITH(more_links_than_there_is_room_for),
	};

	log_level_set(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
