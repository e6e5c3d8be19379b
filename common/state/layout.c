/* Sizes and strides of a sequence's state, and the record in which a layout travels. */
#include "common/state/layout.h"
#include "common/base/hash.h"
#include <assert.h>
#include <inttypes.h>

/* Slots start where vector loads and copy engines want them; pages do by themselves,
 * because PAGE_TOKENS elements of 2 bytes for K and for V are 256 bytes. */
#define SLOT_ALIGN UINT64_C(256)

/* Bounds of a foreign record. The largest product is that of a recurrent state, layers *
 * heads * dk * dv * 4 = 2^40, so nothing below can wrap. */
#define HEADS_MAX  1024u
#define DIM_MAX    1024u
#define TAPS_MAX   16u
#define AUX_MAX    (1u << 20)
#define TOKENS_MAX 4096u

/* The fields in the order of the record: own ones first, then what follows from them. */
#define OWN32_MAP(X)                                                                     \
	X(version)                                                                       \
	X(ranks)                                                                         \
	X(page_tokens)                                                                   \
	X(kv_dtype)                                                                      \
	X(conv_dtype)                                                                    \
	X(n_attn)                                                                        \
	X(n_gdn)                                                                         \
	X(n_kv)                                                                          \
	X(head_dim)                                                                      \
	X(n_k)                                                                           \
	X(n_v)                                                                           \
	X(dk)                                                                            \
	X(dv)                                                                            \
	X(taps)                                                                          \
	X(aux_bytes)
#define DERIVED32_MAP(X)                                                                 \
	X(local_kv)                                                                      \
	X(local_k)                                                                       \
	X(local_v)
#define DERIVED64_MAP(X)                                                                 \
	X(kv_layer_bytes)                                                                \
	X(page_bytes)                                                                    \
	X(rec_layer_bytes)                                                               \
	X(conv_layer_bytes)                                                              \
	X(conv_offset)                                                                   \
	X(slot_bytes)

static uint64_t round_up(uint64_t bytes)
{
	return CEIL_DIV(bytes, SLOT_ALIGN) * SLOT_ALIGN;
}

static status check_bounds(const struct layout *l, struct err *err)
{
	const struct {
		const char *name;
		uint32_t value, min, max;
	} fields[] = {
		{"ranks", l->ranks, 1, RANKS_MAX},
		{"page_tokens", l->page_tokens, 1, TOKENS_MAX},
		{"kv_dtype", l->kv_dtype, 0, DT__COUNT - 1},
		{"conv_dtype", l->conv_dtype, 0, DT__COUNT - 1},
		{"n_attn", l->n_attn, 1, MODEL_LAYERS_MAX},
		{"n_gdn", l->n_gdn, 1, MODEL_LAYERS_MAX},
		{"n_kv", l->n_kv, 1, HEADS_MAX},
		{"head_dim", l->head_dim, 1, MODEL_HEAD_DIM_MAX},
		{"n_k", l->n_k, 1, HEADS_MAX},
		{"n_v", l->n_v, 1, HEADS_MAX},
		{"dk", l->dk, 1, DIM_MAX},
		{"dv", l->dv, 1, DIM_MAX},
		{"taps", l->taps, 2, TAPS_MAX},
		{"aux_bytes", l->aux_bytes, 0, AUX_MAX},
	};

	for (size_t i = 0; i < COUNT(fields); i++)
		if (fields[i].value < fields[i].min || fields[i].value > fields[i].max)
			return err_set(err, ST_INVALID, "layout: %s is %u, not in %u..%u",
				fields[i].name, fields[i].value, fields[i].min,
				fields[i].max);
	if (l->aux_bytes % 4 != 0)
		return err_set(err, ST_INVALID,
			"layout: aux_bytes is %u, not a multiple of 4", l->aux_bytes);
	return ST_OK;
}

static status check_ranks(const struct layout *l, struct err *err)
{
	if (l->n_k % l->ranks != 0)
		return err_set(err, ST_INVALID,
			"tensor parallelism %u does not divide the %u GDN key heads",
			l->ranks, l->n_k);
	if (l->n_v % l->ranks != 0)
		return err_set(err, ST_INVALID,
			"tensor parallelism %u does not divide the %u GDN value heads",
			l->ranks, l->n_v);
	/* Fewer KV heads than ranks: each head has ranks / n_kv replicas. */
	if (l->n_kv % l->ranks != 0 && l->ranks % l->n_kv != 0)
		return err_set(err, ST_INVALID,
			"tensor parallelism %u neither divides the %u KV heads nor is a "
			"multiple of them",
			l->ranks, l->n_kv);
	return ST_OK;
}

static status derive(struct layout *l, struct err *err)
{
	uint64_t kv_bytes, conv_bytes, channels;
	status st = check_bounds(l, err);

	if (st == ST_OK)
		st = check_ranks(l, err);
	if (st != ST_OK)
		return st;
	kv_bytes = dtype_bytes((enum dtype)l->kv_dtype);
	conv_bytes = dtype_bytes((enum dtype)l->conv_dtype);
	l->local_kv = MAX(1u, l->n_kv / l->ranks);
	l->local_k = l->n_k / l->ranks;
	l->local_v = l->n_v / l->ranks;
	channels = UINT64_C(2) * l->local_k * l->dk + (uint64_t)l->local_v * l->dv;
	l->kv_layer_bytes =
		UINT64_C(2) * l->local_kv * l->page_tokens * l->head_dim * kv_bytes;
	l->page_bytes = l->n_attn * l->kv_layer_bytes;
	l->rec_layer_bytes = UINT64_C(4) * l->local_v * l->dv * l->dk;
	l->conv_layer_bytes = channels * (l->taps - 1) * conv_bytes;
	l->conv_offset = l->n_gdn * l->rec_layer_bytes;
	l->slot_bytes = round_up(layout_state_bytes(l));
	return ST_OK;
}

status layout_compute(struct layout *out, const struct model_config *config,
	uint64_t model_hash, uint32_t ranks, enum dtype kv_dtype, enum dtype conv_dtype,
	struct err *err)
{
	struct layout l = {
		.model_hash = model_hash,
		.version = LAYOUT_VERSION,
		.ranks = ranks,
		.page_tokens = PAGE_TOKENS,
		.kv_dtype = kv_dtype,
		.conv_dtype = conv_dtype,
		.n_attn = config->n_attn_layers,
		.n_gdn = config->n_gdn_layers,
		.n_kv = config->n_kv,
		.head_dim = config->head_dim,
		.n_k = config->gdn_k_heads,
		.n_v = config->gdn_v_heads,
		.dk = config->gdn_k_dim,
		.dv = config->gdn_v_dim,
		.taps = config->conv_taps,
	};
	status st = derive(&l, err);

	if (st != ST_OK)
		return st;
	if (config->n_q % ranks != 0)
		return err_set(err, ST_INVALID,
			"tensor parallelism %u does not divide the %u query heads", ranks,
			config->n_q);
	*out = l;
	return ST_OK;
}

uint64_t layout_compat_hash(const struct layout *l)
{
	const uint64_t parts[] = {l->model_hash, l->version, l->page_tokens, l->kv_dtype,
		l->conv_dtype, l->n_attn, l->n_gdn, l->n_kv, l->head_dim, l->n_k, l->n_v,
		l->dk, l->dv, l->taps, l->aux_bytes};
	uint64_t running = 0;

	for (size_t i = 0; i < COUNT(parts); i++)
		running = hash64_u64(running, parts[i]);
	return running;
}

static uint8_t *put_le(uint8_t *at, uint64_t value, unsigned n_bytes)
{
	for (unsigned i = 0; i < n_bytes; i++)
		at[i] = (uint8_t)(value >> (8 * i));
	return at + n_bytes;
}

void layout_put(const struct layout *l, uint8_t out[LAYOUT_RECORD_BYTES])
{
	uint8_t *at = put_le(out, l->model_hash, 8);

#define X(field) at = put_le(at, l->field, 4);
	OWN32_MAP(X)
	DERIVED32_MAP(X)
#undef X
#define X(field) at = put_le(at, l->field, 8);
	DERIVED64_MAP(X)
#undef X
	assert(at == out + LAYOUT_RECORD_BYTES);
}

status layout_get(struct layout *out, struct bytes record, struct err *err)
{
	struct cursor c = {record.at, record.at + record.len};
	struct layout said = {0}, l;
	bool whole = record.len == LAYOUT_RECORD_BYTES;
	status st;

	whole = whole && cur_u64le(&c, &said.model_hash);
#define X(field) whole = whole && cur_u32le(&c, &said.field);
	OWN32_MAP(X)
	DERIVED32_MAP(X)
#undef X
#define X(field) whole = whole && cur_u64le(&c, &said.field);
	DERIVED64_MAP(X)
#undef X
	if (!whole)
		return err_set(err, ST_INVALID, "layout record of %zu bytes, want %u",
			record.len, LAYOUT_RECORD_BYTES);
	if (said.version != LAYOUT_VERSION)
		return err_set(err, ST_INVALID, "layout version %u, ours is %u",
			said.version, LAYOUT_VERSION);
	l = said;
	st = derive(&l, err);
	if (st != ST_OK)
		return st;
#define X(field)                                                                         \
	if (said.field != l.field)                                                       \
		return err_set(err, ST_INVALID,                                          \
			"layout: " #field " is %" PRIu64 ", its heads and dtypes give "  \
			"%" PRIu64,                                                      \
			(uint64_t)said.field, (uint64_t)l.field);
	DERIVED32_MAP(X)
	DERIVED64_MAP(X)
#undef X
	*out = l;
	return ST_OK;
}

uint32_t layout_kv_replicas(const struct layout *l)
{
	return l->ranks > l->n_kv ? l->ranks / l->n_kv : 1;
}

uint64_t layout_state_bytes(const struct layout *l)
{
	return l->conv_offset + l->n_gdn * l->conv_layer_bytes + l->aux_bytes;
}

uint64_t layout_arena_bytes(const struct layout *l, uint64_t n_pages, uint64_t n_slots)
{
	return layout_slot_offset(l, n_pages, n_slots);
}

uint64_t layout_page_offset(const struct layout *l, uint64_t page)
{
	return page * l->page_bytes;
}

uint64_t layout_slot_offset(const struct layout *l, uint64_t n_pages, uint64_t slot)
{
	return round_up(n_pages * l->page_bytes) + slot * l->slot_bytes;
}
