/* For one role of one layer: which tensors it is read from, in which format they are,
 * and which part of them this rank holds. Formats are decided by what is on disk. */
#include "common/model/weights_impl.h"

#include <string.h>

/* Where each role is read from: its own module, or one that packs several roles. */
static const struct {
	enum module plain, packed;
} sources[WR__COUNT] = {
	[WR_EMBED] = {MOD_EMBED, MOD__COUNT},
	[WR_FINAL_NORM] = {MOD_FINAL_NORM, MOD__COUNT},
	[WR_LM_HEAD] = {MOD_LM_HEAD, MOD__COUNT},
	[WR_NORM1] = {MOD_NORM1, MOD__COUNT},
	[WR_NORM2] = {MOD_NORM2, MOD__COUNT},
	[WR_Q] = {MOD_Q, MOD__COUNT},
	[WR_K] = {MOD_K, MOD__COUNT},
	[WR_V] = {MOD_V, MOD__COUNT},
	[WR_O] = {MOD_O, MOD__COUNT},
	[WR_Q_NORM] = {MOD_Q_NORM, MOD__COUNT},
	[WR_K_NORM] = {MOD_K_NORM, MOD__COUNT},
	[WR_GDN_QKV] = {MOD_QKV, MOD_QKVZ},
	[WR_GDN_Z] = {MOD_Z, MOD_QKVZ},
	[WR_GDN_B] = {MOD_B, MOD_BA},
	[WR_GDN_A] = {MOD_A, MOD_BA},
	[WR_GDN_CONV] = {MOD_CONV, MOD__COUNT},
	[WR_GDN_A_LOG] = {MOD_A_LOG, MOD__COUNT},
	[WR_GDN_DT_BIAS] = {MOD_DT_BIAS, MOD__COUNT},
	[WR_GDN_NORM] = {MOD_GDN_NORM, MOD__COUNT},
	[WR_GDN_OUT] = {MOD_GDN_OUT, MOD__COUNT},
	[WR_MLP_GATE] = {MOD_MLP_GATE, MOD__COUNT},
	[WR_MLP_UP] = {MOD_MLP_UP, MOD__COUNT},
	[WR_MLP_DOWN] = {MOD_MLP_DOWN, MOD__COUNT},
	[WR_ROUTER] = {MOD_ROUTER, MOD__COUNT},
	[WR_EXP_GATE] = {MOD_EXP_GATE, MOD_EXPS_GATE_UP},
	[WR_EXP_UP] = {MOD_EXP_UP, MOD_EXPS_GATE_UP},
	[WR_EXP_DOWN] = {MOD_EXP_DOWN, MOD_EXPS_DOWN},
	[WR_SH_GATE] = {MOD_SH_GATE, MOD__COUNT},
	[WR_SH_UP] = {MOD_SH_UP, MOD__COUNT},
	[WR_SH_DOWN] = {MOD_SH_DOWN, MOD__COUNT},
	[WR_SH_ROUTER] = {MOD_SH_ROUTER, MOD__COUNT},
};

static const struct st_tensor *part_of(
	const struct weights *w, const struct piece *p, enum part part)
{
	return p->at[part] != 0 ? st_at(w->st, p->at[part] - 1) : NULL;
}

/* The first part that is there, or NULL. */
static const struct st_tensor *any_part(const struct weights *w, const struct piece *p)
{
	for (uint32_t i = 0; i < PART__COUNT; i++) {
		if (p->at[i] != 0)
			return part_of(w, p, (enum part)i);
	}
	return NULL;
}

static const struct st_tensor *any_of_module(
	const struct weights *w, enum module m, uint32_t layer)
{
	uint32_t n = m < MOD__COUNT && module_style(m) == STYLE_EXPERT
			     ? w->config->n_experts
			     : 1;
	const struct st_tensor *t = NULL;

	if (m == MOD__COUNT)
		return NULL;
	for (uint32_t e = 0; e < n && t == NULL; e++)
		t = any_part(w, weights_piece(w, m, layer, e));
	return t;
}

const struct st_tensor *weights_tensor(
	const struct weights *w, enum module m, uint32_t layer)
{
	return any_of_module(w, m, layer);
}

static void show_shape(char *to, size_t cap, const uint64_t *dim, uint32_t n)
{
	size_t at = 0;

	to[0] = 0;
	for (uint32_t i = 0; i < n && at < cap; i++)
		at += (size_t)snprintf(to + at, cap - at, "%s%llu", i > 0 ? ", " : "",
			(unsigned long long)dim[i]);
}

static bool has_shape(const struct st_tensor *t, const uint64_t *dim, uint32_t n)
{
	return t->n_dims == n && memcmp(t->dim, dim, n * sizeof(*dim)) == 0;
}

static status check_shape(const struct weights *w, const struct st_tensor *t,
	const uint64_t *dim, uint32_t n, struct err *err)
{
	char is[80], want[80];

	if (has_shape(t, dim, n))
		return ST_OK;
	show_shape(is, sizeof(is), t->dim, t->n_dims);
	show_shape(want, sizeof(want), dim, n);
	return tensor_refuse(w, t, err, "shape [%s], the config needs [%s]", is, want);
}

/* A scalar: 0-d, or one element in one dimension. */
static status check_scalar(const struct weights *w, const struct st_tensor *t,
	bool bf16_too, struct err *err)
{
	if (t->dtype != STD_F32 && !(bf16_too && t->dtype == STD_BF16))
		return tensor_refuse(w, t, err, "dtype %s, only F32%s is read here",
			st_dtype_name(t->dtype), bf16_too ? " or BF16" : "");
	if (t->n_dims > 1 || (t->n_dims == 1 && t->dim[0] != 1))
		return tensor_refuse(w, t, err, "a scalar is needed");
	return ST_OK;
}

/* Exactly these parts stand beside the weight. */
static status check_parts(
	const struct weights *w, const struct piece *p, uint32_t wanted, struct err *err)
{
	static const char *const texts[PART__COUNT] = {
#define X(name, text) [PART_##name] = text,
		PART_MAP(X)
#undef X
	};
	const struct st_tensor *first = any_part(w, p);

	for (uint32_t i = 0; i < PART__COUNT; i++) {
		const struct st_tensor *t = part_of(w, p, (enum part)i);

		if (t == NULL && wanted & 1u << i)
			return tensor_refuse(w, first, err,
				"dtype %s needs %s of the same module, which is missing",
				st_dtype_name(first->dtype), texts[i]);
		if (t != NULL && !(wanted & 1u << i))
			return tensor_refuse(w, t, err,
				"does not belong beside tensor %s of dtype %s",
				first->name, st_dtype_name(first->dtype));
	}
	return ST_OK;
}

static status check_nvfp4(const struct weights *w, const struct piece *p,
	const struct slice *s, bool packed, struct err *err)
{
	enum part weight = packed ? PART_PACKED : PART_WEIGHT;
	enum part global = packed ? PART_GLOBAL : PART_SCALE_2;
	const struct st_tensor *t = part_of(w, p, weight), *scale;
	status st;

	st = check_parts(w, p, 1u << weight | 1u << PART_SCALE | 1u << global, err);
	if (st != ST_OK)
		return st;
	if (t->dtype != STD_U8)
		return tensor_refuse(w, t, err, "dtype %s, packed 4-bit codes are U8",
			st_dtype_name(t->dtype));
	if (s->src_cols % NVFP4_GROUP != 0)
		return tensor_refuse(w, t, err, "%u columns are no multiple of %u",
			s->src_cols, NVFP4_GROUP);
	st = check_shape(w, t, (uint64_t[]){s->src_rows, s->src_cols / 2}, 2, err);
	if (st != ST_OK)
		return st;
	scale = part_of(w, p, PART_SCALE);
	if (scale->dtype != STD_F8_E4M3)
		return tensor_refuse(w, scale, err,
			"dtype %s, NVFP4 block scales are F8_E4M3",
			st_dtype_name(scale->dtype));
	st = check_shape(
		w, scale, (uint64_t[]){s->src_rows, s->src_cols / NVFP4_GROUP}, 2, err);
	if (st != ST_OK)
		return st;
	return check_scalar(w, part_of(w, p, global), false, err);
}

/* FP8: weight_scale_inv per block; weight_scale one, per row, or per block. */
static status check_fp8(const struct weights *w, const struct piece *p,
	const struct slice *s, enum scale_kind *kind, struct err *err)
{
	uint64_t blocks[2] = {
		CEIL_DIV(s->src_rows, FP8_BLOCK), CEIL_DIV(s->src_cols, FP8_BLOCK)};
	enum part part = p->at[PART_SCALE_INV] != 0 ? PART_SCALE_INV : PART_SCALE;
	const struct st_tensor *t;
	status st;

	st = check_parts(w, p, 1u << PART_WEIGHT | 1u << part, err);
	if (st != ST_OK)
		return st;
	st = check_shape(w, part_of(w, p, PART_WEIGHT),
		(uint64_t[]){s->src_rows, s->src_cols}, 2, err);
	if (st != ST_OK)
		return st;
	t = part_of(w, p, part);
	if (t->dtype != STD_F32 && t->dtype != STD_BF16)
		return tensor_refuse(w, t, err, "dtype %s, FP8 scales are F32 or BF16",
			st_dtype_name(t->dtype));
	*kind = SCALE_BLOCK;
	if (part == PART_SCALE_INV)
		return check_shape(w, t, blocks, 2, err);
	if (t->n_dims == 0 || has_shape(t, (uint64_t[]){1}, 1))
		*kind = SCALE_TENSOR;
	else if (has_shape(t, (uint64_t[]){s->src_rows, 1}, 2) ||
		 has_shape(t, (uint64_t[]){s->src_rows}, 1))
		*kind = SCALE_ROW;
	else if (!has_shape(t, blocks, 2))
		return check_shape(w, t, (uint64_t[]){s->src_rows, 1}, 2, err);
	return ST_OK;
}

/* Format and scale kind of one matrix, all its tensors checked. */
static status check_piece(const struct weights *w, const struct piece *p,
	const struct slice *s, struct entry *e, struct err *err)
{
	const struct st_tensor *t = any_part(w, p);
	status st;

	e->scale = SCALE_NONE;
	if (p->at[PART_PACKED] != 0 || (p->at[PART_WEIGHT] != 0 && t->dtype == STD_U8)) {
		e->info.format = WF_NVFP4;
		e->scale = SCALE_NVFP4;
		return check_nvfp4(w, p, s, p->at[PART_PACKED] != 0, err);
	}
	if (p->at[PART_WEIGHT] != 0 && t->dtype == STD_F8_E4M3) {
		e->info.format = WF_FP8;
		return check_fp8(w, p, s, &e->scale, err);
	}
	if (t->dtype != STD_BF16 && t->dtype != STD_F32)
		return tensor_refuse(w, t, err,
			"dtype %s is not supported for a matrix (F32, BF16, U8 NVFP4 and "
			"F8_E4M3 "
			"are)",
			st_dtype_name(t->dtype));
	st = check_parts(w, p, 1u << PART_WEIGHT, err);
	if (st != ST_OK)
		return st;
	e->info.format = t->dtype == STD_F32 ? WF_F32 : WF_BF16;
	return check_shape(w, t, (uint64_t[]){s->src_rows, s->src_cols}, 2, err);
}

static status check_vec(
	const struct weights *w, const struct piece *p, struct entry *e, struct err *err)
{
	const struct st_tensor *t = any_part(w, p);
	const struct slice *s = &e->slice;
	status st;

	st = check_parts(w, p, 1u << PART_WEIGHT, err);
	if (st != ST_OK)
		return st;
	if (t->dtype != STD_F32 && t->dtype != STD_BF16)
		return tensor_refuse(w, t, err,
			"dtype %s, only F32 and BF16 are read here",
			st_dtype_name(t->dtype));
	e->info.format = WF_F32;
	e->scale = SCALE_NONE;
	if (e->module == MOD_CONV)
		return check_shape(
			w, t, (uint64_t[]){s->src_rows, 1, s->src_cols}, 3, err);
	return check_shape(w, t, (uint64_t[]){s->src_rows}, 1, err);
}

/* Experts in one 3-D tensor; never quantised in any known release. */
/* The first dimension counts experts. */
static status check_experts_said(
	const struct weights *w, const struct st_tensor *t, struct err *err)
{
	if (t->dim[0] == w->config->n_experts)
		return ST_OK;
	return tensor_refuse(w, t, err, "%llu experts, num_experts is %u",
		(unsigned long long)t->dim[0], w->config->n_experts);
}

static status check_fused(
	const struct weights *w, const struct piece *p, struct entry *e, struct err *err)
{
	const struct st_tensor *t = any_part(w, p);
	const struct slice *s = &e->slice;

	if (t->dtype != STD_F32 && t->dtype != STD_BF16)
		return tensor_refuse(w, t, err,
			"dtype %s, experts in one tensor are read as F32 or BF16 only",
			st_dtype_name(t->dtype));
	e->info.format = t->dtype == STD_F32 ? WF_F32 : WF_BF16;
	e->scale = SCALE_NONE;
	if (t->n_dims == 3 && t->dim[1] == s->src_rows && t->dim[2] == s->src_cols) {
		status st = check_experts_said(w, t, err);

		if (st != ST_OK)
			return st;
	}
	return check_shape(w, t,
		(uint64_t[]){w->config->n_experts, s->src_rows, s->src_cols}, 3, err);
}

static status check_experts(
	const struct weights *w, uint32_t layer, struct entry *e, struct err *err)
{
	struct entry first = {0};
	status st;

	for (uint32_t x = 0; x < w->config->n_experts; x++) {
		const struct piece *p = weights_piece(w, e->module, layer, x);
		const struct st_tensor *t = any_part(w, p);

		if (t == NULL)
			return err_set(err, ST_INVALID,
				"%s: layer %u: no tensor mlp.experts.%u.%s.weight",
				st_name(w->st), layer, x, module_text(e->module));
		st = check_piece(w, p, &e->slice, e, err);
		if (st != ST_OK)
			return st;
		if (x == 0)
			first = *e;
		if (e->info.format != first.info.format || e->scale != first.scale)
			return tensor_refuse(w, t, err,
				"the experts of a layer differ in format (%s here, %s in "
				"expert 0)",
				format_name(e->info.format),
				format_name(first.info.format));
	}
	return ST_OK;
}

/* The scales that belong to the rank's slice; a slice that cuts a block is refused. */
static status cut_scales(const struct weights *w, struct entry *e, struct err *err)
{
	struct weight_info *i = &e->info;
	uint32_t block_n = 1, block_k = 1;

	switch (e->scale) {
	case SCALE_NONE:
		return ST_OK;
	case SCALE_TENSOR:
		i->block_n = i->n;
		i->block_k = i->k;
		i->scale_bytes = (uint64_t)i->count * sizeof(float);
		return ST_OK;
	case SCALE_ROW:
		i->block_n = 1;
		i->block_k = i->k;
		i->scale_bytes = (uint64_t)i->count * i->n * sizeof(float);
		e->scale_slice = e->slice;
		e->scale_slice.col0 = 0;
		e->scale_slice.cols = e->scale_slice.src_cols = 1;
		return ST_OK;
	case SCALE_BLOCK:
		i->block_n = i->block_k = FP8_BLOCK;
		block_n = block_k = FP8_BLOCK;
		break;
	case SCALE_NVFP4:
		block_k = NVFP4_GROUP;
		break;
	}
	if (!slice_in_blocks(&e->scale_slice, &e->slice, block_n, block_k))
		return err_set(err, ST_INVALID,
			"the slice of rank %u of %u (%u rows, %u columns) cuts a scale "
			"block of "
			"%u x %u",
			w->rank, w->n_ranks, e->slice.n_rows, e->slice.cols, block_n,
			block_k);
	i->scale_bytes = (uint64_t)i->count * e->scale_slice.n_rows *
			 e->scale_slice.cols *
			 (e->scale == SCALE_NVFP4 ? 1 : sizeof(float));
	if (e->scale == SCALE_NVFP4)
		i->scale2_bytes = (uint64_t)i->count * sizeof(float);
	return ST_OK;
}

static uint64_t data_bytes(const struct weight_info *i)
{
	return (uint64_t)i->count * i->n * i->k * format_bits(i->format) / 8;
}

status weights_size_entry(
	const struct weights *w, enum weight_role role, struct entry *e, struct err *err)
{
	uint32_t first;
	status st;

	e->info.count = role_is_stack(role) ? slice_experts(w, &first) : 1;
	e->info.n = e->slice.n_rows;
	e->info.k = e->slice.cols;
	e->info.data_bytes = data_bytes(&e->info);
	st = cut_scales(w, e, err);
	e->info.present = st == ST_OK;
	return st;
}

static status choose_source(const struct weights *w, enum weight_role role,
	uint32_t layer, struct entry *e, struct err *err)
{
	enum module plain = sources[role].plain, packed = sources[role].packed;
	const struct st_tensor *a = any_of_module(w, plain, layer);
	const struct st_tensor *b = any_of_module(w, packed, layer);
	char where[32] = "";

	if (a != NULL && b != NULL)
		return tensor_refuse(
			w, a, err, "and tensor %s are the same weights", b->name);
	if (module_where(plain) != WHERE_global)
		snprintf(where, sizeof(where), "layers.%u.", layer);
	if (a == NULL && b == NULL)
		return err_set(err, ST_INVALID, "%s: no tensor %s%s%s%s%s",
			st_name(w->st), where,
			module_style(plain) == STYLE_EXPERT ? "mlp.experts.0." : "",
			module_text(plain),
			module_style(plain) == STYLE_BARE ? "" : ".weight",
			role == WR_LM_HEAD ? ", and tie_word_embeddings is false" : "");
	e->module = a != NULL ? plain : packed;
	return ST_OK;
}

status weights_resolve(
	struct weights *w, enum weight_role role, uint32_t layer, struct err *err)
{
	struct entry *e = weights_entry(w, role, layer);
	const struct st_tensor *t;
	const struct piece *p;
	status st;

	st = choose_source(w, role, layer, e, err);
	if (st != ST_OK)
		return st;
	slice_of(&e->slice, w->config, role, e->module, w->rank, w->n_ranks);
	t = any_of_module(w, e->module, layer);
	p = weights_piece(w, e->module, layer, 0);
	if (role == WR_ROUTER && t->n_dims == 2) {
		st = check_experts_said(w, t, err);
		if (st != ST_OK)
			return st;
	}
	if (role_is_vec(role))
		st = check_vec(w, p, e, err);
	else if (e->module == MOD_EXPS_GATE_UP || e->module == MOD_EXPS_DOWN)
		st = check_fused(w, p, e, err);
	else if (role_is_stack(role))
		st = check_experts(w, layer, e, err);
	else
		st = check_piece(w, p, &e->slice, e, err);
	if (st != ST_OK)
		return st;
	st = weights_size_entry(w, role, e, err);
	return st == ST_OK ? ST_OK
			   : err_wrap(err, "%s: tensor %s", st_file_name(w->st, t->file),
				     t->name);
}
