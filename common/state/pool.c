/* Who holds each page or slot. Only this file writes the accounts; the state of an
 * object is not stored but follows from them (page rule 1). */
#include "common/state/pool.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include <assert.h>
#include <stdbool.h>

struct object {
	uint32_t sequences;
	uint32_t leases;
	bool filling; /* contents not final; meaningless without holders */
};

struct pool {
	const char *name;
	uint32_t n; /* with the dead one */
	struct object *objects;
	/* Stack of free ids. A fresh pool gives them out in rising order, so that pages
	 * of one sequence are neighbours and a hand-over merges their copies. */
	uint32_t *free;
	uint32_t n_free;
	uint32_t count[POOL__STATES];
};

struct pool *pool_create(const char *name, uint32_t n)
{
	struct pool *p = mem_alloc(1, sizeof(*p));

	assert(n >= 1);
	p->name = name;
	p->n = n;
	p->objects = mem_alloc(n, sizeof(*p->objects));
	p->free = mem_alloc(n, sizeof(*p->free));
	for (uint32_t id = n - 1; id >= 1; id--)
		p->free[p->n_free++] = id;
	p->count[POOL_FREE] = p->n_free;
	return p;
}

void pool_destroy(struct pool *p)
{
	if (p == NULL)
		return;
	mem_free(p->free);
	mem_free(p->objects);
	mem_free(p);
}

static enum pool_state state_of(const struct object *o)
{
	if (o->leases > 0)
		return POOL_EXPORTED;
	if (o->sequences > 0)
		return o->filling ? POOL_FILLING : POOL_LIVE;
	return POOL_FREE;
}

static struct object *object_of(const struct pool *p, uint32_t id)
{
	assert(id >= 1 && id < p->n); /* the dead one is nobody's */
	return &p->objects[id];
}

/* Every change of an object runs between these two, which keep the counts and the
 * free stack true. */
static struct object *begin_change(struct pool *p, uint32_t id)
{
	struct object *o = object_of(p, id);

	p->count[state_of(o)]--;
	return o;
}

static void end_change(struct pool *p, uint32_t id)
{
	struct object *o = object_of(p, id);
	enum pool_state state = state_of(o);

	p->count[state]++;
	if (state == POOL_FREE) {
		o->filling = false;
		p->free[p->n_free++] = id;
	}
}

status pool_take(struct pool *p, uint32_t *ids, uint32_t n)
{
	if (p->n_free < n)
		return ST_LIMIT;
	for (uint32_t i = 0; i < n; i++) {
		struct object *o;

		ids[i] = p->free[--p->n_free];
		o = begin_change(p, ids[i]);
		assert(o->sequences == 0 && o->leases == 0);
		o->sequences = 1;
		o->filling = true;
		end_change(p, ids[i]);
	}
	return ST_OK;
}

void pool_fill_done(struct pool *p, const uint32_t *ids, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct object *o = begin_change(p, ids[i]);

		assert(o->sequences > 0);
		o->filling = false;
		end_change(p, ids[i]);
	}
}

void pool_share(struct pool *p, const uint32_t *ids, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct object *o = begin_change(p, ids[i]);

		/* Sharing what is still being written would let a sequence read half a
		 * page; and nothing can be shared that nobody holds. */
		assert(o->sequences + o->leases > 0 && !o->filling);
		o->sequences++;
		end_change(p, ids[i]);
	}
}

void pool_give(struct pool *p, const uint32_t *ids, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct object *o = begin_change(p, ids[i]);

		assert(o->sequences > 0);
		o->sequences--;
		end_change(p, ids[i]);
	}
}

void pool_lease(struct pool *p, const uint32_t *ids, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct object *o = begin_change(p, ids[i]);

		assert(o->sequences + o->leases > 0);
		o->leases++;
		end_change(p, ids[i]);
	}
}

void pool_unlease(struct pool *p, const uint32_t *ids, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct object *o = begin_change(p, ids[i]);

		assert(o->leases > 0);
		o->leases--;
		end_change(p, ids[i]);
	}
}

enum pool_state pool_state(const struct pool *p, uint32_t id)
{
	return state_of(object_of(p, id));
}

uint32_t pool_count(const struct pool *p, enum pool_state state)
{
	assert(state < POOL__STATES);
	return p->count[state];
}

uint32_t pool_size(const struct pool *p)
{
	return p->n - 1;
}

/* Our own bug, told before the assert. */
static void must_hold(const struct pool *p, bool holds, const char *what, uint32_t id)
{
	if (!holds)
		log_error("the accounts of the %ss are wrong: %s, id %u", p->name, what,
			id);
	assert(holds);
}

void pool_check(const struct pool *p)
{
	uint32_t seen[POOL__STATES] = {0};
	uint32_t total = 0;

	for (uint32_t id = 1; id < p->n; id++)
		seen[state_of(&p->objects[id])]++;
	for (uint32_t state = 0; state < POOL__STATES; state++) {
		must_hold(p, seen[state] == p->count[state], "count of a state", state);
		total += seen[state];
	}
	must_hold(p, total == p->n - 1, "total", total);
	must_hold(p, p->n_free == seen[POOL_FREE], "free ids", p->n_free);
	for (uint32_t i = 0; i < p->n_free; i++)
		must_hold(p, pool_state(p, p->free[i]) == POOL_FREE, "held but free",
			p->free[i]);
	must_hold(p, state_of(&p->objects[0]) == POOL_FREE, "the dead one was taken", 0);
}
