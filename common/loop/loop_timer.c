/* Timers in a pairing heap (Fredman et al., 1986) that lives inside the structures they
 * serve: starting one allocates nothing and stopping one leaves nothing behind, so its
 * owner may be freed at once. libuv sees one timer only. */
#include "common/loop/loop_core.h"

#include "common/base/clock.h"

#include <stddef.h>

/* prev is the parent for a first child, the left sibling otherwise, NULL for the root. */
static struct loop_timer *meld(struct loop_timer *a, struct loop_timer *b)
{
	if (a == NULL || b == NULL)
		return a != NULL ? a : b;
	if (b->due_ns < a->due_ns) {
		struct loop_timer *t = a;

		a = b;
		b = t;
	}
	b->next = a->child;
	if (b->next != NULL)
		b->next->prev = b;
	b->prev = a;
	a->child = b;
	return a;
}

/* Two passes: meld neighbours left to right, then all of those right to left. */
static struct loop_timer *meld_siblings(struct loop_timer *first)
{
	struct loop_timer *pairs = NULL;
	struct loop_timer *root = NULL;

	while (first != NULL) {
		struct loop_timer *a = first;
		struct loop_timer *b = a->next;

		first = b != NULL ? b->next : NULL;
		a->next = a->prev = NULL;
		if (b != NULL)
			b->next = b->prev = NULL;
		a = meld(a, b);
		a->next = pairs;
		pairs = a;
	}
	while (pairs != NULL) {
		struct loop_timer *a = pairs;

		pairs = a->next;
		a->next = NULL;
		root = meld(root, a);
	}
	return root;
}

static void heap_remove(struct loop *l, struct loop_timer *t)
{
	struct loop_timer *rest = meld_siblings(t->child);

	if (t == l->timers) {
		l->timers = rest;
	} else {
		if (t->prev->child == t)
			t->prev->child = t->next;
		else
			t->prev->next = t->next;
		if (t->next != NULL)
			t->next->prev = t->prev;
		l->timers = meld(l->timers, rest);
	}
	t->child = t->next = t->prev = NULL;
}

/* What a callback starts is due after the moment that is being served, so serving ends
 * even when a timer restarts itself with no delay, under a clock that stands still. */
static void heap_add(struct loop *l, struct loop_timer *t, uint64_t due_ns)
{
	t->loop = l;
	t->due_ns = due_ns > l->serving_ns ? due_ns : l->serving_ns + 1;
	l->timers = meld(l->timers, t);
}

void loop_timer_start(struct loop *l, struct loop_timer *t, uint64_t delay_ms,
	uint64_t repeat_ms, void (*fn)(void *ctx), void *ctx)
{
	loop_timer_stop(t);
	t->fn = fn;
	t->ctx = ctx;
	t->repeat_ns = repeat_ms * NS_PER_MS;
	t->patience_ns = 0;
	heap_add(l, t, clock_ns() + delay_ms * NS_PER_MS);
}

void loop_timer_wait(struct loop *l, struct loop_timer *t, uint64_t delay_ms,
	void (*fn)(void *ctx), void *ctx)
{
	loop_timer_start(l, t, delay_ms, 0, fn, ctx);
	t->began_ns = clock_ran_ns();
	t->patience_ns = delay_ms * NS_PER_MS;
}

/* What is left of a wait when this process slept meanwhile. */
static uint64_t wait_left(const struct loop_timer *t)
{
	uint64_t ran = t->patience_ns > 0 ? clock_ran_since(t->began_ns) : 0;

	return t->patience_ns > ran ? t->patience_ns - ran : 0;
}

void loop_timer_stop(struct loop_timer *t)
{
	if (t->loop == NULL)
		return;
	heap_remove(t->loop, t);
	t->loop = NULL;
}

bool loop_timer_running(const struct loop_timer *t)
{
	return t->loop != NULL;
}

static void on_due(uv_timer_t *h)
{
	struct loop *l = h->data;
	uint64_t now = clock_ns();

	l->serving_ns = now;
	while (l->timers != NULL && l->timers->due_ns <= now) {
		struct loop_timer *t = l->timers;

		uint64_t left_ns = wait_left(t);

		heap_remove(l, t);
		t->loop = NULL;
		if (left_ns > 0) {
			heap_add(l, t, now + left_ns);
			continue;
		}
		if (t->repeat_ns > 0) {
			uint64_t next = t->due_ns + t->repeat_ns;

			heap_add(l, t, next > now ? next : now + t->repeat_ns);
		}
		t->fn(t->ctx);
	}
	l->serving_ns = 0;
}

void loop_timer_arm(struct loop *l)
{
	uint64_t now, wait_ns;

	if (l->timers == NULL) {
		uv_timer_stop(&l->alarm);
		return;
	}
	now = clock_ns();
	wait_ns = l->timers->due_ns > now ? l->timers->due_ns - now : 0;
	/* libuv counts from the start of the turn; hooks and callbacks took time since.
	 */
	uv_update_time(&l->uv);
	uv_timer_start(&l->alarm, on_due, CEIL_DIV(wait_ns, NS_PER_MS), 0);
}
