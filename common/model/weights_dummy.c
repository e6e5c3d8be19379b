/* Random weights of the right shapes and formats. Each row of a matrix is a window, at a
 * place that its coordinates hash to, of one pool of random numbers: as fast as a copy,
 * which a model of 400 GB needs. */
#include "common/model/weights_dummy.h"

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/model/weights_impl.h"

#include <math.h>
#include <string.h>

#define POOL 65536u /* numbers; a power of two */
#define SEED UINT64_C(0x6261746f6e2d6477)

/* E4M3 codes 0x30 to 0x3f are 0.5 to 1.875. */
#define SCALE_FIRST 0x30u
#define SCALE_MASK  0x0fu
/* Root of the mean square of a random E2M1 code (8.5625) times that of such a scale
 * (1.342773). */
#define NVFP4_RMS   3.39080f
#define FP8_RMS     1.15878f

struct dummy_pool {
	float unit[POOL];      /* uniform in (-1, 1] */
	uint16_t narrow[POOL]; /* BF16 of unit * narrow_gain */
	float narrow_gain;
	uint8_t codes[POOL]; /* two E2M1 codes each */
	uint8_t scales[POOL];
	uint8_t fp8[POOL]; /* such scales, with either sign */
};

static struct dummy_pool *create_pool(void)
{
	struct dummy_pool *p = mem_alloc(1, sizeof(*p));

	for (uint32_t i = 0; i < POOL; i++) {
		struct philox r = philox4x32(SEED, i, 0);

		p->unit[i] = (float)((r.v[0] >> 8) + 1u) * 0x1p-23f - 1.0f;
		p->codes[i] = (uint8_t)r.v[1];
		p->scales[i] = (uint8_t)(SCALE_FIRST + (r.v[2] & SCALE_MASK));
		p->fp8[i] = (uint8_t)(SCALE_FIRST + (r.v[3] & (SCALE_MASK | 0x80u)));
	}
	return p;
}

static const uint16_t *narrow_pool(struct dummy_pool *p, float gain)
{
	if (p->narrow_gain == gain)
		return p->narrow;
	for (uint32_t i = 0; i < POOL; i++) {
		float v = p->unit[i] * gain;
		uint32_t word;

		memcpy(&word, &v, sizeof(word));
		p->narrow[i] = (uint16_t)(word >> 16);
	}
	p->narrow_gain = gain;
	return p->narrow;
}

/* What a vector is filled with: base + spread * uniform(-1, 1). Norms are deviations
 * from 1 but for the GDN's own; A is 1 to 16; four taps of the convolution have the
 * mean square of one. */
static void vector_range(enum weight_role role, float *base, float *spread)
{
	*base = 0.0f;
	*spread = 0.1f;
	if (role == WR_GDN_NORM)
		*base = 1.0f;
	if (role == WR_GDN_CONV)
		*spread = 0.866f;
	if (role == WR_GDN_A_LOG)
		*base = *spread = 1.386f;
	if (role == WR_GDN_DT_BIAS) {
		*base = -2.0f;
		*spread = 2.0f;
	}
}

/* One matrix of a role: which numbers stand in it. */
struct matrix {
	const struct entry *e;
	uint64_t key; /* of role, layer and expert */
};

static uint32_t window(const struct matrix *m, uint32_t row, uint32_t part)
{
	return (uint32_t)hash64_u64(hash64_u64(m->key, row), part) & (POOL - 1);
}

/* n units of `size` bytes from unit `at` of the pool on, round and round. */
static void copy_window(
	void *dst, const void *pool, uint64_t at, uint64_t n, uint32_t size)
{
	uint8_t *to = dst;

	while (n > 0) {
		uint64_t from = at & (POOL - 1), run = MIN(n, POOL - from);

		memcpy(to, (const uint8_t *)pool + from * size, run * size);
		to += run * size;
		at += run;
		n -= run;
	}
}

static void fill_bf16(struct dummy_pool *p, const struct matrix *m, uint16_t *dst)
{
	const struct slice *s = &m->e->slice;
	const uint16_t *pool = narrow_pool(p, sqrtf(3.0f / (float)s->src_cols));

	for (uint32_t i = 0; i < s->n_rows; i++)
		copy_window(dst + (uint64_t)i * s->cols, pool,
			(uint64_t)window(m, slice_source_row(s, i), 0) + s->col0, s->cols,
			sizeof(*dst));
}

static void fill_nvfp4(const struct dummy_pool *p, const struct matrix *m, uint8_t *codes,
	uint8_t *scales, float *scale2)
{
	const struct slice *s = &m->e->slice, *groups = &m->e->scale_slice;
	float differ = 1.0f + p->unit[window(m, 0, 2)] / 8.0f;

	for (uint32_t i = 0; i < s->n_rows; i++) {
		uint32_t row = slice_source_row(s, i);

		copy_window(codes + (uint64_t)i * s->cols / 2, p->codes,
			(uint64_t)window(m, row, 0) + s->col0 / 2, s->cols / 2, 1);
		copy_window(scales + (uint64_t)i * groups->cols, p->scales,
			(uint64_t)window(m, row, 1) + groups->col0, groups->cols, 1);
	}
	*scale2 = differ / (NVFP4_RMS * sqrtf((float)s->src_cols));
}

static void fill_fp8(
	const struct dummy_pool *p, const struct matrix *m, uint8_t *codes, float *scale)
{
	const struct slice *s = &m->e->slice;
	float differ = 1.0f + p->unit[window(m, 0, 2)] / 8.0f;

	for (uint32_t i = 0; i < s->n_rows; i++)
		copy_window(codes + (uint64_t)i * s->cols, p->fp8,
			(uint64_t)window(m, slice_source_row(s, i), 0) + s->col0, s->cols,
			1);
	*scale = differ / (FP8_RMS * sqrtf((float)s->src_cols));
}

static void fill_vector(const struct dummy_pool *p, enum weight_role role,
	const struct matrix *m, float *dst)
{
	const struct slice *s = &m->e->slice;
	float base, spread;

	vector_range(role, &base, &spread);
	for (uint32_t i = 0; i < s->n_rows; i++) {
		uint32_t at = window(m, slice_source_row(s, i), 0);

		for (uint32_t k = 0; k < s->cols; k++)
			dst[(uint64_t)i * s->cols + k] =
				base + spread * p->unit[(at + k) & (POOL - 1)];
	}
}

void weights_fill_dummy(const struct weights *w, enum weight_role role, uint32_t layer,
	struct weights_out out)
{
	const struct entry *e = weights_entry(w, role, layer);
	const struct weight_info *info = &e->info;
	uint64_t key = hash64_u64(hash64_u64(SEED, role), layer);
	uint32_t first = 0;

	if (role_is_stack(role))
		(void)slice_experts(w, &first);
	for (uint32_t x = 0; x < info->count; x++) {
		struct matrix m = {e, hash64_u64(key, first + x)};
		uint8_t *data = (uint8_t *)out.data + info->data_bytes / info->count * x;

		if (role_is_vec(role))
			fill_vector(w->dummy, role, &m, (float *)(void *)data);
		else if (info->format == WF_NVFP4)
			fill_nvfp4(w->dummy, &m, data,
				(uint8_t *)out.scale +
					info->scale_bytes / info->count * x,
				(float *)out.scale2 + x);
		else if (info->format == WF_FP8)
			fill_fp8(w->dummy, &m, data, (float *)out.scale + x);
		else
			fill_bf16(w->dummy, &m, (uint16_t *)(void *)data);
	}
}

static bool is_nvfp4(
	const struct model_config *c, enum weight_role role, enum dummy_format format)
{
	if (format == DUMMY_BF16)
		return false;
	if (format == DUMMY_RELEASED && role == WR_LM_HEAD)
		return true;
	if (c->n_experts == 0)
		return role == WR_MLP_GATE || role == WR_MLP_UP || role == WR_MLP_DOWN;
	return role_is_stack(role) ||
	       (format == DUMMY_RELEASED &&
		       (role == WR_SH_GATE || role == WR_SH_UP || role == WR_SH_DOWN));
}

static bool is_fp8(enum weight_role role, enum dummy_format format)
{
	return format == DUMMY_RELEASED &&
	       (role == WR_Q || role == WR_K || role == WR_V || role == WR_O ||
		       role == WR_GDN_QKV || role == WR_GDN_Z || role == WR_GDN_OUT);
}

static status make_entry(struct weights *w, enum weight_role role, uint32_t layer,
	enum dummy_format format, struct err *err)
{
	struct entry *e = weights_entry(w, role, layer);
	status st;

	e->module = MOD__COUNT; /* of no file */
	e->info.format = role_is_vec(role) ? WF_F32 : WF_BF16;
	slice_of(&e->slice, w->config, role, e->module, w->rank, w->n_ranks);
	if (is_nvfp4(w->config, role, format)) {
		e->info.format = WF_NVFP4;
		e->scale = SCALE_NVFP4;
	}
	if (is_fp8(role, format)) {
		e->info.format = WF_FP8;
		e->scale = SCALE_TENSOR;
	}
	if (e->scale == SCALE_NVFP4 && e->slice.src_cols % NVFP4_GROUP != 0)
		st = err_set(err, ST_INVALID, "%u columns are no multiple of %u",
			e->slice.src_cols, NVFP4_GROUP);
	else
		st = weights_size_entry(w, role, e, err);
	return st == ST_OK ? ST_OK
			   : err_wrap(err, "dummy weights, layer %u, %s", layer,
				     weight_role_name(role));
}

status dummy_format_of(const char *word, enum dummy_format *out, struct err *err)
{
	static const char *const words[] = {[DUMMY_BF16] = "bf16",
		[DUMMY_NVFP4] = "nvfp4",
		[DUMMY_RELEASED] = "released"};

	for (size_t i = 0; i < COUNT(words); i++)
		if (strcmp(word, words[i]) == 0) {
			*out = (enum dummy_format)i;
			return ST_OK;
		}
	return err_set(
		err, ST_INVALID, "dummy_format '%s': bf16, nvfp4 or released", word);
}

status weights_open_dummy(struct weights **out, const struct model_config *config,
	enum dummy_format format, uint32_t rank, uint32_t n_ranks, struct err *err)
{
	struct weights *w;
	status st = weights_check_ranks(config, n_ranks, err);

	if (st != ST_OK)
		return st;
	w = weights_create(config, rank, n_ranks);
	w->dummy = create_pool();
	for (uint32_t layer = 0; layer < config->n_layers && st == ST_OK; layer++)
		for (uint32_t r = 0; r < WR__COUNT && st == ST_OK; r++)
			if (weights_has_role(w, (enum weight_role)r, layer))
				st = make_entry(
					w, (enum weight_role)r, layer, format, err);
	if (st != ST_OK) {
		weights_close(w);
		return st;
	}
	*out = w;
	return ST_OK;
}
