/* One product of a block of moe_rings.cu: its tasks one after the other, the parts of k
 * added one task late; and the sum of a row's results at the end. */
#ifndef KERNELS_CUDA_MOE_RINGS_RUN_CUH
#define KERNELS_CUDA_MOE_RINGS_RUN_CUH
#include "kernels/cuda/moe_rings.cuh"

template <class Form> struct phase_state {
	struct feed feed;
	uint32_t first, n; /* tasks of this block */
	uint64_t *filled, *emptied;
};

/* Which tasks are this block's, and its first weights on their way. */
template <class Form>
static __device__ __forceinline__ struct phase_state<Form> phase_begin(
	const struct rings &r, const struct ring_memory &m, uint32_t product) {
	uint32_t warp = threadIdx.x / WARP;
	uint32_t groups = (Form::MATS == 1 ? r.hidden : r.width) / 16 / Form::MW;
	uint32_t total = m.n_entries * groups, each = total / gridDim.x;
	uint32_t more = total % gridDim.x, b = blockIdx.x;
	struct phase_state<Form> p;

	p.first = b * each + min(b, more);
	p.n = each + (b < more ? 1 : 0);
	p.filled = m.filled + product * RING_PARTS;
	p.emptied = m.emptied + product * RING_PARTS;
	p.feed.slots = m.slots + warp * RING_SLOTS * Form::SLOT;
	p.feed.full = m.full + (product * Form::WARPS + warp) * RING_SLOTS;
	p.feed.groups = groups;
	p.feed.entry = p.first / groups;
	p.feed.group = p.first % groups;
	p.feed.left = p.n * Form::MATS;
	for (uint32_t s = 0; s < RING_SLOTS && p.feed.left > 0; s++)
		feed_slot<Form>(r, m, &p.feed, s);
	return p;
}

template <class Form>
static __device__ __forceinline__ uint32_t part_at(
	uint32_t task, uint32_t tile, uint32_t n, uint32_t mat)
{
	return ((((task % RING_PARTS) * Form::MW + tile) * Form::NT + n) * Form::MATS +
		       mat) *
	       Form::KW * WARP;
}

/* Task i of the block: its parts of k, added by the warps whose turn it is. */
template <class Form>
static __device__ __forceinline__ void add_parts(const struct rings &r,
	const struct ring_memory &m, const struct phase_state<Form> &p,
	const struct ring_rows &rows, uint32_t i, uint32_t group)
{
	uint32_t turn = (threadIdx.x / WARP + i * Form::TURNS) % Form::WARPS;
	uint32_t tile = turn / Form::NT, n = turn % Form::NT;
	float4 v[Form::MATS];

	if (turn >= Form::TURNS)
		return;
	barrier_wait(p.filled + i % RING_PARTS, i / RING_PARTS & 1u);
#pragma unroll
	for (uint32_t a = 0; a < Form::MATS; a++) {
		const float4 *from =
			m.parts + part_at<Form>(i, tile, n, a) + threadIdx.x % WARP;

		v[a] = make_float4(0, 0, 0, 0);
		if (n * 8 >= rows.count)
			continue;
#pragma unroll
		for (uint32_t k = 0; k < Form::KW; k++) {
			float4 one = from[k * WARP];

			v[a].x += one.x;
			v[a].y += one.y;
			v[a].z += one.z;
			v[a].w += one.w;
		}
	}
	barrier_arrive(p.emptied + i % RING_PARTS);
	ring_store<Form>(r, m, rows, group * Form::MW + tile, n, v);
}

/* This warp's sums of task i, to where they are added. */
template <class Form>
static __device__ __forceinline__ void put_parts(const struct ring_memory &m,
	const struct phase_state<Form> &p, const struct ring_rows &rows, uint32_t i,
	const float (&acc)[Form::MATS][2][4])
{
	if (i >= RING_PARTS)
		barrier_wait(p.emptied + i % RING_PARTS, (i / RING_PARTS - 1) & 1u);
#pragma unroll
	for (uint32_t n = 0; n < Form::NT; n++) {
#pragma unroll
		for (uint32_t a = 0; a < Form::MATS; a++) {
			const float *v = acc[a][n];

			if (n * 8 < rows.count)
				m.parts[part_at<Form>(i, ring_tile<Form>(), n, a) +
					ring_part<Form>() * WARP + threadIdx.x % WARP] =
					make_float4(v[0], v[1], v[2], v[3]);
		}
	}
	barrier_arrive(p.filled + i % RING_PARTS);
}

/* Where whole rows of weights are one warp's. */
template <class Form>
static __device__ __forceinline__ void store_sums(const struct rings &r,
	const struct ring_memory &m, const struct ring_rows &rows, uint32_t group,
	const float (&acc)[Form::MATS][2][4])
{
#pragma unroll
	for (uint32_t n = 0; n < Form::NT; n++) {
		float4 v[Form::MATS];

#pragma unroll
		for (uint32_t a = 0; a < Form::MATS; a++)
			v[a] = make_float4(
				acc[a][n][0], acc[a][n][1], acc[a][n][2], acc[a][n][3]);
		ring_store<Form>(r, m, rows, group * Form::MW + ring_tile<Form>(), n, v);
	}
}

/* The weights of task i, one slot after the other. */
template <class Form>
static __device__ __forceinline__ void use_slots(const struct rings &r,
	const struct ring_memory &m, struct phase_state<Form> *p, uint32_t i,
	uint32_t count, const uint32_t (&x)[Form::NT][Form::CH * 8],
	float (&acc)[Form::MATS][2][4])
{
#pragma unroll
	for (uint32_t a = 0; a != Form::MATS; a++) {
		uint32_t use = i * Form::MATS + a, slot = use % RING_SLOTS;

		barrier_wait(p->feed.full + slot, use / RING_SLOTS & 1u);
		if (Form::NT != 1 && count > 8)
			use_slot<Form, Form::NT>(r, m, &p->feed, slot, x, acc[a]);
		else
			use_slot<Form, 1>(r, m, &p->feed, slot, x, acc[a]);
	}
}

/* Tiles of the task before that of `group`, the next one's. */
template <class Form>
static __device__ __forceinline__ uint32_t group_before(
	const struct phase_state<Form> &p, uint32_t group)
{
	return (group == 0 ? p.feed.groups : group) - 1;
}

/* One product of the block's tasks. */
template <class Form>
static __device__ __forceinline__ void phase_run(
	const struct rings &r, const struct ring_memory &m, struct phase_state<Form> *p)
{
	constexpr bool is_cut = Form::KW != 1;
	uint32_t entry = p->first / p->feed.groups, group = p->first % p->feed.groups;
	bool owed = false; /* the parts of the task before are not added yet */
	uint32_t x[Form::NT][Form::CH * 8];
	struct ring_rows rows;

#pragma unroll 1
	for (uint32_t i = 0; i != p->n; i++) {
		float acc[Form::MATS][2][4] = {};

		if (i == 0 || group == 0) {
			if (is_cut && owed)
				add_parts<Form>(
					r, m, *p, rows, i - 1, group_before(*p, group));
			owed = false;
			load_entry<Form>(r, m, m.entries[entry], x, &rows);
		}
		use_slots<Form>(r, m, p, i, rows.count, x, acc);
		if constexpr (is_cut) {
			put_parts<Form>(m, *p, rows, i, acc);
			if (owed)
				add_parts<Form>(
					r, m, *p, rows, i - 1, group_before(*p, group));
			owed = true;
		} else {
			store_sums<Form>(r, m, rows, group, acc);
		}
		if (++group == p->feed.groups) {
			group = 0;
			entry++;
		}
	}
	if (is_cut && owed)
		add_parts<Form>(r, m, *p, rows, p->n - 1, group_before(*p, group));
}

/* y of every row, four values a thread. */
static __device__ __forceinline__ void rings_sum(const struct rings &r)
{
	uint32_t quads = r.hidden / 4;

	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < r.rows * quads;
		i += gridDim.x * blockDim.x) {
		uint32_t t = i / quads, at = i % quads * 4;
		float4 sum = make_float4(0, 0, 0, 0);

		for (uint32_t j = 0; j < r.top_k + (r.shared_part ? 1 : 0); j++) {
			uint64_t pair = j < r.top_k ? t * r.top_k + j : r.pairs + t;
			float w = j < r.top_k ? r.weights[pair] : r.shared[t];
			float4 v =
				__ldcg((const float4 *)(r.part + pair * r.hidden + at));

			sum.x = fmaf(w, v.x, sum.x);
			sum.y = fmaf(w, v.y, sum.y);
			sum.z = fmaf(w, v.z, sum.z);
			sum.w = fmaf(w, v.w, sum.w);
		}
		*(uint2 *)(r.y + (uint64_t)t * r.hidden + at) =
			make_uint2(pack2(sum.x, sum.y), pack2(sum.z, sum.w));
	}
}

#endif
