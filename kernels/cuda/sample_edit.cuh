/* What changes the logits that a row draws from (bias, bans, penalties), and what it has
 * counted; by one block, see sample.cu. Penalties are rounded step by step as on the CPU,
 * so that both draw the same tokens. */
#ifndef KERNELS_CUDA_SAMPLE_EDIT_CUH
#define KERNELS_CUDA_SAMPLE_EDIT_CUH
#include "kernels/cuda/sample_find.cuh"

static __device__ __forceinline__ bool has_penalty(const struct sample_row &how)
{
	return how.line > 0 &&
	       (how.presence != 0.0f || how.frequency != 0.0f ||
		       (how.repetition != 0.0f && how.repetition != 1.0f));
}

static __device__ __forceinline__ bool has_changes(const struct sample_row &how)
{
	return how.n_bias > 0 || (how.n_bans > 0 && how.position < how.ban_until) ||
	       has_penalty(how);
}

static __device__ __forceinline__ uint16_t *line_of(
	const struct op_sample &op, const struct sample_row &how)
{
	return op.counts + (uint64_t)(how.line - 1) * op.vocab;
}

/* Never above FLT_MAX, since two infinite logits have no distribution. */
static __device__ __forceinline__ float penalise(
	const struct sample_row &how, uint32_t seen, float x)
{
	float r = how.repetition == 0.0f ? 1.0f : how.repetition;
	float times = (float)(seen & SAMPLE_TIMES);

	if (seen == 0)
		return x;
	x = fminf(x > 0.0f ? __fdiv_rn(x, r) : __fmul_rn(x, r), FLT_MAX);
	x = __fsub_rn(x, __fmul_rn(how.frequency, times));
	return fminf(times > 0.0f ? __fsub_rn(x, how.presence) : x, FLT_MAX);
}

/* The row's logits with its changes, into `out`. An id may have several biases, so one
 * thread adds them. */
static __device__ void change_logits(const struct op_sample &op,
	const struct sample_row &how, const float *logits, float *out)
{
	const struct sample_edit *edits = op.edits + how.edits;
	const uint16_t *seen = has_penalty(how) ? line_of(op, how) : NULL;
	uint32_t n_bans = how.position < how.ban_until ? how.n_bans : 0;

	for (uint32_t i = threadIdx.x; i < op.n_valid; i += BLOCK)
		out[i] = logits[i];
	__syncthreads();
	if (threadIdx.x == 0) {
		for (uint32_t i = 0; i < how.n_bias; i++)
			out[edits[i].id] += edits[i].add;
		for (uint32_t i = 0; i < n_bans; i++)
			out[edits[how.n_bias + i].id] = -INFINITY;
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; seen != NULL && i < op.n_valid; i += BLOCK)
		out[i] = penalise(how, seen[i], out[i]);
	__syncthreads();
}

/* By one thread. */
static __device__ void count_token(
	const struct op_sample &op, const struct sample_row &how, uint32_t token)
{
	uint16_t *seen;

	if (how.line == 0 || (how.ask & SAMPLE_COUNT) == 0)
		return;
	seen = line_of(op, how) + token;
	if ((*seen & SAMPLE_TIMES) < SAMPLE_TIMES)
		(*seen)++;
}

#endif
