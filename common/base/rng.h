/* Counter-based random numbers (Philox 4x32-10, Salmon et al., SC'11): a pure
 * function of key and counter, so a replay elsewhere draws the same numbers; the
 * same code runs on the GPU. And one source of real randomness for identities. */
#ifndef COMMON_BASE_RNG_H
#define COMMON_BASE_RNG_H
#include <stdint.h>

struct philox {
	uint32_t v[4];
};

struct philox philox4x32(uint64_t key, uint64_t counter_lo, uint64_t counter_hi);
/* Uniform in (0, 1], 24 bits: the number that sampling of one token uses.
 * seed: the request's; choice: index among n; position: absolute position of the
 * token that is being drawn (protocol: sampling is a function of these three). */
float rng_token_uniform(uint64_t seed, uint32_t choice, uint64_t position);
/* From the operating system; never 0. For incarnations, seeds, request ids. */
uint64_t rng_entropy64(void);

#endif
