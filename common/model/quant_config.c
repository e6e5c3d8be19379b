/* Checking quantisation files: one table of algorithms, one of members. */
#include "common/model/quant_config.h"

#include "common/base/log.h"
#include "common/model/json_field.h"
#include "common/model/json_file.h"
#include "common/model/quant_impl.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((uint64_t)16 << 20)
#define PATH_BYTES     4096

/* Names of what the tensors can hold; one format has several. Algorithms that change
 * activations or rotate (AWQ, SVDQuant) are not among them. */
static const struct quant_algorithm algorithms[] = {
	{"NVFP4", NVFP4_GROUP, KIND_NVFP4},
	{"W4A16_NVFP4", NVFP4_GROUP, KIND_NVFP4},
	{"FP8", 0, KIND_FP8},
	{"FP8_PER_CHANNEL_PER_TOKEN", 0, KIND_FP8},
	{"FP8_PB_WO", FP8_BLOCK, KIND_BLOCK},
	{"FP8_PB_REAL", FP8_BLOCK, KIND_BLOCK},
	{"FP8_BLOCK_SCALES", FP8_BLOCK, KIND_BLOCK},
	{"MIXED_PRECISION", 0, KIND_ANY},
	{"NO_QUANT", 0, KIND_PLAIN},
};

const struct quant_algorithm *quant_algorithm_find(const struct json *name)
{
	for (size_t i = 0; i < COUNT(algorithms); i++) {
		if (json_equals(name, algorithms[i].name))
			return &algorithms[i];
	}
	return NULL;
}

static const char *const methods[] = {
	"modelopt", "modelopt_fp4", "compressed-tensors", "fp8"};
static const char *const formats[] = {"nvfp4-pack-quantized", "float-quantized",
	"naive-quantized", "mixed-precision", "dense"};

/* Members that say nothing about the arithmetic, or that other lines below look at. */
static const char *const known[] = {"quant_method", "quant_algo", "format", "group_size",
	"weight_block_size", "transform_config", "sparsity_config", "config_groups",
	"quantized_layers", "kv_cache_scheme", "kv_cache_quant_algo", "ignore",
	"exclude_modules", "modules_to_not_convert", "ignored_layers", "producer",
	"version", "quantization_status", "global_compression_ratio", "activation_scheme",
	"fmt", "scale_fmt"};

static status check_word(const struct json *object, const char *field,
	const char *const *words, size_t n, struct err *err)
{
	const struct json *v = json_given(object, field);

	for (size_t i = 0; i < n; i++) {
		if (v == NULL || json_equals(v, words[i]))
			return ST_OK;
	}
	return v == NULL ? ST_OK : json_field_refuse(err, field, v, "is not supported");
}

/* quant_algo and group_size of one object; layer: its name, or NULL. */
static status check_algorithm(
	const struct json *object, const struct json *layer, struct err *err)
{
	const struct json *algo = json_given(object, "quant_algo");
	const struct json *group = json_given(object, "group_size");
	char field[160] = "quant_algo", why[80];
	const struct quant_algorithm *a = quant_algorithm_find(algo);
	int64_t is;

	if (layer != NULL)
		snprintf(field, sizeof(field), "quantized_layers %.100s: quant_algo",
			(const char *)layer->at);
	if (algo != NULL && a == NULL)
		return json_field_refuse(err, field, algo,
			"is not supported; known are NVFP4, W4A16_NVFP4, FP8, "
			"FP8_PB_WO, FP8_BLOCK_SCALES and MIXED_PRECISION");
	if (group == NULL || a == NULL || a->group == 0)
		return ST_OK;
	if (json_i64(group, &is) && is == a->group)
		return ST_OK;
	snprintf(why, sizeof(why), "the tensors of %s have groups of %u", a->name,
		a->group);
	if (layer != NULL)
		snprintf(field, sizeof(field), "quantized_layers %.100s: group_size",
			(const char *)layer->at);
	return json_field_refuse(err, layer != NULL ? field : "group_size", group, why);
}

/* weights of a config group: floats of 4 bits by 16, or of 8 bits. */
static status check_weights(
	const struct json *w, const struct json *group, struct err *err)
{
	const struct json *type = json_given(w, "type"),
			  *bits = json_given(w, "num_bits"),
			  *size = json_given(w, "group_size");
	char field[96];
	int64_t n_bits = 0, n = 0;

	snprintf(field, sizeof(field), "config_groups.%.40s.weights",
		(const char *)group->at);
	if (w == NULL)
		return ST_OK;
	if (type != NULL && !json_equals(type, "float"))
		return json_field_refuse(
			err, field, w, "only type \"float\" is supported");
	if (bits != NULL && (!json_i64(bits, &n_bits) || (n_bits != 4 && n_bits != 8)))
		return json_field_refuse(
			err, field, w, "only 4 and 8 bits are supported");
	if (size == NULL || (json_i64(size, &n) && n <= 0))
		return ST_OK;
	if (n_bits == 4 ? n != NVFP4_GROUP : n != FP8_BLOCK)
		return json_field_refuse(err, field, w,
			n_bits == 4 ? "group_size must be 16" : "group_size must be 128");
	return ST_OK;
}

static status check_block(const struct json *q, struct err *err)
{
	const struct json *block = json_given(q, "weight_block_size");
	int64_t n, k;

	if (block == NULL ||
		(json_count(block) == 2 && json_i64(json_item(block, 0), &n) &&
			json_i64(json_item(block, 1), &k) && n == FP8_BLOCK &&
			k == FP8_BLOCK))
		return ST_OK;
	return json_field_refuse(
		err, "weight_block_size", block, "only [128, 128] is supported");
}

/* Rotations and sparsity change what the numbers in the tensors stand for. */
static status check_transforms(const struct json *q, struct err *err)
{
	const struct json *t = json_given(q, "transform_config"),
			  *s = json_given(q, "sparsity_config");

	if (t != NULL && (!json_is(t, JSON_OBJECT) || json_count(t) > 0))
		return json_field_refuse(err, "transform_config", t,
			"transforms (rotations) of weights and activations are not "
			"built");
	if (s != NULL && json_count(s) > 0 &&
		!json_equals(json_given(s, "format"), "dense"))
		return json_field_refuse(err, "sparsity_config", s,
			"only the format \"dense\" is supported");
	return ST_OK;
}

status quant_config_check(const struct json *q, struct err *err)
{
	status st = check_word(q, "quant_method", methods, COUNT(methods), err);

	if (st == ST_OK)
		st = check_word(q, "format", formats, COUNT(formats), err);
	if (st == ST_OK)
		st = check_transforms(q, err);
	if (st == ST_OK)
		st = check_block(q, err);
	if (st == ST_OK)
		st = check_algorithm(q, NULL, err);
	if (st != ST_OK)
		return st;
	json_each_member(name, json_given(q, "quantized_layers"))
	{
		st = check_algorithm(name + 1, name, err);
		if (st != ST_OK)
			return st;
	}
	json_each_member(name, json_given(q, "config_groups"))
	{
		st = check_word(name + 1, "format", formats, COUNT(formats), err);
		if (st == ST_OK)
			st = check_weights(json_given(name + 1, "weights"), name, err);
		if (st != ST_OK)
			return st;
	}
	return ST_OK;
}

void quant_config_list_unknown(const struct json *q, struct sink *out)
{
	json_each_member(name, q)
	{
		size_t i = 0;

		while (i < COUNT(known) && !json_equals(name, known[i]))
			i++;
		if (i == COUNT(known))
			sink_fmt(out, "%s%.60s", out->len > 0 ? ", " : "",
				(const char *)name->at);
	}
}

static void tell_harmless(const struct json *q, const char *path)
{
	bool kv = json_given(q, "kv_cache_scheme") != NULL ||
		  json_given(q, "kv_cache_quant_algo") != NULL;
	struct sink out;

	sink_init(&out, 1000);
	quant_config_list_unknown(q, &out);
	if (kv)
		log_info("%s: its scheme for the KV cache is not used: the cache holds "
			 "the type that the worker's flags say",
			path);
	if (out.len > 0)
		log_info("%s: members of its quantisation that are not known and not "
			 "read: %s",
			path, sink_cstr(&out));
	sink_release(&out);
}

static status check_object(void *ctx, const struct json *q, const char *path,
	const char *member, struct err *err)
{
	const bool *tell = ctx;
	status st = quant_config_check(q, err);

	if (st != ST_OK)
		return err_wrap(err, "%s: %s", path, member);
	if (*tell)
		tell_harmless(q, path);
	return ST_OK;
}

status quant_config_check_dir(const char *dir, bool tell, struct err *err)
{
	return quant_config_each(dir, check_object, &tell, err);
}

status quant_config_each(const char *dir, quant_visit *visit, void *ctx, struct err *err)
{
	static const struct {
		const char *file, *member;
	} places[] = {{"config.json", "quantization_config"},
		{"hf_quant_config.json", "quantization"}};

	for (size_t i = 0; i < COUNT(places); i++) {
		const struct json *q;
		struct json_file file;
		char path[PATH_BYTES];
		status st;

		snprintf(path, sizeof(path), "%s/%s", dir, places[i].file);
		if (access(path, F_OK) != 0)
			continue;
		st = json_file_read(&file, path, FILE_BYTES_MAX, err);
		if (st != ST_OK)
			return st;
		q = json_given(file.doc.values, places[i].member);
		if (q != NULL && !json_is(q, JSON_OBJECT)) {
			st = json_field_refuse(
				err, places[i].member, q, "must be an object");
			st = err_wrap(err, "%s", path);
		} else if (q != NULL) {
			st = visit(ctx, q, path, places[i].member, err);
		}
		json_file_release(&file);
		if (st != ST_OK)
			return st;
	}
	return ST_OK;
}
