/* What quantisation files say of each matrix, beside the format in which it is stored.
 * The tensors are the truth: another algorithm is named once, and another size of the
 * groups refused, since it may mean that the scales stand for something else. */
#include "common/model/quant_impl.h"

#include "common/base/json.h"
#include "common/base/log.h"

#include <stdio.h>
#include <string.h>

/* Each is compared with every matrix of every layer. */
#define PATTERNS_MAX 8192u
#define NAME_BYTES   320

/* Members that list what stays as it is. */
static const char *const exclusions[] = {
	"ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers"};

/* A whole-model algorithm means these; the small ones beside them, and the two of the
 * vocabulary, stay as they are in every package whether listed or not. */
static const bool judged[WR__COUNT] = {[WR_LM_HEAD] = true,
	[WR_Q] = true,
	[WR_K] = true,
	[WR_V] = true,
	[WR_O] = true,
	[WR_GDN_QKV] = true,
	[WR_GDN_Z] = true,
	[WR_GDN_OUT] = true,
	[WR_MLP_GATE] = true,
	[WR_MLP_UP] = true,
	[WR_MLP_DOWN] = true,
	[WR_EXP_GATE] = true,
	[WR_EXP_UP] = true,
	[WR_EXP_DOWN] = true,
	[WR_SH_GATE] = true,
	[WR_SH_UP] = true,
	[WR_SH_DOWN] = true};

static enum quant_covers list_covers(const struct json *list, const char *module)
{
	enum quant_covers is = COVERS_NO;
	char name[NAME_BYTES];

	json_each(item, list)
	{
		const char *pattern = json_text(item);

		for (uint32_t i = 0;
			pattern != NULL && quant_spelling(module, i, name, sizeof(name));
			i++) {
			enum quant_covers one = quant_pattern_covers(pattern, name);

			if (one == COVERS_YES)
				return one;
			if (one == COVERS_UNSURE)
				is = one;
		}
	}
	return is;
}

static enum quant_covers is_excluded(const struct json *q, const char *module)
{
	enum quant_covers is = COVERS_NO;

	for (size_t i = 0; i < COUNT(exclusions) && is != COVERS_YES; i++) {
		enum quant_covers one = list_covers(json_given(q, exclusions[i]), module);

		is = one == COVERS_NO ? is : one;
	}
	return is;
}

/* The entry of quantized_layers for the module or the nearest one above it. */
static const struct json *find_listed(const struct json *layers, const char *module)
{
	char name[NAME_BYTES];

	for (uint32_t i = 0; quant_spelling(module, i, name, sizeof(name)); i++) {
		for (char *end = name; end != NULL; end = strrchr(name, '.')) {
			const struct json *is;

			if (end != name)
				*end = 0;
			is = json_given(layers, name);
			if (is != NULL)
				return is;
		}
	}
	return NULL;
}

static int64_t read_group(const struct json *object)
{
	int64_t n;

	return json_i64(json_given(object, "group_size"), &n) && n > 0 ? n : 0;
}

static void say(struct quant_said *s, uint32_t kinds, const char *word)
{
	s->kinds = kinds;
	snprintf(s->word, sizeof(s->word), "%s", word);
}

static void say_algorithm(struct quant_said *s, const struct json *object)
{
	const struct quant_algorithm *a =
		quant_algorithm_find(json_given(object, "quant_algo"));

	s->group = read_group(object);
	if (a != NULL)
		say(s, a->kinds, a->name);
}

/* The group of config_groups whose targets name the module, or all linear ones. */
static void say_group(struct quant_said *s, const struct json *groups, const char *module)
{
	json_each_member(name, groups)
	{
		const struct json *w = json_given(name + 1, "weights");
		const struct json *targets = json_given(name + 1, "targets");
		enum quant_covers is = list_covers(targets, module);
		int64_t bits = 0;

		json_each(item, targets)
		{
			if (json_equals(item, "Linear"))
				is = COVERS_YES;
		}
		if (is != COVERS_YES || !json_i64(json_given(w, "num_bits"), &bits))
			continue;
		s->group = read_group(w);
		if (bits == 4)
			say(s, KIND_NVFP4, "4 bits");
		else if (json_equals(json_given(w, "strategy"), "block") || s->group > 0)
			say(s, KIND_BLOCK, "8 bits in blocks");
		else
			say(s, KIND_FP8 | KIND_BLOCK, "8 bits");
		return;
	}
}

struct quant_said quant_said_of(const struct json *q, const char *module)
{
	const struct json *algo = json_given(q, "quant_algo");
	const struct json *layers = json_given(q, "quantized_layers");
	const struct json *listed = find_listed(layers, module);
	struct quant_said s = {.kinds = KIND_ANY};
	enum quant_covers excluded;

	if (listed != NULL) {
		say_algorithm(&s, listed);
		if (s.group == 0 && s.kinds == KIND_NVFP4)
			s.group = read_group(q);
		return s;
	}
	excluded = is_excluded(q, module);
	if (excluded == COVERS_UNSURE)
		return s;
	if (excluded == COVERS_YES)
		say(&s, KIND_PLAIN, "no quantisation");
	else if (json_equals(algo, "MIXED_PRECISION") && json_count(layers) > 0)
		say(&s, KIND_PLAIN, "no quantisation (it is not in quantized_layers)");
	else if (strcmp(module, "lm_head") == 0)
		return s; /* stays as it is in most packages, listed or not */
	else if (algo != NULL && !json_equals(algo, "MIXED_PRECISION"))
		say_algorithm(&s, q);
	else if (json_given(q, "config_groups") != NULL)
		say_group(&s, json_given(q, "config_groups"), module);
	else if (json_equals(json_given(q, "quant_method"), "fp8"))
		say(&s, json_given(q, "weight_block_size") ? KIND_BLOCK : KIND_FP8,
			"fp8");
	else
		s.group = read_group(q);
	return s;
}

struct match {
	const struct weights *w;
	bool tell;
	uint64_t n;                    /* matrices of this file that are otherwise */
	const struct st_tensor *first; /* of them */
	struct quant_said said;
	enum scale_kind is;
};

static const char *kind_text(const struct st_tensor *t, enum scale_kind kind)
{
	static const char *const texts[] = {
		[SCALE_NVFP4] = "NVFP4",
		[SCALE_BLOCK] = "FP8 by blocks",
		[SCALE_ROW] = "FP8 by rows",
		[SCALE_TENSOR] = "FP8 with one scale",
	};

	return kind == SCALE_NONE ? st_dtype_name(t->dtype) : texts[kind];
}

/* The kinds that the stored matrix is; within one block, blocks and one scale are one. */
static uint32_t kinds_of(const struct entry *e)
{
	bool small = e->slice.src_rows <= FP8_BLOCK && e->slice.src_cols <= FP8_BLOCK;
	uint32_t kinds = 1u << e->scale;

	if (small && kinds & (KIND_BLOCK | 1u << SCALE_TENSOR))
		kinds |= KIND_BLOCK | 1u << SCALE_TENSOR;
	return kinds;
}

static void module_of(const struct st_tensor *t, enum module m, char *buf, size_t size)
{
	char *dot;

	snprintf(buf, size, "%s", t->name);
	dot = strrchr(buf, '.');
	if (module_style(m) != STYLE_BARE && dot != NULL)
		*dot = 0;
}

static void note(struct match *m, const struct quant_said *said, const struct entry *e,
	const struct st_tensor *t)
{
	if (m->n == 0) {
		m->first = t;
		m->said = *said;
		m->is = e->scale;
	}
	m->n += e->info.count;
}

static status match_role(
	struct match *m, const struct json *q, const struct entry *e, struct err *err)
{
	uint32_t layer = (uint32_t)((size_t)(e - m->w->entries) % m->w->config->n_layers);
	const struct st_tensor *t = weights_tensor(m->w, e->module, layer);
	uint32_t group = e->scale == SCALE_NVFP4   ? NVFP4_GROUP
			 : e->scale == SCALE_BLOCK ? FP8_BLOCK
						   : 0;
	char module[NAME_BYTES];
	struct quant_said said;

	module_of(t, e->module, module, sizeof(module));
	said = quant_said_of(q, module);
	if (!(said.kinds & kinds_of(e))) {
		note(m, &said, e, t);
		return ST_OK;
	}
	if (group == 0 || said.group == 0 || said.group == group)
		return ST_OK;
	return tensor_refuse(m->w, t, err,
		"has one scale for %u weights, and the group_size that is said of it is "
		"%lld",
		group, (long long)said.group);
}

static bool too_long(const struct json *q)
{
	uint32_t n = 0;

	for (size_t i = 0; i < COUNT(exclusions); i++)
		n += json_count(json_given(q, exclusions[i]));
	json_each_member(name, json_given(q, "config_groups"))
	{
		n += 1 + json_count(json_given(name + 1, "targets"));
	}
	return n > PATTERNS_MAX;
}

static void tell(struct match *m, const char *path, const char *member)
{
	if (m->n == 0 || !m->tell)
		return;
	log_info("%s: %s says %s of tensor %s, which is %s; %llu matrices are stored "
		 "otherwise than it says, and are used as they are stored",
		path, member, m->said.word, m->first->name, kind_text(m->first, m->is),
		(unsigned long long)m->n);
	m->tell = false; /* the other file usually says the same */
}

static status match_object(void *ctx, const struct json *q, const char *path,
	const char *member, struct err *err)
{
	struct match *m = ctx;

	if (too_long(q)) {
		if (m->tell)
			log_info("%s: %s lists more than %u modules and is not compared "
				 "with the tensors",
				path, member, PATTERNS_MAX);
		return ST_OK;
	}
	m->n = 0;
	for (uint32_t layer = 0; layer < m->w->config->n_layers; layer++) {
		for (uint32_t r = 0; r < WR__COUNT; r++) {
			const struct entry *e =
				weights_entry(m->w, (enum weight_role)r, layer);
			status st;

			if (!judged[r] || !e->info.present)
				continue;
			st = match_role(m, q, e, err);
			if (st != ST_OK)
				return err_wrap(err, "%s: %s", path, member);
		}
	}
	tell(m, path, member);
	return ST_OK;
}

status quant_config_match(
	const struct weights *w, const char *dir, bool tell_it, struct err *err)
{
	struct match m = {.w = w, .tell = tell_it};

	return quant_config_each(dir, match_object, &m, err);
}
