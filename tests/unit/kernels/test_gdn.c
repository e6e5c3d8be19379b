/* gdn_prefill and gdn_decode: the model family's check vector, double precision, and,
 * together with gdn_prep, bits across ways to cut a sequence into passes. */
#include "gdn_test.h"

static struct op_gdn_prefill rule_of(
	const struct layer *l, const struct pass *p, struct op_rows rows, uint64_t t)
{
	return (struct op_gdn_prefill){.y = p->y + t * l->n_v * l->dv,
		.q = p->q + t * l->n_k * l->dk,
		.k = p->k + t * l->n_k * l->dk,
		.v = p->v + t * l->n_v * l->dv,
		.g = p->g + t * l->n_v,
		.beta = p->beta + t * l->n_v,
		.z = p->z + t * p->z_stride,
		.gain = l->gain,
		.rows = rows,
		.state = {.rec = l->rec, .slot_bytes = l->rec_n * sizeof(float)},
		.n_k = l->n_k,
		.n_v = l->n_v,
		.dk = l->dk,
		.dv = l->dv,
		.z_stride = p->z_stride,
		.sigmoid_gate = l->sigmoid_gate,
		.eps = l->eps};
}

static void apply_rule(const struct variant *v, const struct layer *l,
	const struct pass *p, struct op_rows rows, uint64_t t)
{
	struct op_gdn_prefill op = rule_of(l, p, rows, t);

	assert_ptr_equal(v->work_bytes, no_work);
	if (v->op == OP_gdn_prefill)
		RUN(gdn_prefill, v, &op);
	else
		RUN(gdn_decode, v, &op);
}

/* The published vector, in heads of `dk` x `dv` of which 2 x 3 are in use. The gated norm
 * is made transparent: an enormous eps, whose root the gain undoes, and a gate of 1. */
static void check_vector(const struct variant *v, uint32_t dk, uint32_t dv)
{
	static const double q_in[2][2] = {{1, 2}, {0.5, -1}},
			    k_in[2][2] = {{2, 1}, {-1, 1}};
	static const float v_in[2][3] = {{1, -2, .5f}, {3, 0, 1}};
	static const float a_in[2] = {.3f, -.7f}, b_in[2] = {.2f, 1};
	static const double g[2] = {-1.5053077, -0.7212957},
			    beta[2] = {0.5498340, 0.7310586};
	static const double o[2][3] = {
		{0.3110330, -0.6220660, 0.1555165}, {-1.5126770, 0.0829020, -0.5111342}};
	static const double s_out[2][3] = {
		{-1.3554340, -0.3907500, -0.4192488}, {1.7140363, -0.3264546, 0.5985500}};
	struct layer l = make_layer(1, 1, dk, dv, DT_F32);
	struct pass p = make_pass(&l, 2);
	struct test_seqs s;
	struct op_rows rows;

	seqs_init(&s, 1, 16);
	s.rows[0] = 2;
	rows = seqs_pass(&s);
	l.a_log[0] = 0.5f;
	l.dt_bias[0] = 0.1f;
	l.eps = 1e12f;
	l.sigmoid_gate = true;
	for (uint32_t i = 0; i < dv; i++)
		l.gain[i] = 1e6f;
	for (uint32_t t = 0; t < 2; t++) {
		p.a[t * p.ab_stride] = a_in[t];
		p.b[t * p.ab_stride] = b_in[t];
	}
	prepare(test_variant(OP_gdn_prep, 0), &l, &p, rows, 0);
	for (uint32_t t = 0; t < 2; t++) {
		double qq = q_in[t][0] * q_in[t][0] + q_in[t][1] * q_in[t][1] + 1e-6;
		double kk = k_in[t][0] * k_in[t][0] + k_in[t][1] * k_in[t][1] + 1e-6;

		assert_true(fabs((double)p.g[t] - g[t]) < 2e-7);
		assert_true(fabs((double)p.beta[t] - beta[t]) < 1e-7);
		for (uint32_t i = 0; i < dk; i++) {
			p.q[t * dk + i] =
				i < 2 ? (float)(q_in[t][i] / sqrt(qq) * sqrt(0.5)) : 0.0f;
			p.k[t * dk + i] = i < 2 ? (float)(k_in[t][i] / sqrt(kk)) : 0.0f;
		}
		for (uint32_t i = 0; i < dv; i++) {
			p.v[t * dv + i] = i < 3 ? v_in[t][i] : 0.0f;
			p.z[t * p.z_stride + i] = 80.0f;
		}
	}
	apply_rule(v, &l, &p, rows, 0);
	for (uint32_t t = 0; t < 2; t++) {
		for (uint32_t i = 0; i < dv; i++)
			assert_true(fabs((double)p.y[t * dv + i] -
					    (i < 3 ? o[t][i] : 0)) < 5e-7);
	}
	for (uint32_t i = 0; i < dv; i++) {
		for (uint32_t j = 0; j < dk; j++) {
			double have = (double)l.rec[s.slot[0] * l.rec_n + i * dk + j];

			assert_true(
				fabs(have - (i < 3 && j < 2 ? s_out[j][i] : 0)) < 5e-7);
		}
	}
	free_pass(&l, &p);
	free_layer(&l);
}

static void rule_gives_the_check_vector(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v, OP_gdn_prefill)
	{
		if (v->oracle)
			check_vector(v, 2, 3);
		check_vector(v, 8, 8);
	}
}

static void rule_double(const struct layer *l, const struct pass *p, uint64_t t,
	uint32_t h, double *state, double *y)
{
	uint64_t key = (t * l->n_k + h / (l->n_v / l->n_k)) * l->dk;
	double squares = 0;

	for (uint32_t i = 0; i < l->dv; i++) {
		double *row = state + i * l->dk, memory = 0, delta;

		for (uint32_t j = 0; j < l->dk; j++) {
			row[j] *= exp((double)p->g[t * l->n_v + h]);
			memory += row[j] * (double)p->k[key + j];
		}
		delta = (double)p->beta[t * l->n_v + h] *
			((double)p->v[(t * l->n_v + h) * l->dv + i] - memory);
		y[i] = 0;
		for (uint32_t j = 0; j < l->dk; j++) {
			row[j] += delta * (double)p->k[key + j];
			y[i] += row[j] * (double)p->q[key + j];
		}
		squares += y[i] * y[i];
	}
	for (uint32_t i = 0; i < l->dv; i++) {
		double z = (double)p->z[t * p->z_stride + h * l->dv + i];

		y[i] *= (double)l->gain[i] / sqrt(squares / l->dv + (double)l->eps);
		y[i] *= (l->sigmoid_gate ? 1 : z) / (1 + exp(-z));
	}
}

static void check_rule(
	const struct variant *v, const uint32_t *rows_of, bool sigmoid_gate)
{
	struct layer l = make_layer(2, 6, 32, 24, DT_F32);
	uint64_t head_n = (uint64_t)l.dv * l.dk;
	double *want = mem_alloc(l.rec_n, sizeof(*want));
	struct test_seqs s;
	struct op_rows rows;
	struct pass p;
	double y[24];

	l.sigmoid_gate = sigmoid_gate;
	seqs_init(&s, 4, 16);
	memcpy(s.rows, rows_of, 16);
	rows = seqs_pass(&s);
	p = make_pass(&l, rows.n_rows);
	prepare(test_variant(OP_gdn_prep, 0), &l, &p, rows, 0);
	for (uint64_t i = 0; i < (TEST_SEQS_MAX + 1) * l.rec_n; i++)
		l.rec[i] = random_uniform(-0.3f, 0.3f);
	float *start = mem_alloc((TEST_SEQS_MAX + 1) * l.rec_n, sizeof(float));

	memcpy(start, l.rec, (TEST_SEQS_MAX + 1) * l.rec_n * sizeof(float));
	apply_rule(v, &l, &p, rows, 0);
	for (uint32_t q = 0; q < s.n_seqs; q++) {
		for (uint64_t i = 0; i < l.rec_n; i++)
			want[i] = (double)start[s.slot[q] * l.rec_n + i];
		for (uint32_t t = s.first[q]; t < s.first[q + 1]; t++) {
			for (uint32_t h = 0; h < l.n_v; h++) {
				rule_double(&l, &p, t, h, want + h * head_n, y);
				/* Sums over DK, a decaying sum over the tokens, and k .
				 * q, which may cancel: ten times 2^-24 sqrt(DK). */
				assert_close(p.y + (t * l.n_v + h) * l.dv, l.dv, y, 1,
					l.dv, 1e-5);
			}
		}
		assert_close(l.rec + s.slot[q] * l.rec_n, l.dk, want, l.n_v * l.dv, l.dk,
			1e-5);
	}
	/* Slots that are not in the pass. */
	assert_same_bits(start, l.rec, l.rec_n * (TEST_SEQS_MAX - 3));
	mem_free(start);
	mem_free(want);
	free_pass(&l, &p);
	free_layer(&l);
}

static void rule_matches_double_precision(void **state)
{
	static const uint32_t many[4] = {1, 70, 3, 130}, one[4] = {1, 1, 1, 1};

	(void)state;
	FOR_EACH_VARIANT(v, OP_gdn_prefill)
	{
		check_rule(v, many, false);
		check_rule(v, many, true);
	}
	FOR_EACH_VARIANT(v, OP_gdn_decode)
	check_rule(v, one, false);
}

/* One sequence of N tokens in chunks. */
#define N 150u
static void run_chunks(const struct variant *prep, const struct variant *rule,
	struct layer *l, struct pass *p, uint32_t chunk)
{
	struct test_seqs s;

	clear_state(l);
	memset(p->y, 0xFF, (uint64_t)N * l->n_v * l->dv * sizeof(float));
	seqs_init(&s, 1, 16);
	for (uint32_t t = 0; t < N; t += chunk) {
		struct op_rows rows;

		s.past[0] = t;
		s.rows[0] = MIN(chunk, N - t);
		rows = seqs_pass(&s);
		prepare(prep, l, p, rows, t);
		apply_rule(rule, l, p, rows, t);
	}
}

static void passes_may_be_cut_anywhere(void **state)
{
	static const uint32_t chunks[] = {1, 2, 3, 63, 64, 65};

	(void)state;
	for (uint32_t i = 0; test_variant(OP_gdn_prefill, i) != NULL; i++) {
		for (int dtype = DT_F32; dtype <= DT_BF16; dtype++) {
			struct layer l = make_layer(2, 4, 16, 16, (enum dtype)dtype);
			struct pass p = make_pass(&l, N);
			uint64_t n = (uint64_t)N * l.n_v * l.dv;
			uint64_t rec_n = (TEST_SEQS_MAX + 1) * l.rec_n;
			uint64_t conv_bytes = (TEST_SEQS_MAX + 1) * l.conv_n *
					      dtype_bytes(l.conv_dtype);
			float *y = mem_alloc(n, 4), *rec = mem_alloc(rec_n, 4);
			void *conv = mem_alloc(conv_bytes, 1);

			run_chunks(test_variant(OP_gdn_prep, i),
				test_variant(OP_gdn_prefill, i), &l, &p, N);
			memcpy(y, p.y, n * 4);
			memcpy(rec, l.rec, rec_n * 4);
			memcpy(conv, l.conv, conv_bytes);
			/* The last way is decode, one row at a time. */
			for (uint32_t c = 0; c <= COUNT(chunks); c++) {
				enum op_id op = c < COUNT(chunks) ? OP_gdn_prefill
								  : OP_gdn_decode;

				run_chunks(test_variant(OP_gdn_prep, i),
					test_variant(op, i), &l, &p,
					c < COUNT(chunks) ? chunks[c] : 1);
				assert_same_bits(y, p.y, n);
				assert_same_bits(rec, l.rec, rec_n);
				assert_memory_equal(conv, l.conv, conv_bytes);
			}
			mem_free(conv);
			mem_free(rec);
			mem_free(y);
			free_pass(&l, &p);
			free_layer(&l);
		}
	}
}

/* Three sequences in one decode pass, against each alone. */
static void sequences_do_not_depend_on_each_other(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v, OP_gdn_decode)
	{
		struct layer l = make_layer(1, 2, 16, 16, DT_F32);
		struct pass p = make_pass(&l, 3);
		float together[3 * 32],
			*rec = random_floats((TEST_SEQS_MAX + 1) * l.rec_n, 0.3f);
		struct test_seqs s;
		struct op_rows rows;

		seqs_init(&s, 3, 16);
		memcpy(s.rows, (uint32_t[3]){1, 1, 1}, 12);
		rows = seqs_pass(&s);
		prepare(test_variant(OP_gdn_prep, 0), &l, &p, rows, 0);
		memcpy(l.rec, rec, (TEST_SEQS_MAX + 1) * l.rec_n * 4);
		apply_rule(v, &l, &p, rows, 0);
		memcpy(together, p.y, sizeof(together));
		memcpy(l.rec, rec, (TEST_SEQS_MAX + 1) * l.rec_n * 4);
		for (uint32_t q = 0; q < 3; q++) {
			struct test_seqs alone;

			seqs_init(&alone, 1, 16);
			alone.slot[0] = s.slot[q];
			alone.rows[0] = 1;
			apply_rule(v, &l, &p, seqs_pass(&alone), q);
		}
		assert_same_bits(together, p.y, 3 * 32);
		mem_free(rec);
		free_pass(&l, &p);
		free_layer(&l);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rule_gives_the_check_vector),
		cmocka_unit_test(rule_matches_double_precision),
		cmocka_unit_test(passes_may_be_cut_anywhere),
		cmocka_unit_test(sequences_do_not_depend_on_each_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
