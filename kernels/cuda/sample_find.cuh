/* The shortest prefix of a row's tokens, in the order of a draw, that has a given number
 * of tokens or a given probability mass; by one block, see sample.cu. */
#ifndef KERNELS_CUDA_SAMPLE_FIND_CUH
#define KERNELS_CUDA_SAMPLE_FIND_CUH
#include "kernels/cuda/cuda_common.cuh"

#include <float.h>

enum {
	BLOCK = 1024,
	WARPS = BLOCK / WARP,
	BINS = 1024,
	BINS_BITS = 10,
	BINS_PER_NAT = 16, /* the last bin holds what is 64 nats or more away: mass 0 */
	VOCAB_MAX = 1 << 18,
	PIECE = 8,
};

#define MASS_ONE 35184372088832.0f /* 2^45 */

/* Masses are kept in two words, because shared memory has no 64-bit addition. */
struct bins {
	uint32_t count[BINS], low[BINS], high[BINS];
};

/* Where a prefix ends. */
struct cut {
	uint32_t bin;
	uint32_t count; /* of tokens before that bin (or value) */
	uint64_t mass;
};

struct sampler {
	struct bins coarse, fine;
	struct cut cut;
	uint32_t n_candidates, key_min, key_max, token;
	uint64_t words[WARPS];
	double sums[WARPS];
};

struct row {
	const float *logits;
	uint32_t n;
	float best;
	float inverse; /* of the temperature; 0: greedy */
	uint32_t *candidates;
};

/* Token number j of this thread in the piece of logits that begins at from. */
static __device__ __forceinline__ uint32_t piece_token(uint32_t from, uint32_t j)
{
	return from + j * BLOCK + threadIdx.x;
}

/* This thread's logits of a piece, all loads in flight at once; past the end: 0. */
static __device__ __forceinline__ void load_piece(
	const struct row &r, uint32_t from, float (&v)[PIECE])
{
#pragma unroll
	for (uint32_t j = 0; j < PIECE; j++) {
		uint32_t i = piece_token(from, j);

		v[j] = i < r.n ? r.logits[i] : 0.0f;
	}
}

/* The shortest prefix with `count` tokens (mass 0) or with this mass. */
struct want {
	uint32_t count;
	uint64_t mass;
};

/* Unsigned order of keys is the order of logits; -0 equals 0. */
static __device__ __forceinline__ uint32_t key_of(float logit)
{
	uint32_t bits = __float_as_uint(logit + 0.0f);

	return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

static __device__ __forceinline__ float key_logit(uint32_t key)
{
	return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key);
}

/* Both fall with the logit, never rise, so bins are in the order of tokens. */
static __device__ __forceinline__ float log_weight(const struct row &r, float logit)
{
	return (logit - r.best) * r.inverse;
}

static __device__ __forceinline__ uint32_t bin_of(float log_weight)
{
	return min((uint32_t)(-log_weight * BINS_PER_NAT), BINS - 1u);
}

static __device__ __forceinline__ uint64_t mass_of(float log_weight)
{
	return __float2ull_rn(expf(log_weight) * MASS_ONE);
}

static __device__ __forceinline__ uint64_t bin_mass(const struct bins &b, uint32_t i)
{
	return (uint64_t)b.high[i] << 32 | b.low[i];
}

static __device__ __forceinline__ void bin_add(struct bins *b, uint32_t i, uint64_t mass)
{
	uint32_t low = (uint32_t)mass, high = (uint32_t)(mass >> 32), old;

	atomicAdd(&b->count[i], 1u);
	if (low != 0) {
		old = atomicAdd(&b->low[i], low);
		high += old + low < old; /* this addition went round */
	}
	if (high != 0)
		atomicAdd(&b->high[i], high);
}

static __device__ void clear_bins(struct bins *b)
{
	for (uint32_t i = threadIdx.x; i < BINS; i += BLOCK)
		b->count[i] = b->low[i] = b->high[i] = 0;
}

/* Largest, or sum, over the block, in every thread. */
static __device__ uint64_t block_words(struct sampler *s, uint64_t v, bool largest)
{
	uint64_t all = 0;

	for (int step = 16; step > 0; step >>= 1) {
		uint64_t other = __shfl_xor_sync(FULL_WARP, v, step);

		v = largest ? max(v, other) : v + other;
	}
	if (threadIdx.x % WARP == 0)
		s->words[threadIdx.x / WARP] = v;
	__syncthreads();
	for (int w = 0; w < WARPS; w++)
		all = largest ? max(all, s->words[w]) : all + s->words[w];
	__syncthreads();
	return all;
}

static __device__ __forceinline__ bool reaches(
	const struct want &w, uint32_t count, uint64_t mass)
{
	return w.mass != 0 ? mass >= w.mass : count >= w.count;
}

/* First bin at whose end the wanted prefix is reached, from `before` on; into s->cut.
 * The last bin that is not empty is taken when none is. Warp 0 works. */
static __device__ void cut_bins(struct sampler *s, const struct bins *b,
	const struct want &w, const struct cut &before)
{
	constexpr uint32_t EACH = BINS / WARP;
	uint32_t lane = threadIdx.x, count = 0;
	uint64_t mass = 0;

	__syncthreads();
	if (threadIdx.x < WARP) {
		uint32_t count_to, found;
		uint64_t mass_to;

		for (uint32_t i = lane * EACH; i < (lane + 1) * EACH; i++) {
			count += b->count[i];
			mass += bin_mass(*b, i);
		}
		count_to = count;
		mass_to = mass;
		for (uint32_t d = 1; d < WARP; d *= 2) {
			uint32_t c = __shfl_up_sync(FULL_WARP, count_to, d);
			uint64_t m = __shfl_up_sync(FULL_WARP, mass_to, d);

			count_to += lane >= d ? c : 0;
			mass_to += lane >= d ? m : 0;
		}
		found = __ballot_sync(FULL_WARP,
			reaches(w, before.count + count_to, before.mass + mass_to));
		if (found == 0)
			found = 1u << (31 - __clz(__ballot_sync(FULL_WARP, count > 0)));
		if (lane == (uint32_t)__ffs(found) - 1) {
			struct cut c = {lane * EACH, before.count + count_to - count,
				before.mass + mass_to - mass};
			uint32_t last = c.bin;

			for (uint32_t i = c.bin; i < (lane + 1) * EACH; i++)
				last = b->count[i] > 0 ? i : last;
			while (c.bin < last && !reaches(w, c.count + b->count[c.bin],
						       c.mass + bin_mass(*b, c.bin))) {
				c.count += b->count[c.bin];
				c.mass += bin_mass(*b, c.bin);
				c.bin++;
			}
			s->cut = c;
		}
	}
	__syncthreads();
}

/* Tokens of a bin of the first histogram, in any order; and the span of their keys. */
static __device__ void collect(struct sampler *s, const struct row &r, uint32_t bin)
{
	if (threadIdx.x == 0) {
		s->n_candidates = 0;
		s->key_min = 0xFFFFFFFFu;
		s->key_max = 0;
	}
	__syncthreads();
	for (uint32_t from = 0; from < r.n; from += PIECE * BLOCK) {
		float v[PIECE];

		load_piece(r, from, v);
#pragma unroll
		for (uint32_t j = 0; j < PIECE; j++) {
			uint32_t i = piece_token(from, j);

			if (i >= r.n || bin_of(log_weight(r, v[j])) != bin)
				continue;
			r.candidates[atomicAdd(&s->n_candidates, 1u)] = i;
			atomicMin(&s->key_min, key_of(v[j]));
			atomicMax(&s->key_max, key_of(v[j]));
		}
	}
	__syncthreads();
}

/* A prefix that ends among tokens of one logit. */
struct prefix {
	uint32_t key;   /* of the last token */
	uint32_t equal; /* tokens of the prefix that have it */
	uint32_t of;    /* of so many */
	uint32_t count;
	uint64_t mass;
};

static __device__ struct prefix find(
	struct sampler *s, const struct row &r, const struct want &w)
{
	struct cut cut = {0, 0, 0};
	struct prefix p;
	uint32_t low, high, shift;
	uint64_t each;

	cut_bins(s, &s->coarse, w, cut);
	cut = s->cut;
	collect(s, r, cut.bin);
	low = s->key_min;
	high = s->key_max;
	do {
		uint32_t bits = 32 - __clz(high - low);

		shift = bits > BINS_BITS ? bits - BINS_BITS : 0;
		clear_bins(&s->fine);
		__syncthreads();
		for (uint32_t i = threadIdx.x; i < s->n_candidates; i += BLOCK) {
			float v = r.logits[r.candidates[i]];
			uint32_t key = key_of(v);

			if (key >= low && key <= high)
				bin_add(&s->fine, (high - key) >> shift,
					mass_of(log_weight(r, v)));
		}
		cut_bins(s, &s->fine, w, cut);
		cut = s->cut;
		high -= cut.bin << shift;
		low = max(low, high - ((1u << shift) - 1));
	} while (shift > 0);
	each = mass_of(log_weight(r, key_logit(high)));
	p.key = high;
	p.of = s->fine.count[cut.bin];
	p.equal = w.count - cut.count;
	if (w.mass != 0)
		p.equal = each == 0 ? p.of
				    : (uint32_t)min((w.mass - cut.mass + each - 1) / each,
					      (uint64_t)p.of);
	p.count = cut.count + p.equal;
	p.mass = cut.mass + p.equal * each;
	__syncthreads();
	return p;
}

#endif
