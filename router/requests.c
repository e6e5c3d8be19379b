/* The set of generations. */
#include "router/requests.h"

#include "common/base/mem.h"

#include <assert.h>

void requests_init(
	struct requests *s, uint32_t capacity, const struct request_ops *ops, void *self)
{
	*s = (struct requests){.ops = ops, .self = self, .capacity = capacity};
	s->slot = mem_alloc(capacity, sizeof(struct request *));
	s->free_slot = mem_alloc(capacity, sizeof(*s->free_slot));
	s->by_seq = idmap_create(capacity);
	for (uint32_t i = 0; i < capacity; i++)
		s->free_slot[i] = capacity - 1 - i;
	s->n_free = capacity;
}

static struct list *list_of(struct requests *s, const struct request *r)
{
	switch (r->state) {
	case RQ_QUEUED:
		return &s->queued[r->size_class];
	case RQ_PLACE:
		return &s->placing;
	case RQ_DONE:
		return &s->done;
	case RQ_PREPARE:
	case RQ_PREFILL:
	case RQ_HANDOVER:
	case RQ_DECODE:
	case RQ__STATES:
		return NULL;
	}
	return NULL;
}

void requests_moved(struct requests *s, struct request *r, enum request_state from)
{
	struct list *to;

	if (r->state == RQ_QUEUED)
		r->size_class = sched_class(request_decode_hold(r).pages);
	else if (from == RQ_QUEUED && r->state != RQ_DONE)
		s->taken++;
	to = list_of(s, r);
	assert(s->count[from] > 0);
	s->count[from]--;
	s->count[r->state]++;
	if (to != r->node.in) {
		list_remove(&r->node);
		if (to != NULL && r->front)
			list_add_first(to, &r->node);
		else if (to != NULL)
			list_add(to, &r->node);
	}
	r->front = false;
}

struct request *requests_add(struct requests *s)
{
	struct request *r = s->n_free > 0 ? mem_take(1, sizeof(*r)) : NULL;
	bool added;

	if (r == NULL)
		return NULL;
	r->set = s;
	r->seq = ++s->last_seq;
	r->attempt = 1;
	r->slot_at = s->free_slot[--s->n_free];
	s->slot[r->slot_at] = r;
	added = idmap_put(s->by_seq, r->seq, r->slot_at);
	assert(added); /* as many places as requests */
	s->n++;
	s->count[RQ_PREPARE]++;
	return r;
}

struct request *requests_find(const struct requests *s, uint64_t seq)
{
	uint32_t i;

	return seq != 0 && idmap_get(s->by_seq, seq, &i) ? s->slot[i] : NULL;
}

static void free_request(struct requests *s, struct request *r)
{
	list_remove(&r->node);
	s->count[r->state]--;
	idmap_del(s->by_seq, r->seq);
	s->slot[r->slot_at] = NULL;
	s->free_slot[s->n_free++] = r->slot_at;
	s->n--;
	mem_give(r->ids);
	mem_give(r->pages);
	mem_give(r);
}

void requests_reap(struct requests *s)
{
	list_each (r, &s->done, struct request, node) {
		if (r->user == NULL && r->n_claims == 0)
			free_request(s, r);
	}
}

void requests_held(const struct requests *s, const struct worker_view *w,
	struct sink *held, uint32_t *n_placed)
{
	*n_placed = 0;
	for (uint32_t i = 0; i < s->capacity; i++) {
		const struct request *r = s->slot[i];

		for (uint32_t k = 0; r != NULL && k < r->n_claims; k++) {
			struct wire_held h = {.seq = r->seq,
				.attempt = r->claim[k].attempt,
				.wanted = request_wants(r, &r->claim[k])};

			if (r->claim[k].w != w)
				continue;
			if (r->claim[k].told)
				sink_put(held, &h, sizeof(h));
			else
				++*n_placed;
		}
	}
}

void requests_release(struct requests *s)
{
	for (uint32_t i = 0; i < s->capacity; i++)
		if (s->slot[i] != NULL)
			free_request(s, s->slot[i]);
	mem_free(s->slot);
	mem_free(s->free_slot);
	idmap_destroy(s->by_seq);
}

uint32_t requests_waiting(const struct requests *s)
{
	return s->count[RQ_PREPARE] + s->count[RQ_QUEUED];
}

uint32_t requests_live(const struct requests *s)
{
	return s->n - s->count[RQ_DONE];
}
