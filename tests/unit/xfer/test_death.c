/* Two processes, one of which is killed or stopped: before the claim, during the copy,
 * after it. Whatever happens, a pull that says OK has every byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/fault.h"
#include "common/xfer/importer_impl.h"
#include "unit/xfer/xfer_fixture.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { CHILD_LEASES = 2 };

/* What an exporting child tells its parent. */
struct offer {
	char path[128];
	uint64_t incarnation;
	uint64_t lease[CHILD_LEASES];
	struct place src[CHILD_LEASES];
};

struct world {
	struct loop *loop;
	const char *dir;
	struct node d;
	pid_t child;
	struct offer offer;
	struct place dst;
	struct puller pull;
	uint32_t fds, maps;
	uint64_t taken;
	uint64_t hits; /* of the fault points, before */
};

static const uint32_t n_tokens = 600;

/* The child's life: it ends with its parent, or by a signal. */
static _Noreturn void export_forever(
	const char *dir, const struct geometry *g, int to_parent)
{
	struct offer offer = {0};
	struct node p;
	struct loop *loop = loop_create();

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	node_init(&p, loop, "p0", dir, g, 1);
	node_export(&p);
	for (uint32_t i = 0; i < CHILD_LEASES; i++)
		offer.lease[i] =
			node_grant(&p, &offer.src[i], i == 0 ? n_tokens : 64, 100 + i);
	snprintf(offer.path, sizeof(offer.path), "%s", exporter_path(p.exporter));
	offer.incarnation = p.side.incarnation;
	if (write(to_parent, &offer, sizeof(offer)) != sizeof(offer))
		_exit(1);
	loop_run(loop);
	_exit(1);
}

static void spawn_exporter(struct world *w, const struct geometry *g)
{
	int ends[2];

	assert_int_equal(0, pipe2(ends, O_CLOEXEC));
	w->child = fork();
	assert_true(w->child >= 0);
	if (w->child == 0)
		export_forever(w->dir, g, ends[1]);
	close(ends[1]);
	assert_int_equal(
		(ssize_t)sizeof(w->offer), read(ends[0], &w->offer, sizeof(w->offer)));
	close(ends[0]);
}

static void kill_child(struct world *w)
{
	int how;

	if (w->child == 0)
		return;
	kill(w->child, SIGKILL);
	assert_int_equal(w->child, waitpid(w->child, &how, 0));
	assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
	w->child = 0;
}

static struct world *world_new(const struct geometry *g)
{
	struct world *w = test_calloc(1, sizeof(*w));

	w->taken = mem_taken();
	clock_replace(shifted_clock);
	w->dir = make_dir();
	w->loop = loop_create();
	node_init(&w->d, w->loop, "d0", w->dir, g, 1);
	node_import(&w->d);
	loop_for(w->loop, 1);
	w->fds = count_fds();
	w->maps = count_arena_maps();
	w->hits = fault_hits(FAULT_pull);
	return w;
}

static int set_up_large(void **state)
{
	struct world *w = world_new(&large_model);

	*state = w;
	spawn_exporter(w, &large_model);
	node_take(&w->d, &w->dst, n_tokens);
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;
	struct err err;

	kill_child(w);
	SOON(w->loop, importer_pulls(w->d.importer) == 0);
	assert_int_equal(ST_OK, fault_configure("", w->dir, &err));
	SOON(w->loop, importer_peers(w->d.importer) == 0);
	SOON(w->loop, count_arena_maps() == w->maps);
	SOON(w->loop, count_fds() == w->fds);
	if (w->dst.n_pages > 0)
		node_give(&w->d, &w->dst);
	node_release(&w->d);
	loop_destroy(w->loop);
	remove_dir(w->dir);
	clock_replace(NULL);
	clock_offset = 0;
	assert_int_equal(w->taken, mem_taken());
	test_free(w);
	return 0;
}

static struct pull what_of(const struct world *w)
{
	const struct place *src = &w->offer.src[0];

	return (struct pull){.link_path = w->offer.path,
		.worker_id = "p0",
		.incarnation = w->offer.incarnation,
		.lease = w->offer.lease[0],
		.n_tokens = src->n_tokens,
		.src_pages = src->pages,
		.dst_pages = w->dst.pages,
		.n_pages = src->n_pages,
		.src_slot = src->slot,
		.dst_slot = w->dst.slot};
}

static void start(struct world *w, bool digest)
{
	struct pull what = what_of(w);

	what.digest = digest;
	start_pull(&w->d, &what, &w->pull);
}

static uint64_t wrong_elements(const struct world *w)
{
	struct state_view v = node_view(&w->d, &w->dst);

	return state_wrong(&v, 100);
}

static const struct import_pull *first_pull(const struct world *w)
{
	return &w->d.importer->pulls[0];
}

static bool is_held(void *ctx)
{
	return first_pull(ctx)->state == PULL_HELD;
}

static bool is_paused(void *ctx)
{
	return first_pull(ctx)->state == PULL_COPYING &&
	       fault_hits(FAULT_pull) > ((const struct world *)ctx)->hits;
}

static bool is_half(void *ctx)
{
	return first_pull(ctx)->state == PULL_COPYING &&
	       first_pull(ctx)->result.bytes > 0;
}

static bool is_verifying(void *ctx)
{
	return first_pull(ctx)->state == PULL_VERIFYING;
}

static bool is_claiming(void *ctx)
{
	return first_pull(ctx)->state == PULL_CLAIMING;
}

static void pause_at(struct world *w, const char *where)
{
	struct err err;

	CHECK_OK(fault_configure(where, w->dir, &err), err);
}

static void let_go(struct world *w, const char *name)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", w->dir, name);
	close(open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600));
}

/* The end is seen by the end of the socket, far before any deadline. */
static void lost_soon(struct world *w)
{
	uint64_t began = real_ns();

	wait_done(w->loop, &w->pull);
	assert_int_equal(ST_PEER, w->pull.result.code);
	says(&w->pull.result.err, "p0");
	assert_true(real_ns() - began < NS_PER_S);
}

static void nobody_dies(void **state)
{
	struct world *w = *state;

	start(w, true);
	wait_done(w->loop, &w->pull);
	CHECK_OK(w->pull.result.code, w->pull.result.err);
	assert_int_equal(0, wrong_elements(w));
	assert_int_equal(place_bytes(&w->d, &w->dst), w->pull.result.bytes);
	assert_int_equal(w->maps + 1, count_arena_maps());
}

static void exporter_killed_before_it_answers(void **state)
{
	struct world *w = *state;

	assert_int_equal(0, kill(w->child, SIGSTOP));
	start(w, false);
	loop_for(w->loop, 20);
	assert_int_equal(PULL_WAITING, first_pull(w)->state);
	kill_child(w);
	lost_soon(w);
}

static void exporter_killed_before_the_claim(void **state)
{
	struct world *w = *state;

	needs_faults();
	pause_at(w, "pause@claim");
	start(w, false);
	assert_true(loop_until(w->loop, is_held, w, 20000));
	kill_child(w);
	lost_soon(w);
	assert_int_equal(0, w->pull.result.bytes);
	let_go(w, "fault.claim.go");
}

static void exporter_killed_between_claim_and_copy(void **state)
{
	struct world *w = *state;

	needs_faults();
	pause_at(w, "pause@pull");
	start(w, false);
	assert_true(loop_until(w->loop, is_paused, w, 20000));
	kill_child(w);
	lost_soon(w);
	assert_int_equal(0, w->pull.result.bytes);
	let_go(w, "fault.pull.go");
}

static void exporter_killed_during_the_copy(void **state)
{
	struct world *w = *state;

	start(w, false);
	assert_true(loop_until(w->loop, is_half, w, 20000));
	kill_child(w);
	lost_soon(w);
	assert_true(w->pull.result.bytes < place_bytes(&w->d, &w->dst));
}

/* All bytes are here and the claim was granted: the state is complete. */
static void exporter_killed_after_the_copy(void **state)
{
	struct world *w = *state;

	start(w, true);
	assert_true(loop_until(w->loop, is_verifying, w, 10000));
	kill_child(w);
	wait_done(w->loop, &w->pull);
	CHECK_OK(w->pull.result.code, w->pull.result.err);
	assert_int_equal(0, wrong_elements(w));
}

static void a_dead_incarnation_is_not_found_again(void **state)
{
	struct world *w = *state;
	uint64_t old = w->offer.incarnation;

	start(w, false);
	wait_done(w->loop, &w->pull);
	assert_int_equal(ST_OK, w->pull.result.code);
	kill_child(w);
	loop_for(w->loop, 20);
	assert_int_equal(
		0, importer_peers(w->d.importer)); /* unmapped without being told */
	assert_int_equal(w->maps, count_arena_maps());
	start(w, false);
	lost_soon(w);
	says(&w->pull.result.err, "onnection refused");
	spawn_exporter(w, &large_model);
	assert_true(old != w->offer.incarnation);
	start(w, false);
	wait_done(w->loop, &w->pull);
	CHECK_OK(w->pull.result.code, w->pull.result.err);
	assert_int_equal(0, wrong_elements(w));
}

static void a_stopped_exporter_ends_the_wait_and_may_come_back(void **state)
{
	struct world *w = *state;

	needs_faults();
	pause_at(w, "pause@claim");
	start(w, false);
	assert_true(loop_until(w->loop, is_held, w, 20000));
	assert_int_equal(0, kill(w->child, SIGSTOP));
	let_go(w, "fault.claim.go");
	assert_true(loop_until(w->loop, is_claiming, w, 20000));
	clock_offset += 6 * NS_PER_S;
	lost_soon(w);
	says(&w->pull.result.err, "did not answer the claim");
	assert_int_equal(PULL_RETURNING, first_pull(w)->state);
	assert_int_equal(0, kill(w->child, SIGCONT));
	loop_for(w->loop, 100);
	assert_int_equal(PULL_UNUSED, first_pull(w)->state);
	start(w, false); /* its claim was given back: it is granted again */
	wait_done(w->loop, &w->pull);
	CHECK_OK(w->pull.result.code, w->pull.result.err);
	assert_int_equal(0, wrong_elements(w));
}

static void killed_at_any_moment(void **state)
{
	uint32_t n_ok = 0, n_lost = 0;

	(void)state;
	for (uint64_t round = 0; round < 40; round++) {
		void *one = world_new(&small_model);
		struct world *w = one;

		spawn_exporter(w, &small_model);
		node_take(&w->d, &w->dst, n_tokens);
		start(w, round % 2 == 0);
		loop_for(w->loop, philox4x32(5, round, 0).v[0] % 6);
		kill_child(w);
		wait_done(w->loop, &w->pull);
		if (w->pull.result.code == ST_OK) {
			n_ok++;
			assert_int_equal(0, wrong_elements(w));
			assert_int_equal(
				place_bytes(&w->d, &w->dst), w->pull.result.bytes);
		} else {
			n_lost++;
			assert_int_equal(ST_PEER, w->pull.result.code);
		}
		tear_down(&one);
	}
	print_message("%u complete, %u lost\n", n_ok, n_lost);
	assert_int_equal(40, n_ok + n_lost);
}

/* The child pulls from us and is killed while it holds a claim. */
static _Noreturn void import_and_pause(const struct node *p, const struct place *src,
	uint64_t lease, const char *dir, const char *path, int to_parent)
{
	struct loop *loop = loop_create();
	struct node d;
	struct place dst;
	struct pull what;
	struct puller pull;
	struct err err;
	uint64_t hits = fault_hits(FAULT_pull); /* inherited */
	uint8_t byte = 1;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (fault_configure("pause@pull", dir, &err) != ST_OK)
		_exit(1);
	node_init(&d, loop, "d1", dir, &large_model, 1);
	node_import(&d);
	node_take(&d, &dst, src->n_tokens);
	what = pull_from(p, src, lease, &dst);
	what.link_path = path;
	start_pull(&d, &what, &pull);
	while (fault_hits(FAULT_pull) == hits)
		loop_for(loop, 2);
	if (write(to_parent, &byte, 1) != 1)
		_exit(1);
	loop_for(loop, 60000);
	_exit(1);
}

static bool is_unclaimed(void *ctx)
{
	struct node *p = ctx;

	return lease_find(p->leases, 1)->claimer == 0;
}

static bool heard(void *ctx)
{
	uint8_t byte;

	return read(*(int *)ctx, &byte, 1) == 1;
}

static void importer_killed_with_a_claim(void **state)
{
	struct world *w = *state;
	struct node p;
	struct place src;
	struct pull what;
	uint64_t lease;
	int ends[2];

	needs_faults();
	kill_child(w); /* this time we export */
	node_init(&p, w->loop, "p1", w->dir, &large_model, 1);
	node_export(&p);
	lease = node_grant(&p, &src, n_tokens, 100);
	assert_int_equal(0, pipe2(ends, O_CLOEXEC | O_NONBLOCK));
	w->child = fork();
	assert_true(w->child >= 0);
	if (w->child == 0)
		import_and_pause(
			&p, &src, lease, w->dir, exporter_path(p.exporter), ends[1]);
	assert_true(loop_until(w->loop, heard, &ends[0], 10000));
	assert_int_equal(1, exporter_links(p.exporter));
	assert_int_not_equal(0, lease_find(p.leases, lease)->claimer);
	clock_offset += 3 * NODE_LEASE_NS; /* time alone never frees it */
	assert_int_equal(0, lease_expire(p.leases, clock_ns()));
	kill_child(w);
	assert_true(loop_until(w->loop, is_unclaimed, &p, 20000));
	assert_int_equal(0, exporter_links(p.exporter));
	assert_true(lease_find(p.leases, lease)->expires_ns > clock_ns());
	/* The same lease goes to another importer. */
	what = pull_from(&p, &src, lease, &w->dst);
	start_pull(&w->d, &what, &w->pull);
	wait_done(w->loop, &w->pull);
	CHECK_OK(w->pull.result.code, w->pull.result.err);
	assert_int_equal(0, wrong_elements(w));
	loop_for(w->loop, 5);
	assert_int_equal(0, lease_count(p.leases));
	pool_check(p.pages);
	close(ends[0]);
	close(ends[1]);
	node_release(&p);
}

#define LARGE(test) cmocka_unit_test_setup_teardown(test, set_up_large, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LARGE(nobody_dies),
		LARGE(exporter_killed_before_it_answers),
		LARGE(exporter_killed_before_the_claim),
		LARGE(exporter_killed_between_claim_and_copy),
		LARGE(exporter_killed_during_the_copy),
		LARGE(exporter_killed_after_the_copy),
		LARGE(a_dead_incarnation_is_not_found_again),
		LARGE(a_stopped_exporter_ends_the_wait_and_may_come_back),
		cmocka_unit_test(killed_at_any_moment),
		LARGE(importer_killed_with_a_claim),
	};

	log_level_set(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
