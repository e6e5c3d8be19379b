/* Small macros that every layer may use. */
#ifndef COMMON_BASE_ATTR_H
#define COMMON_BASE_ATTR_H
#include <stddef.h>

#define MUST_CHECK             __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define COUNT(array)           (sizeof(array) / sizeof((array)[0]))
#define container_of(ptr, type, member)                                                  \
	((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define MIN(a, b)      ((a) < (b) ? (a) : (b))
#define MAX(a, b)      ((a) > (b) ? (a) : (b))
/* A state as a bit of a set of states. */
#define MAY(state)     (1u << (state))
/* a, b unsigned, b > 0; no overflow as long as a + b - 1 fits. */
#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))

#endif
