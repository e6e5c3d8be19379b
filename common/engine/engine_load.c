/* Weights from the checkpoint into a rank's one allocation. */
#include "common/engine/engine_impl.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/mem.h"

#include <string.h>

#define PROGRESS_NS (2 * NS_PER_S)

struct loader {
	struct rank *r;
	struct carve carve;
	uint8_t *staging;
	uint64_t done_bytes, total_bytes;
	uint64_t told_ns;
};

/* Calls fn for every (role, layer) that this rank holds; global roles with layer 0. */
static status each_weight(const struct rank *r, struct loader *l,
	status (*fn)(struct loader *, enum weight_role, uint32_t layer,
		const struct weight_info *, struct err *),
	struct err *err)
{
	static const bool global[WR__COUNT] = {
		[WR_EMBED] = true, [WR_FINAL_NORM] = true, [WR_LM_HEAD] = true};
	status st = ST_OK;

	for (uint32_t layer = 0; layer < r->e->config.n_layers; layer++)
		for (uint32_t role = 0; st == ST_OK && role < WR__COUNT; role++) {
			struct weight_info info =
				weights_info(r->files, (enum weight_role)role, layer);

			if (info.present && (!global[role] || layer == 0))
				st = fn(l, (enum weight_role)role, layer, &info, err);
		}
	return st;
}

static uint64_t info_bytes(const struct weight_info *info)
{
	struct carve c = {.base = NULL};

	(void)carve_take(&c, info->data_bytes);
	(void)carve_take(&c, info->scale_bytes);
	(void)carve_take(&c, info->scale2_bytes);
	return c.used;
}

static status add_bytes(struct loader *l, enum weight_role role, uint32_t layer,
	const struct weight_info *info, struct err *err)
{
	(void)role;
	(void)layer;
	(void)err;
	l->total_bytes += info_bytes(info);
	return ST_OK;
}

uint64_t engine_load_bytes(const struct rank *r)
{
	struct loader l = {.total_bytes = 0};
	struct err err;

	return each_weight(r, &l, add_bytes, &err) == ST_OK ? l.total_bytes : 0;
}

static status grow_staging(struct loader *l, enum weight_role role, uint32_t layer,
	const struct weight_info *info, struct err *err)
{
	(void)role;
	(void)layer;
	(void)err;
	l->total_bytes = MAX(l->total_bytes, info_bytes(info));
	return ST_OK;
}

static uint8_t *staging_create(const struct rank *r)
{
	struct loader l = {.total_bytes = 0};
	struct err err;

	if (each_weight(r, &l, grow_staging, &err) != ST_OK)
		return NULL;
	return mem_alloc(1, MAX(l.total_bytes, 1));
}

static void tell_progress(struct loader *l)
{
	uint64_t now = clock_ns();

	if (l->done_bytes < l->total_bytes && now - l->told_ns < PROGRESS_NS)
		return;
	l->told_ns = now;
	log_info("loading rank=%u percent=%llu bytes=%llu of=%llu", l->r->index,
		(unsigned long long)(l->done_bytes * 100 / l->total_bytes),
		(unsigned long long)l->done_bytes, (unsigned long long)l->total_bytes);
}

/* The op that reads a role; its chosen variant may want another layout. The shared
 * expert is read by the moe variant of the stacks. */
static const struct variant *reader_of(const struct rank *r, enum weight_role role,
	uint32_t layer, enum weight_format format)
{
	switch ((int)role) {
	case WR_EMBED:
		return r->k->chosen[OP_embed][format];
	case WR_LM_HEAD:
		return r->k->chosen[OP_head][format];
	case WR_ROUTER:
	case WR_SH_ROUTER:
		return r->k->chosen[OP_moe_route][format];
	case WR_EXP_GATE:
	case WR_EXP_UP:
	case WR_EXP_DOWN:
	case WR_SH_GATE:
	case WR_SH_UP:
	case WR_SH_DOWN:
		return r->k->chosen[OP_moe]
				   [weights_info(r->files, WR_EXP_DOWN, layer).format];
	default:
		return r->k->chosen[OP_linear][format];
	}
}

static bool is_vector(enum weight_role role)
{
#define X(role, where, shard, storage) STORE_##storage,
	enum { STORE_VEC, STORE_MAT, STORE_STACK };
	static const int storage_of[WR__COUNT] = { WEIGHT_MAP(X) };
#undef X

	return storage_of[role] == STORE_VEC;
}

static status upload(struct loader *l, const void **at, uint64_t offset, uint64_t bytes,
	struct err *err)
{
	void *to = carve_take(&l->carve, bytes);

	*at = bytes > 0 ? to : NULL;
	return l->r->b->ops->upload(l->r->s, to, l->staging + offset, bytes, err);
}

static status load_one(struct loader *l, enum weight_role role, uint32_t layer,
	const struct weight_info *info, struct err *err)
{
	bool global = role == WR_EMBED || role == WR_FINAL_NORM || role == WR_LM_HEAD;
	struct weight *w = global ? &l->r->global[role] : &l->r->layer[layer][role];
	uint64_t scale_at = CEIL_DIV(info->data_bytes, CARVE_ALIGN) * CARVE_ALIGN;
	uint64_t scale2_at =
		scale_at + CEIL_DIV(info->scale_bytes, CARVE_ALIGN) * CARVE_ALIGN;
	const struct variant *v;
	const void *scale2;
	status st;

	*w = (struct weight){.format = info->format,
		.count = info->count,
		.n = info->n,
		.k = info->k,
		.block_n = info->block_n,
		.block_k = info->block_k};
	st = weights_read(l->r->files, role, layer, l->staging,
		info->scale_bytes > 0 ? l->staging + scale_at : NULL,
		info->scale2_bytes > 0 ? l->staging + scale2_at : NULL, err);
	if (st == ST_OK)
		st = upload(l, &w->data, 0, info->data_bytes, err);
	if (st == ST_OK)
		st = upload(l, &w->scale, scale_at, info->scale_bytes, err);
	if (st == ST_OK)
		st = upload(l, &scale2, scale2_at, info->scale2_bytes, err);
	if (st != ST_OK)
		return st;
	w->scale2 = scale2;
	l->done_bytes += info_bytes(info);
	tell_progress(l);
	v = is_vector(role) ? NULL : reader_of(l->r, role, layer, info->format);
	return v == NULL ? ST_OK : v->repack(l->r->b, l->r->s, w, err);
}

uint64_t engine_load_geometry(const struct model_config *c)
{
	const uint64_t numbers[] = {c->arch, c->vocab, c->hidden, c->n_layers, c->n_q,
		c->n_kv, c->head_dim, c->rotary_dim, c->gdn_k_heads, c->gdn_v_heads,
		c->gdn_k_dim, c->gdn_v_dim, c->conv_taps, c->gdn_gate, c->n_experts,
		c->top_k, c->expert_width, c->shared_width, c->dense_width, c->tied};
	uint64_t h = 0;

	for (size_t i = 0; i < COUNT(numbers); i++)
		h = hash64_u64(h, numbers[i]);
	h = hash64(&c->rope_theta, sizeof(c->rope_theta), h);
	h = hash64(&c->rms_eps, sizeof(c->rms_eps), h);
	h = hash64(c->layer_kind, c->n_layers, h);
	for (uint32_t i = 0; i < c->n_layers; i++)
		h = hash64_u64(h, c->layer_moe[i]);
	return h;
}

status engine_load(struct rank *r, struct err *err)
{
	struct loader l = {.r = r,
		.carve = {.base = r->weights_mem},
		.total_bytes = engine_load_bytes(r),
		.told_ns = clock_ns()};
	status st;

	l.staging = staging_create(r);
	st = each_weight(r, &l, load_one, err);
	if (st == ST_OK)
		st = r->b->ops->stream_sync(r->s, err);
	mem_free(l.staging);
	if (st == ST_OK)
		st = weights_digest(r->files, &r->digest, err);
	return st == ST_OK ? ST_OK : err_wrap(err, "weights of rank %u", r->index);
}
