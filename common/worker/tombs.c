/* Tombstones: a ring in the order of death, and a map to find them. All live equally
 * long, so the oldest of the ring is always the first to go. */
#include "common/worker/tombs.h"

#include "common/base/idmap.h"
#include "common/base/mem.h"
#include "common/worker/jobs.h"

struct tomb {
	struct wire_request request;
	uint64_t since_ns;
};

struct tombs {
	struct idmap *index_of;
	struct tomb *ring;
	uint32_t capacity, first, n;
	uint64_t lifetime_ns;
};

struct tombs *tombs_create(uint32_t capacity, uint64_t lifetime_ns)
{
	struct tombs *t = mem_alloc(1, sizeof(*t));

	t->index_of = idmap_create(capacity);
	t->ring = mem_alloc(capacity, sizeof(*t->ring));
	t->capacity = capacity;
	t->lifetime_ns = lifetime_ns;
	return t;
}

void tombs_destroy(struct tombs *t)
{
	if (t == NULL)
		return;
	idmap_destroy(t->index_of);
	mem_free(t->ring);
	mem_free(t);
}

static void drop_oldest(struct tombs *t)
{
	idmap_del(t->index_of, request_key(t->ring[t->first].request));
	t->first = (t->first + 1) % t->capacity;
	t->n--;
}

void tombs_add(struct tombs *t, struct wire_request r, uint64_t now_ns)
{
	uint32_t at;

	if (t->n == t->capacity)
		drop_oldest(t);
	at = (t->first + t->n) % t->capacity;
	if (!idmap_put(t->index_of, request_key(r), at))
		return; /* it is dead already */
	t->ring[at] = (struct tomb){.request = r, .since_ns = now_ns};
	t->n++;
}

bool tombs_has(const struct tombs *t, struct wire_request r)
{
	uint32_t at;

	return idmap_get(t->index_of, request_key(r), &at) &&
	       request_eq(t->ring[at].request, r);
}

void tombs_sweep(struct tombs *t, uint64_t now_ns)
{
	while (t->n > 0 && now_ns - t->ring[t->first].since_ns >= t->lifetime_ns)
		drop_oldest(t);
}

uint32_t tombs_count(const struct tombs *t)
{
	return t->n;
}
