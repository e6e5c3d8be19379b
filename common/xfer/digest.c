/* The digest of a state. Memory is read through the backend, in pieces that stay in the
 * cache, so it works for any device; it is an option for tests and for the suspicious,
 * not a fast path. */
#include "common/xfer/digest.h"
#include "common/base/hash.h"
#include "common/base/mem.h"

#define PIECE_BYTES (UINT64_C(64) << 10)

struct hasher {
	const struct xfer_side *side;
	const atomic_bool *cancel;
	uint32_t variant;
	uint64_t running;
	struct stream *stream[RANKS_MAX];
	uint8_t *piece;
};

uint32_t digest_variants(const struct layout *l)
{
	return l->aux_bytes > 0 ? l->ranks : layout_kv_replicas(l);
}

static status fold(
	struct hasher *h, uint32_t rank, uint64_t offset, uint64_t bytes, struct err *err)
{
	const struct backend_ops *ops = h->side->backend[rank]->ops;
	const uint8_t *arena = h->side->arena[rank];

	if (atomic_load_explicit(h->cancel, memory_order_relaxed))
		return err_set(err, ST_CANCELLED, "the digest was cancelled");
	for (uint64_t at = 0; at < bytes; at += PIECE_BYTES) {
		uint64_t n = MIN(PIECE_BYTES, bytes - at);
		status st = ops->download(
			h->stream[rank], h->piece, arena + offset + at, n, err);

		if (st == ST_OK)
			st = ops->stream_sync(h->stream[rank], err);
		if (st != ST_OK)
			return st;
		h->running = hash64(h->piece, n, h->running);
	}
	return ST_OK;
}

static status fold_page(struct hasher *h, uint64_t page_at, struct err *err)
{
	const struct layout *l = &h->side->layout;
	uint64_t head_bytes = l->kv_layer_bytes / (UINT64_C(2) * l->local_kv);
	uint32_t copies = layout_kv_replicas(l);
	status st = ST_OK;

	for (uint64_t half = 0; half < UINT64_C(2) * l->n_attn; half++)
		for (uint32_t head = 0; head < l->n_kv && st == ST_OK; head++)
			st = fold(h, head / l->local_kv * copies + h->variant % copies,
				page_at + (half * l->local_kv + head % l->local_kv) *
						  head_bytes,
				head_bytes, err);
	return st;
}

/* n heads over all ranks, each of unit bytes, local of them at at on every rank. */
static status fold_heads(struct hasher *h, uint64_t at, uint32_t n, uint32_t local,
	uint64_t unit, struct err *err)
{
	status st = ST_OK;

	for (uint32_t head = 0; head < n && st == ST_OK; head++)
		st = fold(h, head / local, at + head % local * unit, unit, err);
	return st;
}

static status fold_slot(struct hasher *h, uint64_t slot_at, struct err *err)
{
	const struct layout *l = &h->side->layout;
	uint64_t channel = (l->taps - 1) * dtype_bytes((enum dtype)l->conv_dtype);
	uint64_t q_bytes = l->local_k * l->dk * channel;
	status st = ST_OK;

	for (uint64_t i = 0; i < l->n_gdn && st == ST_OK; i++)
		st = fold_heads(h, slot_at + i * l->rec_layer_bytes, l->n_v, l->local_v,
			UINT64_C(4) * l->dv * l->dk, err);
	for (uint64_t i = 0; i < l->n_gdn && st == ST_OK; i++) {
		uint64_t at = slot_at + l->conv_offset + i * l->conv_layer_bytes;

		st = fold_heads(h, at, l->n_k, l->local_k, l->dk * channel, err);
		if (st == ST_OK)
			st = fold_heads(h, at + q_bytes, l->n_k, l->local_k,
				l->dk * channel, err);
		if (st == ST_OK)
			st = fold_heads(h, at + 2 * q_bytes, l->n_v, l->local_v,
				l->dv * channel, err);
	}
	if (st == ST_OK)
		st = fold(h, h->variant % l->ranks,
			slot_at + layout_state_bytes(l) - l->aux_bytes, l->aux_bytes,
			err);
	return st;
}

status digest_compute(const struct xfer_side *side, const struct plan_refs *refs,
	uint32_t variant, const atomic_bool *cancel, uint64_t *out, struct err *err)
{
	struct hasher h = {.side = side, .cancel = cancel, .variant = variant};
	status st = ST_OK;

	h.piece = mem_take(1, PIECE_BYTES);
	if (h.piece == NULL)
		st = err_set(err, ST_LIMIT, "no request memory for a digest");
	for (uint32_t r = 0; r < side->n_ranks && st == ST_OK; r++)
		st = side->backend[r]->ops->stream_create(
			side->backend[r], &h.stream[r], err);
	for (uint32_t i = 0; i < refs->n_pages && st == ST_OK; i++)
		st = fold_page(
			&h, layout_page_offset(&side->layout, refs->pages[i]), err);
	if (st == ST_OK && refs->slot != 0)
		st = fold_slot(&h,
			layout_slot_offset(&side->layout, refs->arena_pages, refs->slot),
			err);
	for (uint32_t r = 0; r < side->n_ranks; r++)
		if (h.stream[r] != NULL)
			side->backend[r]->ops->stream_destroy(h.stream[r]);
	mem_give(h.piece);
	if (st == ST_OK)
		*out = h.running;
	return st;
}
