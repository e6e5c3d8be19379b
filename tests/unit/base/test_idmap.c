/* The map against a naive one, under random traffic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/idmap.h"

#include <stdlib.h>

#define CAPACITY 100u
#define N_KEYS   150u /* more than fit, so that "full" happens */

static uint64_t draw(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static void it_behaves_like_an_array_under_random_traffic(void **state)
{
	struct idmap *m = idmap_create(CAPACITY);
	bool there[N_KEYS] = {false};
	uint32_t value[N_KEYS] = {0};
	uint64_t key[N_KEYS], seed = 7;
	uint32_t count = 0;

	(void)state;
	/* Half of them sequential, as requests are, half random, as incarnations are. */
	for (uint32_t i = 0; i < N_KEYS; i++)
		key[i] = i % 2 == 0 ? i + 1 : draw(&seed);
	for (uint32_t round = 0; round < 200000; round++) {
		uint32_t i = (uint32_t)(draw(&seed) % N_KEYS);
		uint32_t got = 0;

		if (draw(&seed) % 2 == 0) {
			bool fits = !there[i] && count < CAPACITY;

			assert_int_equal(idmap_put(m, key[i], round), fits);
			value[i] = fits ? round : value[i];
			count += fits;
			there[i] = there[i] || fits;
		} else {
			assert_int_equal(idmap_del(m, key[i]), there[i]);
			count -= there[i];
			there[i] = false;
		}
		i = (uint32_t)(draw(&seed) % N_KEYS);
		assert_int_equal(idmap_get(m, key[i], &got), there[i]);
		if (there[i])
			assert_int_equal(got, value[i]);
	}
	for (uint32_t i = 0; i < N_KEYS; i++) {
		uint32_t got;

		assert_int_equal(idmap_get(m, key[i], &got), there[i]);
	}
	idmap_destroy(m);
}

static void key_zero_is_never_there(void **state)
{
	struct idmap *m = idmap_create(1);
	uint32_t v = 5;

	(void)state;
	assert_false(idmap_put(m, 0, 1));
	assert_false(idmap_get(m, 0, &v));
	assert_false(idmap_del(m, 0));
	assert_true(idmap_put(m, UINT64_MAX, 9));
	assert_false(idmap_put(m, 1, 1));
	assert_true(idmap_get(m, UINT64_MAX, &v));
	assert_int_equal(v, 9);
	idmap_destroy(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_behaves_like_an_array_under_random_traffic),
		cmocka_unit_test(key_zero_is_never_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
