/* Failures of pairs. */
#include "router/pairs.h"

#include "common/base/clock.h"

#include <stdio.h>

/* Doubled with each failure. A pull that fails for a passing reason is tried again at
 * once to a client's eye; one that fails for good costs a request a minute. */
#define PAUSE_FIRST_NS (100 * NS_PER_MS)
#define PAUSE_MAX_NS   (60 * NS_PER_S)

static struct pair *find(struct pairs *s, uint64_t p, uint64_t d)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (s->pair[i].p == p && s->pair[i].d == d)
			return &s->pair[i];
	return NULL;
}

static struct pair *add(struct pairs *s)
{
	struct pair *due = &s->pair[0];

	if (s->n < PAIRS_MAX)
		return &s->pair[s->n++];
	for (uint32_t i = 1; i < s->n; i++)
		if (s->pair[i].until_ns < due->until_ns)
			due = &s->pair[i];
	return due;
}

static uint64_t pause_ns(const struct pair *x)
{
	unsigned doubled = MIN(x->failures - 1, 16u);

	return MIN(PAUSE_FIRST_NS << doubled, PAUSE_MAX_NS);
}

void pairs_failed(struct pairs *s, struct pair_end p, struct pair_end d, struct bytes why,
	uint64_t now_ns)
{
	struct pair *x = find(s, p.key, d.key);

	if (x == NULL) {
		x = add(s);
		*x = (struct pair){.p = p.key, .d = d.key};
		snprintf(x->p_id, sizeof(x->p_id), "%s", p.id);
		snprintf(x->d_id, sizeof(x->d_id), "%s", d.id);
	}
	if (now_ns < x->until_ns && !x->tried)
		return;
	x->tried = false;
	x->failures += x->failures < UINT32_MAX;
	x->until_ns = now_ns + pause_ns(x);
	snprintf(x->text, sizeof(x->text),
		"Decode worker %s cannot take over from prefill worker %s: %.*s.",
		x->d_id, x->p_id, (int)MIN(why.len, 160), (const char *)why.at);
}

void pairs_tried(struct pairs *s, uint64_t p, uint64_t d, uint64_t now_ns)
{
	struct pair *x = find(s, p, d);

	if (x == NULL)
		return;
	x->tried = true;
	x->until_ns = now_ns + pause_ns(x);
}

static void drop(struct pairs *s, uint32_t i)
{
	s->pair[i] = s->pair[--s->n];
}

void pairs_worked(struct pairs *s, uint64_t p, uint64_t d)
{
	struct pair *x = find(s, p, d);

	if (x != NULL)
		drop(s, (uint32_t)(x - s->pair));
}

void pairs_forget(struct pairs *s, uint64_t key)
{
	for (uint32_t i = s->n; i-- > 0;)
		if (s->pair[i].p == key || s->pair[i].d == key)
			drop(s, i);
}

const struct pair *pairs_avoided(
	const struct pairs *s, uint64_t p, uint64_t d, uint64_t now_ns)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (s->pair[i].p == p && s->pair[i].d == d)
			return now_ns < s->pair[i].until_ns ? &s->pair[i] : NULL;
	return NULL;
}
