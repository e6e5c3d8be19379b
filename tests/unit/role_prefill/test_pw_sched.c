/* Which chunks make up a pass: the rule by table, and its promises on random queues. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/attr.h"
#include "common/base/rng.h"
#include "common/state/layout.h"
#include "prefill-worker/pw_sched.h"

#include <string.h>

#define ITEMS 8

static const struct {
	const char *what;
	uint32_t rows_max, seqs_max;
	uint32_t left[ITEMS]; /* 0 ends */
	struct pw_take want[ITEMS];
} table[] = {
	{"nobody", 256, 8, {0}, {{0, 0}}},
	{"one short prompt", 256, 8, {5}, {{0, 5}}},
	{"one long prompt takes all", 256, 8, {1000}, {{0, 256}}},
	{"cut at whole pages", 200, 8, {1000}, {{0, 192}}},
	{"the last part is not cut", 200, 8, {199}, {{0, 199}}},
	{"several short ones packed", 256, 8, {10, 20, 30}, {{0, 10}, {1, 20}, {2, 30}}},
	{"no more than seqs_max", 256, 2, {10, 20, 30}, {{0, 10}, {1, 20}}},
	{"a short one behind a long one", 256, 8, {1000, 20}, {{0, 192}, {1, 20}}},
	{"the short ones get half at most", 256, 8, {1000, 100, 100},
		{{0, 128}, {1, 100}}},
	{"two long ones: the first has it all", 256, 8, {1000, 1000}, {{0, 256}}},
	{"what is left goes to the next long one", 256, 8, {100, 1000},
		{{0, 100}, {1, 128}}},
	{"the oldest waits for its end while a short one goes", 256, 8, {200, 100, 30},
		{{0, 128}, {1, 100}}},
	{"a middle one is cut when pages fit", 256, 8, {100, 200, 20},
		{{0, 100}, {2, 20}, {1, 128}}},
	{"tiny passes have no grain", 10, 8, {100, 3}, {{0, 7}, {1, 3}}},
	{"one token a pass", 1, 8, {3, 3}, {{0, 1}}},
};

static void the_rule_by_table(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(table); i++) {
		struct pw_take takes[ITEMS];
		uint32_t n = 0, n_want = 0, got;

		while (n < ITEMS && table[i].left[n] > 0)
			n++;
		while (n_want < ITEMS && table[i].want[n_want].n_tokens > 0)
			n_want++;
		got = pw_sched_pass(
			table[i].left, n, table[i].rows_max, table[i].seqs_max, takes);
		if (got != n_want ||
			memcmp(takes, table[i].want, got * sizeof(*takes)) != 0)
			print_error("case '%s'\n", table[i].what);
		assert_int_equal(got, n_want);
		assert_memory_equal(takes, table[i].want, got * sizeof(*takes));
	}
}

#define MANY 64

struct queue {
	uint32_t left[MANY];
	uint32_t n;
};

static void take_out(struct queue *q, const struct pw_take *takes, uint32_t n)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < n; i++)
		q->left[takes[i].item] -= takes[i].n_tokens;
	for (uint32_t i = 0; i < q->n; i++)
		if (q->left[i] > 0)
			q->left[kept++] = q->left[i];
	q->n = kept;
}

static void check_pass(
	const struct queue *q, const struct pw_take *takes, uint32_t n, uint32_t rows_max)
{
	bool seen[MANY] = {false};
	uint32_t rows = 0;

	assert_true(n > 0);
	for (uint32_t i = 0; i < n; i++) {
		const struct pw_take *t = &takes[i];

		assert_false(seen[t->item]);
		seen[t->item] = true;
		assert_in_range(t->n_tokens, 1, q->left[t->item]);
		if (rows_max >= 2 * PAGE_TOKENS && t->n_tokens < q->left[t->item])
			assert_int_equal(t->n_tokens % PAGE_TOKENS, 0);
		rows += t->n_tokens;
	}
	assert_true(rows <= rows_max);
	/* The oldest: done, or at least half of the pass, less what whole pages cost. */
	assert_int_equal(takes[0].item, 0);
	if (takes[0].n_tokens < q->left[0])
		assert_true(takes[0].n_tokens + PAGE_TOKENS > rows_max / 2);
}

static void random_queues_keep_the_promises(void **state)
{
	(void)state;
	for (uint64_t round = 0; round < 2000; round++) {
		struct philox r = philox4x32(1, round, 0);
		uint32_t rows_max = 1 + r.v[0] % 1024;
		uint32_t seqs_max = 1 + r.v[1] % 16;
		struct queue q = {.n = 1 + r.v[2] % MANY};
		struct pw_take takes[16];
		uint64_t sum = 0;
		uint64_t passes = 0;

		for (uint32_t i = 0; i < q.n; i++) {
			uint32_t v = philox4x32(2, round, i).v[0];

			q.left[i] = 1 + v % (v & 1 ? 40 : 3000);
			sum += q.left[i];
		}
		while (q.n > 0) {
			uint32_t n =
				pw_sched_pass(q.left, q.n, rows_max, seqs_max, takes);

			check_pass(&q, takes, n, rows_max);
			take_out(&q, takes, n);
			assert_true(++passes <= sum);
		}
	}
}

/* However many long prompts stand before it, a short one is in the next pass. */
static void a_short_prompt_is_in_the_next_pass(void **state)
{
	(void)state;
	for (uint32_t rows_max = 2; rows_max <= 2048; rows_max += 7) {
		uint32_t left[5] = {100000, 100000, 100000, 100000, rows_max / 2};
		struct pw_take takes[8];
		uint32_t n = pw_sched_pass(left, 5, rows_max, 8, takes);
		bool found = false;

		for (uint32_t i = 0; i < n; i++)
			found = found ||
				(takes[i].item == 4 && takes[i].n_tokens == left[4]);
		assert_true(found);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_rule_by_table),
		cmocka_unit_test(random_queues_keep_the_promises),
		cmocka_unit_test(a_short_prompt_is_in_the_next_pass),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
