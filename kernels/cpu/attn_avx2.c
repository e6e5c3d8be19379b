/* Causal attention over pages with AVX2: the running softmax over tiles of TILE tokens
 * that begin at position 0, so a row's result does not depend on the pass it is in.
 * Two query heads that share a KV head go together, which halves the reads of K and V;
 * a head's arithmetic is the same alone or in a pair. */
#include "kernels/cpu/avx2.h"

#define TILE 32u
/* Vectors of D that are accumulated in registers at once, per head. */
#define SPAN 4u

/* One or two heads of one row. */
struct task {
	const struct op_attn_prefill *op;
	uint32_t t, head, heads;
	const float *q[2];
	float *o[2];
	float largest[2], sum[2];
};

/* Where K and V of the tokens of a tile stand. */
struct tile_rows {
	const void *page[TILE];
	uint64_t at[TILE];
	uint32_t n;
};

static void find_rows(const struct task *a, uint32_t j0, struct tile_rows *rows)
{
	const struct op_attn_prefill *op = a->op;
	uint32_t kv_head = a->head / (op->n_q / op->kv.n_kv);
	uint32_t pos = op->rows.pos[a->t];

	rows->n = MIN(TILE, pos + 1 - j0);
	for (uint32_t j = 0; j < rows->n; j++) {
		rows->page[j] = kv_page(&op->kv, &op->rows, op->rows.seq[a->t], j0 + j);
		rows->at[j] = kv_element(&op->kv, kv_head, j0 + j);
	}
}

/* scores[h][j] = q_h . k_j for the four tokens at j; past the last one, its copy. */
ALWAYS_INLINE void score4(const struct task *a, uint32_t heads, enum dtype dtype,
	const struct tile_rows *rows, uint32_t j, float (*scores)[TILE])
{
	__m256 sum[2][4];
	uint32_t d = a->op->kv.head_dim;

	for (uint32_t h = 0; h < heads; h++) {
		for (uint32_t i = 0; i < 4; i++)
			sum[h][i] = _mm256_setzero_ps();
	}
	for (uint32_t i = 0; i < d; i += 8) {
		for (uint32_t r = 0; r < 4; r++) {
			uint32_t jr = MIN(j + r, rows->n - 1);
			__m256 k = load8(dtype, rows->page[jr], rows->at[jr] + i);

			for (uint32_t h = 0; h < heads; h++)
				sum[h][r] = _mm256_fmadd_ps(
					_mm256_loadu_ps(a->q[h] + i), k, sum[h][r]);
		}
	}
	for (uint32_t h = 0; h < heads; h++)
		_mm_storeu_ps(
			&scores[h][j], sum4(sum[h][0], sum[h][1], sum[h][2], sum[h][3]));
}

/* Scores to weights exp(score - largest); returns what the old sums are worth. */
static float weigh(struct task *a, uint32_t h, float *scores, uint32_t n)
{
	__m256 scale = _mm256_set1_ps(1.0f / sqrtf((float)a->op->kv.head_dim));
	__m256 largest = _mm256_set1_ps(-INFINITY);
	__m256 sum = _mm256_setzero_ps();
	float before = a->largest[h];
	float kept;

	for (uint32_t i = 0; i < TILE; i += 8) {
		__m256 mask = _mm256_castsi256_ps(first_lanes(MIN(8, n - MIN(n, i))));
		__m256 s = _mm256_mul_ps(_mm256_loadu_ps(scores + i), scale);

		s = _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), s, mask);
		_mm256_storeu_ps(scores + i, s);
		largest = _mm256_max_ps(largest, s);
	}
	a->largest[h] = fmaxf(before, max1(largest));
	for (uint32_t i = 0; i < TILE; i += 8) {
		__m256 s = _mm256_loadu_ps(scores + i);

		s = exp8(_mm256_sub_ps(s, _mm256_set1_ps(a->largest[h])));
		_mm256_storeu_ps(scores + i, s);
		sum = _mm256_add_ps(sum, s);
	}
	kept = before == -INFINITY ? 0.0f : expf(before - a->largest[h]);
	a->sum[h] = a->sum[h] * kept + sum1(sum);
	return kept;
}

/* o_h = o_h * kept_h + sum_j weights[h][j] * v_j, SPAN vectors from element i on. */
ALWAYS_INLINE void mix_span(const struct task *a, uint32_t heads, enum dtype dtype,
	const struct tile_rows *rows, uint32_t i, const float (*weights)[TILE])
{
	uint64_t v = kv_v_offset(&a->op->kv);
	__m256 sum[2][SPAN];

	for (uint32_t h = 0; h < heads; h++) {
		for (uint32_t r = 0; r < SPAN; r++)
			sum[h][r] = _mm256_loadu_ps(a->o[h] + i + 8ul * r);
	}
	for (uint32_t j = 0; j < rows->n; j++) {
		for (uint32_t r = 0; r < SPAN; r++) {
			__m256 vj = load8(
				dtype, rows->page[j], rows->at[j] + v + i + 8ul * r);

			for (uint32_t h = 0; h < heads; h++)
				sum[h][r] = _mm256_fmadd_ps(
					_mm256_broadcast_ss(&weights[h][j]), vj,
					sum[h][r]);
		}
	}
	for (uint32_t h = 0; h < heads; h++) {
		for (uint32_t r = 0; r < SPAN; r++)
			_mm256_storeu_ps(a->o[h] + i + 8ul * r, sum[h][r]);
	}
}

ALWAYS_INLINE void add_tile(
	struct task *a, uint32_t heads, enum dtype dtype, const struct tile_rows *rows)
{
	uint32_t d = a->op->kv.head_dim;
	float scores[2][TILE] = {{0}};

	for (uint32_t j = 0; j < rows->n; j += 4)
		score4(a, heads, dtype, rows, j, scores);
	for (uint32_t h = 0; h < heads; h++) {
		__m256 kept = _mm256_set1_ps(weigh(a, h, scores[h], rows->n));

		for (uint32_t i = 0; i < d; i += 8)
			_mm256_storeu_ps(a->o[h] + i,
				_mm256_mul_ps(_mm256_loadu_ps(a->o[h] + i), kept));
	}
	for (uint32_t i = 0; i < d; i += 8 * SPAN)
		mix_span(a, heads, dtype, rows, i, (const float(*)[TILE])scores);
}

static void run_task(struct task *a)
{
	const struct op_attn_prefill *op = a->op;
	uint32_t d = op->kv.head_dim;
	struct tile_rows rows;

	for (uint32_t h = 0; h < a->heads; h++) {
		a->q[h] = (const float *)op->q +
			  ((uint64_t)a->t * op->n_q + a->head + h) * d;
		a->o[h] = (float *)op->o + ((uint64_t)a->t * op->n_q + a->head + h) * d;
		a->largest[h] = -INFINITY;
		memset(a->o[h], 0, d * sizeof(float));
	}
	for (uint32_t j0 = 0; j0 <= op->rows.pos[a->t]; j0 += TILE) {
		find_rows(a, j0, &rows);
		if (a->heads == 2 && op->kv.dtype == DT_F32)
			add_tile(a, 2, DT_F32, &rows);
		else if (a->heads == 2)
			add_tile(a, 2, DT_BF16, &rows);
		else if (op->kv.dtype == DT_F32)
			add_tile(a, 1, DT_F32, &rows);
		else
			add_tile(a, 1, DT_BF16, &rows);
	}
	for (uint32_t h = 0; h < a->heads; h++) {
		const float *gate = (const float *)op->qg +
				    (uint64_t)a->t * op->qg_stride +
				    (uint64_t)(a->head + h) * 2 * d + d;

		for (uint32_t i = 0; i < d; i += 8) {
			__m256 o = _mm256_div_ps(
				_mm256_loadu_ps(a->o[h] + i), _mm256_set1_ps(a->sum[h]));

			_mm256_storeu_ps(a->o[h] + i,
				_mm256_mul_ps(o, sigmoid8(_mm256_loadu_ps(gate + i))));
		}
	}
}

CPU_KERNEL(attn_prefill, avx2)
{
	uint32_t group = op->n_q / op->kv.n_kv;

	if (op->kv.head_dim % (8 * SPAN) != 0)
		return err_set(err, ST_LIMIT,
			"attn/avx2: head dim %u, not a multiple of %u", op->kv.head_dim,
			8 * SPAN);
	for (uint32_t t = 0; t < op->rows.n_rows; t++) {
		for (uint32_t g = 0; g < op->kv.n_kv; g++) {
			for (uint32_t h = 0; h < group; h += 2) {
				struct task a = {.op = op,
					.t = t,
					.head = g * group + h,
					.heads = MIN(2, group - h)};

				run_task(&a);
			}
		}
	}
	return ST_OK;
}

CPU_KERNEL(attn_decode, avx2)
{
	return k_attn_prefill_avx2(stream, op, err);
}
