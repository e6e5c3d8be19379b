/* Requests to job indices. The map is keyed by a hash of the request; the request is
 * compared as well, so two that share a hash cannot be taken for each other: the second
 * one finds no place. */
#include "common/worker/reqmap.h"

#include "common/base/hash.h"
#include "common/base/idmap.h"
#include "common/base/mem.h"

struct reqmap {
	struct idmap *index_of;
	struct wire_request *request; /* [capacity], by index */
	uint32_t *free;               /* stack of free indices */
	uint32_t n_free, capacity;
};

bool request_eq(struct wire_request a, struct wire_request b)
{
	return a.router == b.router && a.seq == b.seq && a.attempt == b.attempt;
}

uint64_t request_key(struct wire_request r)
{
	uint64_t key = hash64_u64(hash64_u64(r.router, r.seq), r.attempt);

	return key != 0 ? key : 1;
}

struct reqmap *reqmap_create(uint32_t capacity)
{
	struct reqmap *m = mem_alloc(1, sizeof(*m));

	m->capacity = capacity;
	m->index_of = idmap_create(capacity);
	m->request = mem_alloc(capacity, sizeof(*m->request));
	m->free = mem_alloc(capacity, sizeof(*m->free));
	while (m->n_free < capacity) {
		m->free[m->n_free] = capacity - 1 - m->n_free;
		m->n_free++;
	}
	return m;
}

void reqmap_destroy(struct reqmap *m)
{
	if (m == NULL)
		return;
	idmap_destroy(m->index_of);
	mem_free(m->request);
	mem_free(m->free);
	mem_free(m);
}

bool reqmap_add(struct reqmap *m, struct wire_request r, uint32_t *index)
{
	uint32_t i;

	if (m->n_free == 0)
		return false;
	i = m->free[m->n_free - 1];
	if (!idmap_put(m->index_of, request_key(r), i))
		return false;
	m->n_free--;
	m->request[i] = r;
	*index = i;
	return true;
}

bool reqmap_find(const struct reqmap *m, struct wire_request r, uint32_t *index)
{
	return idmap_get(m->index_of, request_key(r), index) &&
	       request_eq(m->request[*index], r);
}

void reqmap_del(struct reqmap *m, struct wire_request r)
{
	uint32_t i;

	if (!reqmap_find(m, r, &i))
		return;
	idmap_del(m->index_of, request_key(r));
	m->free[m->n_free++] = i;
}

uint32_t reqmap_count(const struct reqmap *m)
{
	return m->capacity - m->n_free;
}
