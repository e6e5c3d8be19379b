/* The plan against the meaning of every byte: an arena is filled so that each element
 * tells which layer, part, head, token and dimension of which sequence it is, the plan
 * is executed, and the other side is read by the same meaning. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/rng.h"
#include "common/xfer/plan.h"
#include "unit/xfer/state_walk.h"
#include <stdbool.h>
#include <string.h>

static const struct geometry geometries[] = {
	{"as the models", 2, 3, 16, 2, 8, 16, 16, 8, 8, 4, 0, DT_BF16, DT_BF16},
	{"one KV head", 1, 2, 8, 1, 8, 8, 8, 4, 4, 4, 0, DT_F32, DT_F32},
	{"many KV heads", 2, 1, 8, 8, 8, 16, 8, 8, 4, 2, 12, DT_F32, DT_BF16},
	{"dk and dv differ", 1, 2, 24, 4, 8, 24, 12, 4, 20, 5, 64, DT_BF16, DT_F32},
};
static const uint32_t tps[] = {1, 2, 4, 8};

static struct layout layout_of(const struct geometry *g, uint32_t ranks)
{
	struct layout l;
	struct err err;

	if (geometry_layout(&l, g, ranks, &err) != ST_OK)
		fail_msg("%s", err.text);
	return l;
}

/* One side: arenas of every rank and a sequence's place in them. */
enum { ARENA_PAGES = 12, ARENA_SLOTS = 4, N_PAGES = 5 };
struct side {
	struct layout l;
	uint8_t *arena[RANKS_MAX];
	uint64_t bytes;
	uint32_t pages[N_PAGES];
	struct plan_refs refs;
};

static void side_init(struct side *s, struct layout l, uint64_t seed, bool neighbours)
{
	uint32_t ids[ARENA_PAGES - 1];

	*s = (struct side){.l = l};
	s->bytes = layout_arena_bytes(&l, ARENA_PAGES, ARENA_SLOTS);
	for (uint32_t r = 0; r < l.ranks; r++) {
		s->arena[r] = test_malloc(s->bytes);
		memset(s->arena[r], 0xee, s->bytes);
	}
	for (uint32_t i = 0; i < COUNT(ids); i++)
		ids[i] = i + 1;
	for (uint32_t i = 0; i < N_PAGES && !neighbours; i++) {
		uint32_t left = (uint32_t)COUNT(ids) - i;
		uint32_t j = i + philox4x32(seed, i, 0).v[0] % left, id = ids[i];

		ids[i] = ids[j];
		ids[j] = id;
	}
	memcpy(s->pages, ids, sizeof(s->pages));
	s->refs = (struct plan_refs){.pages = s->pages,
		.n_pages = N_PAGES,
		.slot = 1 + (uint32_t)(seed % (ARENA_SLOTS - 1)),
		.arena_pages = ARENA_PAGES};
}

static void side_release(struct side *s)
{
	for (uint32_t r = 0; r < s->l.ranks; r++)
		test_free(s->arena[r]);
}

static void erase(uint8_t *at, uint32_t bytes, uint64_t meaning, void *ctx)
{
	(void)meaning;
	(void)ctx;
	memset(at, 0xee, bytes);
}

static struct state_view view_of(const struct side *s)
{
	struct state_view v = {.l = s->l,
		.arena_pages = ARENA_PAGES,
		.pages = s->pages,
		.n_pages = N_PAGES,
		.slot = s->refs.slot};

	memcpy(v.arena, s->arena, sizeof(v.arena));
	return v;
}

static uint64_t move(const struct side *from, struct side *to)
{
	uint64_t max = plan_copies_max(&from->l, &to->l, N_PAGES, true), n = 0, bytes;
	struct plan_copy *copies = test_calloc(max, sizeof(*copies));
	struct err err;

	if (plan_build(&from->l, &from->refs, &to->l, &to->refs, copies, max, &n, &err) !=
		ST_OK)
		fail_msg("%s", err.text);
	bytes = plan_bytes(copies, n);
	assert_int_equal(
		to->l.ranks * (N_PAGES * to->l.page_bytes + layout_state_bytes(&to->l)),
		bytes);
	for (uint64_t i = 0; i < n; i++) {
		const struct plan_copy *c = &copies[i];

		assert_true(c->bytes > 0);
		assert_true(c->src_rank < from->l.ranks && c->dst_rank < to->l.ranks);
		assert_true(c->src_offset + c->bytes <= from->bytes);
		assert_true(c->dst_offset + c->bytes <= to->bytes);
		memcpy(to->arena[c->dst_rank] + c->dst_offset,
			from->arena[c->src_rank] + c->src_offset, c->bytes);
	}
	test_free(copies);
	return n;
}

/* After erasing the sequence nothing but the original fill is left: no byte outside of
 * its pages and slot was written. */
static void check_arrived(struct side *s)
{
	struct state_view v = view_of(s);
	uint64_t wrong = 0;

	assert_int_equal(0, state_wrong(&v, 0));
	walk(&v, erase, NULL);
	for (uint32_t r = 0; r < s->l.ranks; r++)
		for (uint64_t i = 0; i < s->bytes; i++)
			wrong += s->arena[r][i] != 0xee;
	assert_int_equal(0, wrong);
}

static void check_pairs(const struct geometry *g, const uint32_t *ranks, size_t n)
{
	for (size_t a = 0; a < n; a++)
		for (size_t b = 0; b < n; b++) {
			struct side from, to;
			struct state_view v;

			side_init(&from, layout_of(g, ranks[a]), 3, false);
			side_init(&to, layout_of(g, ranks[b]), 8, false);
			v = view_of(&from);
			state_write(&v, 0);
			move(&from, &to);
			check_arrived(&to);
			side_release(&from);
			side_release(&to);
		}
}

static void every_byte_arrives_where_its_meaning_is(void **state)
{
	(void)state;
	for (size_t g = 0; g < COUNT(geometries); g++)
		check_pairs(&geometries[g], tps, COUNT(tps));
}

/* Cuts that do not fall together: 2 ranks of 3 heads and 3 ranks of 2. */
static void ranks_that_do_not_divide_each_other(void **state)
{
	static const struct geometry six = {
		"six", 2, 2, 12, 6, 6, 18, 8, 4, 8, 3, 8, DT_F32, DT_BF16};
	static const uint32_t ranks[] = {1, 2, 3, 6};

	(void)state;
	check_pairs(&six, ranks, COUNT(ranks));
}

/* Random bytes instead of meanings, so that replicas of one head differ unless the plan
 * makes them equal; they are made equal first by a move from one rank. */
static void there_and_back_is_the_identity(void **state)
{
	(void)state;
	for (size_t g = 0; g < COUNT(geometries); g++)
		for (size_t a = 0; a < COUNT(tps); a++)
			for (size_t b = 0; b < COUNT(tps); b++) {
				struct side one, from, there, back;

				side_init(&one, layout_of(&geometries[g], 1), 1, false);
				side_init(&from, layout_of(&geometries[g], tps[a]), 2,
					false);
				side_init(&there, layout_of(&geometries[g], tps[b]), 3,
					false);
				side_init(&back, from.l, 2, false); /* same pages */
				for (uint64_t i = 0; i < one.bytes; i++)
					one.arena[0][i] =
						(uint8_t)philox4x32(7, i, g).v[0];
				move(&one, &from);
				move(&from, &there);
				move(&there, &back);
				for (uint32_t r = 0; r < from.l.ranks; r++)
					assert_memory_equal(
						from.arena[r], back.arena[r], from.bytes);
				side_release(&one);
				side_release(&from);
				side_release(&there);
				side_release(&back);
			}
}

static void equal_parallelism_is_whole_pages_and_one_slot(void **state)
{
	(void)state;
	for (size_t g = 0; g < COUNT(geometries); g++)
		for (size_t a = 0; a < COUNT(tps); a++) {
			static const uint32_t apart[] = {2, 4, 6, 8, 10};
			struct side from, to;

			side_init(&from, layout_of(&geometries[g], tps[a]), 3, true);
			side_init(&to, from.l, 8, true);
			assert_int_equal(tps[a] * 2, move(&from, &to));
			memcpy(to.pages, apart, sizeof(apart));
			assert_int_equal(tps[a] * (N_PAGES + 1), move(&from, &to));
			side_release(&from);
			side_release(&to);
		}
}

/* Neighbouring heads of one source rank travel together. */
static void unequal_parallelism_merges_heads(void **state)
{
	struct layout one = layout_of(&geometries[2], 1),
		      two = layout_of(&geometries[2], 2);
	struct side from, to;

	(void)state;
	side_init(&from, one, 3, false);
	side_init(&to, two, 8, false);
	/* Per rank: a piece per layer and half of each page; per GDN layer the recurrent
	 * heads, then q, k and v of conv; then the auxiliary bytes, which on the last
	 * rank follow its v heads on both sides. */
	assert_int_equal(2 * (N_PAGES * 2 * 2 + 1 + 3) + 1, move(&from, &to));
	/* Back: twice as many, one from each of two ranks; the auxiliary bytes from one.
	 */
	assert_int_equal(2 * (N_PAGES * 2 * 2 + 1 + 3) + 1, move(&to, &from));
	side_release(&from);
	side_release(&to);
}

/* Replicas of a head are read by different destination ranks. */
static void replicas_share_the_readers(void **state)
{
	struct layout l8 = layout_of(&geometries[1], 8); /* 1 KV head: 8 replicas */
	uint32_t pages[] = {1}, readers[8] = {0};
	struct plan_refs refs = {.pages = pages, .n_pages = 1, .arena_pages = 2};
	struct plan_copy copies[64];
	struct layout l4 = layout_of(&geometries[1], 4);
	uint64_t n;
	struct err err;

	(void)state;
	assert_int_equal(ST_OK,
		plan_build(&l8, &refs, &l4, &refs, copies, COUNT(copies), &n, &err));
	for (uint64_t i = 0; i < n; i++)
		readers[copies[i].src_rank]++;
	for (uint32_t r = 0; r < 8; r++)
		assert_int_equal(r < 4 ? 1 : 0, readers[r]);
}

static void slot_zero_means_pages_only(void **state)
{
	struct layout l = layout_of(&geometries[0], 2);
	uint32_t pages[] = {3, 4, 6};
	struct plan_refs refs = {.pages = pages, .n_pages = 3, .arena_pages = 7};
	struct plan_copy copies[8];
	uint64_t n;
	struct err err;

	(void)state;
	assert_int_equal(
		ST_OK, plan_build(&l, &refs, &l, &refs, copies, COUNT(copies), &n, &err));
	assert_int_equal(2 * 2, n); /* 3 and 4 are neighbours */
	assert_int_equal(2 * 3 * l.page_bytes, plan_bytes(copies, n));
	refs.n_pages = 0;
	assert_int_equal(
		ST_OK, plan_build(&l, &refs, &l, &refs, copies, COUNT(copies), &n, &err));
	assert_int_equal(0, n);
}

static void refusals_name_both_sides(void **state)
{
	struct layout l = layout_of(&geometries[0], 2), other = l;
	uint32_t pages[] = {3, 4}, beyond[] = {3, 7};
	struct plan_refs refs = {
		.pages = pages, .n_pages = 2, .slot = 1, .arena_pages = 7};
	struct plan_refs fewer = refs, no_slot = refs, outside = refs;
	struct plan_copy copies[8];
	char both[64];
	uint64_t n = 99;
	struct err err;

	(void)state;
	other.model_hash++;
	assert_int_equal(
		ST_INVALID, plan_build(&other, &refs, &l, &refs, copies, 8, &n, &err));
	snprintf(both, sizeof(both), "%016llx",
		(unsigned long long)layout_compat_hash(&other));
	assert_non_null(strstr(err.text, both));
	snprintf(both, sizeof(both), "%016llx",
		(unsigned long long)layout_compat_hash(&l));
	assert_non_null(strstr(err.text, both));

	fewer.n_pages = 1;
	assert_int_equal(
		ST_INVALID, plan_build(&l, &fewer, &l, &refs, copies, 8, &n, &err));
	assert_non_null(strstr(err.text, "1 pages at the source, 2 at the destination"));
	no_slot.slot = 0;
	assert_int_equal(
		ST_INVALID, plan_build(&l, &refs, &l, &no_slot, copies, 8, &n, &err));
	assert_non_null(strstr(err.text, "slot 1 at the source, 0 at the destination"));
	outside.pages = beyond;
	assert_int_equal(
		ST_INVALID, plan_build(&l, &outside, &l, &refs, copies, 8, &n, &err));
	assert_non_null(strstr(err.text, "page 1 of the source is id 7"));
	assert_int_equal(
		ST_INVALID, plan_build(&l, &refs, &l, &outside, copies, 8, &n, &err));
	assert_non_null(strstr(err.text, "page 1 of the destination is id 7"));
	assert_int_equal(99, n);
}

static void too_small_an_array_is_refused(void **state)
{
	struct layout one = layout_of(&geometries[0], 1),
		      two = layout_of(&geometries[0], 2);
	uint32_t pages[] = {3, 5};
	struct plan_refs refs = {
		.pages = pages, .n_pages = 2, .slot = 1, .arena_pages = 7};
	uint64_t max = plan_copies_max(&one, &two, 2, true), n, need;
	struct plan_copy *copies = test_calloc(max, sizeof(*copies));
	struct err err;

	(void)state;
	assert_int_equal(
		ST_OK, plan_build(&one, &refs, &two, &refs, copies, max, &need, &err));
	for (uint64_t few = 0; few < need; few++)
		assert_int_equal(ST_LIMIT,
			plan_build(&one, &refs, &two, &refs, copies, few, &n, &err));
	assert_int_equal(
		ST_OK, plan_build(&one, &refs, &two, &refs, copies, need, &n, &err));
	test_free(copies);
}

/* 262,144 tokens of the largest model between 2 and 1 ranks: 64-bit offsets. */
static void offsets_pass_four_gigabytes(void **state)
{
	static const struct geometry big = {
		"397B", 15, 45, 32, 2, 16, 64, 256, 128, 128, 4, 0, DT_BF16, DT_BF16};
	struct layout two = layout_of(&big, 2), one = layout_of(&big, 1);
	uint32_t *pages = test_calloc(4096, sizeof(*pages));
	struct plan_refs refs = {
		.pages = pages, .n_pages = 4096, .slot = 3, .arena_pages = 5000};
	uint64_t max = plan_copies_max(&two, &one, 4096, true), n;
	struct plan_copy *copies = test_calloc(max, sizeof(*copies));
	struct err err;

	(void)state;
	for (uint32_t i = 0; i < 4096; i++)
		pages[i] = 4999 - i;
	assert_int_equal(
		ST_OK, plan_build(&two, &refs, &one, &refs, copies, max, &n, &err));
	assert_int_equal(
		UINT64_C(262144) * 30720 + 188743680 + 3317760, plan_bytes(copies, n));
	assert_int_equal(4999 * one.page_bytes, copies[0].dst_offset);
	assert_int_equal(UINT64_C(4999) * 64 * 15360, copies[0].src_offset);
	test_free(copies);
	test_free(pages);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte_arrives_where_its_meaning_is),
		cmocka_unit_test(ranks_that_do_not_divide_each_other),
		cmocka_unit_test(there_and_back_is_the_identity),
		cmocka_unit_test(equal_parallelism_is_whole_pages_and_one_slot),
		cmocka_unit_test(unequal_parallelism_merges_heads),
		cmocka_unit_test(replicas_share_the_readers),
		cmocka_unit_test(slot_zero_means_pages_only),
		cmocka_unit_test(refusals_name_both_sides),
		cmocka_unit_test(too_small_an_array_is_refused),
		cmocka_unit_test(offsets_pass_four_gigabytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
