/* Names of large objects: a table for each, so that neither a duplicate nor a look-up
 * costs more than a few comparisons. */
#include "common/base/hash.h"
#include "common/base/json_impl.h"
#include "common/base/mem.h"
#include "common/base/rng.h"

#include <stdatomic.h>
#include <string.h>

static uint64_t seed(void)
{
	static _Atomic uint64_t chosen;
	uint64_t s = atomic_load(&chosen), none = 0;

	if (s != 0)
		return s;
	s = rng_entropy64();
	return atomic_compare_exchange_strong(&chosen, &none, s) ? s : none;
}

static bool same(const struct json *name, struct bytes text)
{
	return name->len == text.len && memcmp(name->at, text.at, text.len) == 0;
}

/* The slot that holds the name, or the free one where it belongs. */
static uint32_t *slot_of(
	struct json_table *t, const struct json *object, struct bytes name)
{
	uint32_t i = (uint32_t)hash64(name.at, name.len, seed()) & t->mask;

	while (t->slots[i] != 0 && !same(object + t->slots[i], name))
		i = (i + 1) & t->mask;
	return &t->slots[i];
}

/* The members that object has so far into a table of n_slots, in place of its old one. */
static struct json_table *table_make(
	struct json_table **list, struct json *object, uint32_t n_slots)
{
	struct json_table *old = (void *)(uintptr_t)object->at;
	struct json_table *t =
		mem_take(1, sizeof(*t) + (size_t)n_slots * sizeof(t->slots[0]));
	const struct json *name = object + 1;

	if (t == NULL)
		return NULL;
	t->mask = n_slots - 1;
	for (uint32_t i = 0; i < object->n; i++) {
		*slot_of(t, object, (struct bytes){name->at, name->len}) =
			(uint32_t)(name - object);
		name += 1 + name[1].span;
	}
	if (old != NULL) {
		*old->back = old->next;
		if (old->next != NULL)
			old->next->back = old->back;
		mem_give(old);
	}
	t->next = *list;
	t->back = list;
	if (t->next != NULL)
		t->next->back = &t->next;
	*list = t;
	object->at = (const uint8_t *)t;
	return t;
}

static const struct json *find_linear(const struct json *object, struct bytes text)
{
	const struct json *name = object + 1;

	for (uint32_t i = 0; i < object->n; i++) {
		if (same(name, text))
			return name;
		name += 1 + name[1].span;
	}
	return NULL;
}

const struct json *json_table_add(
	struct json_table **list, struct json *object, const struct json *name, bool *ok)
{
	struct bytes text = {name->at, name->len};
	struct json_table *t = (void *)(uintptr_t)object->at;
	uint32_t *slot, n = object->n;

	*ok = true;
	if (n < JSON_LINEAR_MAX)
		return find_linear(object, text);
	if (t == NULL || (uint64_t)(n + 1) * 2 > t->mask) {
		t = table_make(list, object, t == NULL ? 64 : (t->mask + 1) * 2);
		if (t == NULL) {
			*ok = false;
			return NULL;
		}
	}
	slot = slot_of(t, object, text);
	if (*slot != 0)
		return object + *slot;
	*slot = (uint32_t)(name - object);
	return NULL;
}

const struct json *json_table_find(const struct json *object, struct bytes name)
{
	struct json_table *t = (void *)(uintptr_t)object->at;
	uint32_t slot;

	if (t == NULL)
		return find_linear(object, name);
	slot = *slot_of(t, object, name);
	return slot != 0 ? object + slot : NULL;
}

void json_table_release(struct json_table *list)
{
	while (list != NULL) {
		struct json_table *next = list->next;

		mem_give(list);
		list = next;
	}
}
