/* Buffers, random numbers and weights of self-check cases. */
#include "kernels/check_case.h"

#include "common/base/attr.h"
#include "common/base/mem.h"

#include <assert.h>
#include <math.h>
#include <string.h>

uint64_t check_random(struct check_case *c)
{
	/* splitmix64 (Steele, Lea and Flood, OOPSLA'14). */
	uint64_t z = c->seed += UINT64_C(0x9E3779B97F4A7C15);

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

float check_uniform(struct check_case *c, float low, float high)
{
	return low + (high - low) * (float)(check_random(c) >> 40) * 0x1p-24f;
}

/* Sum of four uniform numbers, scaled to variance 1. */
static float normal(struct check_case *c)
{
	uint64_t r = check_random(c);
	int32_t sum = (int32_t)(r & 0xFFFF) + (int32_t)(r >> 16 & 0xFFFF) +
		      (int32_t)(r >> 32 & 0xFFFF) + (int32_t)(r >> 48);

	return (float)(sum - 131070) * (1.7320508f / 65536.0f);
}

struct check_buffer *check_add(struct check_case *c, const char *name,
	enum check_role role, enum check_type type, void *field)
{
	struct check_buffer *b = &c->buffers[c->n_buffers++];

	assert(c->n_buffers <= CHECK_BUFFERS_MAX);
	*b = (struct check_buffer){.name = name,
		.role = role,
		.type = type,
		.field = field,
		.skipped_row = CHECK_NO_ROW};
	return b;
}

void check_shape(struct check_buffer *b, uint64_t rows, uint64_t width, uint64_t stride)
{
	b->rows = rows;
	b->width = width;
	b->stride = stride;
	b->host = mem_alloc(rows * stride, b->type == CHECK_BYTES ? 1 : 4);
}

void check_round(const struct check_case *c, struct check_buffer *b)
{
	float *at = b->host;

	if (b->type != CHECK_BF16 && (b->type != CHECK_ACT || !c->round_acts))
		return;
	for (uint64_t i = 0; i < b->rows * b->stride; i++)
		at[i] = bf16_value(bf16_round(at[i]));
}

/* Large weights repeat a random piece whose length, a prime, divides no row. */
#define PIECE UINT64_C(1048573)

void check_fill(struct check_case *c, struct check_buffer *b, float scale)
{
	float *at = b->host;
	uint64_t n = b->rows * b->stride;

	for (uint64_t i = 0; i < n && i < PIECE; i++)
		at[i] = normal(c) * scale;
	for (uint64_t i = PIECE; i < n; i += PIECE)
		memcpy(at + i, at, MIN(PIECE, n - i) * sizeof(*at));
	check_round(c, b);
}

void check_fill_uniform(
	struct check_case *c, struct check_buffer *b, float low, float high)
{
	float *at = b->host;

	for (uint64_t i = 0; i < b->rows * b->stride; i++)
		at[i] = check_uniform(c, low, high);
	check_round(c, b);
}

/* Codes and scales whose products have variance near 1 / k: E2M1 codes have variance
 * 6.9. Scales differ from block to block and scale2 from matrix to matrix, none of them
 * a power of two, so that no mix-up goes unseen; some scales are 0 or subnormal. */
static void fill_nvfp4(struct check_case *c, struct weight *w)
{
	struct check_buffer *data =
		check_add(c, "codes", CHECK_IN, CHECK_BYTES, &w->data);
	struct check_buffer *scale =
		check_add(c, "scales", CHECK_IN, CHECK_BYTES, &w->scale);
	struct check_buffer *scale2 =
		check_add(c, "scale2", CHECK_IN, CHECK_F32, (void *)&w->scale2);
	uint64_t blocks = (uint64_t)w->count * w->n * w->k / 16;

	check_shape(data, 1, blocks * 8, blocks * 8);
	check_shape(scale, 1, blocks, blocks);
	check_shape(scale2, 1, w->count, w->count);
	for (uint64_t i = 0; i < blocks; i++) {
		uint64_t codes = check_random(c);
		uint32_t pick = (uint32_t)check_random(c);

		memcpy((uint8_t *)data->host + i * 8, &codes, 8);
		/* 0x30 is 0.5, 0x40 is 2. */
		((uint8_t *)scale->host)[i] =
			(uint8_t)(pick % 61 == 0 ? pick / 61 % 8 : 0x30 + pick % 17);
	}
	for (uint32_t e = 0; e < w->count; e++)
		((float *)scale2->host)[e] =
			check_uniform(c, 0.2f, 0.4f) / sqrtf((float)w->k);
}

/* Magnitudes 2^-3..2^1 times a scale of the block. */
static void fill_fp8(struct check_case *c, struct weight *w)
{
	struct check_buffer *data =
		check_add(c, "codes", CHECK_IN, CHECK_BYTES, &w->data);
	struct check_buffer *scale =
		check_add(c, "scales", CHECK_IN, CHECK_F32, &w->scale);
	uint64_t n = (uint64_t)w->count * w->n * w->k;
	uint64_t blocks;

	w->block_n = 128;
	w->block_k = 128;
	blocks = (uint64_t)w->count * CEIL_DIV(w->n, w->block_n) *
		 CEIL_DIV(w->k, w->block_k);
	check_shape(data, 1, n, n);
	check_shape(scale, 1, blocks, blocks);
	for (uint64_t i = 0; i < n; i++) {
		uint32_t r = (uint32_t)check_random(c);

		((uint8_t *)data->host)[i] =
			(uint8_t)((r & 0x87u) | (4 + (r >> 8) % 4) << 3);
	}
	for (uint64_t i = 0; i < blocks; i++)
		((float *)scale->host)[i] =
			check_uniform(c, 0.7f, 1.9f) / sqrtf((float)w->k);
}

struct weight *check_add_weight(struct check_case *c, enum weight_format format,
	uint32_t count, uint32_t n, uint32_t k)
{
	struct weight *w = &c->weights[c->n_weights++];
	struct check_buffer *data;

	assert(c->n_weights <= CHECK_WEIGHTS_MAX);
	*w = (struct weight){.format = format, .count = count, .n = n, .k = k};
	if (c->thin)
		return w;
	if (format == WF_NVFP4) {
		fill_nvfp4(c, w);
	} else if (format == WF_FP8) {
		fill_fp8(c, w);
	} else {
		data = check_add(c, "weights", CHECK_IN,
			format == WF_F32 ? CHECK_F32 : CHECK_BF16, &w->data);
		check_shape(data, (uint64_t)count * n, k, k);
		check_fill(c, data, 1.0f / sqrtf((float)k));
	}
	return w;
}

uint32_t check_case_count(enum op_id op)
{
	static const uint32_t counts[OP__COUNT] = {
#define X(name, weight, formats, needed, cases, ...) [OP_##name] = (cases),
		OP_MAP(X)
#undef X
	};

	return counts[op];
}

struct check_case *check_case_create(enum op_id op, enum weight_format format,
	const struct kernel_shapes *shapes, uint32_t i, const struct check_limits *limits)
{
	static void (*const build[OP__COUNT])(struct check_case *,
		const struct kernel_shapes *, uint32_t, const struct check_limits *) = {
#define X(name, ...) [OP_##name] = check_build_##name,
		OP_MAP(X)
#undef X
	};
	struct check_case *c = mem_alloc(1, sizeof(*c));

	c->op = op;
	c->format = format;
	c->shapes = *shapes;
	c->round_acts = limits->round_acts;
	c->thin = limits->thin;
	c->seed = (uint64_t)op << 16 | (uint64_t)format << 8 | i;
	build[op](c, shapes, i, limits);
	return c;
}

enum check_rows check_rows_of(enum op_id op)
{
#define TOGETHER(member, most) CHECK_TOGETHER
#define PASS                   CHECK_PASS
#define STEP                   CHECK_STEP
#define X(name, weight, formats, needed, cases, tolerance, rows, tried)                  \
	[OP_##name] = (rows),
	static const enum check_rows of[OP__COUNT] = { OP_MAP(X) };
#undef X
#undef TOGETHER
#undef PASS
#undef STEP

	return of[op];
}

uint32_t check_rows_most(enum op_id op, const struct kernel_shapes *s)
{
	switch (op) {
#define TOGETHER(member, most) s->most
#define PASS                   MIN(s->rows_max, s->len_max)
#define STEP                   MIN(s->seqs_max, CHECK_SEQS_MAX)
#define X(name, weight, formats, needed, cases, tolerance, at, tried)                    \
	case OP_##name:                                                                  \
		return MAX(1, at);
		OP_MAP(X)
#undef X
#undef TOGETHER
#undef PASS
#undef STEP
	case OP__COUNT:
		break;
	}
	return 1;
}

uint32_t check_get_rows(const struct check_case *c)
{
	switch (c->op) {
#define TOGETHER(member, most) member
#define PASS                   rows.n_rows
#define STEP                   rows.n_rows
#define X(name, weight, formats, needed, cases, tolerance, at, tried)                    \
	case OP_##name:                                                                  \
		return c->args.name.at;
		OP_MAP(X)
#undef X
#undef TOGETHER
#undef PASS
#undef STEP
	case OP__COUNT:
		break;
	}
	return 0;
}

static void set_pass(struct op_rows *r, uint32_t rows)
{
	r->n_rows = r->max_seq_rows = r->max_len = rows;
	r->n_seqs = 1;
}

static void set_step(struct op_rows *r, uint32_t rows)
{
	r->n_rows = r->n_seqs = rows;
	r->max_seq_rows = 1;
}

void check_set_rows(struct check_case *c, uint32_t rows)
{
	switch (c->op) {
#define TOGETHER(member, most) a->member = rows
#define PASS                   set_pass(&a->rows, rows)
#define STEP                   set_step(&a->rows, rows)
#define X(name, weight, formats, needed, cases, tolerance, set, tried)                   \
	case OP_##name: {                                                                \
		struct op_##name *a = &c->args.name;                                     \
		set;                                                                     \
		break;                                                                   \
	}
		OP_MAP(X)
#undef X
#undef TOGETHER
#undef PASS
#undef STEP
	case OP__COUNT:
		break;
	}
}

/* What the long sequence has before it, and at most the others. */
#define LONG_PAST  997u
#define SHORT_PAST 60u

struct check_layout check_layout_of(
	enum op_id op, const struct kernel_shapes *shapes, uint32_t rows)
{
	struct check_layout l = {.n_seqs = 1, .rows = {rows}};

	if (check_rows_of(op) != CHECK_STEP)
		return l;
	l.n_seqs = MIN(rows, CHECK_SEQS_MAX);
	for (uint32_t q = 0; q < l.n_seqs; q++) {
		l.past[q] = q == l.n_seqs / 2 ? LONG_PAST : q * 7 % SHORT_PAST;
		l.past[q] = MIN(l.past[q], MAX(1, shapes->len_max) - 1);
		l.rows[q] = 1;
	}
	return l;
}

void check_case_destroy(struct check_case *c)
{
	if (c == NULL)
		return;
	for (uint32_t i = 0; i < c->n_buffers; i++)
		mem_free(c->buffers[i].host);
	mem_free(c);
}
