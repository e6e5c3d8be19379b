/* XXH3-64 behind two functions. */
#include "common/base/hash.h"

#include <xxhash.h>

uint64_t hash64(const void *data, size_t len, uint64_t seed)
{
	return XXH3_64bits_withSeed(data, len, seed);
}

uint64_t hash64_u64(uint64_t running, uint64_t value)
{
	uint8_t le[8];

	for (unsigned i = 0; i < 8; i++)
		le[i] = (uint8_t)(value >> 8 * i);
	return XXH3_64bits_withSeed(le, sizeof(le), running);
}
