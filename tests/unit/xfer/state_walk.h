/* A sequence's state in arenas, and a walk over its elements by what they mean. Written
 * from the description in common/state/layout.h with plain nested loops, so it shares no
 * code with the plan. */
#ifndef TESTS_UNIT_XFER_STATE_WALK_H
#define TESTS_UNIT_XFER_STATE_WALK_H
#include "common/state/layout.h"
#include <string.h>

struct geometry {
	const char *name;
	uint32_t n_attn, n_gdn, n_q, n_kv, n_k, n_v, head_dim, dk, dv, taps, aux_bytes;
	enum dtype kv, conv;
};

static inline status geometry_layout(
	struct layout *l, const struct geometry *g, uint32_t ranks, struct err *err)
{
	struct model_config config = {
		.n_attn_layers = g->n_attn,
		.n_gdn_layers = g->n_gdn,
		.n_q = g->n_q,
		.n_kv = g->n_kv,
		.head_dim = g->head_dim,
		.gdn_k_heads = g->n_k,
		.gdn_v_heads = g->n_v,
		.gdn_k_dim = g->dk,
		.gdn_v_dim = g->dv,
		.conv_taps = g->taps,
	};
	uint8_t record[LAYOUT_RECORD_BYTES];
	status st = layout_compute(l, &config, 42, ranks, g->kv, g->conv, err);

	if (st != ST_OK || g->aux_bytes == 0)
		return st;
	/* aux_bytes has no place in a config: layout_get checks what is set here. */
	l->aux_bytes = g->aux_bytes;
	l->slot_bytes = (layout_state_bytes(l) + 255) / 256 * 256;
	layout_put(l, record);
	return layout_get(l, (struct bytes){record, sizeof(record)}, err);
}

struct state_view {
	struct layout l;
	uint8_t *arena[RANKS_MAX];
	uint64_t arena_pages;
	const uint32_t *pages;
	uint32_t n_pages;
	uint32_t slot;
};

/* Called for every element on every rank: where it is, its size, and a number that is a
 * pure function of the sequence and of what the element means. */
typedef void element_fn(uint8_t *at, uint32_t bytes, uint64_t meaning, void *ctx);

/* One number for five small ones (their sizes here are those of the widest model), mixed
 * so that every byte of it depends on all of them. */
static inline uint64_t meaning_of(
	uint64_t part, uint64_t layer, uint64_t head, uint64_t a, uint64_t b)
{
	uint64_t m = part << 59 | layer << 50 | head << 36 | a << 14 | b;

	m *= UINT64_C(0x9e3779b97f4a7c15);
	m ^= m >> 32;
	m *= UINT64_C(0xd6e8feb86659fd93);
	return m ^ m >> 32;
}

static inline void walk_page(const struct state_view *s, uint32_t rank, uint32_t page,
	element_fn *fn, void *ctx)
{
	const struct layout *l = &s->l;
	uint32_t size = (uint32_t)dtype_bytes((enum dtype)l->kv_dtype);
	uint8_t *at = s->arena[rank] + s->pages[page] * l->page_bytes;

	for (uint32_t layer = 0; layer < l->n_attn; layer++)
		for (uint32_t half = 0; half < 2; half++)
			for (uint32_t h = 0; h < l->local_kv; h++) {
				uint32_t head = l->ranks > l->n_kv
							? rank / (l->ranks / l->n_kv)
							: rank * l->local_kv + h;

				for (uint64_t i = 0;
					i < (uint64_t)PAGE_TOKENS * l->head_dim;
					i++, at += size)
					fn(at, size,
						meaning_of(half, layer, head,
							page * PAGE_TOKENS +
								i / l->head_dim,
							i % l->head_dim),
						ctx);
			}
}

static inline void walk_slot(
	const struct state_view *s, uint32_t rank, element_fn *fn, void *ctx)
{
	const struct layout *l = &s->l;
	uint32_t size = (uint32_t)dtype_bytes((enum dtype)l->conv_dtype);
	uint8_t *at = s->arena[rank] + layout_slot_offset(l, s->arena_pages, 0) +
		      s->slot * l->slot_bytes;

	for (uint32_t layer = 0; layer < l->n_gdn; layer++)
		for (uint32_t h = 0; h < l->local_v; h++)
			for (uint64_t i = 0; i < (uint64_t)l->dv * l->dk; i++, at += 4)
				fn(at, 4,
					meaning_of(10, layer, rank * l->local_v + h,
						i / l->dk, i % l->dk),
					ctx);
	for (uint32_t layer = 0; layer < l->n_gdn; layer++)
		for (uint32_t part = 0; part < 3; part++) {
			uint32_t n = part < 2 ? l->local_k * l->dk : l->local_v * l->dv;

			for (uint64_t i = 0; i < (uint64_t)n * (l->taps - 1);
				i++, at += size)
				fn(at, size,
					meaning_of(11 + part, layer,
						rank * n + i / (l->taps - 1),
						i % (l->taps - 1), 0),
					ctx);
		}
	for (uint32_t i = 0; i < l->aux_bytes; i++, at++)
		fn(at, 1, meaning_of(20, i, 0, 0, 0), ctx);
}

static inline void walk(const struct state_view *s, element_fn *fn, void *ctx)
{
	for (uint32_t rank = 0; rank < s->l.ranks; rank++) {
		for (uint32_t page = 0; page < s->n_pages; page++)
			walk_page(s, rank, page, fn, ctx);
		if (s->slot != 0)
			walk_slot(s, rank, fn, ctx);
	}
}

/* ctx: uint64_t, the sequence. */
static inline void write_meaning(uint8_t *at, uint32_t bytes, uint64_t meaning, void *ctx)
{
	uint64_t v = meaning ^ *(uint64_t *)ctx;

	memcpy(at, &v, bytes);
}

struct wrong_count {
	uint64_t sequence, wrong;
};

static inline void count_wrong(uint8_t *at, uint32_t bytes, uint64_t meaning, void *ctx)
{
	struct wrong_count *c = ctx;
	uint64_t v = meaning ^ c->sequence;

	c->wrong += memcmp(at, &v, bytes) != 0;
}

static inline void state_write(const struct state_view *s, uint64_t sequence)
{
	walk(s, write_meaning, &sequence);
}

static inline uint64_t state_wrong(const struct state_view *s, uint64_t sequence)
{
	struct wrong_count c = {.sequence = sequence};

	walk(s, count_wrong, &c);
	return c.wrong;
}

#endif
