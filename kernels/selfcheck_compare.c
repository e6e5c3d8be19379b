/* Whether two results of a case agree. */
#include "kernels/selfcheck.h"

#include <math.h>

/* TOLERANCE_MAP (table.h) says what the numbers mean. */
struct tolerance {
	float f32, bf16, bf16_f32;
};

static const struct tolerance *tolerance_of_op(enum op_id op)
{
#define X(name, ...) TOLERANCE_##name,
	enum { TOLERANCE_MAP(X) TOLERANCE__COUNT };
#undef X
#define X(name, f32, bf16, bf16_f32) {(f32), (bf16), (bf16_f32)},
	static const struct tolerance tolerances[TOLERANCE__COUNT] = { TOLERANCE_MAP(X) };
#undef X
#define X(name, weight, formats, needed, cases, tolerance, ...)                          \
	[OP_##name] = TOLERANCE_##tolerance,
	static const uint8_t of[OP__COUNT] = { OP_MAP(X) };
#undef X

	return &tolerances[of[op]];
}

static float tolerance_of(
	const struct check_case *c, const struct check_buffer *b, enum dtype act)
{
	const struct tolerance *t = tolerance_of_op(c->op);

	if (b->type == CHECK_BF16)
		return MAX(t->bf16, act == DT_BF16 ? 0 : 5e-3f);
	if (act == DT_F32)
		return t->f32;
	return b->type == CHECK_ACT ? t->bf16 : t->bf16_f32;
}

/* Rows that are compared: all of a buffer, or some, whose numbers are given and of which
 * only those below `count` are written. */
struct picked {
	uint32_t n, count;
	const uint32_t *at;
};

static uint64_t number_of(const struct picked *p, uint64_t i)
{
	return p->at != NULL ? p->at[i] : i;
}

/* Root mean square of what is written. */
static double typical(
	const struct check_buffer *b, const struct picked *rows, const float *want)
{
	double sum = 0;
	uint64_t n = 0;

	for (uint64_t r = 0; r < rows->n; r++) {
		for (uint64_t i = 0; i < b->width; i++) {
			double v = (double)want[r * b->stride + i];

			if (number_of(rows, r) != b->skipped_row && isfinite(v)) {
				sum += v * v;
				n++;
			}
		}
	}
	return n > 0 ? sqrt(sum / (double)n) : 0;
}

/* Elements of a row that break a rule that has no tolerance. */
static status check_row(const struct check_buffer *b, uint64_t r, const float *got,
	const float *want, struct err *err)
{
	for (uint64_t i = 0; i < b->stride; i++) {
		unsigned long long row = r, at = i;
		bool inside = i < b->width;

		if (!inside && b->role == CHECK_OUT && !isnan(got[i]))
			return err_set(err, ST_DEVICE,
				"%s: row %llu: wrote element %llu, past its "
				"end",
				b->name, row, at);
		if (inside && isnan(want[i]))
			return err_set(err, ST_DEVICE,
				"%s: row %llu: the oracle gives NaN at element %llu",
				b->name, row, at);
		if (inside && !isfinite(got[i]))
			return err_set(err, ST_DEVICE,
				"%s: row %llu: element %llu is not written, or not a "
				"number",
				b->name, row, at);
		if (inside && b->type == CHECK_U32 && got[i] != want[i])
			return err_set(err, ST_DEVICE,
				"%s: row %llu: element %llu is %.0f, not %.0f", b->name,
				row, at, (double)got[i], (double)want[i]);
	}
	return ST_OK;
}

static double row_error(
	const struct check_buffer *b, double floor, const float *got, const float *want)
{
	double error = 0, size = 0;

	for (uint64_t i = 0; i < b->width; i++) {
		double d = (double)got[i] - (double)want[i];

		error += d * d;
		size += (double)want[i] * (double)want[i];
	}
	if (error == 0)
		return 0;
	/* A row near zero among larger ones is judged by a part of the typical size. */
	return sqrt(error) / MAX(sqrt(size), floor * sqrt((double)b->width));
}

/* A row that no kernel may write. */
static status check_untouched(const struct check_buffer *b, uint64_t r, uint32_t count,
	const float *got, struct err *err)
{
	for (uint64_t i = 0; i < b->stride; i++) {
		if (!isnan(got[i]))
			return err_set(err, ST_DEVICE,
				"%s: row %llu: wrote element %llu, past the last of %u "
				"rows",
				b->name, (unsigned long long)r, (unsigned long long)i,
				count);
	}
	return ST_OK;
}

static status compare_buffer(const struct check_buffer *b, const struct picked *rows,
	const float *tolerance, const float *got, const float *want, struct err *err,
	double *worst)
{
	double floor = typical(b, rows, want) * 0.1;

	for (uint64_t k = 0; k < rows->n; k++) {
		const float *g = got + k * b->stride;
		const float *w = want + k * b->stride;
		uint64_t r = number_of(rows, k);
		double error;
		status st;

		if (r == b->skipped_row)
			continue;
		if (rows->at != NULL && r >= rows->count) {
			st = check_untouched(b, r, rows->count, g, err);
			if (st != ST_OK)
				return st;
			continue;
		}
		st = check_row(b, r, g, w, err);
		if (st != ST_OK)
			return st;
		if (b->type == CHECK_U32)
			continue;
		error = row_error(b, floor, g, w);
		if (error > (double)*tolerance)
			return err_set(err, ST_DEVICE,
				"%s: row %llu differs by %.2g of its size, allowed %.2g "
				"(begins "
				"%.6g, not %.6g)",
				b->name, (unsigned long long)r, error, (double)*tolerance,
				(double)g[0], (double)w[0]);
		if (error > 0)
			*worst = MAX(*worst, error / (double)*tolerance);
	}
	return ST_OK;
}

/* Of all buffers, or of the outputs where rows are picked. */
static status compare(const struct check_case *c, enum dtype act,
	const struct rows_run *how, const float *got, const float *want, float *worst,
	struct err *err)
{
	double part = 0;

	for (uint32_t i = 0; i < c->n_buffers; i++) {
		const struct check_buffer *b = &c->buffers[i];
		struct picked rows = {.n = (uint32_t)b->rows};
		float tolerance = tolerance_of(c, b, act);
		status st;

		if (b->role == CHECK_IN)
			continue;
		if (how != NULL)
			rows = (struct picked){how->n, how->count, how->at};
		st = compare_buffer(b, &rows, &tolerance, got, want, err, &part);
		if (st != ST_OK)
			return st;
		got += rows.n * b->stride;
		want += rows.n * b->stride;
	}
	*worst = MAX(*worst, (float)part);
	return ST_OK;
}

status selfcheck_compare(const struct check_case *c, enum dtype act, const float *got,
	const float *want, float *worst, struct err *err)
{
	return compare(c, act, NULL, got, want, worst, err);
}

status selfcheck_compare_rows(const struct check_case *c, enum dtype act,
	const struct rows_run *how, const float *got, const float *want, float *worst,
	struct err *err)
{
	return compare(c, act, how, got, want, worst, err);
}
