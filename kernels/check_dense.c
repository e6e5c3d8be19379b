/* Self-check cases of the ops whose rows do not belong to sequences. Case 0 is one row,
 * case 1 a few, case 2 many; strides are wider than rows where the op has strides. */
#include "kernels/check_case.h"

#include "common/base/attr.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GAP 3u /* elements between strided rows */

/* Rows of case i, fewer when a row costs much. */
static uint32_t case_rows(uint32_t i, const struct kernel_shapes *shapes,
	const struct check_limits *limits, uint64_t products_per_row)
{
	static const uint32_t rows[4] = {1, 5, 67, 19};
	uint64_t most = MAX(1, limits->products / MAX(1, products_per_row));
	uint32_t total = 0;

	if (limits->layout != NULL) {
		for (uint32_t q = 0; q < limits->layout->n_seqs; q++)
			total += limits->layout->rows[q];
		return total;
	}
	return (uint32_t)MIN(MIN(rows[i], MAX(1, shapes->rows_max)), most);
}

/* Fewer rows of weights when a matrix is large; the tail stays odd where it was. */
static uint32_t case_n(uint32_t n, uint32_t k, const struct check_limits *limits)
{
	uint64_t most = MAX(1, limits->weight_elements / MAX(1, k));

	if (n <= most)
		return n;
	return (uint32_t)(most >= 256 ? most / 128 * 128 - 128 + n % 128 : most);
}

/* A length that the format can hold. */
static uint32_t case_k(uint32_t k, enum weight_format format)
{
	return format == WF_NVFP4 ? CEIL_DIV(MAX(k, 16), 16u) * 16 : MAX(k, 1);
}

static struct check_buffer *add_rows(struct check_case *c, const char *name,
	enum check_role role, uint64_t rows, uint64_t width)
{
	/* The caller sets field and may widen the stride before shaping. */
	struct check_buffer *b = check_add(c, name, role, CHECK_ACT, NULL);

	check_shape(b, rows, width, width);
	return b;
}

CHECK_BUILDER(embed)
{
	struct op_embed *a = &c->args.embed;
	struct check_limits few = *limits;
	struct check_buffer *ids;
	uint32_t n;

	/* Rows that nobody asks for show nothing. */
	if (limits->layout == NULL)
		few.weight_elements /= 8;
	n = case_n(shapes_vocab_part(s), s->hidden, &few);
	/* A whole table, and one from the middle of a vocabulary. */
	a->first = i % 2 == 0 ? 0 : n;
	a->vocab = i % 2 == 0 ? n : 3 * n;
	a->n_rows = case_rows(i, s, limits, s->hidden);
	a->table = check_add_weight(c, c->format, 1, n, s->hidden);
	ids = check_add(c, "ids", CHECK_IN, CHECK_U32, &a->ids);
	check_shape(ids, 1, a->n_rows, a->n_rows);
	for (uint32_t t = 0; t < a->n_rows; t++)
		((uint32_t *)ids->host)[t] =
			t == 0 ? a->first + n - 1
			       : (uint32_t)(check_random(c) % a->vocab);
	add_rows(c, "x", CHECK_OUT, a->n_rows, s->hidden)->field = &a->x;
	(void)snprintf(c->name, sizeof(c->name), "%u rows of %u", a->n_rows, s->hidden);
}

CHECK_BUILDER(add_norm)
{
	struct op_add_norm *a = &c->args.add_norm;
	struct check_buffer *b;

	a->n_rows = case_rows(i, s, limits, s->hidden);
	a->width = s->hidden;
	a->eps = s->eps;
	b = add_rows(c, "x", CHECK_STATE, a->n_rows, a->width);
	b->field = &a->x;
	check_fill(c, b, 2.0f);
	if (i != 0) {
		b = add_rows(c, "add", CHECK_IN, a->n_rows, a->width);
		b->field = &a->add;
		check_fill(c, b, 1.0f);
	}
	b = check_add(c, "gain", CHECK_IN, CHECK_F32, &a->gain);
	check_shape(b, 1, a->width, a->width);
	check_fill(c, b, 0.3f);
	add_rows(c, "y", CHECK_OUT, a->n_rows, a->width)->field = &a->y;
	(void)snprintf(c->name, sizeof(c->name), "%u rows of %u", a->n_rows, a->width);
}

CHECK_BUILDER(linear)
{
	struct op_linear *a = &c->args.linear;
	uint32_t conv = 2 * s->n_k * s->dk + s->n_v * s->dv;
	uint32_t inner = MAX(s->n_v * s->dv, s->dense_width);
	uint32_t shape[4][2] = {{2 * s->n_q * s->head_dim, s->hidden}, {s->hidden, inner},
		{conv, s->hidden},
		{MAX(s->n_v, 3), s->hidden}}; /* the narrow projections of the gates */
	uint32_t k = case_k(shape[i][1], c->format);
	uint32_t n = case_n(MAX(shape[i][0], 1), k, limits);
	struct check_buffer *b;

	a->n_rows = case_rows(i, s, limits, (uint64_t)n * k);
	a->x_stride = k + (i == 0 ? 0 : 8 * GAP);
	/* Case 2 keeps rows aligned: some kernels need that. */
	a->y_stride = n + (i == 0 ? 0 : i == 2 || limits->aligned ? 8 * GAP : GAP);
	a->w = check_add_weight(c, c->format, 1, n, k);
	b = check_add(c, "x", CHECK_IN, CHECK_ACT, &a->x);
	check_shape(b, a->n_rows, k, a->x_stride);
	check_fill(c, b, 1.0f);
	b = check_add(c, "y", CHECK_OUT, CHECK_ACT, &a->y);
	check_shape(b, a->n_rows, n, a->y_stride);
	(void)snprintf(c->name, sizeof(c->name), "%u rows, %u to %u", a->n_rows, k, n);
}

CHECK_BUILDER(swiglu)
{
	struct op_swiglu *a = &c->args.swiglu;
	struct check_buffer *b;

	a->width = MAX(MAX(s->dense_width, s->shared_width), MAX(s->width, 1));
	a->n_rows = case_rows(i, s, limits, a->width);
	a->gate_stride = a->width + 8 * GAP;
	a->up_stride = a->width + 16 * GAP;
	b = check_add(c, "gate", CHECK_IN, CHECK_ACT, &a->gate);
	check_shape(b, a->n_rows, a->width, a->gate_stride);
	check_fill(c, b, 6.0f);
	b = check_add(c, "up", CHECK_IN, CHECK_ACT, &a->up);
	check_shape(b, a->n_rows, a->width, a->up_stride);
	check_fill(c, b, 1.0f);
	add_rows(c, "y", CHECK_OUT, a->n_rows, a->width)->field = &a->y;
	(void)snprintf(c->name, sizeof(c->name), "%u rows of %u", a->n_rows, a->width);
}

/* Different experts for every row. */
static void fill_choices(struct check_case *c, uint32_t *ids, uint32_t rows,
	uint32_t top_k, uint32_t n_experts)
{
	for (uint32_t t = 0; t < rows; t++) {
		uint32_t from = (uint32_t)(check_random(c) % n_experts);

		for (uint32_t j = 0; j < top_k; j++)
			ids[t * top_k + j] = (from + j * (n_experts / top_k)) % n_experts;
	}
}

CHECK_BUILDER(moe_route)
{
	struct op_moe_route *a = &c->args.moe_route;
	enum weight_format format = i == 0 ? WF_F32 : WF_BF16;
	struct check_buffer *b;

	a->n_rows = case_rows(i, s, limits, (uint64_t)s->n_experts * s->hidden);
	a->n_experts = s->n_experts;
	a->top_k = s->top_k;
	a->router = check_add_weight(c, format, 1, s->n_experts, s->hidden);
	b = add_rows(c, "x", CHECK_IN, a->n_rows, s->hidden);
	b->field = &a->x;
	check_fill(c, b, 1.5f);
	if (s->shared_width > 0) {
		a->shared_router = check_add_weight(c, format, 1, 1, s->hidden);
		check_shape(check_add(c, "shared", CHECK_OUT, CHECK_F32, &a->shared),
			a->n_rows, 1, 1);
	}
	if (i == 1) {
		b = check_add(c, "forced", CHECK_IN, CHECK_U32, &a->forced);
		check_shape(b, a->n_rows, a->top_k, a->top_k);
		fill_choices(c, b->host, a->n_rows, a->top_k, a->n_experts);
	}
	check_shape(check_add(c, "ids", CHECK_OUT, CHECK_U32, &a->ids), a->n_rows,
		a->top_k, a->top_k);
	check_shape(check_add(c, "weights", CHECK_OUT, CHECK_F32, &a->weights), a->n_rows,
		a->top_k, a->top_k);
	(void)snprintf(c->name, sizeof(c->name), "%u rows, %u of %u experts", a->n_rows,
		a->top_k, a->n_experts);
}

/* The model's, or less where even top_k experts are too many weights. */
static uint32_t expert_width(
	const struct kernel_shapes *s, const struct check_limits *limits)
{
	uint64_t most =
		4 * limits->weight_elements / (3 * (uint64_t)s->top_k * s->hidden);

	return s->width <= most ? s->width : (uint32_t)MAX(16, most / 16 * 16);
}

static void add_experts(struct check_case *c, const struct kernel_shapes *s,
	uint32_t n_experts, enum weight_format shared_format,
	const struct check_limits *limits)
{
	struct op_moe *a = &c->args.moe;
	uint32_t hidden = case_k(s->hidden, c->format);
	uint32_t width = case_k(expert_width(s, limits), c->format);
	uint32_t shared = case_k(s->shared_width, shared_format);

	a->gate = check_add_weight(c, c->format, n_experts, width, hidden);
	a->up = check_add_weight(c, c->format, n_experts, width, hidden);
	a->down = check_add_weight(c, c->format, n_experts, hidden, width);
	if (s->shared_width > 0) {
		a->sh_gate = check_add_weight(c, shared_format, 1, shared, hidden);
		a->sh_up = check_add_weight(c, shared_format, 1, shared, hidden);
		a->sh_down = check_add_weight(c, shared_format, 1, hidden, shared);
	}
	c->shapes.hidden = hidden;
	c->shapes.width = width;
	c->shapes.shared_width = s->shared_width > 0 ? shared : 0;
	c->shapes.n_experts = n_experts;
}

CHECK_BUILDER(moe)
{
	struct op_moe *a = &c->args.moe;
	uint64_t expert = (uint64_t)s->hidden * s->width;
	uint64_t most = MAX(s->top_k, limits->weight_elements / MAX(1, expert));
	uint32_t here = s->expert_part != 0 ? s->expert_part : s->n_experts;
	/* Releases leave the shared expert of an NVFP4 model in BF16. */
	enum weight_format shared_format =
		i == 0 && c->format == WF_NVFP4 ? WF_BF16 : c->format;
	struct check_buffer *b;

	a->n_rows = case_rows(i, s, limits, expert * 3 * (s->top_k + 1));
	a->top_k = s->top_k;
	c->shapes.rows_max = a->n_rows;
	add_experts(c, s, (uint32_t)MIN(here, most), shared_format, limits);
	/* Of a part: the second of as many as the model has. */
	a->first = here < s->n_experts ? c->shapes.n_experts : 0;
	a->n_experts = c->shapes.n_experts * (s->n_experts / here);
	b = add_rows(c, "x", CHECK_IN, a->n_rows, c->shapes.hidden);
	b->field = &a->x;
	check_fill(c, b, 1.0f);
	b = check_add(c, "ids", CHECK_IN, CHECK_U32, &a->ids);
	check_shape(b, a->n_rows, a->top_k, a->top_k);
	fill_choices(c, b->host, a->n_rows, a->top_k, a->n_experts);
	b = check_add(c, "weights", CHECK_IN, CHECK_F32, &a->weights);
	check_shape(b, a->n_rows, a->top_k, a->top_k);
	check_fill_uniform(c, b, 0.05f, 0.5f);
	if (s->shared_width > 0) {
		b = check_add(c, "shared", CHECK_IN, CHECK_F32, &a->shared);
		check_shape(b, a->n_rows, 1, 1);
		check_fill_uniform(c, b, 0.2f, 0.9f);
	}
	add_rows(c, "y", CHECK_OUT, a->n_rows, c->shapes.hidden)->field = &a->y;
	c->work_field = &a->work;
	c->work_bytes_field = &a->work_bytes;
	(void)snprintf(c->name, sizeof(c->name), "%u rows, %u of %u experts of %u",
		a->n_rows, a->top_k, c->shapes.n_experts, c->shapes.width);
}

CHECK_BUILDER(head)
{
	struct op_head *a = &c->args.head;
	uint32_t k = case_k(s->hidden, c->format);
	uint32_t n = case_n(shapes_vocab_part(s), k, limits);
	uint32_t rows = case_rows(i, s, limits, (uint64_t)n * k);
	struct check_buffer *b;

	a->n_out = limits->layout != NULL ? rows : MIN(rows, MAX(1, s->out_max));
	a->w = check_add_weight(c, c->format, 1, n, k);
	b = add_rows(c, "x", CHECK_IN, a->n_out + 2, k);
	b->field = &a->x;
	check_fill(c, b, 1.0f);
	b = check_add(c, "out_row", CHECK_IN, CHECK_U32, &a->out_row);
	check_shape(b, 1, a->n_out, a->n_out);
	for (uint32_t r = 0; r < a->n_out; r++)
		((uint32_t *)b->host)[r] = a->n_out + 1 - r;
	check_shape(
		check_add(c, "logits", CHECK_OUT, CHECK_F32, &a->logits), a->n_out, n, n);
	(void)snprintf(c->name, sizeof(c->name), "%u rows, %u to %u", a->n_out, k, n);
}

/* Edits that every row of a case may have: two biases, one of them on a likely token,
 * and a ban of the other one. */
#define CHECK_EDITS 3u

static void fill_edits(struct op_sample *a, struct sample_edit *edits)
{
	edits[0] = (struct sample_edit){.id = a->n_valid - 1, .add = 1.5f};
	edits[1] = (struct sample_edit){.id = a->n_valid / 3, .add = -2.0f};
	edits[2] = (struct sample_edit){.id = a->n_valid / 2};
}

/* One row of each way to draw, in turn. */
#define SAMPLE_KINDS 11u

static void fill_sample_row(struct sample_row *row, uint32_t r)
{
	static const struct sample_row kinds[SAMPLE_KINDS] = {
		{.top_p = 1, .seed = 1, .position = 7},
		{.temperature = 0.7f,
			.top_p = 0.8f,
			.top_k = 20,
			.seed = 2,
			.position = 8},
		{.temperature = 1, .top_p = 1, .seed = 3, .choice = 1, .position = 9},
		{.temperature = 1.3f,
			.top_p = 1,
			.min_p = 0.05f,
			.seed = 4,
			.position = 10},
		{.temperature = 0.6f,
			.top_p = 0.95f,
			.seed = 5,
			.choice = 2,
			.position = 11},
		{.temperature = 1,
			.top_p = 0.9f,
			.min_p = 0.01f,
			.top_k = 3,
			.seed = 6,
			.position = 12},
		{.top_p = 1, .position = 5, .n_bias = 2, .n_bans = 1, .ban_until = 6},
		{.top_p = 1, .position = 6, .n_bias = 2, .n_bans = 1, .ban_until = 6},
		{.temperature = 1,
			.top_p = 1,
			.seed = 7,
			.position = 3,
			.presence = 0.7f,
			.frequency = 0.4f,
			.repetition = 1.3f,
			.ask = SAMPLE_COUNT},
		{.top_p = 1, .ask = SAMPLE_GIVEN, .given = 3},
		/* Seen tokens end at the largest float. */
		{.temperature = 1,
			.top_p = 0.9f,
			.seed = 8,
			.position = 4,
			.repetition = 1e-40f,
			.ask = SAMPLE_COUNT},
	};

	*row = kinds[r % COUNT(kinds)];
	row->seed += r;
	row->line = r + 1;
	row->n_top = 5;
}

/* Two counts in each word. Those of the upper half are small, since words are compared
 * as F32. */
static void add_counts(struct check_case *c, struct op_sample *a)
{
	struct check_buffer *b =
		check_add(c, "counts", CHECK_STATE, CHECK_U32, (void *)&a->counts);
	uint64_t n = CEIL_DIV((uint64_t)a->n * a->vocab, 2u);

	check_shape(b, 1, n, n);
	for (uint64_t i = 0; i < n; i++)
		((uint32_t *)b->host)[i] =
			(uint32_t)(i % 3 == 0 ? SAMPLE_IN_PROMPT | 1u : i % 5) |
			(uint32_t)(i % 7) << 16;
}

static void add_sample_inputs(struct check_case *c, struct op_sample *a)
{
	struct check_buffer *logits =
		check_add(c, "logits", CHECK_IN, CHECK_F32, (void *)&a->logits);
	struct check_buffer *rows =
		check_add(c, "rows", CHECK_IN, CHECK_BYTES, (void *)&a->rows);
	struct check_buffer *edits =
		check_add(c, "edits", CHECK_IN, CHECK_BYTES, (void *)&a->edits);

	check_shape(logits, a->n, a->vocab, a->vocab);
	check_shape(rows, a->n, sizeof(*a->rows), sizeof(*a->rows));
	check_shape(edits, CHECK_EDITS, sizeof(*a->edits), sizeof(*a->edits));
	check_fill(c, logits, 3.0f);
	fill_edits(a, edits->host);
	add_counts(c, a);
	for (uint32_t r = 0; r < a->n; r++) {
		float *l = (float *)logits->host + (uint64_t)r * a->vocab;

		fill_sample_row((struct sample_row *)rows->host + r, r);
		/* Masked tokens are likelier than all others, and the first two are
		 * equal. */
		for (uint32_t v = a->n_valid; v < a->vocab; v++)
			l[v] = 40.0f;
		l[a->n_valid / 2] = l[a->n_valid - 1] = 14.0f;
	}
	if (a->n > 1)
		((float *)logits->host)[(uint64_t)(a->n - 1) * a->vocab +
					a->n_valid / 3] = NAN;
}

CHECK_BUILDER(sample)
{
	struct op_sample *a = &c->args.sample;
	struct check_buffer *out[] = {
		check_add(c, "token", CHECK_OUT, CHECK_U32, &a->token),
		check_add(c, "logprob", CHECK_OUT, CHECK_F32, &a->logprob),
		check_add(c, "top_id", CHECK_OUT, CHECK_U32, &a->top_id),
		check_add(c, "top_logprob", CHECK_OUT, CHECK_F32, &a->top_logprob),
	};
	struct check_buffer *flags =
		check_add(c, "flags", CHECK_OUT, CHECK_U32, &a->flags);

	a->n = MIN(case_rows(i, s, limits, s->vocab), MAX(1, s->out_max));
	if (limits->layout == NULL)
		a->n = MIN(a->n, 2 * SAMPLE_KINDS + 1);
	c->shapes.out_max = a->n;
	a->vocab = s->vocab;
	a->n_valid = s->n_valid;
	check_shape(flags, a->n, 1, 1);
	for (uint32_t k = 0; k < COUNT(out); k++) {
		bool top = k >= 2;

		check_shape(out[k], a->n, top ? 5 : 1, top ? SAMPLE_TOP_MAX : 1);
		if (a->n > 1)
			out[k]->skipped_row = a->n - 1;
	}
	add_sample_inputs(c, a);
	c->work_field = &a->work;
	c->work_bytes_field = &a->work_bytes;
	(void)snprintf(c->name, sizeof(c->name), "%u rows of %u", a->n, a->vocab);
}
