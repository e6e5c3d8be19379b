/* Reading a rank's slice of a role: large sequential reads, rows put into the engine's
 * order, vectors and FP8 scales widened to F32, every scale checked. */
#include "common/model/weights_impl.h"

#include "common/base/mem.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Rows are read whole and cut in memory when a rank holds only some columns. */
#define STRIP_BYTES ((uint64_t)4 << 20)

/* Where the slice lies in a tensor, in bytes: row0 counts the source rows before it
 * (those of other experts). */
struct span {
	const struct slice *slice;
	uint64_t row0;
	uint64_t row_bytes; /* of a whole source row */
	uint64_t at, len;   /* of a row: what is kept */
};

static struct span span_of(const struct slice *s, uint64_t row0, uint64_t element_bits)
{
	return (struct span){
		.slice = s,
		.row0 = row0,
		.row_bytes = s->src_cols * element_bits / 8,
		.at = s->col0 * element_bits / 8,
		.len = s->cols * element_bits / 8,
	};
}

/* n source rows from `first`, cut to the kept columns. */
static status read_rows(const struct weights *w, const struct st_tensor *t,
	const struct span *p, struct row_run rows, uint8_t *dst, struct err *err)
{
	uint64_t strip = MAX(STRIP_BYTES / p->row_bytes, 1), n;
	uint8_t *scratch;
	status st = ST_OK;

	if (p->len == p->row_bytes)
		return st_read(w->st, t, (p->row0 + rows.first) * p->row_bytes, dst,
			rows.unit * p->row_bytes, err);
	scratch = mem_take(MIN(strip, rows.unit), p->row_bytes);
	if (scratch == NULL)
		return err_set(err, ST_NOMEM, "no memory for a strip of rows");
	for (uint64_t i = 0; i < rows.unit && st == ST_OK; i += n) {
		n = MIN(strip, rows.unit - i);
		st = st_read(w->st, t, (p->row0 + rows.first + i) * p->row_bytes, scratch,
			n * p->row_bytes, err);
		for (uint64_t r = 0; r < n && st == ST_OK; r++)
			memcpy(dst + (i + r) * p->len, scratch + r * p->row_bytes + p->at,
				p->len);
	}
	mem_give(scratch);
	return st;
}

/* The whole slice, densely, at dst. */
static status gather(const struct weights *w, const struct st_tensor *t,
	const struct span *p, uint8_t *dst, struct err *err)
{
	const struct row_runs *runs = &p->slice->rows;
	status st;

	for (uint32_t i = 0; i < runs->n; i++) {
		struct row_run unit = runs->run[i];

		for (uint32_t u = 0; u < runs->run[i].count; u++) {
			st = read_rows(w, t, p, unit, dst, err);
			if (st != ST_OK)
				return st;
			dst += unit.unit * p->len;
			unit.first += unit.stride;
		}
	}
	return ST_OK;
}

/* F32, or BF16 read into the upper half of dst and widened from the front, which
 * never writes over what is still to be read. */
static status gather_f32(const struct weights *w, const struct st_tensor *t,
	const struct slice *s, float *dst, struct err *err)
{
	bool bf16 = t->dtype == STD_BF16;
	struct span p = span_of(s, 0, bf16 ? 16 : 32);
	uint64_t n = (uint64_t)s->n_rows * s->cols;
	uint8_t *narrow = (uint8_t *)dst + (bf16 ? 2 * n : 0);
	status st;

	st = gather(w, t, &p, narrow, err);
	for (uint64_t i = 0; i < n && st == ST_OK; i++) {
		if (bf16) {
			uint16_t half;

			memcpy(&half, narrow + 2 * i, 2);
			dst[i] = bf16_value(half);
		}
		if (!isfinite(dst[i]))
			return tensor_refuse(w, t, err, "%g at [%u][%u]", (double)dst[i],
				slice_source_row(s, (uint32_t)(i / s->cols)),
				s->col0 + (uint32_t)(i % s->cols));
	}
	return st;
}

static const struct slice *scalar_slice(void)
{
	static const struct slice one = {.rows = {.n = 1, .run = {{0, 1, 1, 1}}},
		.n_rows = 1,
		.cols = 1,
		.src_rows = 1,
		.src_cols = 1};

	return &one;
}

/* Block scales are magnitudes: the codes 0x7f (NaN) and those with a sign are no
 * scales, and kernels that read them as unsigned would go wrong silently. */
static status check_e4m3(const struct weights *w, const struct st_tensor *t,
	const struct slice *s, const uint8_t *scale, struct err *err)
{
	uint64_t n = (uint64_t)s->n_rows * s->cols;

	for (uint64_t i = 0; i < n; i++) {
		if (scale[i] < 0x7f)
			continue;
		return tensor_refuse(w, t, err, "%s code 0x%02x at [%u][%u]",
			(scale[i] & 0x7f) == 0x7f ? "NaN" : "negative", scale[i],
			slice_source_row(s, (uint32_t)(i / s->cols)),
			s->col0 + (uint32_t)(i % s->cols));
	}
	return ST_OK;
}

static status read_nvfp4_scales(const struct weights *w, const struct entry *e,
	const struct piece *p, uint8_t *scale, float *scale2, struct err *err)
{
	bool divides = p->at[PART_GLOBAL] != 0;
	const struct st_tensor *blocks = st_at(w->st, p->at[PART_SCALE] - 1);
	const struct st_tensor *global =
		st_at(w->st, p->at[divides ? PART_GLOBAL : PART_SCALE_2] - 1);
	struct span span = span_of(&e->scale_slice, 0, 8);
	float v = 0;
	status st;

	st = gather(w, blocks, &span, scale, err);
	if (st != ST_OK)
		return st;
	st = check_e4m3(w, blocks, &e->scale_slice, scale, err);
	if (st != ST_OK)
		return st;
	st = gather_f32(w, global, scalar_slice(), &v, err);
	if (st != ST_OK)
		return st;
	*scale2 = divides ? 1.0f / v : v;
	if (!isfinite(*scale2) || !(*scale2 > 0))
		return tensor_refuse(w, global, err, "%g is no scale: must be positive%s",
			(double)v, divides ? " with a finite reciprocal" : "");
	return ST_OK;
}

static status read_fp8_scales(const struct weights *w, const struct entry *e,
	const struct piece *p, float *scale, struct err *err)
{
	enum part part = p->at[PART_SCALE_INV] != 0 ? PART_SCALE_INV : PART_SCALE;
	const struct st_tensor *t = st_at(w->st, p->at[part] - 1);

	return gather_f32(w, t,
		e->scale == SCALE_TENSOR ? scalar_slice() : &e->scale_slice, scale, err);
}

static const struct st_tensor *weight_tensor(
	const struct weights *w, const struct piece *p)
{
	return st_at(
		w->st, p->at[p->at[PART_PACKED] != 0 ? PART_PACKED : PART_WEIGHT] - 1);
}

/* dst: room for one matrix of the entry in each. */
struct matrix_out {
	uint8_t *data, *scale;
	float *scale2;
};

static status read_matrix(const struct weights *w, const struct entry *e, uint32_t layer,
	uint32_t expert, struct matrix_out dst, struct err *err)
{
	bool fused = e->module == MOD_EXPS_GATE_UP || e->module == MOD_EXPS_DOWN;
	const struct piece *p = weights_piece(w, e->module, layer, fused ? 0 : expert);
	struct span span =
		span_of(&e->slice, fused ? (uint64_t)expert * e->slice.src_rows : 0,
			format_bits(e->info.format));
	status st;

	st = gather(w, weight_tensor(w, p), &span, dst.data, err);
	if (st == ST_OK && e->info.format == WF_NVFP4)
		st = read_nvfp4_scales(w, e, p, dst.scale, dst.scale2, err);
	if (st == ST_OK && e->info.format == WF_FP8)
		st = read_fp8_scales(w, e, p, (float *)(void *)dst.scale, err);
	return st;
}

status weights_read(const struct weights *w, enum weight_role role, uint32_t layer,
	void *data, void *scale, void *scale2, struct err *err)
{
	const struct entry *e;
	const struct weight_info *i;
	uint32_t first = 0;
	status st = ST_OK;

	if (role_where(role) == WHERE_global)
		layer = 0;
	assert(layer < w->config->n_layers);
	e = weights_entry(w, role, layer);
	i = &e->info;
	assert(i->present);
	assert((scale != NULL || i->scale_bytes == 0) &&
		(scale2 != NULL || i->scale2_bytes == 0));
	if (w->dummy != NULL) {
		weights_fill_dummy(
			w, role, layer, (struct weights_out){data, scale, scale2});
		return ST_OK;
	}
	if (role_is_vec(role))
		return gather_f32(w,
			weight_tensor(w, weights_piece(w, e->module, layer, 0)),
			&e->slice, data, err);
	if (role_is_stack(role))
		(void)slice_experts(w, &first);
	for (uint32_t x = 0; x < i->count && st == ST_OK; x++) {
		struct matrix_out dst = {
			.data = (uint8_t *)data + i->data_bytes / i->count * x};

		if (i->scale_bytes > 0)
			dst.scale = (uint8_t *)scale + i->scale_bytes / i->count * x;
		if (i->scale2_bytes > 0)
			dst.scale2 = (float *)scale2 + x;
		st = read_matrix(w, e, layer, first + x, dst, err);
	}
	return st;
}
