/* sample: what changes the logits of a draw (bias, bans, penalties) and the counts behind
 * it, against a reference of twenty lines; the likeliest tokens; scores of given ones. */
#include "kernel_test.h"

enum { V = 200, N = 190, LINES = 3 };

struct bench {
	float logits[V], logprob, top_logprob[SAMPLE_TOP_MAX];
	uint32_t token, flags, top_id[SAMPLE_TOP_MAX];
	struct sample_edit edits[8];
	uint16_t counts[LINES][V];
	struct sample_row row;
	struct op_sample op;
};

static struct bench *bench_create(const struct variant *v)
{
	struct bench *b = mem_alloc(1, sizeof(*b));
	struct kernel_shapes shapes = {.vocab = V, .n_valid = N, .out_max = 1};

	b->row = (struct sample_row){.top_p = 1};
	b->op = (struct op_sample){.token = &b->token,
		.logprob = &b->logprob,
		.flags = &b->flags,
		.top_id = b->top_id,
		.top_logprob = b->top_logprob,
		.logits = b->logits,
		.rows = &b->row,
		.edits = b->edits,
		.counts = b->counts[0],
		.n = 1,
		.vocab = V,
		.n_valid = N,
		.work_bytes = v->work_bytes(&shapes)};
	b->op.work = mem_alloc(b->op.work_bytes, 1);
	for (uint32_t i = 0; i < V; i++)
		b->logits[i] = i < N ? random_uniform(-4, 4) : 99.0f;
	return b;
}

static void bench_destroy(struct bench *b)
{
	mem_free(b->op.work);
	mem_free(b);
}

static uint32_t run(const struct variant *v, struct bench *b)
{
	RUN(sample, v, &b->op);
	assert_int_equal(b->flags, 0);
	return b->token;
}

/* The definition: logits of the draw after bias, bans and penalties. prompt and made are
 * what the counts stand for. */
static void reference(const struct bench *b, const uint32_t *prompt, uint32_t n_prompt,
	const uint32_t *made, uint32_t n_made, float *x)
{
	const struct sample_row *r = &b->row;

	memcpy(x, b->logits, sizeof(b->logits));
	for (uint32_t i = 0; i < r->n_bias; i++)
		x[b->edits[i].id] += b->edits[i].add;
	for (uint32_t i = 0; i < r->n_bans && r->position < r->ban_until; i++)
		x[b->edits[r->n_bias + i].id] = -INFINITY;
	for (uint32_t t = 0; t < N; t++) {
		uint32_t times = 0;
		bool seen = false;

		for (uint32_t i = 0; i < n_prompt; i++)
			seen |= prompt[i] == t;
		for (uint32_t i = 0; i < n_made; i++)
			times += made[i] == t;
		if ((seen || times > 0) && r->repetition > 0.0f)
			x[t] = x[t] > 0.0f ? x[t] / r->repetition : x[t] * r->repetition;
		x[t] -= r->frequency * (float)times;
		x[t] -= times > 0 ? r->presence : 0.0f;
	}
}

static uint32_t largest(const float *x)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < N; i++)
		if (x[i] > x[best])
			best = i;
	return best;
}

static double logprob_of(const float *x, uint32_t token)
{
	double sum = 0;

	for (uint32_t i = 0; i < N; i++)
		sum += exp((double)x[i]);
	return (double)x[token] - log(sum);
}

/* A greedy sequence of 60 tokens that repeats itself unless a penalty forbids. */
static void a_sequence_equals_the_reference_at_every_step(void **state)
{
	static const struct sample_row kinds[] = {
		{.presence = 1.5f},
		{.frequency = 0.3f},
		{.repetition = 1.2f},
		{.repetition = 0.8f},
		{.presence = -2, .frequency = 0.5f},
		{.presence = 0.5f, .frequency = 0.2f, .repetition = 1.5f},
		{.presence = 0.5f,
			.repetition = 1.1f,
			.n_bias = 3,
			.n_bans = 2,
			.ban_until = 30},
	};
	static const uint32_t prompt[] = {3, 17, 17, 80, 189};
	uint32_t made[60], n_different = 0;
	float x[V];

	(void)state;
	FOR_EACH_VARIANT(v, OP_sample)
	{
		for (size_t k = 0; k < COUNT(kinds); k++) {
			struct bench *b = bench_create(v);

			b->row = kinds[k];
			b->row.top_p = 1;
			b->row.line = 2;
			b->row.ask = SAMPLE_COUNT;
			b->edits[0] = (struct sample_edit){12, 2.5f};
			b->edits[1] = (struct sample_edit){13, -3};
			b->edits[2] = (struct sample_edit){12, 0.5f};
			b->edits[3] = (struct sample_edit){largest(b->logits), 0};
			b->edits[4] = (struct sample_edit){3, 0};
			for (uint32_t i = 0; i < COUNT(prompt); i++)
				b->counts[1][prompt[i]] = SAMPLE_IN_PROMPT;
			for (uint32_t i = 0; i < COUNT(made); i++) {
				b->row.position = i;
				reference(b, prompt, COUNT(prompt), made, i, x);
				made[i] = run(v, b);
				assert_int_equal(made[i], largest(x));
				n_different += i > 0 && made[i] != made[i - 1];
				/* Of the logits as they came. */
				assert_true(
					fabs((double)b->logprob -
						logprob_of(b->logits, made[i])) < 1e-5);
			}
			/* Nobody else's line was touched. */
			for (uint32_t i = 0; i < V; i++)
				assert_int_equal(b->counts[0][i] | b->counts[2][i], 0);
			bench_destroy(b);
		}
	}
	assert_true(n_different > 100); /* some penalty did something */
}

static void draws_follow_the_changed_distribution(void **state)
{
	enum { DRAWS = 20000, KEPT = 12 };
	static const uint32_t prompt[] = {4, 5, 6}, made[] = {7, 7, 8};

	(void)state;
	FOR_EACH_VARIANT(v, OP_sample)
	{
		struct bench *b = bench_create(v);
		uint32_t seen[V] = {0};
		double sum = 0, chi = 0;
		float x[V];

		for (uint32_t i = 0; i < N; i++)
			b->logits[i] = i < KEPT ? 0.2f * (float)i : -90.0f;
		b->row = (struct sample_row){.temperature = 0.8f,
			.top_p = 1,
			.seed = 11,
			.presence = 0.6f,
			.frequency = 0.4f,
			.repetition = 1.3f,
			.line = 1,
			.n_bias = 1,
			.n_bans = 1,
			.ban_until = UINT32_MAX};
		b->edits[0] = (struct sample_edit){0, 1.0f};
		b->edits[1] = (struct sample_edit){11, 0};
		for (uint32_t i = 0; i < COUNT(prompt); i++)
			b->counts[0][prompt[i]] = SAMPLE_IN_PROMPT;
		for (uint32_t i = 0; i < COUNT(made); i++)
			b->counts[0][made[i]]++;
		reference(b, prompt, COUNT(prompt), made, COUNT(made), x);
		for (uint32_t i = 0; i < KEPT; i++)
			sum += exp((double)x[i] / 0.8);
		for (uint32_t i = 0; i < DRAWS; i++) {
			b->row.position = i;
			seen[run(v, b)]++;
		}
		for (uint32_t i = 0; i < KEPT; i++) {
			double want = DRAWS * exp((double)x[i] / 0.8) / sum;
			double d = seen[i] - want;

			chi += want > 0 ? d * d / want : 0;
		}
		assert_int_equal(seen[11], 0);
		assert_true(chi < 29.6); /* 10 degrees of freedom, p = 0.001 */
		/* Without SAMPLE_COUNT nothing is counted. */
		assert_int_equal(b->counts[0][7], 2);
		assert_int_equal(b->counts[0][0], 0);
		bench_destroy(b);
	}
}

/* They share the draw evenly, however far beyond a float the division goes. */
static void a_tiny_repetition_leaves_a_distribution(void **state)
{
	static const float tiny[] = {1e-38f, 1e-40f, 1e-45f};

	(void)state;
	FOR_EACH_VARIANT(v, OP_sample)
	{
		for (size_t k = 0; k < COUNT(tiny); k++) {
			struct bench *b = bench_create(v);
			uint32_t seen[V] = {0};

			b->logits[20] = 3.5f;
			b->logits[70] = 3.9f;
			b->logits[71] = -2; /* seen, and not likelier for it */
			b->counts[0][20] = b->counts[0][70] = b->counts[0][71] =
				SAMPLE_IN_PROMPT;
			b->row = (struct sample_row){.temperature = 1,
				.top_p = 1,
				.seed = 5,
				.repetition = tiny[k],
				.presence = -2,
				.line = 1};
			for (uint32_t i = 0; i < 1000; i++) {
				b->row.position = i;
				seen[run(v, b)]++;
			}
			assert_int_equal(seen[20] + seen[70], 1000);
			assert_in_range(seen[20], 400, 600);
			bench_destroy(b);
		}
	}
}

static void counts_do_not_run_over_into_the_prompt_flag(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v, OP_sample)
	{
		struct bench *b = bench_create(v);

		b->logits[9] = 50;
		b->row = (struct sample_row){.top_p = 1, .line = 3, .ask = SAMPLE_COUNT};
		b->counts[2][9] = SAMPLE_TIMES - 1;
		for (uint32_t i = 0; i < 3; i++) {
			assert_int_equal(run(v, b), 9);
			assert_int_equal(b->counts[2][9], SAMPLE_TIMES);
		}
		bench_destroy(b);
	}
}

static void the_likeliest_are_listed_in_order_and_ties_by_id(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v, OP_sample)
	{
		struct bench *b = bench_create(v);
		uint32_t last = 0;

		b->logits[150] = b->logits[20] = b->logits[60] = 7;
		b->row = (struct sample_row){.top_p = 1,
			.n_top = SAMPLE_TOP_MAX,
			.temperature = 1,
			.seed = 3,
			.n_bans = 1,
			.ban_until = 1};
		b->edits[0].id = 20; /* changes the draw, not what is listed */
		assert_int_not_equal(run(v, b), 20);
		assert_int_equal(b->top_id[0], 20);
		assert_int_equal(b->top_id[1], 60);
		assert_int_equal(b->top_id[2], 150);
		for (uint32_t k = 0; k < SAMPLE_TOP_MAX; k++) {
			uint32_t larger = 0;

			for (uint32_t i = 0; i < N; i++)
				larger += b->logits[i] > b->logits[b->top_id[k]];
			assert_true(larger <= k && (k < 3 || larger == k));
			assert_true(fabs((double)b->top_logprob[k] -
					    logprob_of(b->logits, b->top_id[k])) < 1e-5);
			last = b->top_id[k];
		}
		assert_true(last < N);
		bench_destroy(b);
	}
}

static void a_given_token_is_scored_and_nothing_is_drawn(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v, OP_sample)
	{
		struct bench *b = bench_create(v);

		for (uint32_t t = 0; t < N; t += 21) {
			b->row = (struct sample_row){
				.top_p = 1, .given = t, .ask = SAMPLE_GIVEN, .n_top = 1};
			assert_int_equal(run(v, b), t);
			assert_true(fabs((double)b->logprob - logprob_of(b->logits, t)) <
				    1e-5);
			assert_int_equal(b->top_id[0], largest(b->logits));
		}
		bench_destroy(b);
	}
}

/* With all but one token banned there is one answer, whatever the number drawn. */
static void what_is_banned_is_never_drawn(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v, OP_sample)
	{
		struct bench *b = bench_create(v);
		struct sample_edit *bans = mem_alloc(N, sizeof(*bans));

		b->op.edits = bans;
		for (uint32_t i = 0, n = 0; i < N; i++)
			if (i != 77)
				bans[n++].id = i;
		b->row = (struct sample_row){.temperature = 2,
			.top_p = 1,
			.n_bans = N - 1,
			.ban_until = UINT32_MAX};
		for (uint32_t i = 0; i < 3000; i++) {
			b->row.seed = i;
			assert_int_equal(run(v, b), 77);
		}
		mem_free(bans);
		bench_destroy(b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sequence_equals_the_reference_at_every_step),
		cmocka_unit_test(draws_follow_the_changed_distribution),
		cmocka_unit_test(a_tiny_repetition_leaves_a_distribution),
		cmocka_unit_test(counts_do_not_run_over_into_the_prompt_flag),
		cmocka_unit_test(the_likeliest_are_listed_in_order_and_ties_by_id),
		cmocka_unit_test(a_given_token_is_scored_and_nothing_is_drawn),
		cmocka_unit_test(what_is_banned_is_never_drawn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
