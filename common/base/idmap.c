/* Open addressing with linear probing. Deletion moves later entries of the cluster
 * back, so there are no tombstones and a long-lived map does not slow down. */
#include "common/base/idmap.h"

#include "common/base/mem.h"

#include <assert.h>

struct slot {
	uint64_t key; /* 0: empty */
	uint32_t value;
};

struct idmap {
	struct slot *slot;
	uint32_t mask; /* at least twice the capacity: probes stay short */
	uint32_t capacity;
	uint32_t count;
};

/* Finaliser of SplitMix64 (Steele et al., OOPSLA'14): ids are often sequential. */
static uint32_t home_of(const struct idmap *m, uint64_t key)
{
	key = (key ^ key >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	key = (key ^ key >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)(key ^ key >> 31) & m->mask;
}

/* Index of the key, or of the empty slot where it would go. */
static uint32_t find(const struct idmap *m, uint64_t key)
{
	uint32_t i = home_of(m, key);

	while (m->slot[i].key != 0 && m->slot[i].key != key)
		i = (i + 1) & m->mask;
	return i;
}

struct idmap *idmap_create(uint32_t capacity)
{
	struct idmap *m = mem_alloc(1, sizeof(*m));
	uint32_t n = 4;

	assert(capacity > 0 && capacity <= UINT32_C(1) << 30);
	while (n < 2 * capacity)
		n *= 2;
	m->slot = mem_alloc(n, sizeof(*m->slot));
	m->mask = n - 1;
	m->capacity = capacity;
	return m;
}

void idmap_destroy(struct idmap *m)
{
	if (m == NULL)
		return;
	mem_free(m->slot);
	mem_free(m);
}

bool idmap_put(struct idmap *m, uint64_t key, uint32_t value)
{
	uint32_t i;

	if (key == 0 || m->count == m->capacity)
		return false;
	i = find(m, key);
	if (m->slot[i].key != 0)
		return false;
	m->slot[i] = (struct slot){key, value};
	m->count++;
	return true;
}

bool idmap_get(const struct idmap *m, uint64_t key, uint32_t *value)
{
	uint32_t i;

	if (key == 0)
		return false;
	i = find(m, key);
	if (m->slot[i].key == 0)
		return false;
	*value = m->slot[i].value;
	return true;
}

bool idmap_del(struct idmap *m, uint64_t key)
{
	uint32_t gap, i;

	if (key == 0)
		return false;
	gap = find(m, key);
	if (m->slot[gap].key == 0)
		return false;
	for (i = (gap + 1) & m->mask; m->slot[i].key != 0; i = (i + 1) & m->mask) {
		uint32_t home = home_of(m, m->slot[i].key);

		/* The entry may move back to the gap unless its home lies in (gap, i]. */
		if (((i - home) & m->mask) >= ((i - gap) & m->mask)) {
			m->slot[gap] = m->slot[i];
			gap = i;
		}
	}
	m->slot[gap].key = 0;
	m->count--;
	return true;
}
