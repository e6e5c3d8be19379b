/* Clocks, with a source that tests may replace. */
#include "common/base/clock.h"

#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

static uint64_t (*_Atomic replaced)(void);
static _Atomic uint64_t looked_ns; /* 0: not yet */
static _Atomic uint64_t slept_ns;  /* sum of the gaps */

uint64_t clock_ns(void)
{
	uint64_t (*source)(void) = atomic_load_explicit(&replaced, memory_order_relaxed);
	struct timespec ts;

	if (source != NULL)
		return source();
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

void clock_look(void)
{
	uint64_t now = clock_ns();
	uint64_t last = atomic_exchange_explicit(&looked_ns, now, memory_order_relaxed);

	if (last != 0 && now > last && now - last >= CLOCK_GAP_NS)
		atomic_fetch_add_explicit(&slept_ns, now - last, memory_order_relaxed);
}

uint64_t clock_slept(uint64_t *known)
{
	uint64_t before = *known;

	clock_look();
	*known = atomic_load_explicit(&slept_ns, memory_order_relaxed);
	return *known - before;
}

uint64_t clock_ran_ns(void)
{
	return clock_ran_of(clock_ns());
}

uint64_t clock_ran_of(uint64_t now)
{
	return now - atomic_load_explicit(&slept_ns, memory_order_relaxed);
}

uint64_t clock_ran_since(uint64_t began)
{
	int64_t ran = (int64_t)(clock_ran_ns() - began);

	return ran > 0 ? (uint64_t)ran : 0;
}

uint64_t clock_unix_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec;
}

void clock_replace(uint64_t (*source)(void))
{
	atomic_store_explicit(&replaced, source, memory_order_relaxed);
}
