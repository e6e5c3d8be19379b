/* Self-check cases of the ops whose rows belong to sequences: attention and the gated
 * delta rule. Pages and slots are shuffled; one of each belongs to nobody. */
#include "kernels/check_case.h"

#include "common/base/attr.h"
#include "common/base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* How much a row costs, in products. */
static uint64_t row_products(enum op_id op, const struct kernel_shapes *s)
{
	bool recurrent = op == OP_gdn_prefill || op == OP_gdn_decode;

	return recurrent ? (uint64_t)s->n_v * s->dk * s->dv * 3
			 : (uint64_t)s->n_q * s->head_dim * 2 * 100;
}

/* Case 0: one sequence. Case 1: several, with page borders and very short rows. Case 2:
 * many rows, or a long past for the decode ops; where the device is fast enough, as many
 * as a real pass has, because what is chosen is what is fast there. */
static struct check_layout choose(enum op_id op, uint32_t i,
	const struct kernel_shapes *s, const struct check_limits *limits)
{
	bool decode = op == OP_attn_decode || op == OP_gdn_decode;
	uint64_t rows_most = MAX(1, limits->products / MAX(1, row_products(op, s)));
	uint32_t page = s->page_tokens;
	struct check_layout l;
	uint32_t total = 0;

	if (limits->layout != NULL)
		return *limits->layout;
	if (i == 0) {
		l = (struct check_layout){1, {decode ? 40 : 0}, {decode ? 1 : 37}};
	} else if (i == 1) {
		l = (struct check_layout){
			5, {0, 7, page - 1, page, 2 * page + 5}, {2, 1, 3, 1, 9}};
	} else {
		l = (struct check_layout){
			2, {decode ? 997 : 0, 33}, {65, rows_most >= 1089 ? 1024 : 130}};
	}
	l.n_seqs = MIN(l.n_seqs, MAX(1, s->seqs_max));
	for (uint32_t q = 0; q < l.n_seqs; q++) {
		uint64_t left = MIN(MAX(1, s->rows_max), rows_most);

		left = left > total ? left - total : 0;
		l.past[q] = MIN(l.past[q], MAX(1, s->len_max) - 1);
		l.rows[q] = decode ? 1 : MIN(l.rows[q], MAX(1, s->len_max) - l.past[q]);
		if (left == 0) {
			l.n_seqs = q;
			break;
		}
		l.rows[q] = (uint32_t)MIN(l.rows[q], left);
		total += l.rows[q];
	}
	return l;
}

static uint32_t *add_list(struct check_case *c, const char *name, uint64_t n, void *field)
{
	struct check_buffer *b = check_add(c, name, CHECK_IN, CHECK_U32, field);

	check_shape(b, 1, n, n);
	return b->host;
}

/* A permutation of first .. first + n - 1. */
static void shuffle(struct check_case *c, uint32_t *at, uint32_t first, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		at[i] = first + i;
	for (uint32_t i = n; i > 1; i--) {
		uint32_t j = (uint32_t)(check_random(c) % i);
		uint32_t swap = at[i - 1];

		at[i - 1] = at[j];
		at[j] = swap;
	}
}

/* The pages that sequences use, which are 1.. (page 0 is nobody's). */
struct placed {
	uint32_t n_pages;
	const uint32_t *pages; /* [n_seqs][stride] */
	uint32_t stride;
};

static struct placed add_rows(
	struct check_case *c, struct op_rows *rows, const struct check_layout *l)
{
	uint32_t page = c->shapes.page_tokens;
	uint32_t used = 0;
	uint32_t *pos, *seq, *first, *pages, *slot, *order;

	for (uint32_t q = 0; q < l->n_seqs; q++) {
		uint32_t len = l->past[q] + l->rows[q];

		rows->n_rows += l->rows[q];
		rows->max_seq_rows = MAX(rows->max_seq_rows, l->rows[q]);
		rows->max_len = MAX(rows->max_len, len);
		used += CEIL_DIV(len, page);
	}
	rows->n_seqs = l->n_seqs;
	rows->pages_stride = CEIL_DIV(rows->max_len, page) + 2;
	pos = add_list(c, "pos", rows->n_rows, (void *)&rows->pos);
	seq = add_list(c, "seq", rows->n_rows, (void *)&rows->seq);
	first = add_list(c, "first", l->n_seqs + 1, (void *)&rows->first);
	pages = add_list(c, "pages", (uint64_t)l->n_seqs * rows->pages_stride,
		(void *)&rows->pages);
	slot = add_list(c, "slot", l->n_seqs, (void *)&rows->slot);
	order = mem_alloc(used, sizeof(*order));
	shuffle(c, order, 1, used);
	shuffle(c, slot, 1, l->n_seqs);
	used = 0;
	for (uint32_t q = 0; q < l->n_seqs; q++) {
		uint32_t n_pages = CEIL_DIV(l->past[q] + l->rows[q], page);

		for (uint32_t i = 0; i < n_pages; i++)
			pages[q * rows->pages_stride + i] = order[used++];
		first[q + 1] = first[q] + l->rows[q];
		for (uint32_t r = 0; r < l->rows[q]; r++) {
			pos[first[q] + r] = l->past[q] + r;
			seq[first[q] + r] = q;
		}
	}
	mem_free(order);
	c->shapes.rows_max = rows->n_rows;
	c->shapes.seqs_max = rows->n_seqs;
	c->shapes.len_max = rows->max_len;
	(void)snprintf(c->name, sizeof(c->name), "%u rows of %u sequences to %u tokens",
		rows->n_rows, rows->n_seqs, rows->max_len);
	return (struct placed){used, pages, rows->pages_stride};
}

static struct check_buffer *add_act(struct check_case *c, const char *name,
	enum check_role role, const uint64_t shape[3], void *field)
{
	struct check_buffer *b = check_add(c, name, role, CHECK_ACT, field);

	check_shape(b, shape[0], shape[1], shape[2]);
	if (role == CHECK_IN)
		check_fill(c, b, 1.0f);
	return b;
}

static struct check_buffer *add_f32(struct check_case *c, const char *name,
	enum check_role role, uint64_t n, void *field)
{
	struct check_buffer *b = check_add(c, name, role, CHECK_F32, field);

	check_shape(b, 1, n, n);
	return b;
}

/* K and V of token t of a page, all heads, become NaN. */
static void forget_token(const struct kernel_shapes *s, float *page, uint32_t t)
{
	for (uint32_t h = 0; h < 2 * s->n_kv; h++) {
		float *row = page + ((uint64_t)h * s->page_tokens + t) * s->head_dim;

		for (uint32_t d = 0; d < s->head_dim; d++)
			row[d] = NAN;
	}
}

/* Pages of one layer. When they are read, tokens that no sequence has are NaN: recycled
 * memory may hold anything, and no row may depend on it. */
static void add_kv(struct check_case *c, struct op_kv *kv, enum check_role role,
	const struct placed *at, const struct check_layout *l)
{
	const struct kernel_shapes *s = &c->shapes;
	const uint32_t page_tokens = s->page_tokens;
	uint64_t page = 2 * (uint64_t)s->n_kv * s->page_tokens * s->head_dim;
	struct check_buffer *b = check_add(
		c, "kv", role, s->kv_dtype == DT_F32 ? CHECK_F32 : CHECK_BF16, &kv->base);

	*kv = (struct op_kv){.page_bytes = page * dtype_bytes(s->kv_dtype),
		.dtype = s->kv_dtype,
		.page_tokens = s->page_tokens,
		.n_kv = s->n_kv,
		.head_dim = s->head_dim};
	assert(page_tokens > 0);
	check_shape(b, (uint64_t)at->n_pages + 1, page, page);
	check_fill(c, b, 1.0f);
	if (role != CHECK_IN)
		return;
	for (uint32_t t = 0; t < page_tokens; t++)
		forget_token(s, b->host, t);
	for (uint32_t q = 0; q < l->n_seqs; q++) {
		for (uint32_t t = l->past[q] + l->rows[q]; t % page_tokens != 0; t++)
			forget_token(s,
				(float *)b->host + at->pages[(uint64_t)q * at->stride +
							     t / page_tokens] *
							   page,
				t % page_tokens);
	}
}

CHECK_BUILDER(attn_prep)
{
	const struct check_layout l = choose(c->op, i, s, limits);
	struct op_attn_prep *a = &c->args.attn_prep;
	struct placed placed = add_rows(c, &a->rows, &l);
	uint64_t t = a->rows.n_rows;
	uint64_t kv_width = (uint64_t)s->n_kv * s->head_dim;
	uint64_t qg_width = 2 * (uint64_t)s->n_q * s->head_dim;
	struct check_buffer *b;

	a->n_q = s->n_q;
	a->rotary = s->rotary;
	a->eps = s->eps;
	a->qg_stride = (uint32_t)qg_width + 24;
	a->k_stride = (uint32_t)kv_width + 8;
	a->v_stride = (uint32_t)kv_width + 16;
	add_act(c, "q", CHECK_OUT, (uint64_t[3]){t * s->n_q, s->head_dim, s->head_dim},
		&a->q);
	add_act(c, "qg", CHECK_IN, (uint64_t[3]){t, qg_width, a->qg_stride},
		(void *)&a->qg);
	add_act(c, "k", CHECK_IN, (uint64_t[3]){t, kv_width, a->k_stride}, (void *)&a->k);
	add_act(c, "v", CHECK_IN, (uint64_t[3]){t, kv_width, a->v_stride}, (void *)&a->v);
	check_fill(
		c, add_f32(c, "q_gain", CHECK_IN, s->head_dim, (void *)&a->q_gain), 0.3f);
	check_fill(
		c, add_f32(c, "k_gain", CHECK_IN, s->head_dim, (void *)&a->k_gain), 0.3f);
	b = add_f32(c, "inv_freq", CHECK_IN, MAX(1, s->rotary / 2), (void *)&a->inv_freq);
	for (uint32_t d = 0; d < s->rotary / 2; d++)
		((float *)b->host)[d] = (float)pow(1e7, -2.0 * d / s->rotary);
	add_kv(c, &a->kv, CHECK_STATE, &placed, &l);
}

static void build_attn(struct check_case *c, const struct check_layout *l)
{
	struct op_attn_prefill *a = &c->args.attn_prefill;
	const struct kernel_shapes *s = &c->shapes;
	struct placed placed = add_rows(c, &a->rows, l);
	uint64_t t = a->rows.n_rows;
	uint64_t qg_width = 2 * (uint64_t)s->n_q * s->head_dim;
	const uint64_t heads[3] = {t * s->n_q, s->head_dim, s->head_dim};

	a->n_q = s->n_q;
	a->qg_stride = (uint32_t)qg_width + 24;
	add_act(c, "o", CHECK_OUT, heads, &a->o);
	add_act(c, "q", CHECK_IN, heads, (void *)&a->q);
	add_act(c, "qg", CHECK_IN, (uint64_t[3]){t, qg_width, a->qg_stride},
		(void *)&a->qg);
	add_kv(c, &a->kv, CHECK_IN, &placed, l);
	c->work_field = &a->work;
	c->work_bytes_field = &a->work_bytes;
}

CHECK_BUILDER(attn_prefill)
{
	const struct check_layout l = choose(c->op, i, s, limits);

	build_attn(c, &l);
}

CHECK_BUILDER(attn_decode)
{
	const struct check_layout l = choose(c->op, i, s, limits);

	build_attn(c, &l);
}

/* Slots of one layer: the recurrent part, then the convolution's, as one slot each. */
static void add_slots(struct check_case *c, struct op_slot *slots, bool rec, bool conv)
{
	const struct kernel_shapes *s = &c->shapes;
	uint64_t rec_n = (uint64_t)s->n_v * s->dv * s->dk;
	uint64_t conv_n = (uint64_t)(2 * s->n_k * s->dk + s->n_v * s->dv) * (s->taps - 1);
	uint64_t n = (uint64_t)s->seqs_max + 1;
	struct check_buffer *b;

	slots->conv_dtype = s->conv_dtype;
	if (rec) {
		slots->slot_bytes = rec_n * sizeof(float);
		b = check_add(c, "state", CHECK_STATE, CHECK_F32, &slots->rec);
		/* A row per state row, so that one wrong row is not lost in the norm. */
		check_shape(b, n * s->n_v * s->dv, s->dk, s->dk);
		check_fill(c, b, 0.2f);
	}
	if (conv) {
		slots->slot_bytes = conv_n * dtype_bytes(s->conv_dtype);
		b = check_add(c, "conv", CHECK_STATE,
			s->conv_dtype == DT_F32 ? CHECK_F32 : CHECK_BF16, &slots->conv);
		check_shape(b, n, conv_n, conv_n);
		check_fill(c, b, 1.0f);
	}
}

CHECK_BUILDER(gdn_prep)
{
	const struct check_layout l = choose(c->op, i, s, limits);
	struct op_gdn_prep *a = &c->args.gdn_prep;
	uint32_t channels = 2 * s->n_k * s->dk + s->n_v * s->dv;
	uint64_t t, keys;

	(void)add_rows(c, &a->rows, &l);
	t = a->rows.n_rows;
	keys = t * s->n_k;
	a->n_k = s->n_k;
	a->n_v = s->n_v;
	a->dk = s->dk;
	a->dv = s->dv;
	a->taps = s->taps;
	a->qkv_stride = channels + 8;
	a->ab_stride = s->n_v + 5;
	add_act(c, "q", CHECK_OUT, (uint64_t[3]){keys, s->dk, s->dk}, &a->q);
	add_act(c, "k", CHECK_OUT, (uint64_t[3]){keys, s->dk, s->dk}, &a->k);
	add_act(c, "v", CHECK_OUT, (uint64_t[3]){t * s->n_v, s->dv, s->dv}, &a->v);
	add_f32(c, "g", CHECK_OUT, t * s->n_v, (void *)&a->g);
	add_f32(c, "beta", CHECK_OUT, t * s->n_v, (void *)&a->beta);
	add_act(c, "qkv", CHECK_IN, (uint64_t[3]){t, channels, a->qkv_stride},
		(void *)&a->qkv);
	add_act(c, "a", CHECK_IN, (uint64_t[3]){t, s->n_v, a->ab_stride}, (void *)&a->a);
	add_act(c, "b", CHECK_IN, (uint64_t[3]){t, s->n_v, a->ab_stride}, (void *)&a->b);
	check_fill(c,
		add_f32(c, "conv_w", CHECK_IN, (uint64_t)channels * s->taps,
			(void *)&a->conv_w),
		0.5f);
	check_fill(c, add_f32(c, "a_log", CHECK_IN, s->n_v, (void *)&a->a_log), 1.0f);
	check_fill(c, add_f32(c, "dt_bias", CHECK_IN, s->n_v, (void *)&a->dt_bias), 1.0f);
	add_slots(c, &a->state, false, true);
}

/* Queries look a little like their keys, as those of a model do: k . q is then far from
 * zero, and the output of a head that has just forgotten everything is well defined. */
static void lean(struct check_buffer *q, const struct check_buffer *k)
{
	for (uint64_t i = 0; i < q->rows * q->stride; i++)
		((float *)q->host)[i] += 0.6f * ((const float *)k->host)[i];
}

/* Rows of length 1, as gdn_prep makes them. */
static void normalise(struct check_case *c, struct check_buffer *b)
{
	for (uint64_t r = 0; r < b->rows; r++) {
		float *row = (float *)b->host + r * b->stride;
		float sum = 0;

		for (uint64_t i = 0; i < b->width; i++)
			sum += row[i] * row[i];
		for (uint64_t i = 0; i < b->width; i++)
			row[i] /= sqrtf(sum);
	}
	check_round(c, b);
}

static void build_gdn(struct check_case *c, const struct check_layout *l)
{
	struct op_gdn_prefill *a = &c->args.gdn_prefill;
	const struct kernel_shapes *s = &c->shapes;
	uint64_t t, width = (uint64_t)s->n_v * s->dv;
	struct check_buffer *b, *q, *k;

	(void)add_rows(c, &a->rows, l);
	t = a->rows.n_rows;
	a->n_k = s->n_k;
	a->n_v = s->n_v;
	a->dk = s->dk;
	a->dv = s->dv;
	a->z_stride = (uint32_t)width + 8;
	a->sigmoid_gate = s->sigmoid_gate;
	a->eps = s->eps;
	add_act(c, "y", CHECK_OUT, (uint64_t[3]){t * s->n_v, s->dv, s->dv}, &a->y);
	k = add_act(
		c, "k", CHECK_IN, (uint64_t[3]){t * s->n_k, s->dk, s->dk}, (void *)&a->k);
	q = add_act(
		c, "q", CHECK_IN, (uint64_t[3]){t * s->n_k, s->dk, s->dk}, (void *)&a->q);
	lean(q, k);
	normalise(c, q);
	normalise(c, k);
	add_act(c, "v", CHECK_IN, (uint64_t[3]){t * s->n_v, s->dv, s->dv}, (void *)&a->v);
	add_act(c, "z", CHECK_IN, (uint64_t[3]){t, width, a->z_stride}, (void *)&a->z);
	b = add_f32(c, "g", CHECK_IN, t * s->n_v, (void *)&a->g);
	check_fill_uniform(c, b, -1.5f, 0.0f);
	/* A head that forgets at once: the chunked form must not overflow on it. */
	if (t > 0)
		((float *)b->host)[0] = -60.0f;
	check_fill_uniform(c, add_f32(c, "beta", CHECK_IN, t * s->n_v, (void *)&a->beta),
		0.05f, 0.95f);
	check_fill_uniform(
		c, add_f32(c, "gain", CHECK_IN, s->dv, (void *)&a->gain), 0.5f, 1.5f);
	add_slots(c, &a->state, true, false);
	c->work_field = &a->work;
	c->work_bytes_field = &a->work_bytes;
}

CHECK_BUILDER(gdn_prefill)
{
	const struct check_layout l = choose(c->op, i, s, limits);

	build_gdn(c, &l);
}

CHECK_BUILDER(gdn_decode)
{
	const struct check_layout l = choose(c->op, i, s, limits);

	build_gdn(c, &l);
}
