/* Opening a checkpoint as weights: every tensor finds its place, every role its
 * tensors. */
#include "common/model/weights_impl.h"

#include "common/base/mem.h"
#include "common/model/quant_config.h"

#include <assert.h>
#include <string.h>

enum storage { STORAGE_VEC, STORAGE_MAT, STORAGE_STACK };

static const struct {
	const char *name;
	enum where where;
	enum shard_rule shard;
	enum storage storage;
} roles[WR__COUNT] = {
#define X(role, where, shard, storage)                                                   \
	[WR_##role] = {#role, WHERE_##where, shard, STORAGE_##storage},
	WEIGHT_MAP(X)
#undef X
};

const char *weight_role_name(enum weight_role role)
{
	return (unsigned)role < WR__COUNT ? roles[role].name : "?";
}

enum where role_where(enum weight_role role)
{
	return roles[role].where;
}

enum shard_rule role_shard(enum weight_role role)
{
	return roles[role].shard;
}

bool role_is_vec(enum weight_role role)
{
	return roles[role].storage == STORAGE_VEC;
}

bool role_is_stack(enum weight_role role)
{
	return roles[role].storage == STORAGE_STACK;
}

static struct piece *find_piece(
	const struct weights *w, enum module m, uint32_t layer, uint32_t expert)
{
	size_t layers = w->config->n_layers;

	if (module_style(m) == STYLE_EXPERT)
		return &w->experts[((m - MOD_EXP_GATE) * layers + layer) *
					   w->config->n_experts +
				   expert];
	return &w->pieces[m * layers + layer];
}

const struct piece *weights_piece(
	const struct weights *w, enum module module, uint32_t layer, uint32_t expert)
{
	return find_piece(w, module, layer, expert);
}

struct entry *weights_entry(
	const struct weights *w, enum weight_role role, uint32_t layer)
{
	return &w->entries[role * w->config->n_layers + layer];
}

/* The layer exists and has such a module, and so has the expert. */
static status check_place(const struct weights *w, const struct st_tensor *t,
	const struct weight_name *n, struct err *err)
{
	const struct model_config *c = w->config;

	if (!n->in_layer)
		return ST_OK;
	if (n->layer >= c->n_layers)
		return tensor_refuse(w, t, err,
			"the config has %u layers (num_hidden_layers)", c->n_layers);
	if (!where_exists(c, module_where(n->module), n->layer))
		return tensor_refuse(w, t, err, "by the config, layer %u is %s with %s",
			n->layer,
			c->layer_kind[n->layer] == LAYER_ATTN ? "full attention"
							      : "linear attention",
			c->layer_moe[n->layer] ? "experts" : "a dense MLP");
	if (module_style(n->module) == STYLE_EXPERT && n->expert >= c->n_experts)
		return tensor_refuse(w, t, err, "the config has %u experts (num_experts)",
			c->n_experts);
	return ST_OK;
}

static status place_tensor(struct weights *w, uint32_t index, struct err *err)
{
	const struct st_tensor *t = st_at(w->st, index);
	struct weight_name n = weight_name_read(t->name);
	uint32_t *at;
	status st;

	if (n.kind == NAME_UNKNOWN)
		return tensor_refuse(w, t, err, "is unknown to this architecture");
	st = check_place(w, t, &n, err);
	if (st != ST_OK)
		return st;
	if (n.kind == NAME_PART && n.module == MOD_LM_HEAD && w->config->tied) {
		n.kind = NAME_UNUSED;
		n.unused = UNUSED_LM_HEAD;
	}
	if (n.kind == NAME_UNUSED) {
		w->unused[n.unused]++;
		return ST_OK;
	}
	at = &find_piece(w, n.module, n.layer, n.expert)->at[n.part];
	if (*at != 0)
		return tensor_refuse(w, t, err, "and tensor %s are the same weights",
			st_at(w->st, *at - 1)->name);
	*at = index + 1;
	return ST_OK;
}

bool weights_has_role(const struct weights *w, enum weight_role role, uint32_t layer)
{
	return where_exists(w->config, roles[role].where, layer) &&
	       !(role == WR_LM_HEAD && w->config->tied);
}

static status resolve_all(struct weights *w, struct err *err)
{
	status st;

	for (uint32_t layer = 0; layer < w->config->n_layers; layer++) {
		for (uint32_t r = 0; r < WR__COUNT; r++) {
			if (!weights_has_role(w, (enum weight_role)r, layer))
				continue;
			st = weights_resolve(w, (enum weight_role)r, layer, err);
			if (st != ST_OK)
				return st;
		}
	}
	return ST_OK;
}

struct weights *weights_create(
	const struct model_config *config, uint32_t rank, uint32_t n_ranks)
{
	struct weights *w = mem_alloc(1, sizeof(*w));

	assert(rank < n_ranks);
	w->owned_config = *config;
	w->config = &w->owned_config;
	w->rank = rank;
	w->n_ranks = n_ranks;
	w->entries = mem_alloc((size_t)WR__COUNT * config->n_layers, sizeof(*w->entries));
	return w;
}

status weights_open(struct weights **out, const struct model_config *config,
	const char *dir, uint32_t rank, uint32_t n_ranks, struct err *err)
{
	size_t layers = config->n_layers;
	struct weights *w;
	status st;

	st = weights_check_ranks(config, n_ranks, err);
	if (st == ST_OK)
		st = quant_config_check_dir(dir, rank == 0, err);
	if (st != ST_OK)
		return st;
	w = weights_create(config, rank, n_ranks);
	w->pieces = mem_alloc(MOD__COUNT * layers, sizeof(*w->pieces));
	w->experts = mem_alloc(3 * layers * config->n_experts, sizeof(*w->experts));
	st = st_open(&w->st, dir, err);
	if (st != ST_OK)
		goto out;
	for (uint32_t i = 0; i < st_count(w->st) && st == ST_OK; i++)
		st = place_tensor(w, i, err);
	if (st == ST_OK)
		st = resolve_all(w, err);
	if (st == ST_OK)
		st = quant_config_match(w, dir, rank == 0, err);
	if (st != ST_OK)
		goto out;
	if (rank == 0)
		weights_tell_mtp(w);
	*out = w;
	w = NULL;
out:
	weights_close(w);
	return st;
}

void weights_close(struct weights *w)
{
	if (w == NULL)
		return;
	st_close(w->st);
	mem_free(w->pieces);
	mem_free(w->experts);
	mem_free(w->entries);
	mem_free(w->dummy);
	mem_free(w);
}

struct weight_info weights_info(
	const struct weights *w, enum weight_role role, uint32_t layer)
{
	if (roles[role].where == WHERE_global)
		layer = 0;
	assert(layer < w->config->n_layers);
	return weights_entry(w, role, layer)->info;
}

void weights_unused(const struct weights *w, struct sink *out)
{
	static const char *const names[UNUSED__COUNT] = {
#define X(name, text) [UNUSED_##name] = text,
		UNUSED_MAP(X)
#undef X
	};

	sink_str(out, "unused:");
	for (uint32_t i = 0; i < UNUSED__COUNT; i++)
		sink_fmt(out, " %s=%llu", names[i], (unsigned long long)w->unused[i]);
}
