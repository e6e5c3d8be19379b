/* The experts, grouped: rows are sorted by expert on the device, each expert's rows meet
 * its matrices together, and a last kernel adds the results of a row in the order of the
 * router's list. Up to 4 rows every choice is a group of its own and no sorting is done.
 *
 * Bound by the bytes of the chosen experts up to some 16 rows per expert, then by the
 * tensor cores. Which rows share a group never changes a result: a row is a column of
 * the matrix instruction. Scratch: the groups, inner rows in BF16, results of every
 * choice in F32. */
#include "kernels/cuda/moe.cuh"
#include "kernels/cuda/product_fp4.cuh"

enum {
	SORT_BLOCK = 1024,
	EXPERTS_MAX = 1024, /* one thread each */
	SUM_BLOCK = 256,
	DIRECT_ROWS = 4,
};

/* How a slab is computed, and its scratch. */
struct moe_plan {
	uint32_t rows, top_k, pairs, experts;
	uint32_t group_rows; /* 1: no sorting */
	uint32_t max_groups;
	struct row_group *groups;
	uint32_t *n_groups, *list;
	bf16 *inner, *inner_shared;
	float *part, *part_shared;
	uint64_t bytes;
};

static uint64_t take(uint64_t *at, uint64_t bytes)
{
	uint64_t from = *at;

	*at += CEIL_DIV(bytes, 256) * 256;
	return from;
}

/* Rows of a group, by an expert's on average: the streaming kernel for few, and tiles of
 * which a whole expert fills one as long as its weights weigh more than its rows. */
static uint32_t group_rows(uint32_t rows, uint32_t pairs, uint32_t experts)
{
	if (rows <= DIRECT_ROWS)
		return 1;
	if (pairs <= 4 * (uint64_t)experts)
		return 8;
	if (pairs <= 12 * (uint64_t)experts)
		return STREAM_ROWS_MAX;
	return pairs < 32 * (uint64_t)experts ? TILE_ROWS : LARGE_ROWS;
}

static struct moe_plan plan_slab(uint32_t rows, const struct kernel_shapes *s, void *work)
{
	struct moe_plan p = {.rows = rows,
		.top_k = s->top_k,
		.pairs = rows * s->top_k,
		.experts = s->n_experts};
	uint8_t *base = (uint8_t *)work;
	uint64_t at = 0;

	p.group_rows = group_rows(rows, p.pairs, p.experts);
	/* An expert's last group may be short. */
	p.max_groups = MIN(p.pairs, p.experts + p.pairs / p.group_rows);
	/* Room for groups of 8, so that more rows never need less. */
	p.groups =
		(struct row_group *)(base +
				     take(&at, sizeof(*p.groups) *
						       (uint64_t)MIN(p.pairs,
							       p.experts + p.pairs / 8)));
	p.n_groups = (uint32_t *)(base + take(&at, sizeof(*p.n_groups)));
	p.list = (uint32_t *)(base + take(&at, (uint64_t)p.pairs * sizeof(*p.list)));
	p.inner = (bf16 *)(base + take(&at, (uint64_t)p.pairs * s->width * sizeof(bf16)));
	p.inner_shared = (bf16 *)(base + take(&at, (uint64_t)rows * s->shared_width *
							   sizeof(bf16)));
	p.part = (float *)(base +
			   take(&at, (uint64_t)p.pairs * s->hidden * sizeof(float)));
	p.part_shared = (float *)(base + take(&at, s->shared_width > 0
							   ? (uint64_t)rows * s->hidden *
								     sizeof(float)
							   : 0));
	p.bytes = at;
	return p;
}

extern "C" uint64_t moe_cuda_groups_work(const struct kernel_shapes *s)
{
	return plan_slab(MIN(s->rows_max, MOE_SLAB), s, NULL).bytes;
}

/* Sum of v over the threads before this one; *total: over all. ws: a word per warp. */
static __device__ __forceinline__ uint32_t scan_block(
	uint32_t v, uint32_t *ws, uint32_t *total)
{
	uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, sum = v,
		 before = 0;

	for (uint32_t d = 1; d < WARP; d *= 2) {
		uint32_t other = __shfl_up_sync(FULL_WARP, sum, d);

		if (lane >= d)
			sum += other;
	}
	if (lane == WARP - 1)
		ws[warp] = sum;
	__syncthreads();
	*total = 0;
	for (uint32_t w = 0; w < SORT_BLOCK / WARP; w++) {
		before += w < warp ? ws[w] : 0;
		*total += ws[w];
	}
	__syncthreads();
	return before + sum - v;
}

/* One block: counts per expert, groups, and the list of choices by expert. An id that is
 * no expert's is left out. */
static __global__ void __launch_bounds__(SORT_BLOCK)
	moe_sort(const struct moe_plan p, const uint32_t *ids)
{
	static __shared__ uint32_t count[EXPERTS_MAX], ws[SORT_BLOCK / WARP];
	uint32_t e = threadIdx.x, mine, groups, at, group_at, total;

	count[e] = 0;
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < p.pairs; i += SORT_BLOCK) {
		if (ids[i] < p.experts)
			atomicAdd(&count[ids[i]], 1u);
	}
	__syncthreads();
	mine = count[e];
	groups = (mine + p.group_rows - 1) / p.group_rows;
	at = scan_block(mine, ws, &total);
	group_at = scan_block(groups, ws, &total);
	if (e == 0)
		*p.n_groups = total;
	for (uint32_t i = 0; i < mine; i += p.group_rows)
		p.groups[group_at++] = {e, at + i, min(p.group_rows, mine - i), 0};
	count[e] = at;
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < p.pairs; i += SORT_BLOCK) {
		if (ids[i] < p.experts)
			p.list[atomicAdd(&count[ids[i]], 1u)] = i;
	}
}

static __global__ void __launch_bounds__(SUM_BLOCK)
	moe_sum(bf16 *y, const struct moe_plan p, const float *weights,
		const float *shared, uint32_t hidden)
{
	uint32_t n = blockIdx.x * SUM_BLOCK + threadIdx.x;
	uint64_t t = blockIdx.y;
	float sum = 0.0f;

	if (n >= hidden)
		return;
	for (uint64_t i = t * p.top_k; i < (t + 1) * p.top_k; i++)
		sum = fmaf(weights[i], p.part[i * hidden + n], sum);
	if (shared != NULL)
		sum = fmaf(shared[t], p.part_shared[t * hidden + n], sum);
	y[t * hidden + n] = __float2bfloat16(sum);
}

/* gate and up into the inner rows, down into the parts. */
struct two_products {
	struct product in, out;
};

static struct two_products experts_of(const struct op_moe *op,
	const struct moe_plan *plan, const bf16 *x, const uint32_t *ids)
{
	bool direct = plan->group_rows == 1;
	struct product p = {
		.y = plan->inner,
		.x = x,
		.x_stride = op->gate->k,
		.y_stride = op->gate->n,
		.w = *op->gate,
		.up = *op->up,
		.out = OUT_SWIGLU,
		.n_rows = plan->pairs,
		.x_div = plan->top_k,
		.list = direct ? NULL : plan->list,
		.ids = direct ? ids : NULL,
		.groups = direct ? NULL : plan->groups,
		.n_groups = plan->n_groups,
		.max_groups = plan->max_groups,
	};
	struct two_products both = {p, p};

	p.y = plan->part;
	p.x = plan->inner;
	p.x_stride = op->down->k;
	p.y_stride = op->down->n;
	p.w = *op->down;
	p.out = OUT_F32;
	p.x_div = 1;
	both.out = p;
	return both;
}

static struct two_products shared_of(
	const struct op_moe *op, const bf16 *x, uint32_t rows, bf16 *inner, float *part)
{
	struct product p = {
		.y = inner,
		.x = x,
		.x_stride = op->sh_gate->k,
		.y_stride = op->sh_gate->n,
		.w = *op->sh_gate,
		.up = *op->sh_up,
		.out = OUT_SWIGLU,
		.n_rows = rows,
		.x_div = 1,
	};
	struct two_products both = {p, p};

	p.y = part;
	p.x = inner;
	p.x_stride = op->sh_down->k;
	p.y_stride = op->sh_down->n;
	p.w = *op->sh_down;
	p.out = OUT_F32;
	both.out = p;
	return both;
}

/* A variant of the op by groups: who serves its products, and its name. */
struct grouped {
	const struct product_way *products;
	const char *name;
};

static const struct grouped by_rows = {&product_by_rows, "moe/groups"};
static const struct grouped by_fp4 = {&product_fp4, "moe/fp4"};
static const struct grouped by_fp4_steps = {&product_fp4_steps, "moe/fp4_steps"};

static status run_both(struct stream *stream, const struct two_products *both,
	const struct product_way *by, uint32_t most, const char *what, struct err *err)
{
	status st = by->run(stream, &both->in, most, what, err);

	return st == ST_OK ? by->run(stream, &both->out, most, what, err) : st;
}

static void name_both(const struct two_products *both, const struct product_way *by,
	uint32_t most, const char *prefix, char names[KERNEL_NAMES_MAX])
{
	by->inner(&both->in, most, prefix, names);
	by->inner(&both->out, most, prefix, names);
}

status moe_cuda_shared(struct stream *stream, const struct op_moe *op, const bf16 *x,
	uint32_t rows, bf16 *inner, float *part, struct err *err)
{
	struct two_products both = shared_of(op, x, rows, inner, part);

	return run_both(stream, &both, &product_by_rows, 0, "moe, shared expert", err);
}

void moe_cuda_shared_inner(
	const struct op_moe *op, uint32_t rows, char names[KERNEL_NAMES_MAX])
{
	struct two_products both = shared_of(op, NULL, rows, NULL, NULL);

	name_both(&both, &product_by_rows, 0, "shared, ", names);
}

struct kernel_shapes moe_cuda_shapes(const struct op_moe *op)
{
	struct kernel_shapes s = {};

	s.rows_max = op->n_rows;
	s.hidden = op->down->n;
	s.n_experts = op->down->count;
	s.top_k = op->top_k;
	s.width = op->gate->n;
	s.shared_width = op->sh_gate != NULL ? op->sh_gate->n : 0;
	return s;
}

/* rows of the op from `first` on. */
static status run_slab(struct stream *stream, const struct grouped *by,
	const struct op_moe *op, uint32_t first, uint32_t rows, struct err *err)
{
	struct kernel_shapes shapes = moe_cuda_shapes(op);
	struct moe_plan plan = plan_slab(rows, &shapes, op->work);
	uint32_t hidden = shapes.hidden;
	const bf16 *x = (const bf16 *)op->x + (uint64_t)first * hidden;
	const uint32_t *ids = op->ids + (uint64_t)first * op->top_k;
	struct two_products both;
	status st;

	if (plan.group_rows > 1) {
		moe_sort<<<1, SORT_BLOCK, 0, stream->cuda>>>(plan, ids);
		st = cuda_launched(by->name, err);
		if (st != ST_OK)
			return st;
	}
	both = experts_of(op, &plan, x, ids);
	st = run_both(stream, &both, by->products, plan.group_rows, by->name, err);
	if (st == ST_OK && op->sh_gate != NULL) {
		both = shared_of(op, x, rows, plan.inner_shared, plan.part_shared);
		st = run_both(stream, &both, by->products, 0, by->name, err);
	}
	if (st != ST_OK)
		return st;
	moe_sum<<<dim3(CEIL_DIV(hidden, (uint32_t)SUM_BLOCK), rows), SUM_BLOCK, 0,
		stream->cuda>>>((bf16 *)op->y + (uint64_t)first * hidden, plan,
		op->weights + (uint64_t)first * op->top_k,
		op->sh_gate != NULL ? op->shared + first : NULL, hidden);
	return cuda_launched(by->name, err);
}

/* Of a whole slab; the last one of a pass may be any shorter one. The lists have no
 * memory yet, and a product tells their kinds apart by which it has: they stand at an
 * address that nobody reads. */
static void name_slab(
	const struct grouped *by, const struct op_moe *op, char names[KERNEL_NAMES_MAX])
{
	static uint32_t nowhere[1];
	struct kernel_shapes shapes = moe_cuda_shapes(op);
	struct moe_plan plan = plan_slab(MIN(op->n_rows, MOE_SLAB), &shapes, nowhere);
	struct two_products both = experts_of(op, &plan, NULL, nowhere);

	name_both(&both, by->products, plan.group_rows,
		plan.group_rows == 1 ? "unsorted, " : "experts, ", names);
	if (op->sh_gate != NULL) {
		both = shared_of(op, NULL, plan.rows, NULL, NULL);
		name_both(&both, by->products, 0, "shared, ", names);
	}
	if (op->n_rows > MOE_SLAB)
		kernel_named(names, "slabs");
}

extern "C" void moe_cuda_groups_inner(const void *op, char names[KERNEL_NAMES_MAX])
{
	name_slab(&by_rows, (const struct op_moe *)op, names);
}

extern "C" void moe_cuda_fp4_inner(const void *op, char names[KERNEL_NAMES_MAX])
{
	name_slab(&by_fp4, (const struct op_moe *)op, names);
}

static status run_slabs(struct stream *stream, const struct grouped *by,
	const struct op_moe *op, struct err *err)
{
	struct kernel_shapes shapes = moe_cuda_shapes(op);
	status st = moe_cuda_check(
		op, by->name, op->n_rows > 0 ? moe_cuda_groups_work(&shapes) : 0, err);

	if (st == ST_OK && op->down->count > EXPERTS_MAX)
		return err_set(err, ST_LIMIT, "%s: %u experts, at most %u", by->name,
			op->down->count, EXPERTS_MAX);
	if (st != ST_OK || op->n_rows == 0)
		return st;
	CUDA_ENTER(by->name);
	for (uint32_t t = 0; t < op->n_rows && st == ST_OK; t += MOE_SLAB)
		st = run_slab(stream, by, op, t, MIN(MOE_SLAB, op->n_rows - t), err);
	return st;
}

CUDA_KERNEL(moe, groups)
{
	return run_slabs(stream, &by_rows, op, err);
}

CUDA_KERNEL(moe, fp4)
{
	return run_slabs(stream, &by_fp4, op, err);
}

CUDA_KERNEL(moe, fp4_steps)
{
	return run_slabs(stream, &by_fp4_steps, op, err);
}

status moe_cuda_check(
	const struct op_moe *op, const char *what, uint64_t need, struct err *err)
{
	const struct weight *down = op->down, *gate = op->gate, *up = op->up;
	const struct weight *sh = op->sh_gate;

	if (op->first != 0 || op->n_experts != down->count)
		return err_set(err, ST_LIMIT,
			"%s: experts %u .. %u of %u; a part of them is not served", what,
			op->first, op->first + down->count, op->n_experts);
	if (gate->k != down->n || gate->n != down->k || up->k != gate->k ||
		up->n != gate->n || gate->count != down->count ||
		up->count != down->count || op->top_k == 0 || op->top_k > down->count)
		return err_set(err, ST_LIMIT,
			"%s: %u of %u experts; gate %u x %u, up %u x %u, down %u x %u",
			what, op->top_k, down->count, gate->n, gate->k, up->n, up->k,
			down->n, down->k);
	if (sh != NULL && (sh->k != down->n || op->sh_down->k != sh->n ||
				  op->sh_down->n != down->n || op->shared == NULL))
		return err_set(err, ST_LIMIT,
			"%s: shared expert of %u x %u, down %u x %u, beside rows of %u",
			what, sh->n, sh->k, op->sh_down->n, op->sh_down->k, down->n);
	if (op->work_bytes < need || (need > 0 && !is_aligned(op->work, 16)))
		return err_set(err, ST_LIMIT,
			"%s: %llu bytes of scratch at %p, %llu needed at an address of "
			"16 "
			"bytes",
			what, (unsigned long long)op->work_bytes, op->work,
			(unsigned long long)need);
	return ST_OK;
}
