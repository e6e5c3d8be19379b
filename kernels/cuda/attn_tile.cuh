/* What both attention kernels do: tiles of K and V from pages to shared memory. A tile
 * is KEYS rows of D BF16 values; the 16-byte pieces of a row are permuted by the row's
 * number, so that eight rows read at one place by ldmatrix touch all banks. */
#ifndef KERNELS_CUDA_ATTN_TILE_CUH
#define KERNELS_CUDA_ATTN_TILE_CUH
#include "kernels/cuda/cuda_common.cuh"

enum { ATTN_D = 256, ATTN_KEYS = 32, ATTN_WARPS = 4, ATTN_BLOCK = ATTN_WARPS * 32 };

/* Scores are kept times log2(e), so that exp2 serves. */
#define ATTN_SCALE (0.0625f * 1.44269504088896f)
static_assert(ATTN_D == 256, "0.0625 is the inverse root of 256");

/* Element of a tile at which a 16-byte piece of a row begins. */
static __device__ __forceinline__ uint32_t tile_at(uint32_t row, uint32_t piece)
{
	return row * ATTN_D + ((piece ^ (row & 7u)) * 8);
}

/* Pages of one sequence, 32 at a time, one in each lane: page tables may stand in host
 * memory, where a look-up costs a microsecond. */
struct page_window {
	const uint32_t *table;
	uint32_t n;    /* pages of the sequence */
	uint32_t base; /* the first page that is held */
	uint32_t mine; /* page base + lane */
};

static __device__ __forceinline__ void window_move(struct page_window *w, uint32_t page)
{
	uint32_t at = page + threadIdx.x % WARP;

	w->base = page;
	w->mine = at < w->n ? w->table[at] : 0;
}

static __device__ __forceinline__ struct page_window window_open(
	const struct op_rows &rows, const struct op_kv &kv, uint32_t seq, uint32_t from,
	uint32_t len)
{
	struct page_window w;

	w.table = rows.pages + (uint64_t)seq * rows.pages_stride;
	w.n = (len + kv.page_tokens - 1) / kv.page_tokens;
	window_move(&w, from / kv.page_tokens);
	return w;
}

/* Start the copies of keys from..from+KEYS-1 of a head; what is at or past len becomes
 * zero, so that nothing that other owners of a page left is ever multiplied. */
static __device__ __forceinline__ void load_tile(const struct op_kv &kv,
	struct page_window *w, uint32_t head, uint32_t from, uint32_t len, bf16 *k_tile,
	bf16 *v_tile)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t last = min(from + ATTN_KEYS, len) - 1;
	uint64_t v_offset = (uint64_t)kv.n_kv * kv.page_tokens * ATTN_D;

	if (last / kv.page_tokens >= w->base + WARP)
		window_move(w, from / kv.page_tokens);
#pragma unroll
	for (uint32_t i = 0; i < ATTN_KEYS / ATTN_WARPS; i++) {
		uint32_t r = i * ATTN_WARPS + threadIdx.x / WARP;
		uint32_t pos = min(from + r, len - 1);
		uint64_t page = __shfl_sync(
			FULL_WARP, w->mine, (int)(pos / kv.page_tokens - w->base));
		const bf16 *k =
			(const bf16 *)((const uint8_t *)kv.base + page * kv.page_bytes) +
			((uint64_t)head * kv.page_tokens + pos % kv.page_tokens) *
				ATTN_D +
			lane * 8;
		bool valid = from + r < len;

		copy16_async(&k_tile[tile_at(r, lane)], k, valid);
		copy16_async(&v_tile[tile_at(r, lane)], k + v_offset, valid);
	}
}

/* What both launchers refuse. */
static inline status attn_check(
	const char *what, const struct op_attn_prefill *op, struct err *err)
{
	const struct op_kv *kv = &op->kv;

	if (kv->head_dim != ATTN_D || kv->dtype != DT_BF16)
		return err_set(err, ST_LIMIT,
			"%s: head_dim %u in %s, only %d in bf16 is served", what,
			kv->head_dim, dtype_name(kv->dtype), ATTN_D);
	if (kv->n_kv == 0 || op->n_q % kv->n_kv != 0 || kv->page_tokens == 0)
		return err_set(err, ST_LIMIT,
			"%s: %u query heads over %u, pages of %u tokens", what, op->n_q,
			kv->n_kv, kv->page_tokens);
	if (!is_aligned(kv->base, 16) || kv->page_bytes % 16 != 0 ||
		!is_aligned(op->q, 16) || !is_aligned(op->o, 16) ||
		!is_aligned(op->qg, 16) || op->qg_stride % 8 != 0)
		return err_set(err, ST_LIMIT,
			"%s: pages of %llu bytes, row stride %u: 16-byte alignment is "
			"needed",
			what, (unsigned long long)kv->page_bytes, op->qg_stride);
	return ST_OK;
}

#endif
