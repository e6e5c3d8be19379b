/* The gated delta rule as a recurrence, then the gated norm of its output; plain. One
 * code for prefill and decode. The state of a head is [DV][DK]. */
#include "kernels/cpu/cpu.h"

/* One token of one head; o is written. */
static void step(const struct op_gdn_prefill *op, float *state, uint64_t t, uint32_t head,
	float *o)
{
	uint32_t key_head = head / (op->n_v / op->n_k);
	const float *q = (const float *)op->q + (t * op->n_k + key_head) * op->dk;
	const float *k = (const float *)op->k + (t * op->n_k + key_head) * op->dk;
	const float *v = (const float *)op->v + (t * op->n_v + head) * op->dv;
	float decay = expf(op->g[t * op->n_v + head]);
	float beta = op->beta[t * op->n_v + head];

	for (uint32_t i = 0; i < op->dv; i++) {
		float *row = state + (uint64_t)i * op->dk;
		float memory = 0.0f;
		float delta;

		for (uint32_t j = 0; j < op->dk; j++) {
			row[j] *= decay;
			memory += row[j] * k[j];
		}
		delta = beta * (v[i] - memory);
		o[i] = 0.0f;
		for (uint32_t j = 0; j < op->dk; j++) {
			row[j] += delta * k[j];
			o[i] += row[j] * q[j];
		}
	}
}

/* Norm first, gate second, in place. */
static void gated_norm(const struct op_gdn_prefill *op, const float *z, float *o)
{
	float squares = 0.0f;
	float scale;

	for (uint32_t i = 0; i < op->dv; i++)
		squares += o[i] * o[i];
	scale = 1.0f / sqrtf(squares / (float)op->dv + op->eps);
	for (uint32_t i = 0; i < op->dv; i++)
		o[i] = o[i] * scale * op->gain[i] *
		       (op->sigmoid_gate ? sigmoid(z[i]) : silu(z[i]));
}

CPU_KERNEL(gdn_prefill, plain)
{
	for (uint32_t s = 0; s < op->rows.n_seqs; s++) {
		float *rec = slot_rec(&op->state, op->rows.slot[s]);

		for (uint64_t t = op->rows.first[s]; t < op->rows.first[s + 1]; t++) {
			for (uint32_t h = 0; h < op->n_v; h++) {
				float *y = (float *)op->y + (t * op->n_v + h) * op->dv;

				step(op, rec + (uint64_t)h * op->dv * op->dk, t, h, y);
				gated_norm(op,
					(const float *)op->z + t * op->z_stride +
						(uint64_t)h * op->dv,
					y);
			}
		}
	}
	return ST_OK;
}

CPU_KERNEL(gdn_decode, plain)
{
	return k_gdn_prefill_plain(stream, op, err);
}
