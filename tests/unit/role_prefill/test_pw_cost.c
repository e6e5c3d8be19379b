/* Passes cut by cost, on devices that are a formula: no pass is long, and none is cut
 * that need not be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/attr.h"
#include "common/base/clock.h"
#include "prefill-worker/pw_cost.h"
#include "prefill-worker/pw_sched.h"

#define ROWS_MAX 2048u
#define LIMIT_S  6.0

/* Seconds of a pass, of a token, and of 1024 tokens of context per token. */
struct device {
	const char *what;
	double pass, token, context;
};

static double seconds(const struct device *d, uint32_t n, double context)
{
	return d->pass + d->token * n + d->context * context;
}

struct run {
	double longest, all;
	uint32_t passes;
};

/* One prompt from its first token to its last. */
static struct run prefill(const struct device *d, struct pw_cost *cost, uint32_t n_ids)
{
	struct run run = {0};
	uint32_t next = 0;

	while (next < n_ids) {
		uint32_t left = n_ids - next;
		uint64_t limit = (uint64_t)(LIMIT_S * NS_PER_S);
		struct pw_take take;
		double context, took;

		assert_int_equal(
			pw_sched_pass(&left, 1, pw_cost_rows(cost, next, limit, ROWS_MAX),
				1, &take),
			1);
		context = pw_cost_context(next, take.n_tokens);
		took = seconds(d, take.n_tokens, context);
		pw_cost_note(cost, take.n_tokens, context, (uint64_t)(took * NS_PER_S));
		next += take.n_tokens;
		run.longest = MAX(run.longest, took);
		run.all += took;
		run.passes++;
	}
	return run;
}

/* The tenth of a time limit, and never beyond twice of it. */
static void no_pass_of_a_slow_device_is_long(void **state)
{
	static const struct device slow[] = {
		{"9 ms a token, 280 s for 32,767", 0.01, 0.004, 0.0003},
		{"all of it for the token", 0, 0.04, 0},
		{"all of it for the context", 0, 0.00001, 0.003},
		{"long passes whatever is in them", 1, 0.005, 0.0005},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(slow); i++) {
		struct pw_cost cost = {0};
		struct run run = prefill(&slow[i], &cost, 32767);

		if (run.longest > 2 * LIMIT_S)
			fail_msg("%s: a pass of %.1f s", slow[i].what, run.longest);
		/* Nor are they so short that passes are what it costs. */
		assert_true(run.all / run.passes > LIMIT_S / 4);
	}
}

static void a_fast_device_is_not_cut(void **state)
{
	static const struct device fast = {"H", 0.004, 0.00002, 0.000001};
	struct pw_cost cost = {0};
	struct run run;

	(void)state;
	run = prefill(&fast, &cost, 4096);
	assert_in_range(run.passes, 2, 6); /* 128, 256, 512, 1024, 2048, the rest */
	run = prefill(&fast, &cost, 32768);
	assert_int_equal(run.passes, 32768 / ROWS_MAX);
}

/* A thousand short prompts, of which a pass costs as much as one of 200 tokens. */
static void short_prompts_say_little_about_long_ones(void **state)
{
	static const struct device d = {"short", 0.03, 0.0001, 0.00001};
	struct pw_cost cost = {0};

	(void)state;
	prefill(&d, &cost, 8192);
	for (int i = 0; i < 1000; i++)
		prefill(&d, &cost, 3);
	assert_int_equal(pw_cost_rows(&cost, 0, (uint64_t)(LIMIT_S * NS_PER_S), ROWS_MAX),
		ROWS_MAX);
}

static void a_device_that_became_slow_is_found_out_within_a_few_passes(void **state)
{
	static const struct device before = {"before", 0.004, 0.0004, 0.00001};
	static const struct device now = {"now", 0.004, 0.016, 0.0004};
	struct pw_cost cost = {0};

	(void)state;
	prefill(&before, &cost, 16384);
	prefill(&now, &cost, 8192);
	assert_true(prefill(&now, &cost, 8192).longest < 2 * LIMIT_S);
}

static void no_pass_is_cut_to_nothing(void **state)
{
	struct pw_cost cost = {0};

	(void)state;
	assert_int_equal(pw_cost_rows(&cost, 0, 0, 1), 1);
	pw_cost_note(&cost, 1, pw_cost_context(0, 1), 100 * NS_PER_S);
	assert_int_equal(pw_cost_rows(&cost, 0, NS_PER_S, ROWS_MAX), PW_COST_LEAST);
	pw_cost_note(&cost, 1, pw_cost_context(0, 1), 0);
	assert_int_equal(pw_cost_rows(&cost, UINT32_MAX / 2, 0, ROWS_MAX), PW_COST_LEAST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_pass_of_a_slow_device_is_long),
		cmocka_unit_test(a_fast_device_is_not_cut),
		cmocka_unit_test(short_prompts_say_little_about_long_ones),
		cmocka_unit_test(
			a_device_that_became_slow_is_found_out_within_a_few_passes),
		cmocka_unit_test(no_pass_is_cut_to_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
