/* XXH3-64, for compatibility hashes, digests and rendezvous; the only file that
 * names xxhash (implementation in hash.c). */
#ifndef COMMON_BASE_HASH_H
#define COMMON_BASE_HASH_H
#include <stddef.h>
#include <stdint.h>

uint64_t hash64(const void *data, size_t len, uint64_t seed);
/* Fold a further value into a running hash; order matters. */
uint64_t hash64_u64(uint64_t running, uint64_t value);

#endif
