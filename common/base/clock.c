/* Clocks, with a source that tests may replace. */
#include "common/base/clock.h"

#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

static uint64_t (*_Atomic replaced)(void);

uint64_t clock_ns(void)
{
	uint64_t (*source)(void) = atomic_load_explicit(&replaced, memory_order_relaxed);
	struct timespec ts;

	if (source != NULL)
		return source();
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
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
