/* sample: greedy and its ties, every restriction against a reference that sorts, the
 * distribution of draws, masks, NaN, and a vocabulary of release size. */
#include "kernel_test.h"

/* One row through a variant; returns the token. */
static uint32_t sample_one(const struct variant *v, const float *logits, uint32_t vocab,
	uint32_t n_valid, struct sample_row row, float *logprob)
{
	struct kernel_shapes shapes = {.vocab = vocab, .n_valid = n_valid, .out_max = 1};
	uint64_t bytes = v->work_bytes(&shapes);
	uint32_t token = UINT32_MAX, flags = UINT32_MAX;
	struct op_sample op = {.token = &token,
		.logprob = logprob,
		.flags = &flags,
		.logits = logits,
		.rows = &row,
		.n = 1,
		.vocab = vocab,
		.n_valid = n_valid,
		.work = mem_alloc(bytes, 1),
		.work_bytes = bytes};

	RUN(sample, v, &op);
	assert_int_equal(flags, 0);
	assert_true(token < n_valid);
	mem_free(op.work);
	return token;
}

struct entry {
	double p;
	uint32_t id;
};

static int descending(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->p != y->p)
		return x->p > y->p ? -1 : 1;
	return x->id < y->id ? -1 : 1;
}

/* The tokens that may be drawn, in order, with their probabilities; returns how many. */
static uint32_t reference(
	const float *logits, uint32_t n, const struct sample_row *row, struct entry *out)
{
	double largest = -1e300, total = 0, sum = 0;
	uint32_t kept = row->top_k > 0 && row->top_k < n ? row->top_k : n;
	uint32_t m = 0;

	for (uint32_t i = 0; i < n; i++)
		largest = fmax(largest, (double)logits[i]);
	for (uint32_t i = 0; i < n; i++)
		out[i] = (struct entry){
			exp(((double)logits[i] - largest) / (double)row->temperature), i};
	qsort(out, n, sizeof(*out), descending);
	for (uint32_t i = 0; i < kept; i++)
		total += out[i].p;
	while (m < kept &&
		(m == 0 || row->top_p >= 1.0f || sum < (double)row->top_p * total) &&
		(m == 0 || out[m].p >= (double)row->min_p * out[0].p))
		sum += out[m++].p;
	for (uint32_t i = 0; i < m; i++)
		out[i].p /= sum;
	return m;
}

static uint32_t reference_token(
	const struct entry *set, uint32_t m, const struct sample_row *row)
{
	double u = (double)rng_token_uniform(row->seed, row->choice, row->position);
	double sum = 0;

	for (uint32_t i = 0; i < m; i++) {
		sum += set[i].p;
		if (sum >= u)
			return set[i].id;
	}
	return set[m - 1].id;
}

static void greedy_takes_the_largest_and_the_lowest_of_equals(void **state)
{
	float logits[9] = {1, -3, 7.5f, 2, 7.5f, 7.5f, -1, 99, 99}, logprob;
	double sum = 0;

	(void)state;
	for (int i = 0; i < 7; i++)
		sum += exp((double)logits[i] - 7.5);
	FOR_EACH_VARIANT(v, OP_sample)
	{
		struct sample_row row = {.top_p = 1, .seed = 5};

		assert_int_equal(sample_one(v, logits, 9, 7, row, &logprob), 2);
		assert_true(fabs((double)logprob + log(sum)) < 1e-6);
		assert_int_equal(sample_one(v, logits, 9, 9, row, &logprob), 7);
		assert_int_equal(sample_one(v, logits, 9, 1, row, &logprob), 0);
		assert_true(logprob == 0.0f);
	}
}

static void draws_equal_those_of_a_sorted_reference(void **state)
{
	enum { V = 300, N = 280 };
	static const struct sample_row kinds[] = {
		{.temperature = 1, .top_p = 1},
		{.temperature = 0.5f, .top_p = 1},
		{.temperature = 3, .top_p = 1},
		{.temperature = 1, .top_p = 1, .top_k = 1},
		{.temperature = 1, .top_p = 1, .top_k = 7},
		{.temperature = 1, .top_p = 1, .top_k = 5000},
		{.temperature = 1, .top_p = 0.5f},
		{.temperature = 1, .top_p = 0.0f},
		{.temperature = 2, .top_p = 0.95f, .top_k = 50},
		{.temperature = 1, .top_p = 1, .min_p = 0.1f},
		{.temperature = 1, .top_p = 1, .min_p = 1},
		{.temperature = 1.3f, .top_p = 0.9f, .min_p = 0.02f, .top_k = 20},
		{.temperature = 1e-4f, .top_p = 1},
	};
	struct entry *set = mem_alloc(V, sizeof(*set));
	float logits[V];

	(void)state;
	FOR_EACH_VARIANT(v, OP_sample)
	{
		for (uint32_t i = 0; i < COUNT(kinds) * 200; i++) {
			struct sample_row row = kinds[i % COUNT(kinds)];
			uint32_t m, token, want;
			double sum = 0, largest = -1e300;
			float logprob;

			row.seed = i;
			row.position = i * 7;
			row.choice = i % 3;
			/* Quarters, so that ties happen at every rank. */
			for (uint32_t j = 0; j < V; j++)
				logits[j] =
					j < N ? (float)random_below(40) * 0.25f : 50.0f;
			m = reference(logits, N, &row, set);
			want = reference_token(set, m, &row);
			token = sample_one(v, logits, V, N, row, &logprob);
			assert_int_equal(token, want);
			for (uint32_t j = 0; j < N; j++)
				largest = fmax(largest, (double)logits[j]);
			for (uint32_t j = 0; j < N; j++)
				sum += exp((double)logits[j] - largest);
			assert_true(
				fabs((double)logprob - ((double)logits[token] - largest -
							       log(sum))) < 1e-5);
		}
	}
	mem_free(set);
}

/* Two of four equal tokens reach a top-p of one half exactly, and no third is taken. */
static void top_p_stops_where_it_is_reached(void **state)
{
	static const float logits[4] = {1, 1, 1, 1};
	bool seen[4] = {false};
	float logprob;

	(void)state;
	FOR_EACH_VARIANT(v, OP_sample)
	{
		for (uint32_t i = 0; i < 200; i++) {
			struct sample_row row = {.temperature = 1,
				.top_p = 0.5f,
				.seed = 9,
				.position = i};

			seen[sample_one(v, logits, 4, 4, row, &logprob)] = true;
		}
		assert_true(seen[0] && seen[1] && !seen[2] && !seen[3]);
	}
}

/* 20,000 draws at consecutive positions against the analytic probabilities. Seeds are
 * fixed, so this is one number, not a lottery; 1e-3 quantile for 11 degrees: 31.3. */
static void draws_follow_the_distribution(void **state)
{
	enum { V = 16, K = 12, DRAWS = 20000 };
	struct entry set[V];
	float logits[V], logprob;

	(void)state;
	for (int i = 0; i < V; i++)
		logits[i] = (float)((i * 7) % 16) * 0.3f;
	FOR_EACH_VARIANT(v, OP_sample)
	{
		for (uint64_t seed = 1; seed <= 3; seed++) {
			struct sample_row row = {.temperature = 0.8f,
				.top_p = 1,
				.top_k = K,
				.seed = seed};
			uint32_t count[V] = {0}, m = reference(logits, V, &row, set);
			double chi = 0;

			assert_int_equal(m, K);
			for (row.position = 0; row.position < DRAWS; row.position++)
				count[sample_one(v, logits, V, V, row, &logprob)]++;
			for (uint32_t i = 0; i < m; i++) {
				double expected = set[i].p * DRAWS;
				double d = count[set[i].id] - expected;

				chi += d * d / expected;
				count[set[i].id] = 0;
			}
			for (uint32_t i = 0; i < V; i++)
				assert_int_equal(count[i], 0);
			assert_true(chi < 31.3);
		}
	}
}

static void rows_with_a_bad_logit_are_flagged_alone(void **state)
{
	static const float bad[3] = {NAN, INFINITY, -INFINITY};
	float logits[4][8] = {{0}}, logprob[4];
	uint32_t token[4], flags[4], work[16];
	struct sample_row rows[4] = {{.temperature = 0, .top_p = 1},
		{.temperature = 1, .top_p = 1}, {.temperature = 0, .top_p = 1},
		{.temperature = 1, .top_p = 0.9f}};
	struct op_sample op = {.token = token,
		.logprob = logprob,
		.flags = flags,
		.logits = logits[0],
		.rows = rows,
		.n = 4,
		.vocab = 8,
		.n_valid = 6,
		.work = work,
		.work_bytes = sizeof(work)};

	(void)state;
	FOR_EACH_VARIANT(v, OP_sample)
	{
		for (uint32_t i = 0; i < 3; i++) {
			memset(logits, 0, sizeof(logits));
			logits[1][5] = bad[i];
			logits[2][0] = bad[i];
			/* Beyond n_valid nothing matters. */
			logits[0][6] = logits[3][7] = bad[i];
			RUN(sample, v, &op);
			assert_memory_equal(flags,
				((uint32_t[4]){0, SAMPLE_NAN, SAMPLE_NAN, 0}),
				sizeof(flags));
			assert_int_equal(token[0], 0);
			assert_true(token[3] < 6);
		}
	}
}

static void impossible_arguments_are_refused(void **state)
{
	float logits[8] = {0}, logprob;
	uint32_t token, flags, work[16];
	struct sample_row row = {.top_p = 1};
	struct op_sample op = {.token = &token,
		.logprob = &logprob,
		.flags = &flags,
		.logits = logits,
		.rows = &row,
		.n = 1,
		.vocab = 8,
		.work = work,
		.work_bytes = sizeof(work)};
	struct err err;

	(void)state;
	FOR_EACH_VARIANT(v, OP_sample)
	{
		op.n_valid = 0;
		assert_int_equal(run_sample(v, &op, &err), ST_INVALID);
		op.n_valid = 9;
		assert_int_equal(run_sample(v, &op, &err), ST_INVALID);
		assert_non_null(strstr(err.text, "9 valid tokens of a vocabulary of 8"));
		op.n_valid = 8;
		op.work_bytes = 31;
		assert_int_equal(run_sample(v, &op, &err), ST_LIMIT);
		assert_non_null(strstr(err.text, "31 bytes of scratch"));
	}
}

static void release_vocabulary(void **state)
{
	enum { V = 248320, N = 248077 };
	static const struct sample_row kinds[] = {
		{.temperature = 1, .top_p = 1, .seed = 3},
		{.temperature = 0.6f, .top_p = 0.95f, .top_k = 20, .seed = 4},
		{.temperature = 1, .top_p = 0.99f, .seed = 5},
		{.temperature = 1, .top_p = 1, .min_p = 0.01f, .seed = 6}};
	float *logits = mem_alloc(V, sizeof(*logits));
	struct entry *set = mem_alloc(V, sizeof(*set));

	(void)state;
	for (uint32_t i = 0; i < V; i++)
		logits[i] = i < N ? random_uniform(-8, 8) : 1000.0f;
	FOR_EACH_VARIANT(v, OP_sample)
	{
		for (size_t i = 0; i < COUNT(kinds); i++) {
			uint32_t m = reference(logits, N, &kinds[i], set);
			float logprob;

			assert_int_equal(sample_one(v, logits, V, N, kinds[i], &logprob),
				reference_token(set, m, &kinds[i]));
		}
	}
	mem_free(set);
	mem_free(logits);
}

/* The draw is that from the allowed tokens alone; the logprob is of all. */
static void a_token_without_its_bit_is_not_drawn(void **state)
{
	enum { V = 300, N = 280, WORDS = 10 };
	static const struct sample_row kinds[] = {
		{.temperature = 0, .top_p = 1},
		{.temperature = 1, .top_p = 1},
		{.temperature = 2, .top_p = 0.9f, .top_k = 7},
		{.temperature = 1, .top_p = 1, .min_p = 0.2f},
	};
	float logits[V], work[2 * V], allowed[V], logprob, want;
	uint32_t masks[2][WORDS], token, flags;
	struct entry set[V];

	(void)state;
	for (uint32_t turn = 0; turn < 200; turn++) {
		struct sample_row row = kinds[turn % COUNT(kinds)];
		struct op_sample op = {&token, &logprob, &flags, .logits = logits,
			.rows = &row, .masks = &masks[0][0], .mask_words = WORDS, .n = 1,
			.vocab = V, .n_valid = N, .work = work,
			.work_bytes = sizeof(work)};
		uint32_t m;

		row.seed = turn;
		row.mask = 2;
		memset(masks, 0xFF, sizeof(masks));
		for (uint32_t v = 0; v < V; v++) {
			bool in = v == turn || random_uniform(0, 1) < 0.1f;

			logits[v] = random_uniform(-3, 3);
			allowed[v] = in ? logits[v] : -INFINITY;
			masks[1][v / 32] &= ~((uint32_t)!in << v % 32);
		}
		row.temperature = MAX(row.temperature, 1e-6f);
		m = reference(allowed, N, &row, set);
		want = (float)set[0].id;
		row.temperature = kinds[turn % COUNT(kinds)].temperature;
		FOR_EACH_VARIANT(v, OP_sample)
		{
			RUN(sample, v, &op);
			assert_int_equal(flags, 0);
			assert_int_equal(token, row.temperature > 0
							? reference_token(set, m, &row)
							: (uint32_t)want);
			assert_true(allowed[token] == logits[token] && logprob < 0);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(greedy_takes_the_largest_and_the_lowest_of_equals),
		cmocka_unit_test(draws_equal_those_of_a_sorted_reference),
		cmocka_unit_test(top_p_stops_where_it_is_reached),
		cmocka_unit_test(draws_follow_the_distribution),
		cmocka_unit_test(rows_with_a_bad_logit_are_flagged_alone),
		cmocka_unit_test(impossible_arguments_are_refused),
		cmocka_unit_test(release_vocabulary),
		cmocka_unit_test(a_token_without_its_bit_is_not_drawn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
