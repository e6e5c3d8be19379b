/* What precedes the gated delta rule, with AVX2: eight channels at a time go through
 * all rows of a sequence with their last inputs in registers. */
#include "kernels/cpu/avx2.h"

#define TAPS 4u
#define KEPT (TAPS - 1u)

/* Element j of eight consecutive rows of `width` elements. */
static __m256 gather8(
	enum dtype dtype, const void *base, uint64_t row, uint32_t width, uint32_t j)
{
	float v[8];

	for (uint32_t i = 0; i < 8; i++)
		v[i] = load_as(dtype, base, (row + i) * width + j);
	return _mm256_loadu_ps(v);
}

static void scatter8(enum dtype dtype, void *base, uint64_t row, uint32_t j, __m256 x)
{
	float v[8];

	_mm256_storeu_ps(v, x);
	for (uint32_t i = 0; i < 8; i++)
		store_as(dtype, base, (row + i) * KEPT + j, v[i]);
}

/* Where the eight channels from c on of the first row go, and the step to the next. */
static float *target(const struct op_gdn_prep *op, uint32_t c, uint32_t *stride)
{
	uint32_t kd = op->n_k * op->dk;

	*stride = c < 2 * kd ? kd : op->n_v * op->dv;
	if (c < kd)
		return (float *)op->q + c;
	return c < 2 * kd ? (float *)op->k + (c - kd) : (float *)op->v + (c - 2 * kd);
}

static void convolve8(const struct op_gdn_prep *op, uint32_t seq, uint32_t c)
{
	enum dtype dtype = op->state.conv_dtype;
	void *conv = slot_conv(&op->state, op->rows.slot[seq]);
	uint32_t stride;
	float *out = target(op, c, &stride);
	__m256 w[TAPS], past[KEPT];

	for (uint32_t j = 0; j < TAPS; j++)
		w[j] = gather8(DT_F32, op->conv_w, c, TAPS, j);
	for (uint32_t j = 0; j < KEPT; j++)
		past[j] = gather8(dtype, conv, c, KEPT, j);
	for (uint64_t t = op->rows.first[seq]; t < op->rows.first[seq + 1]; t++) {
		__m256 x =
			_mm256_loadu_ps((const float *)op->qkv + t * op->qkv_stride + c);
		__m256 sum = _mm256_mul_ps(w[0], past[0]);

		sum = _mm256_fmadd_ps(w[1], past[1], sum);
		sum = _mm256_fmadd_ps(w[2], past[2], sum);
		sum = _mm256_fmadd_ps(w[3], x, sum);
		_mm256_storeu_ps(out + t * stride, silu8(sum));
		past[0] = past[1];
		past[1] = past[2];
		/* A row counts, for those after it, as what the state can hold. */
		past[2] = dtype == DT_F32 ? x : round8_bf16(x);
	}
	for (uint32_t j = 0; j < KEPT; j++)
		scatter8(dtype, conv, c, j, past[j]);
}

static void l2_norm(float *x, uint32_t width, float times)
{
	float scale = 1.0f / sqrtf(squares_of(x, width) + 1e-6f);

	for (uint32_t i = 0; i < width; i += 8)
		_mm256_storeu_ps(
			x + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i),
						     _mm256_set1_ps(scale)),
				       _mm256_set1_ps(times)));
}

CPU_KERNEL(gdn_prep, avx2)
{
	uint32_t kd = op->n_k * op->dk;
	uint32_t channels = 2 * kd + op->n_v * op->dv;

	if (op->taps != TAPS || op->dk % 8 != 0 || op->dv % 8 != 0)
		return err_set(err, ST_LIMIT,
			"gdn_prep/avx2: %u taps, head dims %u and %u", op->taps, op->dk,
			op->dv);
	for (uint32_t s = 0; s < op->rows.n_seqs; s++) {
		for (uint32_t c = 0; c < channels; c += 8)
			convolve8(op, s, c);
	}
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
