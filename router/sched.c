/* Worker choice. */
#include "router/sched.h"

#include "common/base/attr.h"
#include "common/base/hash.h"

/* Ties go to the highest one, so equal workers share requests evenly and the choice does
 * not move when an unrelated worker comes or goes. */
static uint64_t rendezvous(uint64_t worker_key, uint64_t request_key)
{
	return hash64_u64(hash64_u64(0, worker_key), request_key);
}

/* Shares keep routers from promising the same room twice, but a share can be smaller than
 * one request, and other routers can take what comes free each time. So one request per
 * router may go beyond: into what the worker says is free; when it is late, to a worker
 * that is busy with others, where it waits in the queue that they all have in common. */
static bool has_room(const struct sched_worker *w, const struct sched_demand *d)
{
	bool others = w->kept_for != 0 && w->kept_for != d->key;

	if (w->slots > (others ? w->kept_slots : 0) &&
		w->pages >= d->pages + (others ? w->kept_pages : 0))
		return true;
	if (!w->untouched || others)
		return false;
	if (w->slots_free > 0 && w->pages_free >= d->pages)
		return true;
	return d->late && w->slots_all > 0 && w->pages_all >= d->pages;
}

/* What keeps this worker from taking the demand. */
static enum sched_why fits(const struct sched_worker *w, const struct sched_demand *d)
{
	if (!w->alive)
		return SCHED_NO_WORKER;
	if (w->draining)
		return SCHED_DRAINING;
	if (d->tokens > w->len_max)
		return SCHED_TOO_LONG;
	if (w->stuck)
		return SCHED_STUCK;
	if (w->queue == 0 || !has_room(w, d))
		return SCHED_BUSY;
	return SCHED_OK;
}

typedef bool (*better_fn)(const struct sched_worker *a, const struct sched_worker *b);

static bool less_outstanding(const struct sched_worker *a, const struct sched_worker *b)
{
	return a->outstanding < b->outstanding;
}

static bool more_credits(const struct sched_worker *a, const struct sched_worker *b)
{
	return a->slots != b->slots ? a->slots > b->slots : a->pages > b->pages;
}

static int pick(const struct sched_worker *w, uint32_t n, const struct sched_demand *d,
	better_fn better, enum sched_why *why)
{
	enum sched_why worst = SCHED_NO_WORKER;
	int best = -1;

	for (uint32_t i = 0; i < n; i++) {
		bool apart = i < 64 && (d->apart >> i & 1) != 0;
		enum sched_why not_this = fits(&w[i], d);

		if (not_this == SCHED_OK && apart)
			not_this = SCHED_BUSY;
		if (not_this != SCHED_OK) {
			worst = MAX(worst, not_this);
			continue;
		}
		if (best < 0 || better(&w[i], &w[best]) ||
			(!better(&w[best], &w[i]) &&
				rendezvous(w[i].key, d->key) >
					rendezvous(w[best].key, d->key)))
			best = (int)i;
	}
	*why = best >= 0 ? SCHED_OK : worst;
	return best;
}

int sched_prefill(const struct sched_worker *w, uint32_t n, const struct sched_demand *d,
	enum sched_why *why)
{
	return pick(w, n, d, less_outstanding, why);
}

int sched_decode(const struct sched_worker *w, uint32_t n, const struct sched_demand *d,
	enum sched_why *why)
{
	return pick(w, n, d, more_credits, why);
}

int sched_keep(const struct sched_worker *w, uint32_t n, const struct sched_demand *d)
{
	int best = -1;

	for (uint32_t i = 0; i < n; i++) {
		if (!w[i].alive || w[i].draining || w[i].stuck ||
			d->tokens > w[i].len_max || w[i].slots_all == 0 ||
			w[i].pages_all < d->pages)
			continue;
		if (best < 0 || w[i].pages > w[best].pages ||
			(w[i].pages == w[best].pages && w[i].slots > w[best].slots))
			best = (int)i;
	}
	return best;
}
