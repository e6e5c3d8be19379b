/* Members of config.json that other models of the same shape use to change the forward
 * pass. Each is harmless with the value that leaves it alone and refused with any other.
 * What is read stands in model_config*.c; what nobody knows is named once. */
#include "common/model/model_config_impl.h"

#include "common/base/log.h"
#include "common/model/json_field.h"

#include <stdio.h>
#include <string.h>

enum harmless {
	READ,    /* by model_config*.c, the tokenizer or weights.c; or never matters */
	NOTHING, /* null */
	OFF,     /* false */
	ON,      /* true */
	ZERO,
	ONE,
	TEXT, /* one of two words */
};

struct member {
	const char *name;
	enum harmless harmless;
	const char *text, *other;
};

static const struct member members[] = {
	{"use_sliding_window", OFF, NULL, NULL},
	{"final_logit_softcapping", NOTHING, NULL, NULL},
	{"attn_logit_softcapping", NOTHING, NULL, NULL},
	{"attention_chunk_size", NOTHING, NULL, NULL},
	{"query_pre_attn_scalar", NOTHING, NULL, NULL},
	{"attention_multiplier", NOTHING, NULL, NULL},
	{"attention_sink_size", NOTHING, NULL, NULL},
	{"attention_bias", OFF, NULL, NULL},
	{"qkv_bias", OFF, NULL, NULL},
	{"use_qkv_bias", OFF, NULL, NULL},
	{"mlp_bias", OFF, NULL, NULL},
	{"lm_head_bias", OFF, NULL, NULL},
	{"layer_scale", OFF, NULL, NULL},
	{"parallel_attn", OFF, NULL, NULL},
	{"rope_interleave", OFF, NULL, NULL},
	{"use_parallel_residual", OFF, NULL, NULL},
	{"mtp_use_dedicated_embeddings", OFF, NULL, NULL},
	{"attn_output_gate", ON, NULL, NULL},
	{"norm_topk_prob", ON, NULL, NULL},
	{"use_qk_norm", ON, NULL, NULL},
	{"qk_layernorm", ON, NULL, NULL},
	{"logit_scale", ONE, NULL, NULL},
	{"logits_scaling", ONE, NULL, NULL},
	{"embedding_multiplier", ONE, NULL, NULL},
	{"residual_multiplier", ONE, NULL, NULL},
	{"routed_scaling_factor", ONE, NULL, NULL},
	{"decoder_sparse_step", ONE, NULL, NULL},
	{"moe_layer_freq", ONE, NULL, NULL},
	{"n_group", ONE, NULL, NULL},
	{"topk_group", ONE, NULL, NULL},
	{"first_k_dense_replace", ZERO, NULL, NULL},
	{"hidden_act", TEXT, "silu", "swish"},
	{"mamba_ssm_dtype", TEXT, "float32", NULL},
	{"scoring_func", TEXT, "softmax", NULL},
	{"output_gate_type", READ, NULL, NULL},
	{"sliding_window", READ, NULL, NULL}, /* with use_sliding_window alone */
	{"max_window_layers", READ, NULL, NULL},
	{"architectures", READ, NULL, NULL},
	{"model_type", READ, NULL, NULL},
	{"text_config", READ, NULL, NULL},
	{"vision_config", READ, NULL, NULL},
	{"quantization_config", READ, NULL, NULL},
	{"vocab_size", READ, NULL, NULL},
	{"hidden_size", READ, NULL, NULL},
	{"intermediate_size", READ, NULL, NULL},
	{"num_hidden_layers", READ, NULL, NULL},
	{"num_attention_heads", READ, NULL, NULL},
	{"num_key_value_heads", READ, NULL, NULL},
	{"head_dim", READ, NULL, NULL},
	{"linear_num_key_heads", READ, NULL, NULL},
	{"linear_num_value_heads", READ, NULL, NULL},
	{"linear_key_head_dim", READ, NULL, NULL},
	{"linear_value_head_dim", READ, NULL, NULL},
	{"linear_conv_kernel_dim", READ, NULL, NULL},
	{"max_position_embeddings", READ, NULL, NULL},
	{"rms_norm_eps", READ, NULL, NULL},
	{"layer_types", READ, NULL, NULL},
	{"full_attention_interval", READ, NULL, NULL},
	{"rope_parameters", READ, NULL, NULL},
	{"rope_scaling", READ, NULL, NULL},
	{"rope_theta", READ, NULL, NULL},
	{"partial_rotary_factor", READ, NULL, NULL},
	{"num_experts", READ, NULL, NULL},
	{"num_experts_per_tok", READ, NULL, NULL},
	{"moe_intermediate_size", READ, NULL, NULL},
	{"shared_expert_intermediate_size", READ, NULL, NULL},
	{"mlp_only_layers", READ, NULL, NULL},
	{"mtp_num_hidden_layers", READ, NULL, NULL},
	{"tie_word_embeddings", READ, NULL, NULL},
	{"eos_token_id", READ, NULL, NULL},
	/* never matters: training, vision, other programs */
	{"attention_dropout", READ, NULL, NULL},
	{"bos_token_id", READ, NULL, NULL},
	{"pad_token_id", READ, NULL, NULL},
	{"dtype", READ, NULL, NULL},
	{"torch_dtype", READ, NULL, NULL},
	{"initializer_range", READ, NULL, NULL},
	{"image_token_id", READ, NULL, NULL},
	{"video_token_id", READ, NULL, NULL},
	{"vision_start_token_id", READ, NULL, NULL},
	{"vision_end_token_id", READ, NULL, NULL},
	{"language_model_only", READ, NULL, NULL},
	{"output_router_logits", READ, NULL, NULL},
	{"router_aux_loss_coef", READ, NULL, NULL},
	{"transformers_version", READ, NULL, NULL},
	{"use_cache", READ, NULL, NULL},
};

static const struct member *find(const struct json *name)
{
	for (size_t i = 0; i < COUNT(members); i++) {
		if (json_equals(name, members[i].name))
			return &members[i];
	}
	return NULL;
}

static bool is_number(const struct json *v, double want)
{
	double is;

	return json_f64(v, &is) && is == want;
}

static bool holds(const struct member *m, const struct json *v)
{
	switch (m->harmless) {
	case READ:
		return true;
	case NOTHING:
		return json_is(v, JSON_NULL);
	case OFF:
		return json_is(v, JSON_FALSE);
	case ON:
		return json_is(v, JSON_TRUE);
	case ZERO:
		return is_number(v, 0);
	case ONE:
		return is_number(v, 1);
	case TEXT:
		return json_equals(v, m->text) ||
		       (m->other != NULL && json_equals(v, m->other));
	}
	return false;
}

static status refuse(const struct member *m, const struct json *v, struct err *err)
{
	static const char *const wants[] = {
		[NOTHING] = "only null is supported",
		[OFF] = "only false is supported",
		[ON] = "only true is supported",
		[ZERO] = "only 0 is supported",
		[ONE] = "only 1 is supported",
	};
	char why[64];

	if (m->harmless != TEXT)
		return json_field_refuse(err, m->name, v, wants[m->harmless]);
	snprintf(why, sizeof(why), "only \"%s\" is supported", m->text);
	return json_field_refuse(err, m->name, v, why);
}

status model_config_check_members(const struct json *object, struct err *err)
{
	const struct json *window = json_given(object, "sliding_window");

	json_each_member(name, object)
	{
		const struct member *m = find(name);

		if (m != NULL && !json_is(name + 1, JSON_NULL) && !holds(m, name + 1))
			return refuse(m, name + 1, err);
	}
	if (window != NULL &&
		!json_is(json_member(object, "use_sliding_window"), JSON_FALSE))
		return json_field_refuse(err, "sliding_window", window,
			"only null, or use_sliding_window false beside it, is supported");
	return ST_OK;
}

static void add_unknown(const struct json *object, struct sink *out)
{
	json_each_member(name, object)
	{
		if (find(name) == NULL)
			sink_fmt(out, "%s%.60s", out->len > 0 ? ", " : "",
				(const char *)name->at);
	}
}

void model_config_list_unknown(const struct json *root, struct sink *out)
{
	add_unknown(root, out);
	add_unknown(json_given(root, "text_config"), out);
}

void model_config_tell_unknown(const struct json *root, const char *path)
{
	struct sink out;

	sink_init(&out, 1000);
	model_config_list_unknown(root, &out);
	if (out.len > 0)
		log_info("%s: members that are not known and not read: %s%s", path,
			sink_cstr(&out), out.full ? ", ..." : "");
	sink_release(&out);
}
