/* attn_prep, attn_prefill and attn_decode against double precision, and their bits
 * across ways to cut a sequence into passes. */
#include "seq_test.h"

/* The dot over D = 256, the softmax and the sum over some 200 tokens each add a few
 * 2^-24 of their operands' size; where an output is a mean of nearly cancelling values
 * that is up to ten times more of its own size. */
#define TOLERANCE 2e-5

#define P 16u /* tokens of a page */

struct model {
	uint32_t n_q, n_kv, d, rotary;
	enum dtype dtype;
	struct op_kv kv;
	float *q_gain, *k_gain, *inv_freq;
	uint64_t page_elements;
};

static struct model make_model(uint32_t n_q, uint32_t n_kv, uint32_t d, enum dtype dtype)
{
	struct model m = {
		n_q, n_kv, d, d / 4, dtype, .page_elements = 2 * (uint64_t)n_kv * P * d};
	uint64_t pages = TEST_SEQS_MAX * TEST_PAGES_MAX + 1;

	m.q_gain = random_floats(d, 0.3f);
	m.k_gain = random_floats(d, 0.3f);
	m.inv_freq = mem_alloc(m.rotary / 2, sizeof(float));
	for (uint32_t i = 0; i < m.rotary / 2; i++)
		m.inv_freq[i] = (float)pow(1e7, -2.0 * i / m.rotary);
	m.kv = (struct op_kv){
		.base = mem_alloc(pages * m.page_elements, dtype_bytes(dtype)),
		.page_bytes = m.page_elements * dtype_bytes(dtype),
		.dtype = dtype,
		.page_tokens = P,
		.n_kv = n_kv,
		.head_dim = d};
	/* NaN everywhere: whatever is read must have been written. */
	memset(m.kv.base, 0xFF, pages * m.kv.page_bytes);
	return m;
}

static void free_model(struct model *m)
{
	mem_free(m->kv.base);
	mem_free(m->q_gain);
	mem_free(m->k_gain);
	mem_free(m->inv_freq);
}

static float kv_at(const struct model *m, const struct test_seqs *s, uint32_t seq,
	uint32_t token, uint32_t head, uint32_t i, bool v)
{
	uint32_t page = s->pages[seq * TEST_PAGES_MAX + token / P];
	uint64_t at = page * m->page_elements +
		      (((uint64_t)(v ? m->n_kv : 0) + head) * P + token % P) * m->d + i;

	return m->dtype == DT_F32 ? ((const float *)m->kv.base)[at]
				  : from_bf16(((const uint16_t *)m->kv.base)[at]);
}

/* One pass with random projections. */
struct pass {
	float *qg, *k, *v, *q, *o;
	uint32_t qg_stride, k_stride, v_stride;
	uint32_t rows;
};

static struct pass make_pass(const struct model *m, uint32_t rows)
{
	struct pass p = {.qg_stride = 2 * m->n_q * m->d + 8,
		.k_stride = m->n_kv * m->d + 5,
		.v_stride = m->n_kv * m->d,
		.rows = rows};

	p.qg = random_floats((uint64_t)rows * p.qg_stride, 1.0f);
	p.k = random_floats((uint64_t)rows * p.k_stride, 1.0f);
	p.v = random_floats((uint64_t)rows * p.v_stride, 1.0f);
	p.q = canary_floats((uint64_t)rows * m->n_q * m->d);
	p.o = canary_floats((uint64_t)rows * m->n_q * m->d);
	return p;
}

static void free_pass(const struct model *m, struct pass *p)
{
	canary_check(p->q, (uint64_t)p->rows * m->n_q * m->d);
	canary_check(p->o, (uint64_t)p->rows * m->n_q * m->d);
	mem_free(p->qg);
	mem_free(p->k);
	mem_free(p->v);
	canary_free(p->q);
	canary_free(p->o);
}

/* attn_prep of rows t.. of the pass. */
static void prepare(const struct variant *v, const struct model *m, const struct pass *p,
	struct op_rows rows, uint32_t t)
{
	struct op_attn_prep op = {.q = p->q + (uint64_t)t * m->n_q * m->d,
		.qg = p->qg + (uint64_t)t * p->qg_stride,
		.k = p->k + (uint64_t)t * p->k_stride,
		.v = p->v + (uint64_t)t * p->v_stride,
		.q_gain = m->q_gain,
		.k_gain = m->k_gain,
		.inv_freq = m->inv_freq,
		.rows = rows,
		.kv = m->kv,
		.n_q = m->n_q,
		.rotary = m->rotary,
		.qg_stride = p->qg_stride,
		.k_stride = p->k_stride,
		.v_stride = p->v_stride,
		.eps = 1e-6f};

	RUN(attn_prep, v, &op);
}

static void attend(const struct variant *v, const struct model *m, const struct pass *p,
	struct op_rows rows, uint32_t t)
{
	struct kernel_shapes shapes = {.rows_max = rows.n_rows,
		.len_max = rows.max_len,
		.n_q = m->n_q,
		.n_kv = m->n_kv,
		.head_dim = m->d};
	uint64_t bytes = v->work_bytes(&shapes);
	struct op_attn_prefill op = {.o = p->o + (uint64_t)t * m->n_q * m->d,
		.q = p->q + (uint64_t)t * m->n_q * m->d,
		.qg = p->qg + (uint64_t)t * p->qg_stride,
		.rows = rows,
		.kv = m->kv,
		.n_q = m->n_q,
		.qg_stride = p->qg_stride,
		.work = mem_alloc(bytes, 1),
		.work_bytes = bytes};

	if (v->op == OP_attn_prefill)
		RUN(attn_prefill, v, &op);
	else
		RUN(attn_decode, v, &op);
	mem_free(op.work);
}

static void norm_and_turn(const struct model *m, const float *a, const float *gain,
	uint32_t pos, double *out)
{
	uint32_t half = m->rotary / 2;
	double squares = 0;

	for (uint32_t i = 0; i < m->d; i++)
		squares += (double)a[i] * (double)a[i];
	for (uint32_t i = 0; i < m->d; i++)
		out[i] = (double)a[i] / sqrt(squares / m->d + 1e-6) *
			 (1.0 + (double)gain[i]);
	for (uint32_t i = 0; i < half; i++) {
		/* The product is defined as rounded to F32. */
		double angle = (double)((float)pos * m->inv_freq[i]);
		double x = out[i], y = out[i + half];

		out[i] = x * cos(angle) - y * sin(angle);
		out[i + half] = y * cos(angle) + x * sin(angle);
	}
}

static void check_prep(const struct variant *v, enum dtype dtype)
{
	struct model m = make_model(6, 2, 64, dtype);
	struct test_seqs s;
	struct op_rows rows;
	struct pass p;
	double want[64];

	seqs_init(&s, 3, P);
	memcpy(s.past, (uint32_t[3]){0, 15, 262143 % (TEST_PAGES_MAX * P)}, 12);
	memcpy(s.rows, (uint32_t[3]){5, 18, 1}, 12);
	rows = seqs_pass(&s);
	p = make_pass(&m, rows.n_rows);
	prepare(v, &m, &p, rows, 0);
	for (uint32_t t = 0; t < rows.n_rows; t++) {
		for (uint32_t h = 0; h < m.n_q; h++) {
			norm_and_turn(&m, p.qg + t * p.qg_stride + h * 2 * m.d, m.q_gain,
				s.pos[t], want);
			assert_close(
				p.q + (t * m.n_q + h) * m.d, m.d, want, 1, m.d, 2e-6);
		}
		for (uint32_t h = 0; h < m.n_kv; h++) {
			float k[64], value[64];
			const float *raw = p.v + t * p.v_stride + h * m.d;

			for (uint32_t i = 0; i < m.d; i++) {
				k[i] = kv_at(&m, &s, s.seq[t], s.pos[t], h, i, false);
				value[i] = kv_at(&m, &s, s.seq[t], s.pos[t], h, i, true);
				assert_true(
					value[i] ==
					(dtype == DT_F32 ? raw[i]
							 : from_bf16(to_bf16(raw[i]))));
			}
			norm_and_turn(&m, p.k + t * p.k_stride + h * m.d, m.k_gain,
				s.pos[t], want);
			assert_close(
				k, m.d, want, 1, m.d, dtype == DT_F32 ? 2e-6 : 0x1p-8);
		}
	}
	/* Tokens before and after the pass, and the page of nobody, are as they were. */
	assert_true(isnan(kv_at(&m, &s, 1, 14, 0, 0, false)));
	assert_true(isnan(kv_at(&m, &s, 1, 33, 1, 63, true)));
	for (uint64_t i = 0; i < m.kv.page_bytes; i++)
		assert_int_equal(((uint8_t *)m.kv.base)[i], 0xFF);
	free_pass(&m, &p);
	free_model(&m);
}

static void prep_matches_double_precision(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v, OP_attn_prep)
	{
		check_prep(v, DT_F32);
		check_prep(v, DT_BF16);
	}
}

/* Far positions need full range reduction: at 262143 an angle without it is off by
 * radians, and its rounding to F32 is part of the definition. */
static void far_positions_turn_exactly(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v, OP_attn_prep)
	{
		struct model m = make_model(2, 1, 64, DT_F32);
		struct test_seqs s;
		struct op_rows rows;
		struct pass p;
		double want[64];

		seqs_init(&s, 1, P);
		s.rows[0] = 1;
		rows = seqs_pass(&s);
		p = make_pass(&m, 1);
		/* One page that serves every position. */
		s.pos[0] = 262143;
		m.kv.page_tokens = 1u << 18;
		mem_free(m.kv.base);
		m.kv.base =
			mem_alloc((uint64_t)m.kv.page_tokens * 2 * m.d, sizeof(float));
		m.kv.page_bytes = 0;
		prepare(v, &m, &p, rows, 0);
		norm_and_turn(&m, p.qg, m.q_gain, 262143, want);
		assert_close(p.q, m.d, want, 1, m.d, 2e-6);
		free_pass(&m, &p);
		free_model(&m);
	}
}

static void attend_double(const struct model *m, const struct test_seqs *s,
	const struct pass *p, uint32_t t, uint32_t h, double *want)
{
	uint32_t kv_head = h / (m->n_q / m->n_kv);
	uint32_t n = s->pos[t] + 1;
	double *w = mem_alloc(n, sizeof(*w));
	double sum = 0, largest = -1e300;

	for (uint32_t j = 0; j < n; j++) {
		for (uint32_t i = 0; i < m->d; i++)
			w[j] += (double)p->q[((uint64_t)t * m->n_q + h) * m->d + i] *
				(double)kv_at(m, s, s->seq[t], j, kv_head, i, false);
		w[j] /= sqrt(m->d);
		largest = fmax(largest, w[j]);
	}
	for (uint32_t j = 0; j < n; j++) {
		w[j] = exp(w[j] - largest);
		sum += w[j];
	}
	for (uint32_t i = 0; i < m->d; i++) {
		double gate = (double)p->qg[(uint64_t)t * p->qg_stride + h * 2 * m->d +
					    m->d + i];

		want[i] = 0;
		for (uint32_t j = 0; j < n; j++)
			want[i] += w[j] / sum *
				   (double)kv_at(m, s, s->seq[t], j, kv_head, i, true);
		want[i] /= 1 + exp(-gate);
	}
	mem_free(w);
}

/* Prefill `past` of each sequence, then run the pass under test. times: of the queries;
 * at 80 scores reach hundreds, whose exponentials no float holds. */
static void check_attention(const struct variant *v, uint32_t n_q, uint32_t n_kv,
	enum dtype dtype, const uint32_t *rows_of, float times)
{
	struct model m = make_model(n_q, n_kv, 64, dtype);
	const struct variant *prep = test_variant(OP_attn_prep, 0);
	struct test_seqs s;
	struct op_rows rows;
	struct pass past, p;
	double want[64];
	/* The error of a weight is the absolute error of its score. */
	double tolerance = TOLERANCE * fmax(1, (double)times / 8);

	seqs_init(&s, 4, P);
	memcpy(s.rows, (uint32_t[4]){0, 15, 64, 127}, 16);
	rows = seqs_pass(&s);
	past = make_pass(&m, rows.n_rows);
	prepare(prep, &m, &past, rows, 0);
	memcpy(s.past, s.rows, 16);
	memcpy(s.rows, rows_of, 16);
	rows = seqs_pass(&s);
	p = make_pass(&m, rows.n_rows);
	prepare(prep, &m, &p, rows, 0);
	for (uint64_t i = 0; i < (uint64_t)rows.n_rows * n_q * m.d; i++)
		p.q[i] *= times;
	attend(v, &m, &p, rows, 0);
	for (uint32_t t = 0; t < rows.n_rows; t++) {
		for (uint32_t h = 0; h < n_q; h++) {
			attend_double(&m, &s, &p, t, h, want);
			assert_close(
				p.o + (t * n_q + h) * m.d, m.d, want, 1, m.d, tolerance);
		}
	}
	free_pass(&m, &past);
	free_pass(&m, &p);
	free_model(&m);
}

static void attention_matches_double_precision(void **state)
{
	static const uint32_t many[4] = {33, 2, 70, 1}, one[4] = {1, 1, 1, 1};

	(void)state;
	for (int dtype = DT_F32; dtype <= DT_BF16; dtype++) {
		FOR_EACH_VARIANT(v, OP_attn_prefill)
		{
			check_attention(v, 2, 2, (enum dtype)dtype, many, 1);
			check_attention(v, 6, 2, (enum dtype)dtype, many, 1);
			check_attention(v, 4, 1, (enum dtype)dtype, one, 1);
			check_attention(v, 4, 1, (enum dtype)dtype, many, 80);
		}
		FOR_EACH_VARIANT(v, OP_attn_decode)
		check_attention(v, 6, 2, (enum dtype)dtype, one, 1);
	}
}

/* One sequence of N tokens in chunks; o of all rows. */
#define N 150u
static void run_chunks(const struct variant *prep, const struct variant *attn,
	const struct model *m, struct pass *p, uint32_t chunk)
{
	struct test_seqs s;

	test_seed = 99; /* the same pages each time */
	seqs_init(&s, 1, P);
	for (uint32_t t = 0; t < N; t += chunk) {
		struct op_rows rows;

		s.past[0] = t;
		s.rows[0] = MIN(chunk, N - t);
		rows = seqs_pass(&s);
		prepare(prep, m, p, rows, t);
		attend(attn, m, p, rows, t);
	}
}

static void passes_may_be_cut_anywhere(void **state)
{
	static const uint32_t chunks[] = {1, 2, 3, 63, 64, 65};

	(void)state;
	for (uint32_t i = 0; test_variant(OP_attn_prefill, i) != NULL; i++) {
		const struct variant *prep = test_variant(OP_attn_prep, i);
		const struct variant *attn = test_variant(OP_attn_prefill, i);
		struct model m = make_model(6, 2, 64, i % 2 == 0 ? DT_BF16 : DT_F32);
		struct pass p = make_pass(&m, N);
		uint64_t n = (uint64_t)N * m.n_q * m.d;
		float *whole = mem_alloc(n, sizeof(*whole));

		run_chunks(prep, attn, &m, &p, N);
		memcpy(whole, p.o, n * sizeof(*whole));
		for (uint32_t c = 0; c < COUNT(chunks); c++) {
			memset(p.o, 0xFF, n * sizeof(*p.o));
			run_chunks(prep, attn, &m, &p, chunks[c]);
			assert_same_bits(whole, p.o, n);
		}
		/* Decode is the same op, one row at a time. */
		memset(p.o, 0xFF, n * sizeof(*p.o));
		run_chunks(prep, test_variant(OP_attn_decode, i), &m, &p, 1);
		assert_same_bits(whole, p.o, n);
		mem_free(whole);
		free_pass(&m, &p);
		free_model(&m);
	}
}

static void too_little_scratch_is_refused(void **state)
{
	const struct variant *v = test_variant(OP_attn_prefill, 0);
	struct op_attn_prefill op = {
		.rows = {.max_len = 100}, .kv = {.n_kv = 1}, .work_bytes = 399};
	struct err err;

	(void)state;
	op.n_q = 1;
	assert_int_equal(run_attn_prefill(v, &op, &err), ST_LIMIT);
	assert_non_null(strstr(err.text, "399 bytes of scratch for 100 tokens"));
	op.work_bytes = 400;
	assert_int_equal(run_attn_prefill(v, &op, &err), ST_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prep_matches_double_precision),
		cmocka_unit_test(far_positions_turn_exactly),
		cmocka_unit_test(attention_matches_double_precision),
		cmocka_unit_test(passes_may_be_cut_anywhere),
		cmocka_unit_test(too_little_scratch_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
