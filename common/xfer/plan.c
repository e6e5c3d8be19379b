/* The transfer plan. Everything is walked in the destination's order and by the
 * smallest unit that both sides keep whole, a head; add_copy merges what lies next to
 * each other on both sides, so equal parallelism ends as whole pages and slots. */
#include "common/xfer/plan.h"
#include <assert.h>
#include <inttypes.h>

struct builder {
	const struct layout *src, *dst;
	struct plan_copy *out;
	uint64_t n, max;
	bool full;
};

static void add_copy(struct builder *b, struct plan_copy c)
{
	struct plan_copy *last = b->n > 0 ? &b->out[b->n - 1] : NULL;

	if (last != NULL && last->src_rank == c.src_rank &&
		last->dst_rank == c.dst_rank &&
		last->src_offset + last->bytes == c.src_offset &&
		last->dst_offset + last->bytes == c.dst_offset) {
		last->bytes += c.bytes;
		return;
	}
	if (b->n == b->max) {
		b->full = true;
		return;
	}
	b->out[b->n++] = c;
}

/* First KV head of a rank, as the whole model counts. */
static uint32_t first_kv(const struct layout *l, uint32_t rank)
{
	return rank / layout_kv_replicas(l) * l->local_kv;
}

/* One page into one rank. The destination's replicas of a head are spread over the
 * source's. */
static void add_page(
	struct builder *b, uint32_t rank, uint64_t src_page_at, uint64_t dst_page_at)
{
	const struct layout *src = b->src, *dst = b->dst;
	uint64_t head_bytes = src->kv_layer_bytes / (UINT64_C(2) * src->local_kv);
	uint32_t n_replicas = layout_kv_replicas(src);

	for (uint64_t half = 0; half < UINT64_C(2) * dst->n_attn; half++)
		for (uint32_t h = 0; h < dst->local_kv; h++) {
			uint32_t head = first_kv(dst, rank) + h;

			add_copy(b,
				(struct plan_copy){
					.src_rank = head / src->local_kv * n_replicas +
						    rank % n_replicas,
					.dst_rank = rank,
					.src_offset = src_page_at +
						      (half * src->local_kv +
							      head % src->local_kv) *
							      head_bytes,
					.dst_offset =
						dst_page_at +
						(half * dst->local_kv + h) * head_bytes,
					.bytes = head_bytes,
				});
		}
}

/* n_local heads of unit bytes each on the destination, src_local on a source rank;
 * src_at and dst_at: where this run of heads begins on any source rank and here. */
static void add_heads(
	struct builder *b, struct plan_copy at, uint32_t src_local, uint32_t n_local)
{
	uint64_t unit = at.bytes;

	for (uint32_t h = 0; h < n_local; h++) {
		uint32_t head = at.dst_rank * n_local + h;

		add_copy(b, (struct plan_copy){
				    .src_rank = head / src_local,
				    .dst_rank = at.dst_rank,
				    .src_offset = at.src_offset + head % src_local * unit,
				    .dst_offset = at.dst_offset + h * unit,
				    .bytes = unit,
			    });
	}
}

/* Conv state of one layer: three parts, each cut by its own heads. */
static void add_conv(struct builder *b, struct plan_copy at)
{
	const struct layout *src = b->src, *dst = b->dst;
	uint64_t channel =
		(src->taps - 1) * (uint64_t)dtype_bytes((enum dtype)src->conv_dtype);
	const struct {
		uint32_t src_local, dst_local;
		uint64_t unit;
	} parts[] = {
		{src->local_k, dst->local_k, src->dk * channel},
		{src->local_k, dst->local_k, src->dk * channel},
		{src->local_v, dst->local_v, src->dv * channel},
	};

	for (size_t p = 0; p < COUNT(parts); p++) {
		at.bytes = parts[p].unit;
		add_heads(b, at, parts[p].src_local, parts[p].dst_local);
		at.src_offset += parts[p].src_local * parts[p].unit;
		at.dst_offset += parts[p].dst_local * parts[p].unit;
	}
}

static void add_slot(
	struct builder *b, uint32_t rank, uint64_t src_slot_at, uint64_t dst_slot_at)
{
	const struct layout *src = b->src, *dst = b->dst;
	struct plan_copy at = {.dst_rank = rank};

	for (uint64_t layer = 0; layer < dst->n_gdn; layer++) {
		at.src_offset = src_slot_at + layer * src->rec_layer_bytes;
		at.dst_offset = dst_slot_at + layer * dst->rec_layer_bytes;
		at.bytes = UINT64_C(4) * dst->dv * dst->dk;
		add_heads(b, at, src->local_v, dst->local_v);
	}
	for (uint64_t layer = 0; layer < dst->n_gdn; layer++) {
		at.src_offset =
			src_slot_at + src->conv_offset + layer * src->conv_layer_bytes;
		at.dst_offset =
			dst_slot_at + dst->conv_offset + layer * dst->conv_layer_bytes;
		add_conv(b, at);
	}
	/* Every rank of the source holds the whole of it. */
	if (dst->aux_bytes > 0)
		add_copy(b, (struct plan_copy){
				    .src_rank = rank % src->ranks,
				    .dst_rank = rank,
				    .src_offset = src_slot_at + layout_state_bytes(src) -
						  src->aux_bytes,
				    .dst_offset = dst_slot_at + layout_state_bytes(dst) -
						  dst->aux_bytes,
				    .bytes = dst->aux_bytes,
			    });
}

/* Most runs that n_local neighbouring heads come from when a source rank has src_local.
 */
static uint64_t runs(uint32_t n_local, uint32_t src_local)
{
	if (n_local % src_local == 0)
		return n_local / src_local;
	if (src_local % n_local == 0)
		return 1;
	return MIN(n_local, (n_local - 1) / src_local + 2);
}

uint64_t plan_copies_max(const struct layout *src, const struct layout *dst,
	uint32_t n_pages, bool with_slot)
{
	uint64_t page = 1, slot = 1;

	if (src->ranks != dst->ranks) {
		uint64_t k = runs(dst->local_k, src->local_k);
		uint64_t v = runs(dst->local_v, src->local_v);

		page = UINT64_C(2) * dst->n_attn * runs(dst->local_kv, src->local_kv);
		slot = dst->n_gdn * (v + 2 * k + v) + 1;
	}
	return dst->ranks * (n_pages * page + (with_slot ? slot : 0));
}

static status check_refs(const char *side, const struct layout *l,
	const struct plan_refs *refs, struct err *err)
{
	for (uint32_t i = 0; i < refs->n_pages; i++)
		if (refs->pages[i] >= refs->arena_pages)
			return err_set(err, ST_INVALID,
				"plan: page %u of the %s is id %u, its arena has %" PRIu64
				" of %" PRIu64 " bytes",
				i, side, refs->pages[i], refs->arena_pages,
				l->page_bytes);
	return ST_OK;
}

status plan_build(const struct layout *src, const struct plan_refs *from,
	const struct layout *dst, const struct plan_refs *to, struct plan_copy *out,
	uint64_t max, uint64_t *n, struct err *err)
{
	struct builder b = {.src = src, .dst = dst, .out = out, .max = max};
	uint64_t ours = layout_compat_hash(dst), theirs = layout_compat_hash(src);
	status st;

	if (ours != theirs)
		return err_set(err, ST_INVALID,
			"plan: source layout %016" PRIx64
			" does not fit destination layout %016" PRIx64,
			theirs, ours);
	if (from->n_pages != to->n_pages)
		return err_set(err, ST_INVALID,
			"plan: %u pages at the source, %u at the destination",
			from->n_pages, to->n_pages);
	if ((from->slot == 0) != (to->slot == 0))
		return err_set(err, ST_INVALID,
			"plan: slot %u at the source, %u at the destination", from->slot,
			to->slot);
	st = check_refs("source", src, from, err);
	if (st == ST_OK)
		st = check_refs("destination", dst, to, err);
	if (st != ST_OK)
		return st;
	for (uint32_t rank = 0; rank < dst->ranks && !b.full; rank++) {
		for (uint32_t i = 0; i < to->n_pages && !b.full; i++)
			add_page(&b, rank, layout_page_offset(src, from->pages[i]),
				layout_page_offset(dst, to->pages[i]));
		if (to->slot != 0)
			add_slot(&b, rank,
				layout_slot_offset(src, from->arena_pages, from->slot),
				layout_slot_offset(dst, to->arena_pages, to->slot));
	}
	if (b.full)
		return err_set(err, ST_LIMIT, "plan: more than %" PRIu64 " copies", max);
	*n = b.n;
	return ST_OK;
}

uint64_t plan_bytes(const struct plan_copy *copies, uint64_t n)
{
	uint64_t bytes = 0;

	for (uint64_t i = 0; i < n; i++)
		bytes += copies[i].bytes;
	return bytes;
}
