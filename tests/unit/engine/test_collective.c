// labels: threads
/* Sums among threads: the same bits on every rank and in every run, for any length;
 * and nobody waits for a rank that broke off. */
#include "tests/unit/engine/engine_fixture.h"

#include "common/base/rng.h"

#include <string.h>

#define LEN    1000u
#define ROUNDS 50u

struct player {
	struct collective *c;
	uint32_t rank;
	uint64_t n;
	enum dtype dtype;
	float f32[LEN];
	uint16_t bf16[LEN];
	status st;
	struct err err;
	pthread_t thread;
};

static float value_of(uint32_t rank, uint64_t i)
{
	/* Sizes far apart, so that another order of summation gives other bits. */
	return rng_token_uniform(rank, 0, i) * (i % 3 == rank % 3 ? 1e6f : 1e-2f);
}

static void *play(void *player)
{
	struct player *p = player;

	for (unsigned round = 0; round < ROUNDS && p->st == ST_OK; round++) {
		void *buf = p->dtype == DT_F32 ? (void *)p->f32 : (void *)p->bf16;

		for (uint64_t i = 0; i < LEN; i++) {
			uint32_t bits;

			p->f32[i] = value_of(p->rank, i + round);
			memcpy(&bits, &p->f32[i], sizeof(bits));
			p->bf16[i] = (uint16_t)(bits >> 16);
		}
		p->st = p->c->ops->all_reduce(
			p->c, p->rank, NULL, buf, p->n, p->dtype, &p->err);
		if (p->st == ST_OK)
			p->st = p->c->ops->meet(p->c, p->rank, &p->err);
	}
	return NULL;
}

static void run_players(struct player *p, uint32_t n_ranks, uint64_t n, enum dtype dtype)
{
	struct collective *c = collective_host_create(n_ranks);

	for (uint32_t r = 0; r < n_ranks; r++) {
		p[r] = (struct player){.c = c, .rank = r, .n = n, .dtype = dtype};
		assert_int_equal(0, pthread_create(&p[r].thread, NULL, play, &p[r]));
	}
	for (uint32_t r = 0; r < n_ranks; r++) {
		assert_int_equal(0, pthread_join(p[r].thread, NULL));
		assert_int_equal(ST_OK, p[r].st);
	}
	c->ops->destroy(c);
}

static void sums_are_in_order_of_rank_on_every_rank(void **state)
{
	static const uint64_t lengths[] = {0, 1, 15, 16, 17, 31, 33, 999, LEN};
	struct player *p = mem_alloc(RANKS_MAX, sizeof(*p));

	(void)state;
	for (uint32_t n_ranks = 1; n_ranks <= 4; n_ranks++)
		for (size_t k = 0; k < COUNT(lengths); k++) {
			run_players(p, n_ranks, lengths[k], DT_F32);
			for (uint64_t i = 0; i < LEN; i++)
				for (uint32_t r = 0; r < n_ranks; r++) {
					float want = value_of(0, i + ROUNDS - 1);

					for (uint32_t q = 1; q < n_ranks; q++)
						want += value_of(q, i + ROUNDS - 1);
					if (i >= lengths[k]) /* not part of it */
						want = value_of(r, i + ROUNDS - 1);
					assert_memory_equal(&want, &p[r].f32[i], 4);
				}
		}
	mem_free(p);
}

struct giver {
	struct collective *c;
	uint32_t rank;
	float part[7][3], all[7][4][3]; /* of rows, of ranks */
	status st;
	struct err err;
	pthread_t thread;
};

static void *give(void *giver)
{
	struct giver *g = giver;

	for (unsigned round = 0; round < ROUNDS && g->st == ST_OK; round++) {
		for (uint32_t i = 0; i < 21; i++)
			g->part[i / 3][i % 3] = value_of(g->rank, i + round);
		g->st = g->c->ops->gather(g->c, g->rank, NULL,
			g->rank == 0 ? g->all : NULL, g->part, 7, sizeof(g->part[0]),
			&g->err);
		for (uint32_t i = 0; g->rank == 0 && g->st == ST_OK && i < 84; i++) {
			uint32_t row = i / 12, rank = i / 3 % 4, k = i % 3;

			if (g->all[row][rank][k] != value_of(rank, row * 3 + k + round))
				g->st = err_set(&g->err, ST_INVALID, "wrong");
		}
	}
	return NULL;
}

static void parts_of_rows_stand_in_order_of_rank(void **state)
{
	struct collective *c = collective_host_create(4);
	struct giver *g = mem_alloc(4, sizeof(*g));

	(void)state;
	for (uint32_t r = 0; r < 4; r++) {
		g[r].c = c;
		g[r].rank = r;
		assert_int_equal(0, pthread_create(&g[r].thread, NULL, give, &g[r]));
	}
	for (uint32_t r = 0; r < 4; r++)
		assert_int_equal(0, pthread_join(g[r].thread, NULL));
	for (uint32_t r = 0; r < 4; r++)
		assert_int_equal(ST_OK, g[r].st);
	c->ops->destroy(c);
	mem_free(g);
}

struct pair {
	struct collective *c;
	uint16_t value[2];
	pthread_t other;
};

static void *second(void *arg)
{
	struct pair *p = arg;
	struct err err;

	if (p->c->ops->all_reduce(p->c, 1, NULL, &p->value[1], 1, DT_BF16, &err) != ST_OK)
		p->value[1] = 0x1234;
	return NULL;
}

/* The sum is rounded once, to even, not cut. */
static void bf16_sums_round_once(void **state)
{
	static const struct {
		uint16_t a, b, sum;
	} cases[] = {
		{0x3F80, 0x3B80, 0x3F80}, /* 1 + 2^-8: half way, to even: 1 */
		{0x3F81, 0x3B80, 0x3F82}, /* (1 + 2^-7) + 2^-8: half way, to even */
		{0x3F80, 0x3BC0, 0x3F81}, /* above half way */
		{0x3F80, 0xBF80, 0x0000}, {0x7F80, 0x3F80, 0x7F80}, /* infinity stays */
		{0x7F81, 0x3F80, 0x7FC1},                           /* and so does NaN */
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct pair p = {collective_host_create(2), {cases[i].a, cases[i].b}, 0};
		struct err err;

		assert_int_equal(0, pthread_create(&p.other, NULL, second, &p));
		CHECK_OK(p.c->ops->all_reduce(
			p.c, 0, NULL, &p.value[0], 1, DT_BF16, &err));
		assert_int_equal(0, pthread_join(p.other, NULL));
		assert_int_equal(cases[i].sum, p.value[0]);
		assert_int_equal(cases[i].sum, p.value[1]);
		p.c->ops->destroy(p.c);
	}
}

static void *breaks_off(void *arg)
{
	struct pair *p = arg;

	p->value[1] = 77;
	p->c->ops->abort(p->c);
	return NULL;
}

static void nobody_waits_for_a_rank_that_broke_off(void **state)
{
	struct pair p = {.c = collective_host_create(2)};
	struct err err;

	(void)state;
	assert_int_equal(0, pthread_create(&p.other, NULL, breaks_off, &p));
	assert_int_equal(ST_CANCELLED,
		p.c->ops->all_reduce(p.c, 0, NULL, &p.value[0], 1, DT_BF16, &err));
	assert_int_equal(77, p.value[1]); /* what it wrote before is seen */
	assert_int_equal(ST_CANCELLED, p.c->ops->meet(p.c, 0, &err));
	assert_int_equal(0, pthread_join(p.other, NULL));
	p.c->ops->destroy(p.c);
}

static void devices_without_collectives_are_refused_by_name(void **state)
{
	struct backend gpu = {.name = "cuda", .device = "cuda:0 TEST"};
	struct backend *two[2] = {&gpu, &gpu};
	struct collective *c = NULL;
	struct err err;

	(void)state;
	if (collective_create(&c, two, 1, &err) != ST_OK)
		fail_msg("one device needs nobody");
	c->ops->destroy(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_are_in_order_of_rank_on_every_rank),
		cmocka_unit_test(parts_of_rows_stand_in_order_of_rank),
		cmocka_unit_test(bf16_sums_round_once),
		cmocka_unit_test(nobody_waits_for_a_rank_that_broke_off),
		cmocka_unit_test(devices_without_collectives_are_refused_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
