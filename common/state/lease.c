/* The table of leases. Rules 1-3 are in the header. */
#include "common/state/lease.h"
#include "common/base/clock.h"
#include "common/base/idmap.h"
#include "common/base/mem.h"
#include "common/state/layout.h"
#include <assert.h>
#include <inttypes.h>
#include <string.h>

struct leases {
	struct pool *pages, *slots;
	uint32_t capacity, pages_max;
	struct lease *entries; /* generation 0: unused */
	uint32_t *unused;      /* stack of their indices */
	uint32_t n_unused;
	struct idmap *by_generation;
	uint64_t last_generation;
	void (*on_freed)(void *ctx, const struct lease *lease);
	void *on_freed_ctx;
};

struct leases *leases_create(
	struct pool *pages, struct pool *slots, uint32_t capacity, uint32_t pages_max)
{
	struct leases *t = mem_alloc(1, sizeof(*t));

	t->pages = pages;
	t->slots = slots;
	t->capacity = capacity;
	t->pages_max = pages_max;
	t->entries = mem_alloc(capacity, sizeof(*t->entries));
	t->unused = mem_alloc(capacity, sizeof(*t->unused));
	for (uint32_t i = capacity; i > 0; i--)
		t->unused[t->n_unused++] = i - 1;
	t->by_generation = idmap_create(capacity);
	return t;
}

void leases_destroy(struct leases *t)
{
	if (t == NULL)
		return;
	for (uint32_t i = 0; i < t->capacity; i++)
		mem_give(t->entries[i].pages);
	idmap_destroy(t->by_generation);
	mem_free(t->unused);
	mem_free(t->entries);
	mem_free(t);
}

/* Slot 0 stands for none: such a lease covers pages only. */
static void hold(struct leases *t, const struct lease *l)
{
	pool_lease(t->pages, l->pages, l->n_pages);
	if (l->slot != 0)
		pool_lease(t->slots, &l->slot, 1);
}

static void let_go(struct leases *t, struct lease *l)
{
	struct lease ended = *l;
	bool known = idmap_del(t->by_generation, ended.generation);

	assert(known);
	pool_unlease(t->pages, ended.pages, ended.n_pages);
	if (ended.slot != 0)
		pool_unlease(t->slots, &ended.slot, 1);
	*l = (struct lease){0};
	t->unused[t->n_unused++] = (uint32_t)(l - t->entries);
	if (t->on_freed != NULL)
		t->on_freed(t->on_freed_ctx, &ended);
	mem_give(ended.pages);
}

static status grant_one(struct leases *t, const struct lease *terms, uint64_t expires_ns)
{
	uint32_t *pages = mem_take(MAX(terms->n_pages, 1u), sizeof(*pages));
	struct lease *l;
	bool put;

	if (pages == NULL)
		return ST_LIMIT;
	memcpy(pages, terms->pages, terms->n_pages * sizeof(*pages));
	l = &t->entries[t->unused[--t->n_unused]];
	*l = (struct lease){
		.generation = ++t->last_generation,
		.owner = terms->owner,
		.seq = terms->seq,
		.attempt = terms->attempt,
		.n_tokens = terms->n_tokens,
		.pages = pages,
		.n_pages = terms->n_pages,
		.slot = terms->slot,
		.expires_ns = expires_ns,
	};
	put = idmap_put(t->by_generation, l->generation, (uint32_t)(l - t->entries));
	assert(put); /* it has a place per entry */
	hold(t, l);
	return ST_OK;
}

/* Of a grant that failed half-way: nobody has heard of them. */
static void take_back(struct leases *t, uint64_t generation)
{
	struct lease *l = lease_find(t, generation);
	bool known = idmap_del(t->by_generation, generation);

	assert(l != NULL && known);
	pool_unlease(t->pages, l->pages, l->n_pages);
	if (l->slot != 0)
		pool_unlease(t->slots, &l->slot, 1);
	mem_give(l->pages);
	*l = (struct lease){0};
	t->unused[t->n_unused++] = (uint32_t)(l - t->entries);
}

status lease_grant(struct leases *t, const struct lease *terms, uint64_t lifetime_ns,
	uint32_t n_readers, uint64_t *generation)
{
	uint64_t first = t->last_generation + 1;
	uint64_t expires_ns = clock_ran_ns() + lifetime_ns;

	assert(terms->n_pages == CEIL_DIV(terms->n_tokens, PAGE_TOKENS));
	assert(n_readers > 0);
	if (t->n_unused < n_readers || terms->n_pages > t->pages_max)
		return ST_LIMIT;
	for (uint32_t i = 0; i < n_readers; i++) {
		if (grant_one(t, terms, expires_ns) == ST_OK)
			continue;
		while (i-- > 0)
			take_back(t, first + i);
		return ST_LIMIT;
	}
	pool_give(t->pages, terms->pages, terms->n_pages);
	if (terms->slot != 0)
		pool_give(t->slots, &terms->slot, 1);
	*generation = first;
	return ST_OK;
}

struct lease *lease_find(struct leases *t, uint64_t generation)
{
	uint32_t i;

	if (generation == 0 || !idmap_get(t->by_generation, generation, &i))
		return NULL;
	return &t->entries[i];
}

status lease_claim(struct leases *t, uint64_t generation, uint64_t link,
	uint32_t n_tokens, struct lease **out, struct err *err)
{
	struct lease *l = lease_find(t, generation);

	assert(link != 0);
	if (l == NULL)
		return err_set(err, ST_INVALID,
			"no lease %" PRIu64 " (the newest is %" PRIu64
			"): it was released, expired or never granted",
			generation, t->last_generation);
	if (l->claimer != 0)
		return err_set(err, ST_INVALID,
			"lease %" PRIu64 " is claimed already by link %" PRIu64,
			generation, l->claimer);
	if (l->n_tokens != n_tokens)
		return err_set(err, ST_INVALID,
			"lease %" PRIu64 " covers %u tokens, the claim wants %u",
			generation, l->n_tokens, n_tokens);
	l->claimer = link;
	*out = l;
	return ST_OK;
}

status lease_done(struct leases *t, uint64_t generation, uint64_t link, struct err *err)
{
	struct lease *l = lease_find(t, generation);

	if (l == NULL)
		return err_set(err, ST_INVALID,
			"done of lease %" PRIu64 ": no such lease", generation);
	if (l->claimer != link)
		return err_set(err, ST_INVALID,
			"done of lease %" PRIu64 " by link %" PRIu64
			", claimed by link %" PRIu64,
			generation, link, l->claimer);
	let_go(t, l);
	return ST_OK;
}

/* The end of a claim without done (rules 2 and 3). */
static void unclaim(struct leases *t, struct lease *l, uint64_t lifetime_ns)
{
	l->claimer = 0;
	l->expires_ns = clock_ran_ns() + lifetime_ns;
	if (l->released)
		let_go(t, l);
}

status lease_unclaim(struct leases *t, uint64_t generation, uint64_t link,
	uint64_t lifetime_ns, struct err *err)
{
	struct lease *l = lease_find(t, generation);

	if (l == NULL || l->claimer != link)
		return err_set(err, ST_INVALID,
			"lease %" PRIu64 " given back by link %" PRIu64
			", which does not hold it",
			generation, link);
	unclaim(t, l, lifetime_ns);
	return ST_OK;
}

void lease_link_lost(struct leases *t, uint64_t link, uint64_t lifetime_ns)
{
	assert(link != 0);
	for (uint32_t i = 0; i < t->capacity; i++)
		if (t->entries[i].generation != 0 && t->entries[i].claimer == link)
			unclaim(t, &t->entries[i], lifetime_ns);
}

bool lease_release(struct leases *t, uint64_t generation)
{
	struct lease *l = lease_find(t, generation);

	if (l == NULL)
		return false;
	if (l->claimer != 0)
		l->released = true;
	else
		let_go(t, l);
	return true;
}

void lease_renew_owner(struct leases *t, uint64_t owner, uint64_t lifetime_ns)
{
	uint64_t expires_ns = clock_ran_ns() + lifetime_ns;

	for (uint32_t i = 0; i < t->capacity; i++)
		if (t->entries[i].generation != 0 && t->entries[i].owner == owner &&
			!t->entries[i].disowned)
			t->entries[i].expires_ns = expires_ns;
}

void lease_disown(struct leases *t, uint64_t generation)
{
	struct lease *l = lease_find(t, generation);

	if (l != NULL)
		l->disowned = true;
}

uint32_t lease_expire(struct leases *t, uint64_t now_ns)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->capacity; i++) {
		struct lease *l = &t->entries[i];

		if (l->generation == 0 || l->claimer != 0 || l->expires_ns > now_ns)
			continue;
		let_go(t, l);
		n++;
	}
	return n;
}

void leases_on_freed(
	struct leases *t, void (*fn)(void *ctx, const struct lease *lease), void *ctx)
{
	t->on_freed = fn;
	t->on_freed_ctx = ctx;
}

uint32_t lease_count(const struct leases *t)
{
	return t->capacity - t->n_unused;
}
