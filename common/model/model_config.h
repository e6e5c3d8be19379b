/* config.json of the Qwen3.5 family as one checked struct. Every field that the
 * forward pass depends on is validated here, once; anything that Baton does not
 * compute (another architecture, rope scaling, biases, ...) is refused by field name
 * and value. Field meanings: the model's published config files. */
#ifndef COMMON_MODEL_MODEL_CONFIG_H
#define COMMON_MODEL_MODEL_CONFIG_H
#include "common/base/bytes.h"
#include "common/base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define MODEL_LAYERS_MAX   256u
#define MODEL_HEAD_DIM_MAX 256u
#define MODEL_RANKS_MAX    8u

enum model_arch {
	ARCH_QWEN35_MOE,   /* Qwen3_5MoeForConditionalGeneration */
	ARCH_QWEN35_DENSE, /* Qwen3_5ForConditionalGeneration */
	ARCH_QWEN3_NEXT,   /* Qwen3NextForCausalLM */
};

enum layer_kind { LAYER_GDN, LAYER_ATTN };
enum gate_act { GATE_SILU, GATE_SIGMOID };

struct model_config {
	enum model_arch arch;
	uint32_t vocab;  /* rows of the embedding and of lm_head */
	uint32_t hidden; /* H */
	uint32_t n_layers;
	uint8_t layer_kind[MODEL_LAYERS_MAX];     /* enum layer_kind */
	uint16_t layer_ordinal[MODEL_LAYERS_MAX]; /* index among the layers of its kind */
	bool layer_moe[MODEL_LAYERS_MAX];
	uint32_t n_attn_layers;
	uint32_t n_gdn_layers;

	uint32_t n_q, n_kv; /* attention heads; n_q is a multiple of n_kv */
	uint32_t head_dim;
	uint32_t rotary_dim; /* even, <= head_dim */
	double rope_theta;

	uint32_t gdn_k_heads, gdn_v_heads; /* v is a multiple of k */
	uint32_t gdn_k_dim, gdn_v_dim;
	uint32_t conv_taps; /* 4 */
	enum gate_act gdn_gate;

	float rms_eps;
	uint32_t n_experts; /* 0: dense model */
	uint32_t top_k;
	uint32_t expert_width;
	uint32_t shared_width;
	/* In no file: ranks share the experts by expert, not by width. Who opens the
	 * weights says so. */
	bool by_expert;
	uint32_t dense_width; /* of dense MLP layers; 0 when there is none */
	bool tied;            /* lm_head is the embedding */
	uint32_t max_position;
	uint32_t mtp_layers;

	uint32_t eos[16]; /* from config.json only; the tokenizer collects the union */
	uint32_t n_eos;
};

/* Channels of the causal convolution: [q | k | v] parts. */
static inline uint32_t model_conv_channels(const struct model_config *c)
{
	return 2 * c->gdn_k_heads * c->gdn_k_dim + c->gdn_v_heads * c->gdn_v_dim;
}

/* json: the text of config.json. Errors name the field and its value. */
MUST_CHECK status model_config_parse(
	struct model_config *out, struct bytes json, struct err *err);
/* Errors are prefixed with the path. */
MUST_CHECK status model_config_load_file(
	struct model_config *out, const char *path, struct err *err);
/* Reads DIR/config.json; errors are prefixed with the path. */
MUST_CHECK status model_config_load(
	struct model_config *out, const char *dir, struct err *err);

#endif
