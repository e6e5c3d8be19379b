/* Ops bound by the bytes of a row, with AVX2: add_norm, swiglu, attn_prep. */
#include "kernels/cpu/avx2.h"

static void add_row(float *x, const float *add, uint32_t n)
{
	uint32_t i = 0;

	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps(x + i,
			_mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(add + i)));
	for (; i < n; i++)
		x[i] += add[i];
}

/* y = x * scale * (1 + gain). */
static void norm_row(const float *x, const float *gain, float scale, uint32_t n, float *y)
{
	const __m256 one = _mm256_set1_ps(1.0f);
	uint32_t i = 0;

	for (; i + 8 <= n; i += 8) {
		__m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(scale));

		_mm256_storeu_ps(y + i,
			_mm256_mul_ps(v, _mm256_add_ps(one, _mm256_loadu_ps(gain + i))));
	}
	for (; i < n; i++)
		y[i] = x[i] * scale * (1.0f + gain[i]);
}

CPU_KERNEL(add_norm, avx2)
{
	uint32_t width = op->width;

	for (uint32_t t = 0; t < op->n_rows; t++) {
		float *x = (float *)op->x + (uint64_t)t * width;
		float mean;

		if (op->add != NULL)
			add_row(x, (const float *)op->add + (uint64_t)t * width, width);
		if (op->y == NULL)
			continue;
		mean = squares_of(x, width) / (float)width;
		norm_row(x, op->gain, 1.0f / sqrtf(mean + op->eps), width,
			(float *)op->y + (uint64_t)t * width);
	}
	return ST_OK;
}

CPU_KERNEL(swiglu, avx2)
{
	for (uint32_t t = 0; t < op->n_rows; t++) {
		const float *gate =
			(const float *)op->gate + (uint64_t)t * op->gate_stride;
		const float *up = (const float *)op->up + (uint64_t)t * op->up_stride;
		float *y = (float *)op->y + (uint64_t)t * op->width;
		uint32_t i = 0;

		for (; i + 8 <= op->width; i += 8)
			_mm256_storeu_ps(
				y + i, _mm256_mul_ps(silu8(_mm256_loadu_ps(gate + i)),
					       _mm256_loadu_ps(up + i)));
		for (; i < op->width; i++)
			y[i] = silu(gate[i]) * up[i];
	}
	return ST_OK;
}

/* Rotary angles that attn_prep keeps on the stack. */
#define HALF_MAX 128u

/* Rotate-half of the first 2 * half elements of a, in place. */
static void rotate(float *a, const float *cosines, const float *sines, uint32_t half)
{
	for (uint32_t i = 0; i < half; i += 8) {
		__m256 c = _mm256_loadu_ps(cosines + i);
		__m256 s = _mm256_loadu_ps(sines + i);
		__m256 x = _mm256_loadu_ps(a + i);
		__m256 y = _mm256_loadu_ps(a + half + i);

		_mm256_storeu_ps(a + i, _mm256_fmsub_ps(x, c, _mm256_mul_ps(y, s)));
		_mm256_storeu_ps(
			a + half + i, _mm256_fmadd_ps(y, c, _mm256_mul_ps(x, s)));
	}
}

#define HEAD_DIM_MAX 512u

CPU_KERNEL(attn_prep, avx2)
{
	const struct op_kv *kv = &op->kv;
	uint32_t d = kv->head_dim;
	uint32_t half = op->rotary / 2;
	float cosines[HALF_MAX], sines[HALF_MAX], key[HEAD_DIM_MAX];

	if (half > HALF_MAX || half % 8 != 0 || d % 8 != 0 || d > HEAD_DIM_MAX)
		return err_set(err, ST_LIMIT,
			"attn_prep/avx2: head dim %u, rotary dim %u", d, op->rotary);
	for (uint32_t t = 0; t < op->rows.n_rows; t++) {
		uint32_t pos = op->rows.pos[t];
		void *page = kv_page(kv, &op->rows, op->rows.seq[t], pos);

		for (uint32_t i = 0; i < half; i++) {
			float angle = (float)pos * op->inv_freq[i];

			cosines[i] = cosf(angle);
			sines[i] = sinf(angle);
		}
		for (uint32_t h = 0; h < op->n_q; h++) {
			const float *a = (const float *)op->qg +
					 (uint64_t)t * op->qg_stride +
					 (uint64_t)h * 2 * d;
			float *q = (float *)op->q + ((uint64_t)t * op->n_q + h) * d;
			float mean = squares_of(a, d) / (float)d;

			norm_row(a, op->q_gain, 1.0f / sqrtf(mean + op->eps), d, q);
			rotate(q, cosines, sines, half);
		}
		for (uint32_t h = 0; h < kv->n_kv; h++) {
			const float *a = (const float *)op->k +
					 (uint64_t)t * op->k_stride + (uint64_t)h * d;
			const float *v = (const float *)op->v +
					 (uint64_t)t * op->v_stride + (uint64_t)h * d;
			float mean = squares_of(a, d) / (float)d;
			uint64_t at = kv_element(kv, h, pos);

			norm_row(a, op->k_gain, 1.0f / sqrtf(mean + op->eps), d, key);
			rotate(key, cosines, sines, half);
			for (uint32_t i = 0; i < d; i += 8) {
				store8(kv->dtype, page, at + i, _mm256_loadu_ps(key + i));
				store8(kv->dtype, page, at + kv_v_offset(kv) + i,
					_mm256_loadu_ps(v + i));
			}
		}
	}
	return ST_OK;
}
