/* A worker as the hand-over sees it: arenas on CPU backends, pools, leases, and both
 * ends of links on one loop. Include cmocka first. */
#ifndef TESTS_UNIT_XFER_XFER_FIXTURE_H
#define TESTS_UNIT_XFER_XFER_FIXTURE_H
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/xfer/importer_impl.h"
#include "common/xfer/xfer.h"
#include "unit/xfer/state_walk.h"
#include <dirent.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CHECK_OK(call, err)                                                              \
	do {                                                                             \
		status check_st = (call);                                                \
		if (check_st != ST_OK)                                                   \
			fail_msg("%s: %s", status_name(check_st), (err).text);           \
	} while (0)

enum { NODE_PAGES = 24, NODE_SLOTS = 20, NODE_LEASES = 16 };
#define NODE_LEASE_NS (10 * NS_PER_S)

/* Small, and with every cut that unequal parallelism makes. */
static const struct geometry small_model = {
	"small", 2, 3, 16, 2, 8, 16, 16, 8, 8, 4, 0, DT_BF16, DT_F32};
/* 20 MiB a page, so that a pull has many work items. */
static const struct geometry large_model __attribute__((unused)) = {
	"large", 20, 2, 16, 16, 8, 16, 128, 16, 16, 4, 0, DT_F32, DT_F32};

struct node {
	struct loop *loop;
	struct xfer_side side;
	struct pool *pages, *slots;
	struct leases *leases;
	struct exporter *exporter;
	struct importer *importer;
	uint64_t malformed;
	char id[16];
};

/* First in a test that pauses somewhere: builds without fault points cannot run it. */
static inline void needs_faults(void)
{
#ifndef BATON_FAULTS
	skip();
#endif
}

static inline void says(const struct err *err, const char *text)
{
	if (strstr(err->text, text) == NULL)
		fail_msg("'%s' is not in '%s'", text, err->text);
}

static inline void node_init_pages(struct node *n, struct loop *loop, const char *id,
	const char *dir, const struct geometry *g, uint32_t ranks, uint32_t n_pages)
{
	struct err err;

	*n = (struct node){.loop = loop};
	snprintf(n->id, sizeof(n->id), "%s", id);
	n->side = (struct xfer_side){.loop = loop,
		.id = n->id,
		.incarnation = rng_entropy64(),
		.runtime_dir = dir,
		.arena_pages = n_pages,
		.arena_slots = NODE_SLOTS,
		.n_ranks = ranks,
		.malformed = &n->malformed};
	CHECK_OK(geometry_layout(&n->side.layout, g, ranks, &err), err);
	n->side.arena_bytes = layout_arena_bytes(&n->side.layout, n_pages, NODE_SLOTS);
	for (uint32_t r = 0; r < ranks; r++) {
		char spec[16];
		struct backend **b = &n->side.backend[r];

		snprintf(spec, sizeof(spec), "cpu:%u", r);
		CHECK_OK(backend_open(b, spec, &err), err);
		CHECK_OK((*b)->ops->arena_create(
				 *b, n->side.arena_bytes, &n->side.arena[r], &err),
			err);
	}
	n->pages = pool_create("page", n_pages);
	n->slots = pool_create("slot", NODE_SLOTS);
	n->leases = leases_create(n->pages, n->slots, NODE_LEASES, NODE_PAGES);
}

static inline void node_init(struct node *n, struct loop *loop, const char *id,
	const char *dir, const struct geometry *g, uint32_t ranks)
{
	node_init_pages(n, loop, id, dir, g, ranks, NODE_PAGES);
}

static inline void node_export(struct node *n)
{
	struct err err;

	CHECK_OK(exporter_create(&n->exporter, &n->side, n->leases, NODE_LEASE_NS, &err),
		err);
}

static inline void node_import(struct node *n)
{
	struct err err;

	CHECK_OK(importer_create(&n->importer, &n->side, &err), err);
}

static inline void node_release(struct node *n)
{
	exporter_destroy(n->exporter);
	importer_destroy(n->importer);
	leases_destroy(n->leases);
	pool_destroy(n->slots);
	pool_destroy(n->pages);
	for (uint32_t r = 0; r < n->side.n_ranks; r++) {
		struct backend *b = n->side.backend[r];

		b->ops->arena_destroy(b, n->side.arena[r]);
		b->ops->close(b);
	}
	*n = (struct node){0};
}

/* A sequence's place on a node. */
struct place {
	uint32_t pages[NODE_PAGES];
	uint32_t n_pages, slot, n_tokens;
};

static inline struct state_view node_view(const struct node *n, const struct place *p)
{
	struct state_view v = {.l = n->side.layout,
		.arena_pages = n->side.arena_pages,
		.pages = p->pages,
		.n_pages = p->n_pages,
		.slot = p->slot};

	for (uint32_t r = 0; r < n->side.n_ranks; r++)
		v.arena[r] = n->side.arena[r];
	return v;
}

/* Takes pages in a shuffled order, so that neighbours are rare. */
static inline void node_take(struct node *n, struct place *p, uint32_t n_tokens)
{
	*p = (struct place){
		.n_tokens = n_tokens, .n_pages = CEIL_DIV(n_tokens, PAGE_TOKENS)};
	assert_int_equal(ST_OK, pool_take(n->pages, p->pages, p->n_pages));
	assert_int_equal(ST_OK, pool_take(n->slots, &p->slot, 1));
	for (uint32_t i = 0; i + 1 < p->n_pages; i++) {
		uint32_t left = p->n_pages - i;
		uint32_t j = i + philox4x32(n_tokens, i, 1).v[0] % left, id = p->pages[i];

		p->pages[i] = p->pages[j];
		p->pages[j] = id;
	}
}

static inline void node_give(struct node *n, const struct place *p)
{
	pool_give(n->pages, p->pages, p->n_pages);
	pool_give(n->slots, &p->slot, 1);
}

/* What a prefill leaves: a written sequence and a lease of it. */
static inline uint64_t node_grant(
	struct node *n, struct place *p, uint32_t n_tokens, uint64_t sequence)
{
	struct lease terms;
	struct state_view v;
	uint64_t generation = 0;

	node_take(n, p, n_tokens);
	v = node_view(n, p);
	state_write(&v, sequence);
	pool_fill_done(n->pages, p->pages, p->n_pages);
	pool_fill_done(n->slots, &p->slot, 1);
	terms = (struct lease){.owner = 1,
		.seq = sequence,
		.n_tokens = n_tokens,
		.pages = p->pages,
		.n_pages = p->n_pages,
		.slot = p->slot};
	assert_int_equal(
		ST_OK, lease_grant(n->leases, &terms, NODE_LEASE_NS, 1, &generation));
	return generation;
}

static inline uint64_t place_bytes(const struct node *n, const struct place *p)
{
	return n->side.n_ranks * (p->n_pages * n->side.layout.page_bytes +
					 layout_state_bytes(&n->side.layout));
}

/* A pull under test; result after done. */
struct puller {
	struct pull_result result;
	uint32_t n_done;
	uint64_t handle;
};

static inline void note_done(void *ctx, const struct pull_result *r)
{
	struct puller *p = ctx;

	p->result = *r;
	p->n_done++;
}

static inline struct pull pull_from(const struct node *from, const struct place *src,
	uint64_t lease, const struct place *dst)
{
	return (struct pull){
		.link_path = from->exporter != NULL ? exporter_path(from->exporter) : "",
		.worker_id = from->id,
		.incarnation = from->side.incarnation,
		.lease = lease,
		.n_tokens = src->n_tokens,
		.src_pages = src->pages,
		.dst_pages = dst->pages,
		.n_pages = src->n_pages,
		.src_slot = src->slot,
		.dst_slot = dst->slot};
}

static inline void start_pull(struct node *to, const struct pull *what, struct puller *p)
{
	struct err err;

	*p = (struct puller){0};
	CHECK_OK(importer_pull(to->importer, what, note_done, p, &p->handle, &err), err);
	assert_int_equal(0, p->n_done); /* never from inside */
}

/* Runs the loop until the condition holds; a test that waits in vain fails. */
struct waiter {
	struct loop *loop;
	bool (*holds)(void *ctx);
	void *ctx;
	uint64_t give_up_ns;
	bool held;
};

static inline uint64_t real_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static inline void look_again(void *ctx)
{
	struct waiter *w = ctx;

	w->held = w->holds(w->ctx);
	if (w->held || real_ns() > w->give_up_ns)
		loop_stop(w->loop);
}

static inline bool loop_until(
	struct loop *loop, bool (*holds)(void *ctx), void *ctx, uint64_t ms)
{
	struct waiter w = {.loop = loop,
		.holds = holds,
		.ctx = ctx,
		.give_up_ns = real_ns() + ms * NS_PER_MS};
	struct loop_timer t = {0};

	loop_timer_start(loop, &t, 0, 1, look_again, &w);
	loop_run(loop);
	loop_timer_stop(&t);
	return w.held;
}

static inline bool never(void *ctx)
{
	(void)ctx;
	return false;
}

static inline void loop_for(struct loop *loop, uint64_t ms)
{
	(void)loop_until(loop, never, NULL, ms);
}

/* What other threads and the other side bring about comes when it comes. The loop turns
 * once at least. */
#define SOON(loop, cond)                                                                 \
	do {                                                                             \
		uint64_t give_up_ = real_ns() + 20 * NS_PER_S;                           \
                                                                                         \
		do                                                                       \
			loop_for(loop, 1);                                               \
		while (!(cond) && real_ns() < give_up_);                                 \
		assert_true(cond);                                                       \
	} while (0)

static inline bool is_done(void *ctx)
{
	const struct puller *p = ctx;

	return p->n_done > 0;
}

static inline void wait_done(struct loop *loop, struct puller *p)
{
	if (!loop_until(loop, is_done, p, 20000))
		fail_msg("the pull did not end");
	assert_int_equal(1, p->n_done);
}

/* A clock that a test can push forward; it never stands still. */
static uint64_t clock_offset;

static inline uint64_t shifted_clock(void)
{
	return real_ns() + clock_offset;
}

static inline uint32_t count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	uint32_t n = 0;

	assert_non_null(d);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n - 3; /* ., .., and the directory itself */
}

/* Mappings of arenas. */
static inline uint32_t count_arena_maps(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	uint32_t n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL)
		n += strstr(line, "baton-arena") != NULL;
	fclose(f);
	return n;
}

static inline char *make_dir(void)
{
	static char dir[64];

	snprintf(dir, sizeof(dir), "/tmp/baton-xfer-XXXXXX");
	assert_non_null(mkdtemp(dir)); /* mode 0700 */
	return dir;
}

static inline int remove_entry(
	const char *path, const struct stat *sb, int type, struct FTW *at)
{
	(void)sb;
	(void)type;
	(void)at;
	return remove(path);
}

static inline void remove_dir(const char *dir)
{
	nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

#endif
