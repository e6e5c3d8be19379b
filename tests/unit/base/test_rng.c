/* Random numbers against published vectors; hashes against the reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/hash.h"
#include "common/base/rng.h"

#include <math.h>

static void check_philox(uint64_t key, uint64_t lo, uint64_t hi, const uint32_t want[4])
{
	struct philox r = philox4x32(key, lo, hi);

	for (int i = 0; i < 4; i++)
		assert_int_equal(r.v[i], want[i]);
}

/* Random123 1.14, examples/kat_vectors, philox4x32 with 10 rounds. */
static void philox_gives_the_published_numbers(void **state)
{
	static const uint32_t zeros[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
	static const uint32_t ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
	static const uint32_t pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};

	(void)state;
	check_philox(0, 0, 0, zeros);
	check_philox(UINT64_MAX, UINT64_MAX, UINT64_MAX, ones);
	/* Words 0 and 1 are the low half of key and counter. */
	check_philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e, pi);
}

static void token_numbers_are_uniform_in_zero_exclusive_to_one(void **state)
{
	const int n = 200000;
	int bins[16] = {0};
	double sum = 0;

	(void)state;
	for (int i = 0; i < n; i++) {
		float u = rng_token_uniform(1234, 0, (uint64_t)i);

		assert_true(u > 0.0f && u <= 1.0f);
		sum += (double)u;
		bins[(int)ceilf(u * 16.0f) - 1]++;
	}
	/* Five standard deviations: 0.289 / sqrt(n), and sqrt(n / 16) per bin. */
	assert_true(fabs(sum / n - 0.5) < 5 * 0.289 / sqrt(n));
	for (int i = 0; i < 16; i++)
		assert_true(abs(bins[i] - n / 16) < 5 * (int)sqrt(n / 16));
}

static void token_numbers_depend_on_seed_choice_and_position(void **state)
{
	float u = rng_token_uniform(1, 2, 3);

	(void)state;
	assert_true(u == rng_token_uniform(1, 2, 3));
	assert_true(u != rng_token_uniform(2, 2, 3));
	assert_true(u != rng_token_uniform(1, 3, 3));
	assert_true(u != rng_token_uniform(1, 2, 4));
	assert_true(u != rng_token_uniform(1, 2, 3 + (UINT64_C(1) << 32)));
	/* From the first vector: (0x6627e8 + 1) / 2^24. */
	assert_true(rng_token_uniform(0, 0, 0) == (float)(0x6627e8 + 1) / 16777216.0f);
}

static void identities_differ_and_are_never_zero(void **state)
{
	uint64_t a = rng_entropy64();

	(void)state;
	for (int i = 0; i < 100; i++) {
		uint64_t b = rng_entropy64();

		assert_true(b != 0);
		assert_true(a != b);
		a = b;
	}
}

/* XXH3_64bits of the empty input and of one byte, from the reference implementation. */
static void hashes_are_xxh3(void **state)
{
	(void)state;
	assert_true(hash64("", 0, 0) == 0x2d06800538d394c2);
	assert_true(hash64("a", 1, 0) == 0xe6c632b61e964e1f);
	assert_true(hash64("a", 1, 1) != hash64("a", 1, 0));
	assert_true(hash64_u64(5, 1) == hash64("\x01\0\0\0\0\0\0\0", 8, 5));
	assert_true(hash64_u64(hash64_u64(0, 1), 2) != hash64_u64(hash64_u64(0, 2), 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(philox_gives_the_published_numbers),
		cmocka_unit_test(token_numbers_are_uniform_in_zero_exclusive_to_one),
		cmocka_unit_test(token_numbers_depend_on_seed_choice_and_position),
		cmocka_unit_test(identities_differ_and_are_never_zero),
		cmocka_unit_test(hashes_are_xxh3),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
