/* Norms and rotary embedding of queries and keys, and the store of K and V into the
 * pages, plain. */
#include "kernels/cpu/cpu.h"

/* Element i of RoPE(norm(a)); scale is the norm's 1 / rms. */
static float turned(const struct op_attn_prep *op, const float *a, const float *gain,
	float scale, uint32_t pos, uint32_t i)
{
	uint32_t half = op->rotary / 2;
	float value = a[i] * scale * (1.0f + gain[i]);
	uint32_t j = i < half ? i : i - half;
	float angle, other;

	if (i >= op->rotary)
		return value;
	angle = (float)pos * op->inv_freq[j];
	if (i < half) {
		other = a[i + half] * scale * (1.0f + gain[i + half]);
		return value * cosf(angle) - other * sinf(angle);
	}
	other = a[j] * scale * (1.0f + gain[j]);
	return value * cosf(angle) + other * sinf(angle);
}

static float norm_scale(const float *a, uint32_t width, float eps)
{
	float squares = 0.0f;

	for (uint32_t i = 0; i < width; i++)
		squares += a[i] * a[i];
	return 1.0f / sqrtf(squares / (float)width + eps);
}

CPU_KERNEL(attn_prep, plain)
{
	uint32_t d = op->kv.head_dim;

	for (uint32_t t = 0; t < op->rows.n_rows; t++) {
		uint32_t pos = op->rows.pos[t];
		void *page = kv_page(&op->kv, &op->rows, op->rows.seq[t], pos);

		for (uint32_t h = 0; h < op->n_q; h++) {
			const float *a = (const float *)op->qg +
					 (uint64_t)t * op->qg_stride +
					 (uint64_t)h * 2 * d;
			float *q = (float *)op->q + ((uint64_t)t * op->n_q + h) * d;
			float scale = norm_scale(a, d, op->eps);

			for (uint32_t i = 0; i < d; i++)
				q[i] = turned(op, a, op->q_gain, scale, pos, i);
		}
		for (uint32_t h = 0; h < op->kv.n_kv; h++) {
			const float *a = (const float *)op->k +
					 (uint64_t)t * op->k_stride + (uint64_t)h * d;
			const float *v = (const float *)op->v +
					 (uint64_t)t * op->v_stride + (uint64_t)h * d;
			float scale = norm_scale(a, d, op->eps);
			uint64_t at = kv_element(&op->kv, h, pos);

			for (uint32_t i = 0; i < d; i++) {
				store_as(op->kv.dtype, page, at + i,
					turned(op, a, op->k_gain, scale, pos, i));
				store_as(op->kv.dtype, page,
					at + kv_v_offset(&op->kv) + i, v[i]);
			}
		}
	}
	return ST_OK;
}
