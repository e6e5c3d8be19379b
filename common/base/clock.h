/* Time. Monotonic nanoseconds for everything that is compared; wall time only for
 * what people read. A test may replace the source. */
#ifndef COMMON_BASE_CLOCK_H
#define COMMON_BASE_CLOCK_H
#include <stdint.h>

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

uint64_t clock_ns(void);
uint64_t clock_unix_s(void);
/* NULL puts the real clock back. */
void clock_replace(uint64_t (*source)(void));

#endif
