/* The gated delta rule with AVX2. Four rows of a head's state (of DV) at a time see all
 * tokens of a stretch, so the state is in the first-level cache while it is used. Per
 * token one pass reads S k and S q, a second one updates S:
 *   m = exp(g) (S k);  d = beta (v - m);  o = exp(g) (S q) + d (k . q);
 *   S = exp(g) S + d k^T
 * which is the recurrence with exp(g) taken out of the sums. */
#include "kernels/cpu/avx2.h"

/* Tokens whose decays and k . q are kept on the stack. */
#define STRETCH 64u
#define ROWS    4u

/* One head of one sequence, n tokens from row t on. */
struct span {
	const struct op_gdn_prefill *op;
	float *state;
	uint64_t t;
	uint32_t n, head;
	float decay[STRETCH];
	float kq[STRETCH];
};

ALWAYS_INLINE const float *key_row(
	const struct op_gdn_prefill *op, const void *base, uint64_t t, uint32_t head)
{
	return (const float *)base +
	       (t * op->n_k + head / (op->n_v / op->n_k)) * (uint64_t)op->dk;
}

static void prepare(struct span *s)
{
	const struct op_gdn_prefill *op = s->op;

	for (uint32_t i = 0; i < s->n; i++) {
		const float *q = key_row(op, op->q, s->t + i, s->head);
		const float *k = key_row(op, op->k, s->t + i, s->head);
		__m256 sum = _mm256_setzero_ps();

		for (uint32_t j = 0; j < op->dk; j += 8)
			sum = _mm256_fmadd_ps(
				_mm256_loadu_ps(k + j), _mm256_loadu_ps(q + j), sum);
		s->kq[i] = sum1(sum);
		s->decay[i] = expf(op->g[(s->t + i) * op->n_v + s->head]);
	}
}

/* Four rows of S against k and q. */
ALWAYS_INLINE void read_rows(const float *state, const float *k, const float *q,
	uint32_t dk, __m128 *sk, __m128 *sq)
{
	__m256 a[ROWS], b[ROWS];

	for (uint32_t r = 0; r < ROWS; r++)
		a[r] = b[r] = _mm256_setzero_ps();
	for (uint32_t j = 0; j < dk; j += 8) {
		__m256 kj = _mm256_loadu_ps(k + j);
		__m256 qj = _mm256_loadu_ps(q + j);

		for (uint32_t r = 0; r < ROWS; r++) {
			__m256 v = _mm256_loadu_ps(state + (uint64_t)r * dk + j);

			a[r] = _mm256_fmadd_ps(v, kj, a[r]);
			b[r] = _mm256_fmadd_ps(v, qj, b[r]);
		}
	}
	*sk = sum4(a[0], a[1], a[2], a[3]);
	*sq = sum4(b[0], b[1], b[2], b[3]);
}

ALWAYS_INLINE void update_rows(
	float *state, const float *k, uint32_t dk, float decay, const float *delta)
{
	__m256 keep = _mm256_set1_ps(decay);
	__m256 d[ROWS];

	for (uint32_t r = 0; r < ROWS; r++)
		d[r] = _mm256_set1_ps(delta[r]);
	for (uint32_t j = 0; j < dk; j += 8) {
		__m256 kj = _mm256_loadu_ps(k + j);

		for (uint32_t r = 0; r < ROWS; r++) {
			float *at = state + (uint64_t)r * dk + j;
			__m256 v = _mm256_mul_ps(_mm256_loadu_ps(at), keep);

			_mm256_storeu_ps(at, _mm256_fmadd_ps(d[r], kj, v));
		}
	}
}

/* Rows i..i+3 of the state through all tokens of the span; o goes to y. */
static void run_rows(const struct span *s, uint32_t i)
{
	const struct op_gdn_prefill *op = s->op;
	float *state = s->state + (uint64_t)i * op->dk;

	for (uint32_t n = 0; n < s->n; n++) {
		uint64_t at = (s->t + n) * op->n_v + s->head;
		const float *k = key_row(op, op->k, s->t + n, s->head);
		const float *q = key_row(op, op->q, s->t + n, s->head);
		__m128 decay = _mm_set1_ps(s->decay[n]);
		__m128 sk, sq, d;
		float delta[ROWS];

		read_rows(state, k, q, op->dk, &sk, &sq);
		d = _mm_loadu_ps((const float *)op->v + at * op->dv + i);
		d = _mm_sub_ps(d, _mm_mul_ps(decay, sk));
		d = _mm_mul_ps(d, _mm_set1_ps(op->beta[at]));
		_mm_storeu_ps((float *)op->y + at * op->dv + i,
			_mm_fmadd_ps(d, _mm_set1_ps(s->kq[n]), _mm_mul_ps(decay, sq)));
		_mm_storeu_ps(delta, d);
		update_rows(state, k, op->dk, s->decay[n], delta);
	}
}

/* Norm first, gate second, in place. */
static void gated_norm(const struct op_gdn_prefill *op, const float *z, float *o)
{
	float mean = squares_of(o, op->dv) / (float)op->dv;
	__m256 scale = _mm256_set1_ps(1.0f / sqrtf(mean + op->eps));

	for (uint32_t i = 0; i < op->dv; i += 8) {
		__m256 gate = _mm256_loadu_ps(z + i);
		__m256 y = _mm256_mul_ps(_mm256_loadu_ps(o + i), scale);

		gate = op->sigmoid_gate ? sigmoid8(gate) : silu8(gate);
		y = _mm256_mul_ps(y, _mm256_loadu_ps(op->gain + i));
		_mm256_storeu_ps(o + i, _mm256_mul_ps(y, gate));
	}
}

static void run_sequence(const struct op_gdn_prefill *op, uint32_t seq, uint32_t head)
{
	float *rec = slot_rec(&op->state, op->rows.slot[seq]);
	uint32_t end = op->rows.first[seq + 1];
	struct span s = {
		.op = op, .state = rec + (uint64_t)head * op->dv * op->dk, .head = head};

	for (uint32_t t = op->rows.first[seq]; t < end; t += STRETCH) {
		s.t = t;
		s.n = MIN(STRETCH, end - t);
		prepare(&s);
		for (uint32_t i = 0; i < op->dv; i += ROWS)
			run_rows(&s, i);
		for (uint32_t n = 0; n < s.n; n++)
			gated_norm(op,
				(const float *)op->z + (s.t + n) * op->z_stride +
					(uint64_t)head * op->dv,
				(float *)op->y + ((s.t + n) * op->n_v + head) * op->dv);
	}
}

CPU_KERNEL(gdn_prefill, avx2)
{
	if (op->dk % 8 != 0 || op->dv % 8 != 0)
		return err_set(err, ST_LIMIT,
			"gdn/avx2: head dims %u and %u, not multiples of 8", op->dk,
			op->dv);
	for (uint32_t s = 0; s < op->rows.n_seqs; s++) {
		for (uint32_t h = 0; h < op->n_v; h++)
			run_sequence(op, s, h);
	}
	return ST_OK;
}

CPU_KERNEL(gdn_decode, avx2)
{
	return k_gdn_prefill_avx2(stream, op, err);
}
