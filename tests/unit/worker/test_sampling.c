/* Sampling fields of a message: what becomes of them, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/wire/wire.h"
#include "common/worker/sampling.h"

#include <math.h>
#include <string.h>

static struct wire_sampling plain(void)
{
	return (struct wire_sampling){.temperature = 1, .top_p = 1};
}

static void fields_become_a_row_and_its_edits(void **state)
{
	static const struct wire_bias bias[] = {{7, 1.5f}, {9, -100}};
	static const uint32_t bans[] = {3, 4, 5};
	struct wire_sampling s = plain();
	struct sampling_terms t;
	struct err err;

	(void)state;
	s.presence = 0.5;
	s.frequency = -0.25;
	s.repetition = 1.25;
	s.min_tokens = 20;
	s.top_logprobs = 3;
	s.bias = (struct bytes){(const uint8_t *)bias, sizeof(bias)};
	s.bans = (struct bytes){(const uint8_t *)bans, sizeof(bans)};
	assert_int_equal(ST_OK, sampling_make(&t, &s, 100, 50, &err));
	assert_true(t.how.presence == 0.5f && t.how.frequency == -0.25f);
	assert_true(t.how.repetition == 1.25f);
	assert_int_equal(120, t.how.ban_until);
	assert_int_equal(3, t.how.n_top);
	assert_int_equal(2, t.how.n_bias);
	assert_int_equal(3, t.how.n_bans);
	assert_int_equal(9, t.edits[1].id);
	assert_true(t.edits[1].add == -100.0f);
	assert_int_equal(5, t.edits[4].id);
	assert_true(sampling_needs_prompt(&t.how) && sampling_needs_answer(&t.how));
	sampling_release(&t);
	s = plain();
	s.min_tokens = UINT32_MAX;
	assert_int_equal(ST_OK, sampling_make(&t, &s, 100, 50, &err));
	assert_int_equal(UINT32_MAX, t.how.ban_until);
	assert_null(t.edits);
	assert_false(sampling_needs_answer(&t.how));
	s.frequency = 1;
	assert_int_equal(ST_OK, sampling_make(&t, &s, 100, 50, &err));
	assert_true(sampling_needs_answer(&t.how) && !sampling_needs_prompt(&t.how));
	assert_int_equal(0, mem_taken());
}

static void what_is_out_of_bounds_is_refused(void **state)
{
	static const struct wire_bias unknown = {50, 1}, large = {7, 100.5f},
				      nothing = {7, NAN};
	static const uint32_t ban = 50;
	const struct wire_sampling bad[] = {
		{.temperature = -1, .top_p = 1},
		{.top_p = 0},
		{.top_p = 1, .min_p = -0.1},
		{.top_p = 1, .repetition = -2},
		{.top_p = 1, .bias = {(const uint8_t *)&unknown, sizeof(unknown)}},
		{.top_p = 1, .bias = {(const uint8_t *)&large, sizeof(large)}},
		{.top_p = 1, .bias = {(const uint8_t *)&nothing, sizeof(nothing)}},
		{.top_p = 1, .bans = {(const uint8_t *)&ban, sizeof(ban)}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct sampling_terms t;
		struct err err = {.text = ""};

		assert_int_equal(ST_INVALID, sampling_make(&t, &bad[i], 10, 50, &err));
		assert_true(strlen(err.text) > 10);
		assert_int_equal(0, mem_taken());
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_become_a_row_and_its_edits),
		cmocka_unit_test(what_is_out_of_bounds_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
