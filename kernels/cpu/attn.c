/* Causal attention over pages, plain: all scores of a row and head, softmax, weighted
 * sum, gate. One code for prefill and decode. Scratch: the scores. */
#include "kernels/cpu/cpu.h"

uint64_t attn_work_plain(const struct kernel_shapes *shapes)
{
	return (uint64_t)shapes->len_max * sizeof(float);
}

/* scores[j] = q . k_j / sqrt(D), j = 0..pos, then their softmax. */
static void weigh(
	const struct op_attn_prefill *op, uint32_t t, uint32_t head, float *scores)
{
	const struct op_kv *kv = &op->kv;
	uint32_t pos = op->rows.pos[t];
	const float *q =
		(const float *)op->q + ((uint64_t)t * op->n_q + head) * kv->head_dim;
	float scale = 1.0f / sqrtf((float)kv->head_dim);
	float largest = -INFINITY;
	float sum = 0.0f;

	for (uint32_t j = 0; j <= pos; j++) {
		const void *page = kv_page(kv, &op->rows, op->rows.seq[t], j);
		uint64_t at = kv_element(kv, head / (op->n_q / kv->n_kv), j);
		float dot = 0.0f;

		for (uint32_t i = 0; i < kv->head_dim; i++)
			dot += q[i] * load_as(kv->dtype, page, at + i);
		scores[j] = dot * scale;
		largest = fmaxf(largest, scores[j]);
	}
	for (uint32_t j = 0; j <= pos; j++) {
		scores[j] = expf(scores[j] - largest);
		sum += scores[j];
	}
	for (uint32_t j = 0; j <= pos; j++)
		scores[j] /= sum;
}

static void mix(
	const struct op_attn_prefill *op, uint32_t t, uint32_t head, const float *weights)
{
	const struct op_kv *kv = &op->kv;
	uint32_t d = kv->head_dim;
	float *o = (float *)op->o + ((uint64_t)t * op->n_q + head) * d;
	const float *gate = (const float *)op->qg + (uint64_t)t * op->qg_stride +
			    (uint64_t)head * 2 * d + d;

	for (uint32_t i = 0; i < d; i++)
		o[i] = 0.0f;
	for (uint32_t j = 0; j <= op->rows.pos[t]; j++) {
		const void *page = kv_page(kv, &op->rows, op->rows.seq[t], j);
		uint64_t at =
			kv_element(kv, head / (op->n_q / kv->n_kv), j) + kv_v_offset(kv);

		for (uint32_t i = 0; i < d; i++)
			o[i] += weights[j] * load_as(kv->dtype, page, at + i);
	}
	for (uint32_t i = 0; i < d; i++)
		o[i] *= sigmoid(gate[i]);
}

CPU_KERNEL(attn_prefill, plain)
{
	if (op->work_bytes < (uint64_t)op->rows.max_len * sizeof(float))
		return err_set(err, ST_LIMIT,
			"attn/plain: %llu bytes of scratch for %u tokens",
			(unsigned long long)op->work_bytes, op->rows.max_len);
	for (uint32_t t = 0; t < op->rows.n_rows; t++) {
		for (uint32_t h = 0; h < op->n_q; h++) {
			weigh(op, t, h, op->work);
			mix(op, t, h, op->work);
		}
	}
	return ST_OK;
}

CPU_KERNEL(attn_decode, plain)
{
	return k_attn_prefill_plain(stream, op, err);
}
