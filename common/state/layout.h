/* The bytes of a sequence's state: KV pages of the attention layers and one slot of
 * GDN state, per tensor-parallel rank. One function gives every size and stride;
 * engines, pools, the transfer plan and the hand-over check all read it from here.
 *
 * KV page:  [attn_layer][K|V][local kv head][token][head_dim]
 * GDN slot: recurrent [gdn_layer][local v head][dv][dk] F32, then
 *           conv [gdn_layer][q|k|v part][channel][taps - 1], oldest first, then
 *           aux_bytes (last hidden state for MTP; 0 now). */
#ifndef COMMON_STATE_LAYOUT_H
#define COMMON_STATE_LAYOUT_H
#include "common/base/bytes.h"
#include "common/base/dtype.h"
#include "common/base/err.h"
#include "common/model/model_config.h"
#include <stdint.h>

#define PAGE_TOKENS    64u
#define LAYOUT_VERSION 1u
#define RANKS_MAX      MODEL_RANKS_MAX

/* Every field is a number so that a layout travels as one record (layout_put). */
struct layout {
	uint64_t model_hash; /* which weights: config and weights_digest */
	uint32_t version;
	uint32_t ranks; /* tensor-parallel size */
	uint32_t page_tokens;
	uint32_t kv_dtype, conv_dtype; /* enum dtype; recurrent state is always F32 */
	uint32_t n_attn, n_gdn;        /* layers */
	uint32_t n_kv, head_dim;       /* whole model */
	uint32_t n_k, n_v, dk, dv, taps;
	uint32_t aux_bytes;
	/* derived, per rank */
	uint32_t local_kv, local_k, local_v; /* heads; local_kv = max(1, n_kv / ranks) */
	uint64_t kv_layer_bytes;             /* K and V of one layer in a page */
	uint64_t page_bytes;                 /* n_attn * kv_layer_bytes */
	uint64_t rec_layer_bytes, conv_layer_bytes;
	uint64_t conv_offset; /* of the conv part in a slot */
	uint64_t slot_bytes;  /* rounded up to 256 */
};

/* ST_INVALID names what ranks does not divide. */
MUST_CHECK status layout_compute(struct layout *out, const struct model_config *config,
	uint64_t model_hash, uint32_t ranks, enum dtype kv_dtype, enum dtype conv_dtype,
	struct err *err);
/* Covers what must be equal on both sides of a hand-over and nothing else: model, page
 * tokens, dtypes, layer and head counts, taps, aux bytes, version; never ranks. */
uint64_t layout_compat_hash(const struct layout *l);

/* Fixed-size little-endian record, LAYOUT_RECORD_BYTES. layout_get recomputes every
 * derived field and refuses a record whose own values differ or are out of bounds. */
#define LAYOUT_RECORD_BYTES 128u
void layout_put(const struct layout *l, uint8_t out[LAYOUT_RECORD_BYTES]);
MUST_CHECK status layout_get(struct layout *out, struct bytes record, struct err *err);

/* How many ranks hold the same KV head. */
uint32_t layout_kv_replicas(const struct layout *l);
/* What a slot really holds, without the rounding: what a hand-over moves per rank. */
uint64_t layout_state_bytes(const struct layout *l);
/* An arena (one per rank) holds n_pages pages, then n_slots slots. */
uint64_t layout_arena_bytes(const struct layout *l, uint64_t n_pages, uint64_t n_slots);
uint64_t layout_page_offset(const struct layout *l, uint64_t page);
uint64_t layout_slot_offset(const struct layout *l, uint64_t n_pages, uint64_t slot);

#endif
