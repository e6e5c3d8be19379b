/* Reading and checking config.json. Every refusal names the field and its value. */
#include "common/model/model_config_impl.h"

#include "common/base/log.h"
#include "common/model/json_field.h"
#include "common/model/json_file.h"

#include <math.h>
#include <string.h>

/* The largest published config.json (a list of 400 quantised modules) has 90 KB. */
#define CONFIG_BYTES_MAX ((uint64_t)16 << 20)
#define PATH_BYTES       4096

/* What is read from: the text fields stand in text_config of the multimodal packages
 * and at the top of text-only ones. */
struct source {
	const struct json *root;
	const struct json *text;
};

static const struct {
	const char *architecture, *model_type;
	enum model_arch arch;
} packages[] = {
	{"Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", ARCH_QWEN35_MOE},
	{"Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", ARCH_QWEN35_MOE},
	{"Qwen3_5ForConditionalGeneration", "qwen3_5", ARCH_QWEN35_DENSE},
	{"Qwen3_5ForCausalLM", "qwen3_5_text", ARCH_QWEN35_DENSE},
	{"Qwen3NextForCausalLM", "qwen3_next", ARCH_QWEN3_NEXT},
};

/* Index of the package whose column holds the text, or COUNT(packages). */
static size_t find_package(const struct json *text, bool by_type)
{
	const char *s = json_text(text);
	size_t i = 0;

	while (s != NULL && i < COUNT(packages) &&
		strcmp(s, by_type ? packages[i].model_type : packages[i].architecture) !=
			0)
		i++;
	return s == NULL ? COUNT(packages) : i;
}

static status check_type(const struct json *object, const char *shown, bool required,
	enum model_arch *arch, struct err *err)
{
	const struct json *v = json_given(object, "model_type");
	size_t i;

	if (v == NULL)
		return required ? json_field_missing(err, shown) : ST_OK;
	i = find_package(v, true);
	if (i == COUNT(packages))
		return json_field_refuse(err, shown, v,
			"not supported; known are qwen3_5, qwen3_5_moe (also _text) and "
			"qwen3_next");
	if (!required && packages[i].arch != *arch)
		return json_field_refuse(
			err, shown, v, "contradicts model_type at the top");
	*arch = packages[i].arch;
	return ST_OK;
}

static status read_arch(struct model_config *c, const struct source *s, struct err *err)
{
	const struct json *list = json_given(s->root, "architectures"), *v;
	size_t i;
	status st;

	st = check_type(s->root, "model_type", true, &c->arch, err);
	if (st != ST_OK)
		return st;
	if (s->text != s->root) {
		st = check_type(s->text, "text_config.model_type", false, &c->arch, err);
		if (st != ST_OK)
			return st;
	}
	if (list == NULL)
		return json_field_missing(err, "architectures");
	v = json_item(list, 0);
	if (json_count(list) != 1)
		return json_field_refuse(
			err, "architectures", list, "must be a list of one name");
	i = find_package(v, false);
	if (i == COUNT(packages))
		return json_field_refuse(err, "architectures", list, "not supported");
	if (packages[i].arch != c->arch)
		return json_field_refuse(
			err, "architectures", list, "contradicts model_type");
	return ST_OK;
}

/* Geometry that every model of the family states. Bounds are far above any published
 * model and keep every product of two of them within 64 bits. */
#define SIZE_MAP(X)                                                                      \
	X(vocab_size, vocab, 1, 1u << 22)                                                \
	X(hidden_size, hidden, 1, 1u << 16)                                              \
	X(num_hidden_layers, n_layers, 1, MODEL_LAYERS_MAX)                              \
	X(num_attention_heads, n_q, 1, 1024)                                             \
	X(num_key_value_heads, n_kv, 1, 1024)                                            \
	X(head_dim, head_dim, 2, MODEL_HEAD_DIM_MAX)                                     \
	X(linear_num_key_heads, gdn_k_heads, 1, 1024)                                    \
	X(linear_num_value_heads, gdn_v_heads, 1, 1024)                                  \
	X(linear_key_head_dim, gdn_k_dim, 1, 256)                                        \
	X(linear_value_head_dim, gdn_v_dim, 1, 256)                                      \
	X(linear_conv_kernel_dim, conv_taps, 4, 4)                                       \
	X(max_position_embeddings, max_position, 1, 1u << 24)

static status read_sizes(struct model_config *c, const struct json *t, struct err *err)
{
	static const struct {
		const char *field;
		size_t at;
		uint32_t min, max;
	} sizes[] = {
#define X(field, member, min, max)                                                       \
	{#field, offsetof(struct model_config, member), min, max},
		SIZE_MAP(X)
#undef X
	};
	double eps = 0;
	status st;

	for (size_t i = 0; i < COUNT(sizes); i++) {
		uint32_t *member = (uint32_t *)(void *)((char *)c + sizes[i].at);

		st = json_field_need_uint(
			t, sizes[i].field, sizes[i].min, sizes[i].max, member, err);
		if (st != ST_OK)
			return st;
	}
	if (c->n_q % c->n_kv != 0)
		return err_set(err, ST_INVALID,
			"num_attention_heads %u is no multiple of num_key_value_heads %u",
			c->n_q, c->n_kv);
	if (c->gdn_v_heads % c->gdn_k_heads != 0)
		return err_set(err, ST_INVALID,
			"linear_num_value_heads %u is no multiple of "
			"linear_num_key_heads %u",
			c->gdn_v_heads, c->gdn_k_heads);
	if (json_given(t, "rms_norm_eps") == NULL)
		return json_field_missing(err, "rms_norm_eps");
	st = json_field_real(
		json_given(t, "rms_norm_eps"), "rms_norm_eps", 0, 0.1, &eps, err);
	c->rms_eps = (float)eps;
	return st;
}

/* Switches of the forward pass. */
static status read_switches(struct model_config *c, const struct json *t, struct err *err)
{
	const struct json *gate = json_given(t, "output_gate_type");
	status st = model_config_check_members(t, err);

	if (st != ST_OK)
		return st;
	c->gdn_gate = GATE_SILU;
	if (gate == NULL)
		return ST_OK;
	if (json_equals(gate, "sigmoid"))
		c->gdn_gate = GATE_SIGMOID;
	else if (!json_equals(gate, "swish") && !json_equals(gate, "silu"))
		return json_field_refuse(err, "output_gate_type", gate,
			"only \"swish\", \"silu\" and \"sigmoid\" are supported");
	return ST_OK;
}

/* rope_parameters of newer files, rope_scaling of older ones: scaling is refused. */
static status check_rope_type(const struct json *t, const char *field, struct err *err)
{
	static const char *const types[] = {"rope_type", "type"};
	const struct json *rope = json_given(t, field), *v;
	char shown[64];

	if (rope == NULL)
		return ST_OK;
	if (!json_is(rope, JSON_OBJECT))
		return json_field_refuse(err, field, rope, "must be an object");
	for (size_t i = 0; i < COUNT(types); i++) {
		v = json_given(rope, types[i]);
		if (v == NULL || json_equals(v, "default"))
			continue;
		snprintf(shown, sizeof(shown), "%s.%s", field, types[i]);
		return json_field_refuse(
			err, shown, v, "rope scaling is not supported, only \"default\"");
	}
	v = json_given(rope, "factor");
	if (v == NULL)
		return ST_OK;
	snprintf(shown, sizeof(shown), "%s.factor", field);
	return json_field_refuse(err, shown, v, "rope scaling is not supported");
}

/* The two values of rope are read in rope_parameters and beside it, not here. */
static status check_rope_scaling(const struct json *t, struct err *err)
{
	static const char *const values[] = {"rope_theta", "partial_rotary_factor"};
	const struct json *rope = json_given(t, "rope_scaling"), *v;
	char shown[64];
	status st = check_rope_type(t, "rope_scaling", err);

	for (size_t i = 0; i < COUNT(values) && st == ST_OK; i++) {
		v = json_given(rope, values[i]);
		if (v == NULL)
			continue;
		snprintf(shown, sizeof(shown), "rope_scaling.%s", values[i]);
		st = json_field_refuse(
			err, shown, v, "belongs into rope_parameters, or beside it");
	}
	return st;
}

/* rope_parameters wins over the same field beside it. */
static const struct json *get_rope(const struct json *t, const char *field)
{
	const struct json *v = json_given(json_given(t, "rope_parameters"), field);

	return v != NULL ? v : json_given(t, field);
}

static status read_rope(struct model_config *c, const struct json *t, struct err *err)
{
	const struct json *theta = get_rope(t, "rope_theta");
	const struct json *partial = get_rope(t, "partial_rotary_factor");
	double factor = 0, dim;
	status st;

	st = check_rope_type(t, "rope_parameters", err);
	if (st != ST_OK)
		return st;
	st = check_rope_scaling(t, err);
	if (st != ST_OK)
		return st;
	if (theta == NULL)
		return json_field_missing(err, "rope_theta");
	if (partial == NULL)
		return json_field_missing(err, "partial_rotary_factor");
	st = json_field_real(theta, "rope_theta", 1, 1e12, &c->rope_theta, err);
	if (st != ST_OK)
		return st;
	st = json_field_real(partial, "partial_rotary_factor", 0, 1, &factor, err);
	if (st != ST_OK)
		return st;
	dim = factor * c->head_dim;
	if (fabs(dim - nearbyint(dim)) > 1e-6 || fmod(nearbyint(dim), 2) != 0 || dim < 1)
		return err_set(err, ST_INVALID,
			"partial_rotary_factor %g of head_dim %u rotates %g dimensions: "
			"must be "
			"an even number above 0",
			factor, c->head_dim, dim);
	c->rotary_dim = (uint32_t)nearbyint(dim);
	return ST_OK;
}

static status read_tied(struct model_config *c, const struct source *s, struct err *err)
{
	const struct json *v = json_given(s->text, "tie_word_embeddings");

	if (v == NULL)
		v = json_given(s->root, "tie_word_embeddings");
	if (v != NULL && !json_is_bool(v))
		return json_field_refuse(
			err, "tie_word_embeddings", v, "must be true or false");
	c->tied = json_is(v, JSON_TRUE);
	return ST_OK;
}

static status read_eos(struct model_config *c, const struct json *t, struct err *err)
{
	const struct json *v = json_given(t, "eos_token_id");
	status st;

	if (v == NULL)
		return ST_OK;
	if (!json_is(v, JSON_ARRAY)) {
		c->n_eos = 1;
		return json_field_uint(
			v, "eos_token_id", 0, c->vocab - 1, &c->eos[0], err);
	}
	if (json_count(v) > COUNT(c->eos))
		return err_set(err, ST_LIMIT,
			"eos_token_id lists %u ids, at most %zu are read", json_count(v),
			COUNT(c->eos));
	for (uint32_t i = 0; i < json_count(v); i++) {
		st = json_field_uint(json_item(v, i), "eos_token_id entry", 0,
			c->vocab - 1, &c->eos[c->n_eos], err);
		if (st != ST_OK)
			return st;
		c->n_eos++;
	}
	return ST_OK;
}

static status read_mtp(struct model_config *c, const struct json *t, struct err *err)
{
	const struct json *v = json_given(t, "mtp_num_hidden_layers");

	return v == NULL ? ST_OK
			 : json_field_uint(v, "mtp_num_hidden_layers", 0, 16,
				   &c->mtp_layers, err);
}

static status read_config(
	struct model_config *c, const struct json *root, struct err *err)
{
	struct source s = {.root = root, .text = json_given(root, "text_config")};
	static status (*const steps[])(struct model_config *, const struct json *,
		struct err *) = {read_switches, read_sizes, read_rope,
		model_config_read_layers, model_config_read_mlp, read_eos, read_mtp};
	status st;

	if (!json_is(root, JSON_OBJECT))
		return err_set(err, ST_INVALID, "not a JSON object");
	if (!json_is(s.text, JSON_OBJECT))
		s.text = root;
	st = read_arch(c, &s, err);
	if (st == ST_OK && s.text != root)
		st = model_config_check_members(root, err);
	for (size_t i = 0; i < COUNT(steps) && st == ST_OK; i++)
		st = steps[i](c, s.text, err);
	if (st == ST_OK)
		st = read_tied(c, &s, err);
	return st;
}

static status read_root(
	struct model_config *out, const struct json *root, struct err *err)
{
	struct model_config c = {0};
	status st = read_config(&c, root, err);

	if (st == ST_OK)
		*out = c;
	return st;
}

status model_config_parse(struct model_config *out, struct bytes json, struct err *err)
{
	struct json_file file;
	status st;

	st = json_file_parse(&file, json, err);
	if (st != ST_OK)
		return st;
	st = read_root(out, file.doc.values, err);
	json_file_release(&file);
	return st;
}

/* What a reader of the file should know, once. */
static void tell(const struct json *root, const char *path)
{
	const struct json *text = json_given(root, "text_config");
	const struct json *t = json_is(text, JSON_OBJECT) ? text : root;
	const struct json *beside = json_given(t, "rope_theta"), *used;
	double a, b;

	used = get_rope(t, "rope_theta");
	if (json_f64(beside, &a) && json_f64(used, &b) && a != b)
		log_info(
			"%s: rope_theta is %g in rope_parameters and %g beside it: %g is "
			"used",
			path, b, a, b);
	model_config_tell_unknown(root, path);
}

status model_config_load_file(struct model_config *out, const char *path, struct err *err)
{
	struct json_file file;
	status st;

	st = json_file_read(&file, path, CONFIG_BYTES_MAX, err);
	if (st != ST_OK)
		return st;
	st = read_root(out, file.doc.values, err);
	if (st == ST_OK)
		tell(file.doc.values, path);
	else
		err_wrap(err, "%s", path);
	json_file_release(&file);
	return st;
}

status model_config_load(struct model_config *out, const char *dir, struct err *err)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/config.json", dir);
	return model_config_load_file(out, path, err);
}
