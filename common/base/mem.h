/* The only place that allocates. Start-up structures come from mem_alloc and live
 * until exit; after mem_seal() a further mem_alloc is a bug and aborts. What is
 * sized by a request (bodies, token arrays, text) comes from mem_take, counts
 * against a budget fixed at start, and can be refused. */
#ifndef COMMON_BASE_MEM_H
#define COMMON_BASE_MEM_H
#include "common/base/attr.h"
#include <stddef.h>
#include <stdint.h>

/* Zeroed; never NULL (the process ends with a sentence when the system has none). */
void *mem_alloc(size_t n, size_t size) __attribute__((returns_nonnull));
void mem_free(void *p);
void mem_seal(void);

/* Bytes that mem_take may have out at once; the default is 1 GiB. */
void mem_budget(uint64_t bytes);
/* Zeroed, or NULL when the budget or the system refuses. Thread-safe. */
MUST_CHECK void *mem_take(size_t n, size_t size);
/* Like realloc on mem_take memory; NULL leaves the old block as it was. */
MUST_CHECK void *mem_regrow(void *p, size_t size);
void mem_give(void *p);
uint64_t mem_taken(void); /* bytes out now: back to its start when all is given back */
/* A copy of n bytes and a terminating zero, from mem_take. */
MUST_CHECK char *mem_dup(const void *at, size_t n);

#endif
