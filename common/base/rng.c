/* Philox 4x32-10 and the system's randomness. */
#include "common/base/rng.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

/* Multipliers and Weyl increments of Salmon et al., "Parallel random numbers: as
 * easy as 1, 2, 3", SC'11, table 2. */
#define PHILOX_M0     UINT64_C(0xD2511F53)
#define PHILOX_M1     UINT64_C(0xCD9E8D57)
#define PHILOX_W0     0x9E3779B9u
#define PHILOX_W1     0xBB67AE85u
#define PHILOX_ROUNDS 10

struct philox philox4x32(uint64_t key, uint64_t counter_lo, uint64_t counter_hi)
{
	uint32_t k0 = (uint32_t)key;
	uint32_t k1 = (uint32_t)(key >> 32);
	struct philox c = {{(uint32_t)counter_lo, (uint32_t)(counter_lo >> 32),
		(uint32_t)counter_hi, (uint32_t)(counter_hi >> 32)}};

	for (int round = 0; round < PHILOX_ROUNDS; round++) {
		uint64_t p0 = PHILOX_M0 * c.v[0];
		uint64_t p1 = PHILOX_M1 * c.v[2];

		c = (struct philox){{(uint32_t)(p1 >> 32) ^ c.v[1] ^ k0, (uint32_t)p1,
			(uint32_t)(p0 >> 32) ^ c.v[3] ^ k1, (uint32_t)p0}};
		k0 += PHILOX_W0;
		k1 += PHILOX_W1;
	}
	return c;
}

/* Key = seed, counter = (position, choice), first output word, top 24 bits. */
float rng_token_uniform(uint64_t seed, uint32_t choice, uint64_t position)
{
	struct philox r = philox4x32(seed, position, choice);

	return (float)((r.v[0] >> 8) + 1u) * 0x1p-24f;
}

uint64_t rng_entropy64(void)
{
	uint64_t v = 0;

	while (v == 0) {
		ssize_t n = getrandom(&v, sizeof(v), 0);

		if (n == (ssize_t)sizeof(v))
			continue;
		/* Requests of up to 256 bytes are never cut short; a kernel without
		 * getrandom cannot give an identity at all. */
		if (n < 0 && errno != EINTR)
			abort();
		v = 0;
	}
	return v;
}
