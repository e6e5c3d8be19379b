/* Drawing one token per row of logits, one block per row, without sorting. Every
 * restriction (top-k, top-p, min-p) and the draw itself ask for a prefix of the tokens
 * in descending order of logit, ties in ascending order of id: the shortest one that has
 * a given number of tokens or a given probability mass.
 *
 * Probabilities, relative to the likeliest token, are F32 turned into integers of 2^-45,
 * so sums are exact, independent of their order, and below 2^64 for up to 2^18 tokens;
 * what is lost is below 2^-27 of the total, an eighth of a step of the 24-bit uniform
 * number. A histogram over the distance to the best logit finds the bin where a prefix
 * ends; the tokens of that bin are collected in the scratch and split further by the bits
 * of their logits, down to one value; ids decide among equals.
 *
 * Bound by reading the logits from L2: twice, and once per restriction and draw; a row
 * that changes its logits draws from a copy in the scratch, and a list of the likeliest
 * tokens takes one reading each. */
#include "kernels/cuda/sample_edit.cuh"
#include "kernels/cuda/sample_find.cuh"

static __device__ double block_doubles(struct sampler *s, double v)
{
	double all = 0;

	for (int step = 16; step > 0; step >>= 1)
		v += __shfl_xor_sync(FULL_WARP, v, step);
	if (threadIdx.x % WARP == 0)
		s->sums[threadIdx.x / WARP] = v;
	__syncthreads();
	for (int w = 0; w < WARPS; w++)
		all += s->sums[w];
	__syncthreads();
	return all;
}

/* Id of the largest logit, the lowest of equals; false: one is NaN or infinite. */
static __device__ bool survey(struct sampler *s, const struct row &r, uint32_t *best)
{
	float top = -INFINITY;
	uint32_t top_id = min(threadIdx.x, r.n - 1);
	uint64_t word;
	int bad = 0;

	for (uint32_t from = 0; from < r.n; from += PIECE * BLOCK) {
		float v[PIECE];

		load_piece(r, from, v);
#pragma unroll
		for (uint32_t j = 0; j < PIECE; j++) {
			uint32_t i = piece_token(from, j);

			/* Past the end stand zeros. */
			bad |= !isfinite(v[j]);
			if (i < r.n && v[j] > top) {
				top = v[j];
				top_id = i;
			}
		}
	}
	word = (uint64_t)key_of(top) << 32 | (0xFFFFFFFFu - top_id);
	*best = 0xFFFFFFFFu - (uint32_t)block_words(s, word, true);
	return __syncthreads_or(bad) == 0;
}

/* Sum of exp(logit - best). */
static __device__ double sum_weights(struct sampler *s, const struct row &r)
{
	double sum = 0;

	for (uint32_t from = 0; from < r.n; from += PIECE * BLOCK) {
		float v[PIECE], piece = 0.0f;

		load_piece(r, from, v);
#pragma unroll
		for (uint32_t j = 0; j < PIECE; j++) {
			if (piece_token(from, j) < r.n)
				piece += expf(v[j] - r.best);
		}
		sum += (double)piece;
	}
	return block_doubles(s, sum);
}

/* The histogram of all tokens. */
static __device__ void fill_bins(struct sampler *s, const struct row &r)
{
	clear_bins(&s->coarse);
	__syncthreads();
	for (uint32_t from = 0; from < r.n; from += PIECE * BLOCK) {
		float v[PIECE];

		load_piece(r, from, v);
#pragma unroll
		for (uint32_t j = 0; j < PIECE; j++) {
			float a = log_weight(r, v[j]);

			if (piece_token(from, j) < r.n)
				bin_add(&s->coarse, bin_of(a), mass_of(a));
		}
	}
	__syncthreads();
}

/* Mass of the tokens with a relative probability of at least min_p; *count of them. */
static __device__ uint64_t likely_mass(
	struct sampler *s, const struct row &r, float min_p, uint32_t *count)
{
	uint64_t mass = 0, n = 0;

	for (uint32_t from = 0; from < r.n; from += PIECE * BLOCK) {
		float v[PIECE];

		load_piece(r, from, v);
#pragma unroll
		for (uint32_t j = 0; j < PIECE; j++) {
			float a = log_weight(r, v[j]);

			if (piece_token(from, j) < r.n && expf(a) >= min_p) {
				mass += mass_of(a);
				n++;
			}
		}
	}
	*count = (uint32_t)block_words(s, n, false);
	return block_words(s, mass, false);
}

static __device__ uint64_t total_mass(struct sampler *s)
{
	uint64_t mass = 0;

	for (uint32_t i = threadIdx.x; i < BINS; i += BLOCK)
		mass += bin_mass(s->coarse, i);
	return block_words(s, mass, false);
}

/* Mass of what the draw is restricted to. */
static __device__ uint64_t kept_mass(
	struct sampler *s, const struct row &r, const struct sample_row &how)
{
	uint64_t mass = total_mass(s);
	uint32_t count = r.n, likely;

	if (how.top_k > 0 && how.top_k < r.n) {
		struct prefix p = find(s, r, {how.top_k, 0});

		mass = p.mass;
		count = p.count;
	}
	if (how.top_p < 1.0f) {
		uint64_t limit = (uint64_t)ceil((double)how.top_p * (double)mass);
		struct prefix p = find(s, r, {0, min(max(limit, (uint64_t)1), mass)});

		mass = p.mass;
		count = p.count;
	}
	if (how.min_p > 0.0f) {
		uint64_t m = likely_mass(s, r, how.min_p, &likely);

		/* The likeliest token always stays. */
		if (likely < count)
			mass = likely > 0 ? m : mass_of(0.0f);
	}
	return mass;
}

/* The 24 bits of rng_token_uniform (common/base/rng.c), 1..2^24: Philox 4x32-10, Salmon
 * et al., SC'11, with key = seed, counter = (position, choice). */
static __device__ uint32_t uniform24(const struct sample_row &how)
{
	uint32_t k0 = (uint32_t)how.seed, k1 = (uint32_t)(how.seed >> 32);
	uint32_t v[4] = {how.position, 0, how.choice, 0};

	for (int round = 0; round < 10; round++) {
		uint64_t p0 = UINT64_C(0xD2511F53) * v[0];
		uint64_t p1 = UINT64_C(0xCD9E8D57) * v[2];

		v[0] = (uint32_t)(p1 >> 32) ^ v[1] ^ k0;
		v[1] = (uint32_t)p1;
		v[2] = (uint32_t)(p0 >> 32) ^ v[3] ^ k1;
		v[3] = (uint32_t)p0;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	return (v[0] >> 8) + 1u;
}

/* Number p.equal, in order of ids, of the tokens whose key is p.key; into s->token, which
 * stays as it is if there are fewer. */
static __device__ void pick_equal(
	struct sampler *s, const struct row &r, const struct prefix &p)
{
	uint32_t before = 0, lane = threadIdx.x % WARP;

	for (uint32_t from = 0; from < r.n; from += BLOCK) {
		uint32_t i = from + threadIdx.x;
		bool equal = i < r.n && key_of(r.logits[i]) == p.key;
		uint32_t in_warp = __ballot_sync(FULL_WARP, equal);
		uint32_t here = (uint32_t)__syncthreads_count(equal);

		if (before + here < p.equal) {
			before += here;
			continue;
		}
		if (lane == 0)
			s->words[threadIdx.x / WARP] = (uint64_t)__popc(in_warp);
		__syncthreads();
		for (uint32_t w = 0; w < threadIdx.x / WARP; w++)
			before += (uint32_t)s->words[w];
		before += __popc(in_warp & ((1u << lane) - 1));
		if (equal && before + 1 == p.equal)
			s->token = i;
		break;
	}
	__syncthreads();
}

/* r.n when nothing was found, which no finite logits lead to. */
static __device__ uint32_t draw(
	struct sampler *s, const struct row &r, const struct sample_row &how)
{
	uint64_t mass, u = uniform24(how), low;
	struct prefix p;

	if (threadIdx.x == 0)
		s->token = r.n;
	fill_bins(s, r);
	mass = kept_mass(s, r, how);
	/* u / 2^24 of the mass, rounded up. */
	low = mass * u;
	p = find(s, r,
		{0, (__umul64hi(mass, u) << 40 | low >> 24) +
				((low & 0xFFFFFFu) != 0 ? 1 : 0)});
	if (p.of > 1) {
		pick_equal(s, r, p);
	} else {
		for (uint32_t i = threadIdx.x; i < s->n_candidates; i += BLOCK) {
			if (key_of(r.logits[r.candidates[i]]) == p.key)
				s->token = r.candidates[i];
		}
		__syncthreads();
	}
	return s->token;
}

/* What a row's token is chosen by; best: of the logits as they came. */
static __device__ uint32_t choose(struct sampler *s, const struct op_sample &op,
	const struct sample_row &how, struct row r, uint32_t best)
{
	if ((how.ask & SAMPLE_GIVEN) != 0)
		return how.given;
	if (has_changes(how)) {
		float *changed = (float *)r.candidates + op.vocab;

		change_logits(op, how, r.logits, changed);
		r.logits = changed;
		(void)survey(s, r, &best); /* banned tokens are infinite */
		r.best = changed[best];
	}
	/* With every token banned there is no distribution. */
	if (r.inverse == 0.0f || r.best == -INFINITY)
		return best;
	return draw(s, r, how);
}

static __device__ float logprob_of(const struct row &r, uint32_t token, double total)
{
	return (float)((double)r.logits[token] - (double)r.best - log(total));
}

/* The n_top likeliest tokens: each the largest that comes after the one before. */
static __device__ void list_top(struct sampler *s, const struct op_sample &op,
	const struct row &r, uint32_t n_top, double total)
{
	uint64_t at = (uint64_t)blockIdx.x * SAMPLE_TOP_MAX, last = UINT64_MAX;

	for (uint32_t k = 0; k < n_top; k++) {
		uint64_t word = 0;
		uint32_t id = 0;

		for (uint32_t i = threadIdx.x; i < r.n; i += BLOCK) {
			uint64_t w =
				(uint64_t)key_of(r.logits[i]) << 32 | (0xFFFFFFFFu - i);

			if (w < last)
				word = max(word, w);
		}
		last = block_words(s, word, true);
		if (k < r.n)
			id = 0xFFFFFFFFu - (uint32_t)last;
		if (threadIdx.x == 0) {
			op.top_id[at + k] = id;
			op.top_logprob[at + k] = logprob_of(r, id, total);
		}
	}
}

/* A row with a logit that is no number. */
static __device__ void refuse_row(const struct op_sample &op, uint32_t n_top)
{
	uint64_t at = (uint64_t)blockIdx.x * SAMPLE_TOP_MAX;

	if (threadIdx.x == 0) {
		op.token[blockIdx.x] = 0;
		op.logprob[blockIdx.x] = 0.0f;
		op.flags[blockIdx.x] = SAMPLE_NAN;
	}
	if (threadIdx.x < n_top) {
		op.top_id[at + threadIdx.x] = 0;
		op.top_logprob[at + threadIdx.x] = 0.0f;
	}
}

static __global__ void __launch_bounds__(BLOCK) sample_kernel(const struct op_sample op)
{
	static __shared__ struct sampler sampler;
	static_assert(sizeof(sampler) <= 49152, "static shared memory");
	struct sampler *s = &sampler;
	const struct sample_row how = op.rows[blockIdx.x];
	struct row r = {
		.logits = op.logits + (uint64_t)blockIdx.x * op.vocab,
		.n = op.n_valid,
		/* Bounded, so that 0 times it is 0. */
		.inverse = how.temperature > 0.0f ? 1.0f / fmaxf(how.temperature, 1e-35f)
						  : 0.0f,
		.candidates = (uint32_t *)op.work + 2 * (uint64_t)blockIdx.x * op.vocab,
	};
	uint32_t token;
	double total;

	if (!survey(s, r, &token)) {
		refuse_row(op, how.n_top);
		return;
	}
	r.best = r.logits[token];
	total = sum_weights(s, r);
	token = choose(s, op, how, r, token);
	if (token >= r.n) {
		refuse_row(op, how.n_top);
		return;
	}
	if (threadIdx.x == 0) {
		op.token[blockIdx.x] = token;
		op.logprob[blockIdx.x] = logprob_of(r, token, total);
		op.flags[blockIdx.x] = 0;
		count_token(op, how, token);
	}
	list_top(s, op, r, how.n_top, total);
}

/* Candidates, and changed logits, of each row. */
extern "C" uint64_t sample_cuda_bins_work(const struct kernel_shapes *shapes)
{
	return 2 * (uint64_t)shapes->out_max * shapes->vocab * sizeof(uint32_t);
}

CUDA_KERNEL(sample, bins)
{
	uint64_t need = 2 * (uint64_t)op->n * op->vocab * sizeof(uint32_t);

	if (op->n_valid == 0 || op->n_valid > op->vocab || op->vocab > VOCAB_MAX)
		return err_set(err, ST_LIMIT,
			"sample/bins: %u valid tokens of a vocabulary of %u, at most %u",
			op->n_valid, op->vocab, (uint32_t)VOCAB_MAX);
	if (op->work_bytes < need)
		return err_set(err, ST_LIMIT,
			"sample/bins: %llu bytes of scratch, %llu needed",
			(unsigned long long)op->work_bytes, (unsigned long long)need);
	if (op->n == 0)
		return ST_OK;
	CUDA_ENTER("sample/bins");
	sample_kernel<<<op->n, BLOCK, 0, stream->cuda>>>(*op);
	return cuda_launched("sample/bins", err);
}
