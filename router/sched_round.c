/* The policy of sched_round.h. */
#include "router/sched_round.h"

#include "common/base/attr.h"

static const struct {
	int (*pick)(const struct sched_worker *w, uint32_t n,
		const struct sched_demand *d, enum sched_why *why);
} roles[SCHED__ROLES] = {
	[SCHED_PREFILL] = {sched_prefill},
	[SCHED_DECODE] = {sched_decode},
};

unsigned sched_class(uint64_t pages)
{
	unsigned c = 0;

	while (c + 1 < SCHED_CLASSES && pages >= UINT64_C(4) << (2 * c))
		c++;
	return c;
}

static uint64_t class_least(unsigned c)
{
	return UINT64_C(1) << (2 * c);
}

/* ---- room that is kept ---- */

static struct sched_worker *worker_of(
	const struct sched_round *round, unsigned role, const struct sched_keep *k)
{
	for (uint32_t i = 0; i < round->n[role]; i++) {
		struct sched_worker *w = &round->w[role][i];

		if (w->key == k->worker && w->alive && !w->draining && !w->stuck)
			return w;
	}
	return NULL;
}

/* Every other page of what came free since the last round. With several routers pages go
 * without our doing: no more is kept than is there. */
static void keep_more(struct sched_round *round, unsigned role)
{
	struct sched_keep *k = &round->fair->keep[role];
	struct sched_worker *w = k->request != 0 ? worker_of(round, role, k) : NULL;
	uint64_t room;

	if (w == NULL) {
		*k = (struct sched_keep){0};
		return;
	}
	/* More than half of what is not held by older ones is of no use to it while their
	 * pages have to come free, too. */
	room = w->pages_all - MIN(w->pages_old, w->pages_all);
	k->freed += w->pages - MIN(w->pages, k->free_before);
	w->kept_for = k->request;
	w->kept_pages = MIN(
		MIN((k->freed + 1) / 2, room < k->need ? room / 2 : k->need), w->pages);
	w->kept_slots = w->kept_pages == k->need;
}

static void keep_begin(struct sched_round *round, unsigned role)
{
	const struct sched_demand *d = &round->oldest[role];
	int i = sched_keep(round->w[role], round->n[role], d);

	if (i < 0)
		return;
	/* What is free now has come free since nobody knew. */
	round->fair->keep[role] = (struct sched_keep){
		.request = d->key, .worker = round->w[role][i].key, .need = d->pages};
}

void sched_forget(struct sched_fair *fair, uint64_t request)
{
	for (unsigned role = 0; role < SCHED__ROLES; role++)
		if (fair->keep[role].request == request)
			fair->keep[role] = (struct sched_keep){0};
}

/* ---- a round ---- */

void sched_round_begin(struct sched_round *round, struct sched_fair *fair,
	const bool waits[SCHED_CLASSES])
{
	round->fair = fair;
	for (unsigned c = 0; c < SCHED_CLASSES; c++) {
		/* Nothing is saved up while nobody waits. */
		if (waits[c] && !fair->waited[c])
			fair->given[c] = MAX(fair->given[c], fair->at);
		fair->waited[c] = waits[c];
	}
	for (unsigned role = 0; role < SCHED__ROLES; role++) {
		round->len_min[role] = UINT32_MAX;
		for (uint32_t i = 0; i < round->n[role]; i++)
			round->len_min[role] =
				MIN(round->len_min[role], round->w[role][i].len_max);
		round->edge[role][0] = round->edge[role][1] = UINT64_MAX;
		round->oldest_ns[role] = UINT64_MAX;
		keep_more(round, role);
	}
}

int sched_round_class(struct sched_round *round, const bool tries[SCHED_CLASSES])
{
	struct sched_fair *fair = round->fair;
	int best = -1;

	for (unsigned c = 0; c < SCHED_CLASSES; c++)
		if (tries[c] && (best < 0 || fair->given[c] < fair->given[best]))
			best = (int)c;
	return best;
}

static bool role_open(const struct sched_round *round, unsigned role, uint64_t pages)
{
	const struct sched_keep *k = &round->fair->keep[role];

	for (uint32_t i = 0; i < round->n[role]; i++) {
		const struct sched_worker *w = &round->w[role][i];
		bool owner = w->kept_for != 0 && w->slots > 0 && w->pages >= k->need;

		if (w->alive && w->queue > 0 &&
			(w->untouched || owner ||
				(w->slots > w->kept_slots &&
					w->pages - w->kept_pages >= pages)))
			return true;
	}
	return false;
}

bool sched_round_open(const struct sched_round *round, unsigned size_class)
{
	/* A class goes by what the decode worker needs: the prompt may be short. */
	return role_open(round, SCHED_PREFILL, 1) &&
	       role_open(round, SCHED_DECODE, class_least(size_class));
}

/* SCHED_BUSY without a look: as much was refused in this round, and length is no reason
 * to say something else. */
static bool beyond_edge(
	const struct sched_round *round, unsigned role, const struct sched_demand *d)
{
	return d->pages >= round->edge[role][d->late] &&
	       d->tokens <= round->len_min[role] &&
	       round->fair->keep[role].request != d->key;
}

static void refused(struct sched_round *round, unsigned role, const struct sched_ask *ask)
{
	const struct sched_demand *d = &ask->demand[role];

	/* Who is late may go where others may not. */
	for (unsigned late = 0; late <= d->late; late++)
		round->edge[role][late] = MIN(round->edge[role][late], d->pages);
	if (d->late && ask->since_ns < round->oldest_ns[role]) {
		round->oldest[role] = *d;
		round->oldest_ns[role] = ask->since_ns;
	}
}

static void take(struct sched_worker *w, const struct sched_demand *d)
{
	w->slots -= MIN(w->slots, 1u);
	w->slots_free -= MIN(w->slots_free, 1u);
	w->pages -= MIN(w->pages, d->pages);
	w->pages_free -= MIN(w->pages_free, d->pages);
	w->queue--;
	w->outstanding += d->tokens;
	w->untouched = false;
	if (w->kept_for == d->key)
		w->kept_for = w->kept_pages = w->kept_slots = 0;
	w->kept_pages = MIN(w->kept_pages, w->pages);
}

/* apart: workers that are left out. */
static enum sched_why find_worker(struct sched_round *round, unsigned role,
	const struct sched_ask *ask, uint64_t apart, int *found)
{
	struct sched_demand d = ask->demand[role];
	enum sched_why why = SCHED_BUSY;

	d.apart = apart;
	if (!beyond_edge(round, role, &d))
		*found = roles[role].pick(round->w[role], round->n[role], &d, &why);
	/* Where some are left out, others may find what this one did not. */
	if (why == SCHED_BUSY && apart == 0)
		refused(round, role, ask);
	return why;
}

/* A prefill worker, and a decode worker that can take over from it. */
static enum sched_why find_pair(
	struct sched_round *round, const struct sched_ask *ask, int found[SCHED__ROLES])
{
	uint64_t left_out = 0;

	for (;;) {
		enum sched_why why = find_worker(
			round, SCHED_PREFILL, ask, left_out, &found[SCHED_PREFILL]);
		uint64_t apart;

		if (why != SCHED_OK)
			return why;
		apart = round->w[SCHED_PREFILL][found[SCHED_PREFILL]].apart;
		why = find_worker(round, SCHED_DECODE, ask, apart, &found[SCHED_DECODE]);
		if (why != SCHED_BUSY || apart == 0)
			return why;
		left_out |= UINT64_C(1) << found[SCHED_PREFILL];
	}
}

enum sched_why sched_round_try(
	struct sched_round *round, const struct sched_ask *ask, int at[SCHED__ROLES])
{
	struct sched_fair *fair = round->fair;
	int found[SCHED__ROLES];
	enum sched_why why = find_pair(round, ask, found);

	if (why != SCHED_OK)
		return why;
	for (unsigned role = 0; role < SCHED__ROLES; role++) {
		take(&round->w[role][found[role]], &ask->demand[role]);
		at[role] = found[role];
	}
	sched_forget(fair, ask->demand[SCHED_DECODE].key);
	fair->at = fair->given[ask->size_class];
	fair->given[ask->size_class] += ask->demand[SCHED_DECODE].pages;
	return SCHED_OK;
}

void sched_round_end(struct sched_round *round)
{
	for (unsigned role = 0; role < SCHED__ROLES; role++) {
		struct sched_keep *k = &round->fair->keep[role];
		struct sched_worker *w =
			k->request != 0 ? worker_of(round, role, k) : NULL;

		if (w != NULL)
			k->free_before = w->pages;
		else if (k->request == 0 && round->oldest_ns[role] != UINT64_MAX)
			keep_begin(round, role);
	}
}
