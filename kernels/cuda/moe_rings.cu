/* Mixture of experts in NVFP4 for up to 256 rows, one launch: the blocks, two to a
 * multiprocessor and all of them running, sort the choices, multiply by gate and up,
 * meet, multiply by down, meet, and add the results of a row in the order of the router's
 * list. The first weights of down are asked for before the blocks meet. A shared expert
 * of the same format and width is one more entry; another one is computed before, by the
 * products of groups.
 *
 * Bound by the bytes of the chosen experts up to some 64 rows, then by the instructions
 * that turn codes into BF16. Passes and shapes that it does not take are those of
 * moe/groups. */
#include "kernels/cuda/moe.cuh"
#include "kernels/cuda/moe_rings_run.cuh"
#include <cooperative_groups.h>

enum { RINGS_ROWS = 256, RINGS_EXPERTS = 1024, RINGS_PAIRS = 8192 - RINGS_ROWS };

/* Of a multiprocessor: what its shared memory has room for. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define RINGS_BLOCKS 1
#else
#define RINGS_BLOCKS 2
#endif

template <class G, class D>
static __host__ __device__ constexpr uint32_t barriers_bytes(void)
{
	return 2 * (G::WARPS * RING_SLOTS + 2 * RING_PARTS) * sizeof(uint64_t);
}

template <class G, class D>
static __host__ __device__ constexpr uint32_t parts_bytes(void)
{
	return (G::PARTS > D::PARTS ? G::PARTS : D::PARTS) * sizeof(float4);
}

template <class G, class D>
static __device__ __forceinline__ void init_memory(
	const struct rings &r, struct ring_memory *m, uint8_t *base, uint32_t entries)
{
	m->slots = base;
	m->parts = (float4 *)(base + G::WARPS * RING_SLOTS * G::SLOT);
	m->full = (uint64_t *)((uint8_t *)m->parts + parts_bytes<G, D>());
	m->filled = m->full + 2 * G::WARPS * RING_SLOTS;
	m->emptied = m->filled + 2 * RING_PARTS;
	m->sums = (uint32_t *)(m->emptied + 2 * RING_PARTS);
	m->entries = m->sums + G::WARPS;
	m->list = (uint16_t *)(m->entries + entries);
	if (threadIdx.x == 0) {
		for (uint32_t i = 0; i < 2 * G::WARPS * RING_SLOTS; i++)
			barrier_init(m->full + i, 1);
		for (uint32_t i = 0; i < 2 * RING_PARTS; i++) {
			uint32_t turns = i < RING_PARTS ? G::TURNS : D::TURNS;

			barrier_init(m->filled + i, G::WARPS * WARP);
			barrier_init(m->emptied + i, turns * WARP);
		}
		barrier_init_done();
	}
	rings_sort<G::WARPS, G::NT * 8>(r, m); /* meets after the inits */
}

template <class G, class D>
static __global__ void __launch_bounds__(G::WARPS *WARP, RINGS_BLOCKS)
	moe_rings_kernel(const __grid_constant__ struct rings r, uint32_t entries)
{
	extern __shared__ __align__(128) uint8_t rings_base[];
	struct ring_memory m;

	init_memory<G, D>(r, &m, rings_base, entries);
	{
		struct phase_state<G> p = phase_begin<G>(r, m, 0);

		phase_run<G>(r, m, &p);
	}
	{
		struct phase_state<D> p = phase_begin<D>(r, m, 1);

		cooperative_groups::this_grid().sync();
		phase_run<D>(r, m, &p);
	}
	cooperative_groups::this_grid().sync();
	rings_sum(r);
}

/* ---- host ---- */

/* A kernel and what it takes. */
struct ring_kernel {
	const void *run;
	uint32_t hidden, width;
	uint32_t most;    /* rows of an entry */
	uint32_t threads; /* of a block */
	uint32_t tiles;   /* of a task of gate and up */
	uint32_t bytes;   /* of shared memory, without the lists */
};

template <class G, class D> static struct ring_kernel ring_kernel_of(void)
{
	static_assert(G::SLOT == D::SLOT && G::WARPS == D::WARPS && G::NT == D::NT &&
			      D::K / 16 % G::MW == 0 && G::K / 16 % D::MW == 0,
		"one block does both products, in whole tasks");
	static_assert(RINGS_EXPERTS * G::WARPS * sizeof(uint32_t) <=
			      G::WARPS * RING_SLOTS * G::SLOT,
		"counts stand where the slots will be");
	return {(const void *)moe_rings_kernel<G, D>, G::K, D::K, G::NT * 8u,
		G::WARPS * WARP, G::MW,
		G::WARPS * RING_SLOTS * G::SLOT + parts_bytes<G, D>() +
			barriers_bytes<G, D>() + G::WARPS * (uint32_t)sizeof(uint32_t)};
}

/* gate and up, then down: k of 2048, 4096 and 3072 into 512 or 1024 and back. With more
 * than three choices per expert most experts have more than 8 rows, and an entry takes
 * 16, in registers of half as many k. */
static struct ring_kernel kernel_for(const struct op_moe *op)
{
	if (op->gate->k == 4096)
		return ring_kernel_of<ring_form<8, 8, 8, 1, 2>,
			ring_form<8, 2, 8, 1, 1>>();
	if (op->gate->k == 3072)
		return ring_kernel_of<ring_form<6, 6, 8, 1, 2>,
			ring_form<6, 2, 8, 1, 1>>();
	if ((uint64_t)op->n_rows * op->top_k > 3 * (uint64_t)op->down->count)
		return ring_kernel_of<ring_form<8, 8, 4, 2, 2>,
			ring_form<8, 2, 4, 2, 1>>();
	return ring_kernel_of<ring_form<8, 4, 8, 1, 2>, ring_form<8, 1, 8, 1, 1>>();
}

/* Is the shared expert one of the entries? */
static bool is_entry(const struct op_moe *op)
{
	return op->sh_gate != NULL && op->sh_gate->n == op->gate->n &&
	       op->sh_gate->format == WF_NVFP4 && op->sh_up->format == WF_NVFP4 &&
	       op->sh_down->format == WF_NVFP4;
}

static uint32_t most_entries(const struct op_moe *op, uint32_t most)
{
	uint32_t pairs = op->n_rows * op->top_k;

	return MIN(pairs, op->down->count + pairs / most) +
	       (is_entry(op) ? CEIL_DIV(op->n_rows, most) : 0);
}

static uint32_t smem_bytes(const struct op_moe *op, const struct ring_kernel *k)
{
	return k->bytes + most_entries(op, k->most) * (uint32_t)sizeof(uint32_t) +
	       op->n_rows * op->top_k * (uint32_t)sizeof(uint16_t);
}

/* Is the pass one for these kernels? Nothing but its shape and formats says so. */
static bool is_taken(const struct op_moe *op)
{
	struct ring_kernel k = kernel_for(op);

	return op->n_rows > 0 && op->n_rows <= RINGS_ROWS &&
	       op->down->count <= RINGS_EXPERTS && op->gate->k == k.hidden &&
	       op->gate->n == k.width &&
	       (uint64_t)op->n_rows * op->top_k <= RINGS_PAIRS &&
	       op->gate->format == WF_NVFP4 && op->up->format == WF_NVFP4 &&
	       op->down->format == WF_NVFP4 && smem_bytes(op, &k) <= CUDA_SMEM_MAX;
}

extern "C" void moe_cuda_rings_inner(const void *arg, char names[KERNEL_NAMES_MAX])
{
	const struct op_moe *op = (const struct op_moe *)arg;

	if (!is_taken(op)) {
		moe_cuda_groups_inner(op, names);
		return;
	}
	kernel_named(names, "rings of %u", kernel_for(op).most);
	if (is_entry(op))
		kernel_named(names, "shared in rings");
	else if (op->sh_gate != NULL)
		moe_cuda_shared_inner(op, op->n_rows, names);
}

/* Scratch: inner rows of choices and of a shared expert that is one of them; of another
 * one; results. */
struct rings_work {
	uint64_t inner_shared, part, bytes;
};

static struct rings_work place(uint64_t rows, const struct kernel_shapes *s)
{
	uint64_t all = rows * (s->top_k + 1);
	struct rings_work w;

	w.inner_shared = CEIL_DIV(all * s->width * sizeof(bf16), 256) * 256;
	w.part = w.inner_shared +
		 CEIL_DIV(rows * s->shared_width * sizeof(bf16), 256) * 256;
	w.bytes = w.part + all * s->hidden * sizeof(float);
	return w;
}

extern "C" uint64_t moe_cuda_rings_work(const struct kernel_shapes *s)
{
	return MAX(moe_cuda_groups_work(s),
		place(MIN(s->rows_max, (uint32_t)RINGS_ROWS), s).bytes);
}

static status check_tiles(const struct weight *w, struct err *err)
{
	if (w->layout == LAYOUT_TILES && is_aligned(w->data, 16) &&
		is_aligned(w->scale, 16))
		return ST_OK;
	return err_set(err, ST_LIMIT,
		"moe/rings: weights in layout %u, not %u, or at an address not of 16 "
		"bytes",
		w->layout, LAYOUT_TILES);
}

static status check(const struct op_moe *op, uint64_t need, struct err *err)
{
	const struct weight *all[] = {
		op->gate, op->up, op->down, op->sh_gate, op->sh_up, op->sh_down};
	status st = moe_cuda_check(op, "moe/rings", need, err);

	for (uint32_t i = 0; i < (is_entry(op) ? 6u : 3u) && st == ST_OK; i++)
		st = check_tiles(all[i], err);
	if (st == ST_OK && (!is_aligned(op->x, 16) || !is_aligned(op->y, 16)))
		st = err_set(err, ST_LIMIT,
			"moe/rings: activations at an address not of 16 bytes");
	return st;
}

static struct rings rings_of(const struct op_moe *op, const struct rings_work *w)
{
	uint8_t *base = (uint8_t *)op->work;
	struct rings r = {};

	r.x = (const bf16 *)op->x;
	r.ids = op->ids;
	r.weights = op->weights;
	r.shared = op->shared;
	r.y = (bf16 *)op->y;
	r.inner = (bf16 *)base;
	r.part = (float *)(base + w->part);
	r.gate = *op->gate;
	r.up = *op->up;
	r.down = *op->down;
	r.rows = op->n_rows;
	r.pairs = op->n_rows * op->top_k;
	r.top_k = op->top_k;
	r.experts = op->down->count;
	r.hidden = op->down->n;
	r.width = op->gate->n;
	if (op->sh_gate == NULL)
		return r;
	r.shared_part = true;
	r.shared_task = is_entry(op);
	r.sh_gate = *op->sh_gate;
	r.sh_up = *op->sh_up;
	r.sh_down = *op->sh_down;
	return r;
}

static status launch(
	struct stream *stream, const struct op_moe *op, struct rings *r, struct err *err)
{
	const char *what = "moe/rings";
	struct ring_kernel k = kernel_for(op);
	uint32_t entries = most_entries(op, k.most), bytes = smem_bytes(op, &k);
	uint32_t tasks = entries * (k.width / 16 / k.tiles);
	void *args[] = {r, &entries};
	int sms = 0, each = 0;

	CUDA_ALLOW_SMEM(what, k.run, bytes);
	CUDA_TRY(what, cudaDeviceGetAttribute(
			       &sms, cudaDevAttrMultiProcessorCount, stream->device));
	CUDA_TRY(what, cudaOccupancyMaxActiveBlocksPerMultiprocessor(
			       &each, k.run, (int)k.threads, bytes));
	CUDA_TRY(
		what, cudaLaunchCooperativeKernel(k.run,
			      dim3(MIN((uint32_t)(MIN(each, RINGS_BLOCKS) * sms), tasks)),
			      dim3(k.threads), args, bytes, stream->cuda));
	return cuda_launched(what, err);
}

CUDA_KERNEL(moe, rings)
{
	struct kernel_shapes shapes = moe_cuda_shapes(op);
	struct rings_work w = place(op->n_rows, &shapes);
	struct rings r;
	status st;

	if (!is_taken(op))
		return k_moe_cuda_groups(stream, op, err);
	st = check(op, w.bytes, err);
	if (st != ST_OK)
		return st;
	CUDA_ENTER("moe/rings");
	r = rings_of(op, &w);
	if (r.shared_part && !r.shared_task)
		st = moe_cuda_shared(stream, op, r.x, r.rows,
			(bf16 *)((uint8_t *)op->work + w.inner_shared),
			r.part + (uint64_t)r.pairs * r.hidden, err);
	return st == ST_OK ? launch(stream, op, &r, err) : st;
}
