/* What precedes the gated delta rule: causal convolution with its state, SiLU, norms
 * of queries and keys, decay and write strength; plain. */
#include "kernels/cpu/cpu.h"

/* Input of channel c at row r of the sequence; rows before this pass (r < 0) stand in
 * the state. A row that will be read back later as state counts as what the state can
 * hold, so the result does not depend on where a pass ends. */
static float past_input(const struct op_gdn_prep *op, const void *conv, const float *qkv,
	int64_t r, uint32_t c)
{
	uint32_t kept = op->taps - 1;
	uint16_t rounded;
	float x;

	if (r < 0)
		return load_as(op->state.conv_dtype, conv,
			(uint64_t)((int64_t)c * kept + kept + r));
	x = qkv[r * (int64_t)op->qkv_stride + c];
	if (op->state.conv_dtype == DT_F32)
		return x;
	rounded = bf16_round(x);
	return bf16_value(rounded);
}

/* Where channel c of row t goes: the channels are [q | k | v]. */
static float *target(const struct op_gdn_prep *op, uint64_t t, uint32_t c)
{
	uint32_t kd = op->n_k * op->dk;

	if (c < kd)
		return (float *)op->q + t * kd + c;
	if (c < 2 * kd)
		return (float *)op->k + t * kd + (c - kd);
	return (float *)op->v + t * op->n_v * op->dv + (c - 2 * kd);
}

static void convolve(const struct op_gdn_prep *op, uint32_t s)
{
	uint32_t channels = 2 * op->n_k * op->dk + op->n_v * op->dv;
	uint32_t first = op->rows.first[s];
	int64_t n = (int64_t)op->rows.first[s + 1] - first;
	const float *qkv = (const float *)op->qkv + (uint64_t)first * op->qkv_stride;
	void *conv = slot_conv(&op->state, op->rows.slot[s]);
	int64_t kept = op->taps - 1;

	for (uint32_t c = 0; c < channels; c++) {
		const float *w = op->conv_w + (uint64_t)c * op->taps;

		for (int64_t r = 0; r < n; r++) {
			float sum = 0.0f;

			for (int64_t j = 0; j < kept; j++)
				sum += w[j] * past_input(op, conv, qkv, r - kept + j, c);
			sum += w[kept] * qkv[r * (int64_t)op->qkv_stride + c];
			*target(op, first + (uint64_t)r, c) = silu(sum);
		}
		/* Ascending i reads places that are not yet overwritten. */
		for (int64_t i = 0; i < kept; i++)
			store_as(op->state.conv_dtype, conv, (uint64_t)(c * kept + i),
				past_input(op, conv, qkv, n - kept + i, c));
	}
}

static void l2_norm(float *x, uint32_t width, float times)
{
	float squares = 0.0f;
	float scale;

	for (uint32_t i = 0; i < width; i++)
		squares += x[i] * x[i];
	scale = 1.0f / sqrtf(squares + 1e-6f);
	for (uint32_t i = 0; i < width; i++)
		x[i] = x[i] * scale * times;
}

CPU_KERNEL(gdn_prep, plain)
{
	uint32_t kd = op->n_k * op->dk;

	for (uint32_t s = 0; s < op->rows.n_seqs; s++)
		convolve(op, s);
	for (uint64_t t = 0; t < op->rows.n_rows; t++) {
		const float *a = (const float *)op->a + t * op->ab_stride;
		const float *b = (const float *)op->b + t * op->ab_stride;

		for (uint32_t h = 0; h < op->n_k; h++) {
			l2_norm((float *)op->q + t * kd + (uint64_t)h * op->dk, op->dk,
				1.0f / sqrtf((float)op->dk));
			l2_norm((float *)op->k + t * kd + (uint64_t)h * op->dk, op->dk,
				1.0f);
		}
		for (uint32_t h = 0; h < op->n_v; h++) {
			op->g[t * op->n_v + h] =
				-expf(op->a_log[h]) * softplus(a[h] + op->dt_bias[h]);
			op->beta[t * op->n_v + h] = sigmoid(b[h]);
		}
	}
	return ST_OK;
}
