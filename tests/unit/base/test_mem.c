/* Address space that the system limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mem.h"

#include <stdio.h>
#include <sys/resource.h>

static rlim_t address_space_used(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long pages = 0;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lu", &pages), 1);
	fclose(f);
	return pages * 4096;
}

/* 40 MiB are left: a block of 16 MiB would leave less than libraries need. */
static void a_large_block_leaves_address_space_for_small_ones(void **state)
{
	struct rlimit was, tight;
	void *large, *small, *grown;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_AS, &was), 0);
	tight = was;
	tight.rlim_cur = address_space_used() + (40u << 20);
	assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
	large = mem_take(1, 16u << 20);
	small = mem_take(1, 100000);
	grown = mem_regrow(small, 16u << 20);
	assert_int_equal(setrlimit(RLIMIT_AS, &was), 0);
	assert_null(large);
	assert_non_null(small);
	assert_null(grown);
	large = mem_take(1, 16u << 20);
	assert_non_null(large);
	mem_give(large);
	mem_give(small);
	assert_int_equal(mem_taken(), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_large_block_leaves_address_space_for_small_ones),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
