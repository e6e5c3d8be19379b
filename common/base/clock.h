/* Time. Monotonic nanoseconds for everything that is compared; wall time only for
 * what people read. A test may replace the source. */
#ifndef COMMON_BASE_CLOCK_H
#define COMMON_BASE_CLOCK_H
#include <stdint.h>

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

uint64_t clock_ns(void);
uint64_t clock_unix_s(void);

/* Time in which this process ran. A process that was stopped or frozen could not see what
 * its devices and peers did meanwhile, so a limit on them is measured with this clock.
 * One thread, the one that judges, calls clock_look more often than every CLOCK_GAP_NS: a
 * longer gap between two calls did not run. The others: any thread. clock_ran_ns falls
 * back by a gap when that is found, so differences come from clock_ran_since, which then
 * gives 0. */
#define CLOCK_GAP_NS (500 * NS_PER_MS)
void clock_look(void);
/* Looks; what this process slept since the last call with this *known, which begins at 0.
 */
uint64_t clock_slept(uint64_t *known);
uint64_t clock_ran_ns(void);
/* The same of a moment of clock_ns since the last gap. */
uint64_t clock_ran_of(uint64_t now);
uint64_t clock_ran_since(uint64_t began);

/* NULL puts the real clock back. */
void clock_replace(uint64_t (*source)(void));

#endif
