/* gdn_prep against double precision: convolution and its state, norms, gates. */
#include "gdn_test.h"

static void l2_double(double *x, uint32_t n, double times)
{
	double squares = 0;

	for (uint32_t i = 0; i < n; i++)
		squares += x[i] * x[i];
	for (uint32_t i = 0; i < n; i++)
		x[i] *= times / sqrt(squares + 1e-6);
}

/* What row t of the pass must become; before[c][0..2] are the inputs before the pass. */
static void prep_double(const struct layer *l, const struct test_seqs *s,
	const struct pass *p, const double *before, uint32_t t, double *u)
{
	uint32_t first = s->first[s->seq[t]];

	for (uint32_t c = 0; c < l->channels; c++) {
		double sum = 0;

		for (uint32_t j = 0; j < TAPS; j++) {
			int64_t r = (int64_t)t - first - 3 + j;
			double x;

			if (r < 0)
				x = before[c * 3 + 3 + r];
			else
				x = (double)p->qkv[(first + (uint64_t)r) * p->qkv_stride +
						   c];
			/* Rows that are read back count as stored. */
			if (r >= 0 && j < 3 && l->conv_dtype == DT_BF16)
				x = (double)from_bf16(to_bf16((float)x));
			sum += (double)l->conv_w[c * TAPS + j] * x;
		}
		u[c] = sum / (1 + exp(-sum));
	}
	for (uint32_t h = 0; h < l->n_k; h++) {
		l2_double(u + h * l->dk, l->dk, 1 / sqrt(l->dk));
		l2_double(u + (l->n_k + h) * l->dk, l->dk, 1);
	}
}

static double conv_at(const struct layer *l, uint32_t slot, uint32_t i)
{
	uint64_t at = slot * l->conv_n + i;

	return l->conv_dtype == DT_F32 ? (double)((float *)l->conv)[at]
				       : (double)from_bf16(((uint16_t *)l->conv)[at]);
}

/* times: size of the inputs; small ones show the eps of the norms. */
static void check_prep(const struct variant *v, enum dtype conv_dtype, float times)
{
	struct layer l = make_layer(2, 6, 16, 24, conv_dtype);
	struct test_seqs s;
	struct op_rows rows;
	struct pass p;
	double *u = mem_alloc(l.channels, sizeof(*u));
	double *before = mem_alloc(TEST_SEQS_MAX * l.conv_n, sizeof(*before));

	seqs_init(&s, 5, 16);
	memcpy(s.rows, (uint32_t[5]){1, 2, 3, 9, 0}, 20);
	rows = seqs_pass(&s);
	p = make_pass(&l, rows.n_rows);
	for (uint64_t i = 0; i < (uint64_t)p.rows * p.qkv_stride; i++)
		p.qkv[i] *= times;
	for (uint64_t i = 0; i < (TEST_SEQS_MAX + 1) * l.conv_n; i++) {
		float x = random_uniform(-1, 1) * times;

		if (conv_dtype == DT_F32)
			((float *)l.conv)[i] = x;
		else
			((uint16_t *)l.conv)[i] = to_bf16(x);
	}
	for (uint32_t q = 0; q < 5; q++) {
		for (uint32_t i = 0; i < l.conv_n; i++)
			before[q * l.conv_n + i] = conv_at(&l, s.slot[q], i);
	}
	prepare(v, &l, &p, rows, 0);
	for (uint32_t t = 0; t < rows.n_rows; t++) {
		prep_double(&l, &s, &p, before + s.seq[t] * l.conv_n, t, u);
		assert_close(p.q + t * 32, 16, u, 2, 16, 3e-6);
		assert_close(p.k + t * 32, 16, u + 32, 2, 16, 3e-6);
		assert_close(p.v + t * 144, 24, u + 64, 6, 24, 3e-6);
		for (uint32_t h = 0; h < l.n_v; h++) {
			double a =
				(double)p.a[t * p.ab_stride + h] + (double)l.dt_bias[h];
			double g = -exp((double)l.a_log[h]) * log1p(exp(a));
			double b = 1 / (1 + exp(-(double)p.b[t * p.ab_stride + h]));

			assert_true(
				fabs((double)p.g[t * l.n_v + h] - g) <= 1e-6 * fabs(g));
			assert_true(fabs((double)p.beta[t * l.n_v + h] - b) <= 1e-6 * b);
		}
	}
	for (uint32_t q = 0; q < 5; q++) {
		for (uint32_t i = 0; i < l.conv_n; i++) {
			uint32_t from = i % 3 + s.rows[q]; /* in [old three | rows] */
			uint64_t row = from < 3 ? 0 : s.first[q] + from - 3;
			float x = p.qkv[row * p.qkv_stride + i / 3];
			double want = from < 3 ? before[q * l.conv_n + i / 3 * 3 + from]
					       : (double)x;

			if (from >= 3 && conv_dtype == DT_BF16)
				want = (double)from_bf16(to_bf16(x));
			assert_true(conv_at(&l, s.slot[q], i) == want);
		}
	}
	mem_free(u);
	mem_free(before);
	free_pass(&l, &p);
	free_layer(&l);
}

static void prep_matches_double_precision(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v, OP_gdn_prep)
	{
		check_prep(v, DT_F32, 1.0f);
		check_prep(v, DT_BF16, 1.0f);
		check_prep(v, DT_F32, 5e-4f);
	}
}

static void softplus_is_the_identity_above_20(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v, OP_gdn_prep)
	{
		struct layer l = make_layer(1, 3, 8, 8, DT_F32);
		struct pass p = make_pass(&l, 1);
		struct test_seqs s;

		seqs_init(&s, 1, 16);
		s.rows[0] = 1;
		memcpy(p.a, (float[3]){20.5f, 1000.0f, -100.0f}, 12);
		for (int h = 0; h < 3; h++)
			l.a_log[h] = l.dt_bias[h] = 0.0f;
		prepare(v, &l, &p, seqs_pass(&s), 0);
		assert_true(p.g[0] == -20.5f && p.g[1] == -1000.0f);
		assert_true(p.g[2] <= 0.0f && p.g[2] > -1e-40f);
		free_pass(&l, &p);
		free_layer(&l);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prep_matches_double_precision),
		cmocka_unit_test(softplus_is_the_identity_above_20),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
