/* The three rules of leases, one by one, then a model-based random walk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/state/layout.h"
#include "common/state/lease.h"
#include <string.h>

enum { PAGES = 41, SLOTS = 9, CAPACITY = 6, PAGES_MAX = 16 };
static const uint64_t life = 10 * NS_PER_S;
static uint64_t now;

static uint64_t test_clock(void)
{
	return now;
}

struct fixture {
	struct pool *pages, *slots;
	struct leases *t;
	uint64_t freed[64]; /* generations, in the order in which they ended */
	uint32_t n_freed;
	uint64_t taken_before;
};

static void note_freed(void *ctx, const struct lease *l)
{
	struct fixture *f = ctx;

	assert_true(l->n_pages == 0 || l->pages != NULL);
	f->freed[f->n_freed++ % 64] = l->generation;
}

static int set_up(void **state)
{
	struct fixture *f = test_calloc(1, sizeof(*f));

	clock_replace(test_clock);
	now = 1000 * NS_PER_S;
	f->taken_before = mem_taken();
	f->pages = pool_create("page", PAGES);
	f->slots = pool_create("slot", SLOTS);
	f->t = leases_create(f->pages, f->slots, CAPACITY, PAGES_MAX);
	leases_on_freed(f->t, note_freed, f);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	leases_destroy(f->t);
	pool_destroy(f->slots);
	pool_destroy(f->pages);
	clock_replace(NULL);
	assert_int_equal(f->taken_before, mem_taken());
	test_free(f);
	return 0;
}

/* What a prefill does: take, fill, grant. */
static status grant_to(struct fixture *f, uint64_t owner, uint32_t n_tokens,
	uint32_t n_readers, uint64_t *gen)
{
	uint32_t pages[PAGES_MAX];
	struct lease terms = {.owner = owner,
		.seq = 7,
		.attempt = 1,
		.n_tokens = n_tokens,
		.pages = pages,
		.n_pages = CEIL_DIV(n_tokens, PAGE_TOKENS)};
	status st;

	assert_int_equal(ST_OK, pool_take(f->pages, pages, terms.n_pages));
	assert_int_equal(ST_OK, pool_take(f->slots, &terms.slot, 1));
	pool_fill_done(f->pages, pages, terms.n_pages);
	pool_fill_done(f->slots, &terms.slot, 1);
	st = lease_grant(f->t, &terms, life, n_readers, gen);
	if (st != ST_OK) {
		pool_give(f->pages, pages, terms.n_pages);
		pool_give(f->slots, &terms.slot, 1);
	}
	pool_check(f->pages);
	pool_check(f->slots);
	return st;
}

static status grant(struct fixture *f, uint64_t owner, uint32_t n_tokens, uint64_t *gen)
{
	return grant_to(f, owner, n_tokens, 1, gen);
}

static uint64_t granted(struct fixture *f, uint32_t n_tokens)
{
	uint64_t gen = 0;

	assert_int_equal(ST_OK, grant(f, 5, n_tokens, &gen));
	return gen;
}

static void all_free(const struct fixture *f)
{
	assert_int_equal(0, lease_count(f->t));
	assert_int_equal(PAGES - 1, pool_count(f->pages, POOL_FREE));
	assert_int_equal(SLOTS - 1, pool_count(f->slots, POOL_FREE));
}

static void says(const struct err *err, const char *text)
{
	if (strstr(err->text, text) == NULL)
		fail_msg("'%s' is not in '%s'", text, err->text);
}

static void claim_and_done_free_everything(void **state)
{
	struct fixture *f = *state;
	uint64_t gen = granted(f, 130);
	struct lease *l = lease_find(f->t, gen);
	struct err err;

	assert_int_equal(3, l->n_pages);
	assert_int_equal(130, l->n_tokens);
	assert_int_equal(now + life, l->expires_ns);
	assert_int_equal(3, pool_count(f->pages, POOL_EXPORTED));
	assert_int_equal(1, pool_count(f->slots, POOL_EXPORTED));
	assert_int_equal(ST_OK, lease_claim(f->t, gen, 9, 130, &l, &err));
	assert_int_equal(9, l->claimer);
	assert_int_equal(ST_OK, lease_done(f->t, gen, 9, &err));
	all_free(f);
	assert_int_equal(1, f->n_freed);
	assert_int_equal(gen, f->freed[0]);
	assert_null(lease_find(f->t, gen));
}

/* Each reader ends in its own way; the state stays until the last one has. */
static void readers_of_one_state_end_one_by_one(void **state)
{
	struct fixture *f = *state;
	struct lease *l;
	struct err err;
	uint64_t gen;

	assert_int_equal(ST_OK, grant_to(f, 5, 130, 4, &gen));
	assert_int_equal(4, lease_count(f->t));
	assert_int_equal(3, pool_count(f->pages, POOL_EXPORTED));
	assert_int_equal(1, pool_count(f->slots, POOL_EXPORTED));
	for (uint32_t k = 0; k < 2; k++)
		assert_int_equal(ST_OK, lease_claim(f->t, gen + k, 9 + k, 130, &l, &err));
	assert_int_equal(ST_INVALID, lease_claim(f->t, gen, 11, 130, &l, &err));
	assert_int_equal(ST_OK, lease_done(f->t, gen, 9, &err));
	assert_true(lease_release(f->t, gen + 2));
	now += life / 2;
	lease_link_lost(f->t, 10, life);
	now += life / 2 + 1;
	assert_int_equal(1, lease_expire(f->t, now)); /* the one nobody claimed */
	assert_int_equal(3, pool_count(f->pages, POOL_EXPORTED));
	assert_int_equal(ST_OK, lease_claim(f->t, gen + 1, 12, 130, &l, &err));
	assert_int_equal(ST_OK, lease_done(f->t, gen + 1, 12, &err));
	all_free(f);
	assert_int_equal(4, f->n_freed);
	assert_int_equal(gen, f->freed[0]);
	assert_int_equal(gen + 1, f->freed[3]);
}

static void more_readers_than_places_get_none(void **state)
{
	struct fixture *f = *state;
	uint64_t gen = 77;

	assert_int_equal(ST_LIMIT, grant_to(f, 5, 130, CAPACITY + 1, &gen));
	assert_int_equal(77, gen);
	all_free(f);
	assert_int_equal(ST_OK, grant_to(f, 5, 130, CAPACITY, &gen));
	assert_int_equal(ST_LIMIT, grant_to(f, 5, 64, 1, &gen));
	for (uint32_t k = 0; k < CAPACITY; k++)
		assert_true(lease_release(f->t, gen + k));
	all_free(f);
}

static void claims_are_refused_with_the_reason(void **state)
{
	struct fixture *f = *state;
	uint64_t gen = granted(f, 100);
	struct lease *l = NULL;
	struct err err;

	assert_int_equal(ST_INVALID, lease_claim(f->t, gen + 1, 9, 100, &l, &err));
	says(&err, "no lease 2 (the newest is 1)");
	assert_int_equal(ST_INVALID, lease_claim(f->t, 0, 9, 100, &l, &err));
	assert_int_equal(ST_INVALID, lease_claim(f->t, gen, 9, 99, &l, &err));
	says(&err, "covers 100 tokens, the claim wants 99");
	assert_null(l);
	assert_int_equal(ST_OK, lease_claim(f->t, gen, 9, 100, &l, &err));
	assert_int_equal(ST_INVALID, lease_claim(f->t, gen, 9, 100, &l, &err));
	says(&err, "claimed already by link 9");
	assert_int_equal(ST_INVALID, lease_claim(f->t, gen, 8, 100, &l, &err));
	assert_int_equal(ST_INVALID, lease_done(f->t, gen, 8, &err));
	says(&err, "by link 8, claimed by link 9");
	assert_int_equal(ST_INVALID, lease_unclaim(f->t, gen, 8, life, &err));
	assert_int_equal(9, lease_find(f->t, gen)->claimer);
	assert_int_equal(ST_OK, lease_done(f->t, gen, 9, &err));
	assert_int_equal(ST_INVALID, lease_done(f->t, gen, 9, &err));
	assert_int_equal(ST_INVALID, lease_claim(f->t, gen, 9, 100, &l, &err));
	says(&err, "no lease 1");
}

static void an_unclaimed_lease_ends_with_time(void **state)
{
	struct fixture *f = *state;
	uint64_t gen = granted(f, 64);

	assert_int_equal(0, lease_expire(f->t, now + life - 1));
	assert_int_equal(1, lease_expire(f->t, now + life));
	assert_int_equal(gen, f->freed[0]);
	all_free(f);
}

static void a_claimed_lease_never_ends_with_time(void **state)
{
	struct fixture *f = *state;
	uint64_t gen = granted(f, 64);
	struct lease *l;
	struct err err;

	assert_int_equal(ST_OK, lease_claim(f->t, gen, 3, 64, &l, &err));
	assert_int_equal(0, lease_expire(f->t, UINT64_MAX));
	now += 100 * life;
	lease_link_lost(f->t, 3, life);
	assert_int_equal(0, l->claimer);
	assert_int_equal(now + life, l->expires_ns); /* fresh, not the one of the grant */
	assert_int_equal(ST_OK, lease_claim(f->t, gen, 4, 64, &l, &err));
	assert_int_equal(ST_OK, lease_unclaim(f->t, gen, 4, life, &err));
	assert_int_equal(1, lease_expire(f->t, now + life));
	all_free(f);
}

static void release_waits_for_the_claim(void **state)
{
	struct fixture *f = *state;
	uint64_t a = granted(f, 64), b = granted(f, 64), c = granted(f, 64);
	struct lease *l;
	struct err err;

	assert_true(lease_release(f->t, a));
	assert_int_equal(1, f->n_freed);
	assert_false(lease_release(f->t, a));
	assert_int_equal(ST_OK, lease_claim(f->t, b, 3, 64, &l, &err));
	assert_int_equal(ST_OK, lease_claim(f->t, c, 3, 64, &l, &err));
	assert_true(lease_release(f->t, b));
	assert_true(lease_release(f->t, c));
	assert_int_equal(2, lease_count(f->t));
	assert_int_equal(2, pool_count(f->slots, POOL_EXPORTED));
	assert_int_equal(ST_OK, lease_done(f->t, b, 3, &err));
	assert_int_equal(1, lease_count(f->t));
	lease_link_lost(f->t, 3, life); /* c: released while claimed ends here */
	all_free(f);
	assert_int_equal(3, f->n_freed);
}

static void a_lost_link_returns_only_its_own_claims(void **state)
{
	struct fixture *f = *state;
	uint64_t a = granted(f, 64), b = granted(f, 64), c = granted(f, 64);
	struct lease *l;
	struct err err;

	assert_int_equal(ST_OK, lease_claim(f->t, a, 3, 64, &l, &err));
	assert_int_equal(ST_OK, lease_claim(f->t, b, 4, 64, &l, &err));
	assert_int_equal(ST_OK, lease_claim(f->t, c, 3, 64, &l, &err));
	lease_link_lost(f->t, 3, life);
	assert_int_equal(0, lease_find(f->t, a)->claimer);
	assert_int_equal(4, lease_find(f->t, b)->claimer);
	assert_int_equal(0, lease_find(f->t, c)->claimer);
	assert_int_equal(3, lease_count(f->t));
}

static void traffic_of_the_owner_renews_its_leases_alone(void **state)
{
	struct fixture *f = *state;
	uint64_t mine, others;

	assert_int_equal(ST_OK, grant(f, 11, 64, &mine));
	assert_int_equal(ST_OK, grant(f, 12, 64, &others));
	now += life / 2;
	lease_renew_owner(f->t, 11, life);
	assert_int_equal(1, lease_expire(f->t, now + life / 2));
	assert_non_null(lease_find(f->t, mine));
	assert_null(lease_find(f->t, others));
	assert_int_equal(1, lease_expire(f->t, now + life));
	all_free(f);
}

static void what_its_owner_knows_nothing_of_is_not_renewed(void **state)
{
	struct fixture *f = *state;
	uint64_t known, unknown;
	struct lease *l;
	struct err err;

	assert_int_equal(ST_OK, grant(f, 11, 64, &known));
	assert_int_equal(ST_OK, grant(f, 11, 64, &unknown));
	lease_disown(f->t, unknown);
	lease_disown(f->t, 4711);
	now += life / 2;
	lease_renew_owner(f->t, 11, life);
	/* Whoever was told of it before may still read it. */
	assert_int_equal(ST_OK, lease_claim(f->t, unknown, 3, 64, &l, &err));
	assert_int_equal(ST_OK, lease_unclaim(f->t, unknown, 3, life / 2, &err));
	assert_int_equal(1, lease_expire(f->t, now + life / 2));
	assert_non_null(lease_find(f->t, known));
	assert_null(lease_find(f->t, unknown));
	assert_int_equal(1, lease_expire(f->t, now + life));
	all_free(f);
}

/* The last test: what this process slept counts from here on. */
static void a_sleep_of_this_process_does_not_age_a_lease(void **state)
{
	struct fixture *f = *state;
	uint64_t gen;

	clock_look();
	gen = granted(f, 64);
	now += 40 * NS_PER_S;
	clock_look();
	assert_int_equal(0, lease_expire(f->t, clock_ran_ns()));
	assert_non_null(lease_find(f->t, gen));
	for (unsigned i = 0; i < 100; i++) {
		now += life / 100;
		clock_look();
	}
	assert_int_equal(1, lease_expire(f->t, clock_ran_ns()));
	all_free(f);
}

static void a_full_table_gives_limit_and_takes_nothing(void **state)
{
	struct fixture *f = *state;
	uint64_t gen[CAPACITY + 1] = {0};

	for (uint32_t i = 0; i < CAPACITY; i++)
		assert_int_equal(ST_OK, grant(f, 5, 64, &gen[i]));
	assert_int_equal(ST_LIMIT, grant(f, 5, 64, &gen[CAPACITY]));
	assert_int_equal(0, gen[CAPACITY]);
	assert_int_equal(CAPACITY, pool_count(f->pages, POOL_EXPORTED));
	assert_true(lease_release(f->t, gen[2]));
	assert_int_equal(ST_OK, grant(f, 5, 64, &gen[2]));
	assert_int_equal(CAPACITY + 1, gen[2]); /* the place is reused, the number not */
}

static void no_request_memory_gives_limit(void **state)
{
	struct fixture *f = *state;
	uint64_t gen;

	mem_budget(mem_taken());
	assert_int_equal(ST_LIMIT, grant(f, 5, 64, &gen));
	mem_budget(UINT64_C(1) << 30);
	all_free(f);
}

/* The rules in their plainest form: one row per lease ever granted. */
struct twin {
	uint64_t generation, owner, claimer, expires_ns;
	uint32_t n_tokens;
	bool alive, released;
};

enum { WALK_STEPS = 60000 };
static struct twin twins[WALK_STEPS + 1]; /* by generation */
static uint64_t n_twins;

static void end_twin(struct twin *t)
{
	t->alive = false;
}

static void unclaim_twin(struct twin *t)
{
	t->claimer = 0;
	t->expires_ns = now + life;
	if (t->released)
		end_twin(t);
}

static void walk_grant(struct fixture *f, struct philox r)
{
	uint32_t n_tokens = 1 + r.v[1] % (4 * PAGE_TOKENS), n_alive = 0;
	uint64_t gen = 0;
	status st;

	for (uint64_t g = 1; g <= n_twins; g++)
		n_alive += twins[g].alive;
	if (pool_count(f->pages, POOL_FREE) < 4 || pool_count(f->slots, POOL_FREE) < 1)
		return;
	st = grant(f, 100 + r.v[2] % 3, n_tokens, &gen);
	assert_int_equal(n_alive < CAPACITY ? ST_OK : ST_LIMIT, st);
	if (st != ST_OK)
		return;
	assert_int_equal(n_twins + 1, gen);
	twins[++n_twins] = (struct twin){.generation = gen,
		.owner = 100 + r.v[2] % 3,
		.expires_ns = now + life,
		.n_tokens = n_tokens,
		.alive = true};
}

static void walk_claim(struct fixture *f, struct twin *t, uint64_t link, bool wrong)
{
	uint32_t n_tokens = t->n_tokens + (wrong ? 1 : 0);
	bool may = t->alive && t->claimer == 0 && !wrong;
	struct lease *l;
	struct err err;

	assert_int_equal(may ? ST_OK : ST_INVALID,
		lease_claim(f->t, t->generation, link, n_tokens, &l, &err));
	if (may)
		t->claimer = link;
}

static void walk_end_claim(struct fixture *f, struct twin *t, uint64_t link, bool used)
{
	bool may = t->alive && t->claimer == link;
	struct err err;
	status st = used ? lease_done(f->t, t->generation, link, &err)
			 : lease_unclaim(f->t, t->generation, link, life, &err);

	assert_int_equal(may ? ST_OK : ST_INVALID, st);
	if (may && used)
		end_twin(t);
	else if (may)
		unclaim_twin(t);
}

static void walk_owner_or_link(struct fixture *f, struct philox r, bool link)
{
	uint64_t who = link ? 1 + r.v[2] % 3 : 100 + r.v[2] % 3;

	if (link)
		lease_link_lost(f->t, who, life);
	else
		lease_renew_owner(f->t, who, life);
	for (uint64_t g = 1; g <= n_twins; g++) {
		struct twin *t = &twins[g];

		if (!t->alive)
			continue;
		if (link && t->claimer == who)
			unclaim_twin(t);
		if (!link && t->owner == who)
			t->expires_ns = now + life;
	}
}

static void walk_expire(struct fixture *f)
{
	uint32_t n = 0;

	for (uint64_t g = 1; g <= n_twins; g++)
		if (twins[g].alive && twins[g].claimer == 0 &&
			twins[g].expires_ns <= now) {
			end_twin(&twins[g]);
			n++;
		}
	assert_int_equal(n, lease_expire(f->t, now));
}

static void compare(struct fixture *f, uint64_t oldest)
{
	uint32_t n = 0, pages = 0;

	for (uint64_t g = oldest; g <= n_twins; g++) {
		struct lease *l = lease_find(f->t, g);

		assert_int_equal(twins[g].alive, l != NULL);
		if (l == NULL)
			continue;
		n++;
		pages += l->n_pages;
		assert_int_equal(twins[g].claimer, l->claimer);
		assert_int_equal(twins[g].expires_ns, l->expires_ns);
		assert_int_equal(twins[g].released, l->released);
	}
	assert_int_equal(n, lease_count(f->t));
	assert_int_equal(pages, pool_count(f->pages, POOL_EXPORTED));
	assert_int_equal(n, pool_count(f->slots, POOL_EXPORTED));
	pool_check(f->pages);
	pool_check(f->slots);
}

static void walk_one(struct fixture *f, struct philox r, struct twin *t)
{
	uint64_t link = 1 + r.v[2] % 3;

	switch (r.v[0] % 16) {
	case 0:
	case 1:
	case 2:
	case 3:
		walk_grant(f, r);
		break;
	case 4:
	case 5:
	case 6:
	case 7:
		walk_claim(f, t, link, r.v[3] % 8 == 0);
		break;
	case 8:
	case 9:
	case 10:
	case 11:
		walk_end_claim(f, t, link, r.v[0] % 2 == 0);
		break;
	case 12:
		assert_int_equal(t->alive, lease_release(f->t, t->generation));
		if (t->alive && t->claimer != 0)
			t->released = true;
		else
			end_twin(t);
		break;
	case 13:
		walk_owner_or_link(f, r, r.v[3] % 4 == 0);
		break;
	case 14:
		walk_expire(f);
		break;
	default:
		now += r.v[1] % (life / 4);
		break;
	}
}

static void random_walk_agrees_with_the_twin(void **state)
{
	struct fixture *f = *state;
	uint64_t oldest = 1;

	n_twins = 0;
	for (uint64_t step = 0; step < WALK_STEPS; step++) {
		struct philox r = philox4x32(20240602, step, 0);
		/* Among those from the oldest living one on, and one that has ended. */
		uint64_t first = oldest > 1 ? oldest - 1 : 1;
		struct twin *t = &twins[first + r.v[1] % (n_twins + 2 - first)];

		if (n_twins == 0 || t->generation == 0)
			walk_grant(f, r);
		else
			walk_one(f, r, t);
		while (oldest <= n_twins && !twins[oldest].alive)
			oldest++;
		compare(f, oldest);
	}
	print_message("%llu leases\n", (unsigned long long)n_twins);
	assert_true(n_twins > WALK_STEPS / 60);
	assert_int_equal(f->n_freed + lease_count(f->t), n_twins);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(claim_and_done_free_everything),
		WITH(readers_of_one_state_end_one_by_one),
		WITH(more_readers_than_places_get_none),
		WITH(claims_are_refused_with_the_reason),
		WITH(an_unclaimed_lease_ends_with_time),
		WITH(a_claimed_lease_never_ends_with_time),
		WITH(release_waits_for_the_claim),
		WITH(a_lost_link_returns_only_its_own_claims),
		WITH(traffic_of_the_owner_renews_its_leases_alone),
		WITH(what_its_owner_knows_nothing_of_is_not_renewed),
		WITH(a_full_table_gives_limit_and_takes_nothing),
		WITH(no_request_memory_gives_limit),
		WITH(random_walk_agrees_with_the_twin),
		WITH(a_sleep_of_this_process_does_not_age_a_lease),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
