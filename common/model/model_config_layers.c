/* Which layer is what: attention or GDN, experts or a dense MLP, and the MLP widths. */
#include "common/model/model_config_impl.h"

#include "common/model/json_field.h"

#include <string.h>

static status read_layer_kind(
	const struct json *types, uint32_t i, uint8_t *kind, struct err *err)
{
	const struct json *v = json_item(types, i);
	const char *s = json_text(v);
	char field[32];

	if (s != NULL && strcmp(s, "linear_attention") == 0) {
		*kind = LAYER_GDN;
		return ST_OK;
	}
	if (s != NULL && strcmp(s, "full_attention") == 0) {
		*kind = LAYER_ATTN;
		return ST_OK;
	}
	snprintf(field, sizeof(field), "layer_types[%u]", i);
	return json_field_refuse(err, field, v,
		"only \"linear_attention\" and \"full_attention\" are supported");
}

status model_config_read_layers(
	struct model_config *c, const struct json *t, struct err *err)
{
	const struct json *types = json_given(t, "layer_types");
	uint32_t interval = 0;
	status st;

	if (types == NULL) {
		if (json_given(t, "full_attention_interval") == NULL)
			return err_set(err, ST_INVALID,
				"layer_types and full_attention_interval are both "
				"missing");
		st = json_field_need_uint(t, "full_attention_interval", 1,
			MODEL_LAYERS_MAX, &interval, err);
		if (st != ST_OK)
			return st;
	} else if (!json_is(types, JSON_ARRAY)) {
		return json_field_refuse(err, "layer_types", types, "must be a list");
	} else if (json_count(types) != c->n_layers) {
		return err_set(err, ST_INVALID,
			"layer_types lists %u layers, num_hidden_layers is %u",
			json_count(types), c->n_layers);
	}
	for (uint32_t i = 0; i < c->n_layers; i++) {
		uint8_t *kind = &c->layer_kind[i];

		if (types == NULL) {
			*kind = (i + 1) % interval == 0 ? LAYER_ATTN : LAYER_GDN;
		} else {
			st = read_layer_kind(types, i, kind, err);
			if (st != ST_OK)
				return st;
		}
		c->layer_ordinal[i] = (uint16_t)(*kind == LAYER_ATTN ? c->n_attn_layers++
								     : c->n_gdn_layers++);
	}
	return ST_OK;
}

static status read_dense_layers(
	struct model_config *c, const struct json *t, struct err *err)
{
	const struct json *list = json_given(t, "mlp_only_layers");
	uint32_t layer = 0;
	status st;

	if (list != NULL && !json_is(list, JSON_ARRAY))
		return json_field_refuse(err, "mlp_only_layers", list, "must be a list");
	for (uint32_t i = 0; i < c->n_layers; i++)
		c->layer_moe[i] = c->n_experts > 0;
	for (uint32_t i = 0; i < json_count(list); i++) {
		st = json_field_uint(json_item(list, i), "mlp_only_layers entry", 0,
			c->n_layers - 1, &layer, err);
		if (st != ST_OK)
			return st;
		c->layer_moe[layer] = false;
	}
	return ST_OK;
}

#define WIDTH_MAX (1u << 20)

status model_config_read_mlp(
	struct model_config *c, const struct json *t, struct err *err)
{
	const struct json *experts = json_given(t, "num_experts");
	bool any_moe = false, any_dense = false;
	status st = ST_OK;

	if (experts != NULL)
		st = json_field_uint(experts, "num_experts", 0, 4096, &c->n_experts, err);
	if (st != ST_OK)
		return st;
	if (c->arch == ARCH_QWEN35_MOE && c->n_experts == 0)
		return experts == NULL
			       ? json_field_missing(err, "num_experts")
			       : json_field_refuse(err, "num_experts", experts,
					 "must not be 0 in a mixture-of-experts model");
	if (c->arch == ARCH_QWEN35_DENSE && c->n_experts > 0)
		return json_field_refuse(
			err, "num_experts", experts, "must be 0 in a dense model");
	st = read_dense_layers(c, t, err);
	if (st != ST_OK)
		return st;
	for (uint32_t i = 0; i < c->n_layers; i++) {
		any_moe |= c->layer_moe[i];
		any_dense |= !c->layer_moe[i];
	}
	if (any_moe) {
		st = json_field_need_uint(t, "num_experts_per_tok", 1,
			MIN(c->n_experts, 64u), &c->top_k, err);
		if (st == ST_OK)
			st = json_field_need_uint(t, "moe_intermediate_size", 1,
				WIDTH_MAX, &c->expert_width, err);
		if (st == ST_OK)
			st = json_field_need_uint(t, "shared_expert_intermediate_size", 1,
				WIDTH_MAX, &c->shared_width, err);
	}
	if (st == ST_OK && any_dense)
		st = json_field_need_uint(
			t, "intermediate_size", 1, WIDTH_MAX, &c->dense_width, err);
	return st;
}
