/* The list against an array, and the promises of a zeroed one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/list.h"
#include "common/base/rng.h"
#include <string.h>

struct item {
	uint32_t number;
	struct list_node node;
};

enum { ITEMS = 12, STEPS = 20000 };

static void holds(const struct list *l, struct item *const *want, uint32_t n)
{
	uint32_t i = 0;

	assert_int_equal(n, l->n);
	list_each (it, l, struct item, node) {
		assert_ptr_equal(want[i], it);
		assert_ptr_equal(l, it->node.in);
		assert_ptr_equal(i > 0 ? &want[i - 1]->node : NULL, it->node.prev);
		i++;
	}
	assert_int_equal(n, i);
	assert_ptr_equal(n > 0 ? &want[n - 1]->node : NULL, l->last);
}

static void any_order_of_adding_and_leaving_keeps_the_order(void **state)
{
	struct item items[ITEMS] = {0}, *want[ITEMS] = {0};
	struct list l = {0};
	uint32_t n = 0;

	(void)state;
	holds(&l, want, 0);
	for (uint64_t step = 0; step < STEPS; step++) {
		struct philox r = philox4x32(5, step, 0);
		struct item *it = &items[r.v[0] % ITEMS];
		uint32_t at = 0;

		while (at < n && want[at] != it)
			at++;
		if (at < n) {
			list_remove(&it->node);
			memmove(want + at, want + at + 1, (--n - at) * sizeof(*want));
		} else if (r.v[1] % 2 == 0) {
			list_add(&l, &it->node);
			want[n++] = it;
		} else {
			list_add_first(&l, &it->node);
			memmove(want + 1, want, n++ * sizeof(*want));
			want[0] = it;
		}
		holds(&l, want, n);
	}
}

static void leaving_a_list_that_it_is_not_in_does_nothing(void **state)
{
	struct item one = {.number = 1};

	(void)state;
	list_remove(&one.node);
	assert_null(one.node.in);
}

static void the_entry_in_hand_may_leave(void **state)
{
	struct item items[ITEMS] = {0};
	struct list l = {0}, other = {0};
	uint32_t n = 0;

	(void)state;
	for (uint32_t i = 0; i < ITEMS; i++) {
		items[i].number = i;
		list_add(&l, &items[i].node);
	}
	list_each (it, &l, struct item, node) {
		assert_int_equal(n++, it->number);
		list_remove(&it->node);
		if (it->number % 2 == 0)
			list_add(&other, &it->node);
		else
			memset(it, 0xee, sizeof(*it));
	}
	assert_int_equal(ITEMS, n);
	assert_null(l.first);
	assert_int_equal(ITEMS / 2, other.n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_order_of_adding_and_leaving_keeps_the_order),
		cmocka_unit_test(leaving_a_list_that_it_is_not_in_does_nothing),
		cmocka_unit_test(the_entry_in_hand_may_leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
