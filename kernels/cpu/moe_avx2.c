/* Experts with AVX2. Rows are taken in blocks; within a block the (row, choice) pairs
 * are sorted by expert, so that an expert's weights are read once per block, and the
 * results are added per row in the order of the router's list. */
#include "kernels/cpu/avx2.h"

/* Rows of a block: large enough that an expert's weights serve several rows, small
 * enough that the block's results stay in the cache. */
#define BLOCK 256u

/* Work memory of a block: first the numbers, then the lists. */
struct plan {
	float *gate, *up; /* [pairs or rows][widest] */
	float *out;       /* [pairs][hidden] */
	float *shared;    /* [rows][hidden] */
	uint32_t *first;  /* [experts + 1] where each expert's pairs begin */
	uint32_t *pair;   /* [pairs] pair numbers (row * K + j), sorted by expert */
	uint32_t *row;    /* [pairs] row of each sorted pair */
	uint64_t widest;
};

static uint64_t plan_words(
	uint64_t rows, uint64_t top_k, uint64_t widest, uint64_t hidden, uint64_t experts)
{
	uint64_t pairs = rows * top_k;

	return 2 * MAX(pairs, rows) * widest + (pairs + rows) * hidden + experts + 1 +
	       2 * pairs;
}

uint64_t moe_work_avx2(const struct kernel_shapes *s)
{
	return sizeof(float) * plan_words(MIN(BLOCK, s->rows_max), s->top_k,
				       MAX(s->width, s->shared_width), s->hidden,
				       s->n_experts);
}

static struct plan lay_out(const struct op_moe *op, uint64_t rows, uint64_t widest)
{
	uint64_t pairs = rows * op->top_k;
	struct plan p = {.gate = op->work, .widest = widest};

	p.up = p.gate + MAX(pairs, rows) * widest;
	p.out = p.up + MAX(pairs, rows) * widest;
	p.shared = p.out + pairs * op->down->n;
	p.first = (uint32_t *)(void *)(p.shared + rows * op->down->n);
	p.pair = p.first + op->down->count + 1;
	p.row = p.pair + pairs;
	return p;
}

/* Ids below `first` wrap. */
static bool is_here(const struct op_moe *op, uint32_t id)
{
	return id - op->first < op->down->count;
}

/* Counting sort of the pairs whose expert is here; those of one expert keep their order.
 * ids: of the block. */
static void sort_pairs(const struct plan *p, const struct op_moe *op, const uint32_t *ids,
	uint32_t pairs)
{
	uint32_t experts = op->down->count;

	memset(p->first, 0, (experts + 1) * sizeof(uint32_t));
	for (uint32_t i = 0; i < pairs; i++)
		if (is_here(op, ids[i]))
			p->first[ids[i] - op->first + 1]++;
	for (uint32_t e = 0; e < experts; e++)
		p->first[e + 1] += p->first[e];
	/* first[e] runs to the end of e, which is the beginning of e + 1. */
	for (uint32_t i = 0; i < pairs; i++) {
		uint32_t at;

		if (!is_here(op, ids[i]))
			continue;
		at = p->first[ids[i] - op->first]++;
		p->pair[at] = i;
		p->row[at] = i / op->top_k;
	}
	for (uint32_t e = experts; e > 0; e--)
		p->first[e] = p->first[e - 1];
	p->first[0] = 0;
}

static void swiglu_rows(float *gate, const float *up, uint64_t n)
{
	uint64_t i = 0;

	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps(gate + i, _mm256_mul_ps(silu8(_mm256_loadu_ps(gate + i)),
						   _mm256_loadu_ps(up + i)));
	if (i < n) {
		__m256i mask = first_lanes((uint32_t)(n - i));
		__m256 g = silu8(_mm256_maskload_ps(gate + i, mask));

		_mm256_maskstore_ps(gate + i, mask,
			_mm256_mul_ps(g, _mm256_maskload_ps(up + i, mask)));
	}
}

/* out[out_rows[i]] = expert(x[x_rows[i]]) for n rows. */
struct expert_job {
	const struct weight *gate, *up, *down;
	uint32_t index, n;
	const float *x;
	const uint32_t *x_rows;
	float *out;
	const uint32_t *out_rows;
};

static void run_expert(const struct plan *p, const struct expert_job *j)
{
	uint32_t width = j->gate->n;
	struct product product = {.y = p->gate,
		.y_stride = width,
		.x = j->x,
		.x_stride = j->gate->k,
		.x_rows = j->x_rows,
		.n_rows = j->n,
		.w = j->gate,
		.index = j->index};

	product_avx2(&product);
	product.y = p->up;
	product.w = j->up;
	product_avx2(&product);
	swiglu_rows(p->gate, p->up, (uint64_t)j->n * width);
	product_avx2(&(struct product){.y = j->out,
		.y_stride = j->down->n,
		.y_rows = j->out_rows,
		.x = p->gate,
		.x_stride = width,
		.n_rows = j->n,
		.w = j->down,
		.index = j->index});
}

/* y += times * x. A product and a sum, each rounded, in every row and every tail. */
static void add_scaled(float *y, const float *x, float times, uint32_t n)
{
	uint32_t i = 0;

	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(y + i),
						_mm256_mul_ps(_mm256_loadu_ps(x + i),
							_mm256_set1_ps(times))));
	for (; i < n; i++)
		y[i] += times * x[i];
}

static void run_block(
	const struct op_moe *op, uint32_t t0, uint32_t rows, uint64_t widest)
{
	struct plan p = lay_out(op, rows, widest);
	uint32_t hidden = op->down->n;
	const float *x = (const float *)op->x + (uint64_t)t0 * hidden;
	const float *weights = op->weights + (uint64_t)t0 * op->top_k;
	const uint32_t *ids = op->ids + (uint64_t)t0 * op->top_k;

	sort_pairs(&p, op, ids, rows * op->top_k);
	for (uint32_t e = 0; e < op->down->count; e++) {
		struct expert_job job = {op->gate, op->up, op->down, e,
			p.first[e + 1] - p.first[e], x, p.row + p.first[e], p.out,
			p.pair + p.first[e]};

		if (job.n > 0)
			run_expert(&p, &job);
	}
	if (op->sh_gate != NULL)
		run_expert(&p, &(struct expert_job){op->sh_gate, op->sh_up, op->sh_down,
				       0, rows, x, NULL, p.shared, NULL});
	for (uint32_t t = 0; t < rows; t++) {
		float *y = (float *)op->y + (uint64_t)(t0 + t) * hidden;

		memset(y, 0, hidden * sizeof(float));
		for (uint32_t j = 0; j < op->top_k; j++)
			if (is_here(op, ids[t * op->top_k + j]))
				add_scaled(y,
					p.out + ((uint64_t)t * op->top_k + j) * hidden,
					weights[t * op->top_k + j], hidden);
		if (op->sh_gate != NULL)
			add_scaled(y, p.shared + (uint64_t)t * hidden, op->shared[t0 + t],
				hidden);
	}
}

CPU_KERNEL(moe, avx2)
{
	uint64_t widest = MAX(op->gate->n, op->sh_gate != NULL ? op->sh_gate->n : 0);
	uint64_t need = sizeof(float) * plan_words(MIN(BLOCK, op->n_rows), op->top_k,
						widest, op->down->n, op->down->count);
	status st = moe_check(op, "moe/avx2", err);

	if (st != ST_OK)
		return st;
	if (op->work_bytes < need)
		return err_set(err, ST_LIMIT,
			"moe/avx2: %llu bytes of scratch, %llu needed",
			(unsigned long long)op->work_bytes, (unsigned long long)need);
	for (uint32_t t = 0; t < op->n_rows; t += BLOCK)
		run_block(op, t, MIN(BLOCK, op->n_rows - t), widest);
	return ST_OK;
}
