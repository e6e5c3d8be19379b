/* The importer against an exporter that a test drives by hand: tickets that do not hold
 * together, answers to nothing, silence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/xfer/importer_impl.h"
#include "unit/xfer/raw_peer.h"
#include <fcntl.h>
#include <sys/mman.h>

struct world {
	struct loop *loop;
	const char *dir;
	char path[128];
	struct node d;
	int listen_fd;
	struct raw_peer p;
	struct place src, dst;
	struct puller pull;
	uint64_t taken;
	uint32_t fds, maps;
	uint8_t record[LAYOUT_RECORD_BYTES];
};

static int set_up(void **state)
{
	struct world *w = test_calloc(1, sizeof(*w));
	struct err err;

	w->taken = mem_taken();
	clock_replace(shifted_clock);
	w->loop = loop_create();
	w->dir = make_dir();
	node_init(&w->d, w->loop, "d0", w->dir, &small_model, 1);
	node_import(&w->d);
	snprintf(w->path, sizeof(w->path), "%s/fake.link", w->dir);
	CHECK_OK(link_listen(w->path, &w->listen_fd, &err), err);
	w->p = (struct raw_peer){.fd = -1, .got_fd = -1};
	w->src =
		(struct place){.pages = {3, 4}, .n_pages = 2, .slot = 2, .n_tokens = 100};
	node_take(&w->d, &w->dst, 100);
	loop_for(w->loop, 1);
	w->fds = count_fds();
	w->maps = count_arena_maps();
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	raw_close(&w->p);
	SOON(w->loop, importer_pulls(w->d.importer) == 0);
	SOON(w->loop, importer_peers(w->d.importer) == 0);
	SOON(w->loop, count_fds() == w->fds);
	assert_int_equal(w->maps, count_arena_maps());
	node_give(&w->d, &w->dst);
	node_release(&w->d);
	close(w->listen_fd);
	loop_destroy(w->loop);
	remove_dir(w->dir);
	clock_replace(NULL);
	clock_offset = 0;
	assert_int_equal(w->taken, mem_taken());
	test_free(w);
	return 0;
}

static bool accepted(void *ctx)
{
	struct world *w = ctx;
	struct err err;

	return link_accept(w->listen_fd, &w->p.fd, &err) == ST_OK;
}

static struct pull what_of(const struct world *w, uint64_t lease)
{
	return (struct pull){.link_path = w->path,
		.worker_id = "fake",
		.incarnation = 5,
		.lease = lease,
		.n_tokens = 100,
		.src_pages = w->src.pages,
		.dst_pages = w->dst.pages,
		.n_pages = 2,
		.src_slot = w->src.slot,
		.dst_slot = w->dst.slot};
}

static void start(struct world *w)
{
	struct pull what = what_of(w, 1);

	start_pull(&w->d, &what, &w->pull);
}

static void start_and_accept(struct world *w)
{
	struct msg_open open;

	start(w);
	assert_true(loop_until(w->loop, accepted, w, 20000));
	raw_expect(w->loop, &w->p, MSG_open, &open);
	assert_int_equal(2, open.id.len);
	assert_memory_equal("d0", open.id.at, 2);
	assert_int_equal(w->d.side.incarnation, open.incarnation);
	assert_int_equal(5, open.source_incarnation);
	assert_int_equal(layout_compat_hash(&w->d.side.layout), open.compat_hash);
}

/* A good ticket for the whole of a fake worker with this many ranks. */
static struct msg_arena good_arena(struct world *w, uint32_t ranks, uint32_t rank)
{
	struct layout l;
	struct err err;

	CHECK_OK(geometry_layout(&l, &small_model, ranks, &err), err);
	layout_put(&l, w->record);
	return (struct msg_arena){.rank = rank,
		.ranks = ranks,
		.kind = TICKET_MEMFD,
		.bytes = layout_arena_bytes(&l, 9, 3),
		.pages = 9,
		.slots = 3,
		.layout = {w->record, sizeof(w->record)},
		.device_uuid = BYTES_STR("cpu:0 fake")};
}

static int arena_fd(uint64_t bytes, int seals)
{
	int fd = memfd_create("baton-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(0, ftruncate(fd, (off_t)bytes));
	assert_int_equal(0, fcntl(fd, F_ADD_SEALS, seals));
	return fd;
}

static void send_arena(struct world *w, const struct msg_arena *arena, bool with_fd)
{
	int fd = arena_fd(arena->bytes < 1 << 30 ? arena->bytes : 4096, F_SEAL_SHRINK);

	raw_send(w->p.fd, MSG_arena, arena, &fd, with_fd ? 1 : 0);
	close(fd);
}

static void ends_with(struct world *w, status code, const char *text)
{
	wait_done(w->loop, &w->pull);
	assert_int_equal(code, w->pull.result.code);
	says(&w->pull.result.err, text);
	says(&w->pull.result.err, "fake");
	raw_expect_end(w->loop, &w->p);
}

/* Each case bends one thing of a good ticket. */
enum bend {
	BEND_RANK,
	BEND_RANKS,
	BEND_BYTES,
	BEND_PAGES,
	BEND_HUGE,
	BEND_NO_FD,
	BEND_KIND,
	BEND_BLOB_TOO,
	BEND_RECORD,
	BEND_SHORT_RECORD,
	BEND__COUNT
};

static bool bend_arena(struct world *w, struct msg_arena *a, enum bend bend)
{
	static const uint8_t blob[64];

	if (bend == BEND_RANK)
		a->rank = 1;
	if (bend == BEND_RANKS)
		a->ranks = 2;
	if (bend == BEND_BYTES)
		a->bytes += 1;
	if (bend == BEND_PAGES)
		a->pages = 8;
	if (bend == BEND_HUGE)
		a->pages = UINT32_MAX;
	if (bend == BEND_KIND)
		a->kind = 77;
	if (bend == BEND_BLOB_TOO) {
		a->blob = (struct bytes){blob, sizeof(blob)};
		a->has_blob = true;
		a->kind = TICKET_CUDA_IPC;
	}
	if (bend == BEND_RECORD)
		w->record[40] ^= 1;
	if (bend == BEND_SHORT_RECORD)
		a->layout.len--;
	return bend != BEND_NO_FD;
}

static void tickets_that_do_not_hold_together_are_refused(void **state)
{
	static const char *const says_so[BEND__COUNT] = {
		[BEND_RANK] = "arena of rank 1 of 1, its layout has 1 ranks",
		[BEND_RANKS] = "arena of rank 0 of 2, its layout has 1 ranks",
		[BEND_BYTES] = "9 pages and 3 slots need",
		[BEND_PAGES] = "8 pages and 3 slots need",
		[BEND_HUGE] = "4294967295 pages and 3 slots need",
		[BEND_NO_FD] = "kind 1 with no descriptor and 0 bytes",
		[BEND_KIND] = "kind 77 with a descriptor",
		[BEND_BLOB_TOO] = "kind 2 with a descriptor and 64 bytes",
		[BEND_RECORD] = "layout",
		[BEND_SHORT_RECORD] = "layout record of 127 bytes, want 128",
	};
	void *one = NULL;

	(void)state;
	for (int bend = 0; bend < BEND__COUNT; bend++) {
		struct world *w;
		struct msg_arena arena;
		bool with_fd;

		set_up(&one);
		w = one;
		start_and_accept(w);
		arena = good_arena(w, 1, 0);
		with_fd = bend_arena(w, &arena, (enum bend)bend);
		send_arena(w, &arena, with_fd);
		ends_with(w, ST_INVALID, says_so[bend]);
		assert_int_equal(1, w->d.malformed);
		tear_down(&one);
	}
}

static void tickets_of_several_ranks_must_agree(void **state)
{
	void *one = NULL;

	(void)state;
	for (int bend = 0; bend < 3; bend++) {
		static const char *const says_so[] = {
			"came twice", "rank 1 differs", "rank 1 differs"};
		struct world *w;
		struct msg_arena arena;

		set_up(&one);
		w = one;
		start_and_accept(w);
		arena = good_arena(w, 4, 0);
		send_arena(w, &arena, true);
		arena = good_arena(w, bend == 1 ? 2 : 4, bend == 0 ? 0 : 1);
		if (bend == 2)
			arena.slots++;
		send_arena(w, &arena, true);
		ends_with(w, ST_INVALID, says_so[bend]);
		tear_down(&one);
	}
}

static void another_layout_is_refused_with_both_hashes(void **state)
{
	struct world *w = *state;
	struct geometry other = small_model;
	struct msg_arena arena;
	struct layout l;
	char text[80];
	struct err err;

	other.n_gdn = 7;
	CHECK_OK(geometry_layout(&l, &other, 1, &err), err);
	start_and_accept(w);
	arena = good_arena(w, 1, 0);
	layout_put(&l, w->record);
	send_arena(w, &arena, true);
	snprintf(text, sizeof(text), "its layout is %016llx, ours is %016llx",
		(unsigned long long)layout_compat_hash(&l),
		(unsigned long long)layout_compat_hash(&w->d.side.layout));
	ends_with(w, ST_INVALID, text);
}

/* The reader of a memory file that shrinks is killed by the system. */
static void an_arena_that_could_shrink_is_refused(void **state)
{
	struct world *w = *state;
	struct msg_arena arena;
	int fd;

	start_and_accept(w);
	arena = good_arena(w, 1, 0);
	fd = arena_fd(arena.bytes, 0);
	raw_send(w->p.fd, MSG_arena, &arena, &fd, 1);
	close(fd);
	ends_with(w, ST_PEER, "could shrink");
}

static void an_arena_shorter_than_its_ticket_is_refused(void **state)
{
	struct world *w = *state;
	struct msg_arena arena;
	int fd;

	start_and_accept(w);
	arena = good_arena(w, 1, 0);
	fd = arena_fd(arena.bytes - 1, F_SEAL_SHRINK);
	raw_send(w->p.fd, MSG_arena, &arena, &fd, 1);
	close(fd);
	ends_with(w, ST_PEER, "announced as");
}

static void gpu_memory_is_refused_by_a_cpu_worker(void **state)
{
	static const uint8_t blob[64];
	struct world *w = *state;
	struct msg_arena arena;

	start_and_accept(w);
	arena = good_arena(w, 1, 0);
	arena.kind = TICKET_CUDA_IPC;
	arena.blob = (struct bytes){blob, sizeof(blob)};
	arena.has_blob = true;
	send_arena(w, &arena, false);
	ends_with(w, ST_INVALID, "transport auto from cpu:0 fake (arenas of kind 2)");
}

static void silence_is_a_lost_peer(void **state)
{
	struct world *w = *state;

	start_and_accept(w);
	loop_for(w->loop, 5);
	assert_int_equal(0, w->pull.n_done);
	clock_offset += 6 * NS_PER_S;
	ends_with(w, ST_PEER, "no arenas came within 5000 ms");
}

static void open_up(struct world *w)
{
	struct msg_arena arena;
	struct msg_claim claim;

	start_and_accept(w);
	arena = good_arena(w, 1, 0);
	send_arena(w, &arena, true);
	raw_expect(w->loop, &w->p, MSG_claim, &claim);
	assert_int_equal(1, claim.lease);
	assert_int_equal(100, claim.n_tokens);
	assert_int_equal(w->maps + 1, count_arena_maps());
}

/* The pull ends, the link lives, and an answer that comes after all is given back. */
static void an_unanswered_claim_ends_and_is_given_back_later(void **state)
{
	struct world *w = *state;
	struct msg_claimed claimed = {.lease = 1, .ok = 1};
	struct msg_done done;
	struct pull what;
	struct puller again;
	struct err err;

	open_up(w);
	clock_offset += 6 * NS_PER_S;
	wait_done(w->loop, &w->pull);
	assert_int_equal(ST_PEER, w->pull.result.code);
	says(&w->pull.result.err, "fake did not answer the claim of lease 1 in time");
	assert_int_equal(0, importer_pulls(w->d.importer));
	assert_int_equal(1, importer_peers(w->d.importer));
	what = what_of(w, 1);
	assert_int_equal(ST_LIMIT, importer_pull(w->d.importer, &what, note_done, &again,
					   &again.handle, &err));
	says(&err, "still being given back");
	raw_send(w->p.fd, MSG_claimed, &claimed, NULL, 0);
	raw_expect(w->loop, &w->p, MSG_done, &done);
	assert_int_equal(1, done.lease);
	assert_int_equal(0, done.ok);
	assert_int_equal(1, w->pull.n_done);
}

static void answers_to_nothing_end_the_link(void **state)
{
	struct world *w = *state;
	struct msg_claimed claimed = {.lease = 2, .ok = 1};

	open_up(w);
	raw_send(w->p.fd, MSG_claimed, &claimed, NULL, 0);
	ends_with(w, ST_INVALID, "claimed for lease 2, which was not asked for");
}

static void a_late_arena_ends_the_link(void **state)
{
	struct world *w = *state;
	struct msg_arena arena = good_arena(w, 1, 0);

	open_up(w);
	send_arena(w, &arena, true);
	ends_with(w, ST_INVALID, "an arena came after the last one");
}

static void a_revoke_for_nobody_is_harmless(void **state)
{
	struct world *w = *state;
	struct msg_revoke revoke = {.lease = 4};
	struct msg_claimed claimed = {.lease = 1, .ok = 1};
	struct msg_done done;

	open_up(w);
	raw_send(w->p.fd, MSG_revoke, &revoke, NULL, 0);
	raw_send(w->p.fd, MSG_claimed, &claimed, NULL, 0);
	raw_expect(w->loop, &w->p, MSG_done, &done);
	assert_int_equal(1, done.ok);
	wait_done(w->loop, &w->pull);
	assert_int_equal(ST_OK, w->pull.result.code);
}

static void a_digest_that_was_asked_for_and_not_given(void **state)
{
	struct world *w = *state;
	struct msg_claimed claimed = {.lease = 9, .ok = 1};
	struct pull what = what_of(w, 9);
	struct msg_claim claim;
	struct msg_done done;
	struct puller p;

	what.digest = true;
	open_up(w);
	start_pull(&w->d, &what, &p);
	raw_expect(w->loop, &w->p, MSG_claim, &claim);
	assert_int_equal(1, claim.digest);
	raw_send(w->p.fd, MSG_claimed, &claimed, NULL, 0);
	raw_expect(w->loop, &w->p, MSG_done, &done);
	assert_int_equal(0, done.ok);
	wait_done(w->loop, &p);
	assert_int_equal(ST_INVALID, p.result.code);
	says(&p.result.err, "without the digest");
	raw_close(&w->p);
	wait_done(w->loop, &w->pull);
	assert_int_equal(ST_PEER, w->pull.result.code);
}

/* A listener whose queue is full lets nobody in: tried again until the deadline. */
static void a_full_queue_is_waited_for(void **state)
{
	struct world *w = *state;
	int waiting[256];
	uint32_t n = 0;
	struct err err;

	while (n < COUNT(waiting) && link_connect(w->path, &waiting[n], &err) == ST_OK)
		n++;
	assert_true(n > 8 && n < COUNT(waiting));
	start(w);
	loop_for(w->loop, 50);
	assert_int_equal(0, w->pull.n_done);
	for (uint32_t i = 0; i < n; i++) {
		assert_true(loop_until(w->loop, accepted, w, 20000));
		close(w->p.fd);
		close(waiting[i]);
	}
	assert_true(loop_until(w->loop, accepted, w, 20000)); /* ours, at last */
	{
		struct msg_open open;

		raw_expect(w->loop, &w->p, MSG_open, &open);
	}
	raw_close(&w->p);
	wait_done(w->loop, &w->pull);
	assert_int_equal(ST_PEER, w->pull.result.code);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tickets_that_do_not_hold_together_are_refused),
		cmocka_unit_test(tickets_of_several_ranks_must_agree),
		WITH(another_layout_is_refused_with_both_hashes),
		WITH(an_arena_that_could_shrink_is_refused),
		WITH(an_arena_shorter_than_its_ticket_is_refused),
		WITH(gpu_memory_is_refused_by_a_cpu_worker),
		WITH(silence_is_a_lost_peer),
		WITH(an_unanswered_claim_ends_and_is_given_back_later),
		WITH(answers_to_nothing_end_the_link),
		WITH(a_late_arena_ends_the_link),
		WITH(a_revoke_for_nobody_is_harmless),
		WITH(a_digest_that_was_asked_for_and_not_given),
		WITH(a_full_queue_is_waited_for),
	};

	log_level_set(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
