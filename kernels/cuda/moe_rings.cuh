/* Experts in NVFP4 for few rows: what a block of moe_rings.cu does. Every block makes the
 * list of choices by expert for itself, in shared memory, then takes one run of tasks.
 *
 * An entry is an expert with up to 8 * NT of its rows; a task is an entry and as many
 * tiles of 16 weight rows as the block has warps per part of k. A warp keeps its part of
 * k of the entry's rows in registers while the entry lasts, and streams its weights
 * through a ring of two slots of its own, filled by bulk copies: no barrier of the block
 * stands in the loop. Parts of k meet in shared memory one task late, in a fixed order,
 * by warps that take turns. Which entry a row stands in never changes its bits. */
#ifndef KERNELS_CUDA_MOE_RINGS_CUH
#define KERNELS_CUDA_MOE_RINGS_CUH
#include "kernels/cuda/matrix.cuh"
#include "kernels/cuda/ring.cuh"

#define RING_SLOTS 2u
#define RING_PARTS 2u /* tasks whose parts of k may be on their way */

struct rings {
	const bf16 *x;       /* [rows][hidden] */
	const uint32_t *ids; /* [pairs]; pair = row * top_k + choice */
	const float *weights, *shared;
	bf16 *y;
	bf16 *inner; /* [pairs + rows][width]: of choices, then of the shared expert */
	float *part; /* [pairs + rows][hidden] */
	struct weight gate, up, down, sh_gate, sh_up, sh_down;
	uint32_t rows, pairs, top_k, experts, hidden, width;
	bool shared_task; /* the shared expert is one more entry, number `experts` */
	bool shared_part; /* its results stand behind those of the choices */
};

/* One of the two products. KW parts of k, each CH chunks of 64, by MW tiles. MATS: gate
 * and up, or down alone. */
template <int WARPS_, int KW_, int CH_, int NT_, int MATS_> struct ring_form {
	static constexpr uint32_t WARPS = WARPS_, KW = KW_, CH = CH_, MATS = MATS_;
	static constexpr int NT = NT_;
	static constexpr uint32_t MW = WARPS / KW, K = KW * CH * CHUNK_K;
	static constexpr uint32_t SLOT = CH * (TILE_CODES + TILE_SCALES);
	static constexpr uint32_t TURNS = MW * NT; /* warps that add a task's parts */
	static constexpr uint32_t PARTS =
		KW == 1 ? 0 : RING_PARTS * MW * MATS * NT * KW * WARP;
	static constexpr uint32_t AHEAD = NT == 1 ? 4 : 2; /* chunks in registers */
	static_assert(KW * MW == WARPS && CH % 4 == 0 && TURNS <= WARPS, "shape");
};

/* Entry: expert, first in the list, rows. */
static __device__ __forceinline__ uint32_t entry_of(
	uint32_t expert, uint32_t first, uint32_t count)
{
	return expert << 18 | first << 5 | count;
}

/* Shared memory of a block, in this order; `counts` is where the slots will be. */
struct ring_memory {
	uint8_t *slots;
	float4 *parts;
	uint64_t *full;             /* [products][warps][slots] */
	uint64_t *filled, *emptied; /* [products][RING_PARTS] */
	uint32_t *entries, *sums;
	uint16_t *list;
	uint32_t n_entries;
};

/* Sum of v over the threads before this one, and *total over all; v: two sums of 16 bits.
 * sums: a word per warp. */
template <uint32_t WARPS>
static __device__ __forceinline__ uint32_t rings_scan(
	uint32_t v, uint32_t *sums, uint32_t *total)
{
	uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, sum = v,
		 before = 0;

#pragma unroll
	for (uint32_t d = 1; d < WARP; d *= 2) {
		uint32_t other = __shfl_up_sync(FULL_WARP, sum, d);

		sum += lane >= d ? other : 0;
	}
	if (lane == WARP - 1)
		sums[warp] = sum;
	__syncthreads();
	*total = 0;
#pragma unroll
	for (uint32_t w = 0; w < WARPS; w++) {
		before += w < warp ? sums[w] : 0;
		*total += sums[w];
	}
	return before + sum - v;
}

/* Pairs of one warp: consecutive ones, so that the list does not depend on timing. Every
 * block makes its own, and blocks that share an expert must agree who is in which entry.
 */
template <uint32_t WARPS>
static __device__ __forceinline__ uint32_t rings_segment(const struct rings &r)
{
	return (r.pairs + WARPS * WARP - 1) / (WARPS * WARP) * WARP;
}

/* How many choices of each expert a warp has; an id that is no expert's is left out. */
template <uint32_t WARPS>
static __device__ __forceinline__ void rings_count(
	const struct rings &r, uint32_t *counts)
{
	uint32_t warp = threadIdx.x / WARP, segment = rings_segment<WARPS>(r);

	for (uint32_t e = threadIdx.x; e < WARPS * r.experts; e += WARPS * WARP)
		counts[e] = 0;
	__syncthreads();
	for (uint32_t i = threadIdx.x % WARP; i < segment; i += WARP) {
		uint32_t pair = warp * segment + i;
		uint32_t id = pair < r.pairs ? __ldg(r.ids + pair) : r.experts;

		if (id < r.experts)
			atomicAdd(&counts[warp * r.experts + id], 1u);
	}
	__syncthreads();
}

/* Counts become where each warp's choices of an expert begin in the list. */
template <uint32_t WARPS, uint32_t MOST>
static __device__ __forceinline__ void rings_entries(
	const struct rings &r, struct ring_memory *m, uint32_t *counts)
{
	constexpr uint32_t BLOCK = WARPS * WARP;
	uint32_t each = (r.experts + BLOCK - 1) / BLOCK, first = threadIdx.x * each;
	uint32_t last = min(first + each, r.experts), mine = 0, at, total;

	for (uint32_t e = first; e < last; e++) {
		uint32_t n = 0;

		for (uint32_t w = 0; w < WARPS; w++)
			n += counts[w * r.experts + e];
		mine += n << 16 | (n + MOST - 1) / MOST;
	}
	at = rings_scan<WARPS>(mine, m->sums, &total);
	for (uint32_t e = first; e < last; e++) {
		uint32_t from = at >> 16, to = from;

		for (uint32_t w = 0; w < WARPS; w++) {
			uint32_t n = counts[w * r.experts + e];

			counts[w * r.experts + e] = to;
			to += n;
		}
		for (uint32_t i = from; i < to; i += MOST)
			m->entries[at++ & 0xFFFFu] = entry_of(e, i, min(MOST, to - i));
		at += (to - from) << 16;
	}
	m->n_entries = total & 0xFFFFu;
	for (uint32_t i = threadIdx.x * MOST; r.shared_task && i < r.rows;
		i += BLOCK * MOST)
		m->entries[m->n_entries + i / MOST] =
			entry_of(r.experts, i, min(MOST, r.rows - i));
	if (r.shared_task)
		m->n_entries += (r.rows + MOST - 1) / MOST;
	__syncthreads();
}

/* Entries, and the list in order of experts, then of pairs. */
template <uint32_t WARPS, uint32_t MOST>
static __device__ __forceinline__ void rings_sort(
	const struct rings &r, struct ring_memory *m)
{
	uint32_t *counts = (uint32_t *)m->slots;
	uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
	uint32_t segment = rings_segment<WARPS>(r);

	rings_count<WARPS>(r, counts);
	rings_entries<WARPS, MOST>(r, m, counts);
	for (uint32_t i = lane; i < segment; i += WARP) {
		uint32_t pair = warp * segment + i;
		uint32_t id = pair < r.pairs ? __ldg(r.ids + pair) : r.experts;
		uint32_t same = __match_any_sync(FULL_WARP, id);
		uint32_t before = __popc(same & ((1u << lane) - 1));
		uint32_t *at = &counts[warp * r.experts + min(id, r.experts - 1)];
		uint32_t from = *at;

		__syncwarp();
		if (id < r.experts)
			m->list[from + before] = (uint16_t)pair;
		if (id < r.experts && before == 0)
			*at = from + __popc(same);
		__syncwarp();
	}
	fence_async(); /* bulk copies will write where the counts stood */
	__syncthreads();
}

/* The weights that one warp asks for, in the order in which it uses them. */
struct feed {
	uint8_t *slots;
	uint64_t *full;
	uint32_t entry, group, left; /* the next, and how many are to come */
	uint32_t groups;             /* tasks of an entry */
};

template <class Form> static __device__ __forceinline__ uint32_t ring_part(void)
{
	return threadIdx.x / WARP % Form::KW;
}

template <class Form> static __device__ __forceinline__ uint32_t ring_tile(void)
{
	return threadIdx.x / WARP / Form::KW;
}

/* Asks for the next weights into a slot that nobody reads any more; slot 0 is always that
 * of gate, 1 that of up. */
template <class Form>
static __device__ __forceinline__ void feed_slot(
	const struct rings &r, const struct ring_memory &m, struct feed *f, uint32_t slot)
{
	uint32_t expert = m.entries[f->entry] >> 18;
	uint32_t tile = f->group * Form::MW + ring_tile<Form>();
	bool routed = expert < r.experts;
	const struct weight &w = Form::MATS == 1 ? (routed ? r.down : r.sh_down)
				 : slot == 0     ? (routed ? r.gate : r.sh_gate)
						 : (routed ? r.up : r.sh_up);
	uint64_t chunk =
		((uint64_t)(routed ? expert : 0) * (f->groups * Form::MW) + tile) *
			(Form::K / CHUNK_K) +
		ring_part<Form>() * Form::CH;
	uint8_t *to = f->slots + slot * Form::SLOT;

	if (elect_lane()) {
		barrier_arrive_bytes(f->full + slot, Form::SLOT);
		copy_bulk(to, (const uint8_t *)w.data + chunk * TILE_CODES,
			Form::CH * TILE_CODES, f->full + slot);
		copy_bulk(to + Form::CH * TILE_CODES,
			(const uint8_t *)w.scale + chunk * TILE_SCALES,
			Form::CH * TILE_SCALES, f->full + slot);
	}
	f->left--;
	if (Form::MATS == 2 && slot == 0)
		return;
	if (++f->group == f->groups) {
		f->group = 0;
		f->entry++;
	}
}

/* An entry as a warp keeps it. */
struct ring_rows {
	uint32_t entry, count;
	float factor[2]; /* of the matrices' sums */
};

/* Row of inner and part for row i of an entry. */
static __device__ __forceinline__ uint32_t ring_pair(
	const struct rings &r, const struct ring_memory &m, uint32_t entry, uint32_t i)
{
	uint32_t first = (entry >> 5 & 0x1FFFu) + i;

	return entry >> 18 < r.experts ? m.list[first] : r.pairs + first;
}

/* A lane's part of k of the entry's rows, and where their results go. */
template <class Form>
static __device__ __forceinline__ void load_entry(const struct rings &r,
	const struct ring_memory &m, uint32_t entry,
	uint32_t (&x)[Form::NT][Form::CH * 8], struct ring_rows *rows)
{
	uint32_t lane = threadIdx.x % WARP, expert = entry >> 18;
	bool routed = expert < r.experts;
	uint32_t k = ring_part<Form>() * Form::CH * CHUNK_K + lane % 4 * 16;

	rows->entry = entry;
	rows->count = entry & 31u;
	if (Form::MATS == 1) {
		rows->factor[0] = routed ? r.down.scale2[expert] : r.sh_down.scale2[0];
	} else {
		rows->factor[0] = routed ? r.gate.scale2[expert] : r.sh_gate.scale2[0];
		rows->factor[1] = routed ? r.up.scale2[expert] : r.sh_up.scale2[0];
	}
#pragma unroll
	for (int n = 0; n < Form::NT; n++) {
		uint32_t i = n * 8 + lane / 4;
		uint32_t pair = ring_pair(r, m, entry, min(i, rows->count - 1));
		uint32_t row = Form::MATS == 1 ? pair
			       : routed        ? pair / r.top_k
					       : pair - r.pairs;
		const bf16 *from =
			(Form::MATS == 1 ? r.inner : r.x) + (uint64_t)row * Form::K + k;

#pragma unroll
		for (uint32_t h = 0; h < Form::CH * 2; h++) {
			uint4 v = make_uint4(0, 0, 0, 0);

			if (i < rows->count)
				v = __ldcg((const uint4 *)(from + h / 2 * CHUNK_K +
							   h % 2 * 8));
			x[n][4 * h] = v.x;
			x[n][4 * h + 1] = v.y;
			x[n][4 * h + 2] = v.z;
			x[n][4 * h + 3] = v.w;
		}
	}
}

/* acc += some chunks of weights times n-tiles 0 .. N - 1 of the rows; with one n-tile
 * even and odd steps have sums of their own, which halves the chain of products. */
template <int N, int NT, int XN, int AHEAD>
static __device__ __forceinline__ void ring_multiply(
	const struct chunk<WF_NVFP4> (&w)[AHEAD], const uint32_t (&x)[NT][XN],
	uint32_t from, float (&acc)[2][4])
{
#pragma unroll
	for (int c = 0; c < AHEAD; c++) {
#pragma unroll
		for (int j = 0; j < 4; j++) {
			uint32_t a[4], at = from + c * 8 + 2 * j;

			chunk_operand<WF_NVFP4>(w[c], j, a);
			mma_bf16(acc[NT == 1 ? j & 1 : 0], a, x[0][at], x[0][at + 1]);
			if constexpr (N > 1)
				mma_bf16(acc[1], a, x[1][at], x[1][at + 1]);
		}
	}
}

/* One slot against the entry's rows; the slot is asked for again as soon as it was read.
 */
template <class Form, int N>
static __device__ __forceinline__ void use_slot(const struct rings &r,
	const struct ring_memory &m, struct feed *f, uint32_t slot,
	const uint32_t (&x)[Form::NT][Form::CH * 8], float (&acc)[2][4])
{
	uint32_t lane = threadIdx.x % WARP;
	const uint8_t *from = f->slots + slot * Form::SLOT;

#pragma unroll
	for (uint32_t q = 0; q < Form::CH; q += Form::AHEAD) {
		struct chunk<WF_NVFP4> w[Form::AHEAD];

#pragma unroll
		for (uint32_t c = 0; c < Form::AHEAD; c++) {
			const uint8_t *scales = from + Form::CH * TILE_CODES;

			w[c].codes =
				*(const uint4 *)(from + (q + c) * TILE_CODES + lane * 16);
			w[c].scales = *(const uint16_t *)(scales + (q + c) * TILE_SCALES +
							  lane * 2);
		}
		if (q + Form::AHEAD == Form::CH) {
			__syncwarp();
			if (f->left > 0)
				feed_slot<Form>(r, m, f, slot);
		}
		ring_multiply<N>(w, x, q * 8, acc);
	}
	if (Form::NT == 1) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			acc[0][i] += acc[1][i];
			acc[1][i] = 0.0f;
		}
	}
}

/* The sums of one tile and n-tile, all parts of k together; v[1]: of up. */
template <class Form>
static __device__ __forceinline__ void ring_store(const struct rings &r,
	const struct ring_memory &m, const struct ring_rows &rows, uint32_t tile,
	uint32_t n, const float4 (&v)[Form::MATS])
{
	uint32_t lane = threadIdx.x % WARP, at = tile * 16 + lane / 4;

#pragma unroll
	for (uint32_t o = 0; o < 2; o++) {
		uint32_t i = n * 8 + lane % 4 * 2 + o;
		uint64_t pair = ring_pair(r, m, rows.entry, min(i, rows.count - 1));
		float low = (o == 0 ? v[0].x : v[0].y) * rows.factor[0] * TILES_UNSCALE;
		float high = (o == 0 ? v[0].z : v[0].w) * rows.factor[0] * TILES_UNSCALE;

		if (i >= rows.count)
			break;
		if constexpr (Form::MATS == 1) {
			float *to = r.part + pair * r.hidden + at;

			to[0] = low;
			to[8] = high;
		} else {
			bf16 *to = r.inner + pair * r.width + at;
			float f = rows.factor[1] * TILES_UNSCALE;

			to[0] = __float2bfloat16(
				dev_silu(low) * ((o == 0 ? v[1].x : v[1].y) * f));
			to[8] = __float2bfloat16(
				dev_silu(high) * ((o == 0 ? v[1].z : v[1].w) * f));
		}
	}
}

#endif
