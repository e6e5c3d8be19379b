/* What a tensor's name says: module, layer, expert, and which part of the matrix. */
#include "common/model/weights_impl.h"

#include <string.h>

static const struct {
	const char *text;
	enum where where;
	enum module_style style;
} modules[MOD__COUNT] = {
#define X(name, where, text, style) [MOD_##name] = {text, WHERE_##where, STYLE_##style},
	MODULE_MAP(X)
#undef X
};

static const char *const part_texts[PART__COUNT] = {
#define X(name, text) [PART_##name] = text,
	PART_MAP(X)
#undef X
};

const char *module_text(enum module m)
{
	return modules[m].text;
}

enum module_style module_style(enum module m)
{
	return modules[m].style;
}

enum where module_where(enum module m)
{
	return modules[m].where;
}

bool where_exists(const struct model_config *c, enum where where, uint32_t layer)
{
	switch (where) {
	case WHERE_global:
		return layer == 0;
	case WHERE_layer:
		return layer < c->n_layers;
	case WHERE_attn:
		return layer < c->n_layers && c->layer_kind[layer] == LAYER_ATTN;
	case WHERE_gdn:
		return layer < c->n_layers && c->layer_kind[layer] == LAYER_GDN;
	case WHERE_dense:
		return layer < c->n_layers && !c->layer_moe[layer];
	case WHERE_moe:
		return layer < c->n_layers && c->layer_moe[layer];
	}
	return false;
}

static bool skip_text(const char **at, const char *text)
{
	size_t n = strlen(text);

	if (strncmp(*at, text, n) != 0)
		return false;
	*at += n;
	return true;
}

/* A decimal number as checkpoints print it, without leading zeros, and a dot. */
static bool skip_number(const char **at, uint32_t *v)
{
	const char *s = *at;

	*v = 0;
	if (s[0] == '0' && s[1] != '.')
		return false;
	while (*s >= '0' && *s <= '9' && s - *at < 6)
		*v = *v * 10 + (uint32_t)(*s++ - '0');
	if (s == *at || *s != '.')
		return false;
	*at = s + 1;
	return true;
}

/* rest: what follows "MODULE." */
static bool read_part(struct weight_name *n, const char *rest)
{
	n->kind = NAME_UNUSED;
	if (strcmp(rest, "input_scale") == 0) {
		n->unused = UNUSED_INPUT_SCALE;
		return true;
	}
	if (strcmp(rest, "input_global_scale") == 0) {
		n->unused = UNUSED_INPUT_GLOBAL_SCALE;
		return true;
	}
	n->kind = NAME_PART;
	for (uint32_t p = 0; p < PART__COUNT; p++) {
		if (strcmp(rest, part_texts[p]) == 0) {
			n->part = (enum part)p;
			return true;
		}
	}
	n->kind = NAME_UNKNOWN;
	return false;
}

/* Scales of a quantised KV cache, as three exporters spell them. */
static bool read_kv_scale(struct weight_name *n, const char *rest)
{
	static const struct {
		const char *text;
		enum unused unused;
	} spellings[] = {
		{"self_attn.k_proj.k_scale", UNUSED_K_SCALE},
		{"self_attn.v_proj.v_scale", UNUSED_V_SCALE},
		{"self_attn.k_scale", UNUSED_K_SCALE},
		{"self_attn.v_scale", UNUSED_V_SCALE},
		{"self_attn.qkv_proj.k_scale", UNUSED_K_SCALE},
		{"self_attn.qkv_proj.v_scale", UNUSED_V_SCALE},
	};

	for (size_t i = 0; i < COUNT(spellings); i++) {
		if (strcmp(rest, spellings[i].text) == 0) {
			n->kind = NAME_UNUSED;
			n->unused = spellings[i].unused;
			n->module = MOD_K;
			return true;
		}
	}
	return false;
}

/* Where the expert number is left out, at stays as it was. */
static bool skip_expert(const char **at, uint32_t *expert)
{
	const char *s = *at;

	if (!skip_text(&s, "mlp.experts.") || !skip_number(&s, expert))
		return false;
	*at = s;
	return true;
}

/* rest: below the prefix, and below the layer for modules of a layer. */
static bool read_module(struct weight_name *n, const char *rest)
{
	bool expert = n->in_layer && skip_expert(&rest, &n->expert);

	for (uint32_t m = 0; m < MOD__COUNT; m++) {
		const char *tail = rest;

		if ((modules[m].where == WHERE_global) == n->in_layer ||
			(modules[m].style == STYLE_EXPERT) != expert ||
			!skip_text(&tail, modules[m].text))
			continue;
		n->module = (enum module)m;
		if (modules[m].style == STYLE_BARE && *tail == 0) {
			n->kind = NAME_PART;
			n->part = PART_WEIGHT;
			return true;
		}
		if (modules[m].style != STYLE_BARE && *tail == '.' &&
			read_part(n, tail + 1))
			return true;
	}
	return false;
}

/* model.language_model. of the multimodal packages, model. of text-only ones and of
 * Qwen3-Next, language_model.model. of MLX exports; lm_head and mtp stand at the top. */
struct weight_name weight_name_read(const char *name)
{
	static const char *const prefixes[] = {"model.language_model.",
		"language_model.model.", "language_model.", "model."};
	struct weight_name n = {.kind = NAME_UNKNOWN};
	const char *rest = name;

	for (size_t i = 0; i < COUNT(prefixes); i++) {
		if (skip_text(&rest, prefixes[i]))
			break;
	}
	if (strncmp(rest, "visual.", 7) == 0 || strncmp(rest, "mtp.", 4) == 0) {
		n.kind = NAME_UNUSED;
		n.unused = rest[0] == 'v' ? UNUSED_VISION : UNUSED_MTP;
		return n;
	}
	if (skip_text(&rest, "layers.")) {
		n.in_layer = true;
		if (!skip_number(&rest, &n.layer))
			return n;
		if (read_kv_scale(&n, rest))
			return n;
	}
	if (!read_module(&n, rest))
		n.kind = NAME_UNKNOWN;
	return n;
}
