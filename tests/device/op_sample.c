/* sample: the case table of the self-check, then token by token against the CPU on many
 * kinds of logits, and the frequencies of tokens against their probabilities. */
#include "tests/device/op_test.h"

#include "common/base/attr.h"
#include "common/base/err.h"
#include "common/base/mem.h"
#include "kernels/cuda/backend_cuda.h"
#include "kernels/selfcheck.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct variant *variant_of(const struct variant *at, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (at[i].op == OP_sample && at[i].oracle)
			return &at[i];
	}
	printf("no oracle of sample\n");
	exit(1);
}

/* A case of `rows` rows whose logits and parameters are still to be set. */
struct draws {
	struct check_case *k;
	float *logits;
	struct sample_row *rows;
	uint32_t n, vocab, n_valid;
	uint64_t n_out;                  /* numbers that come back, and where: */
	uint64_t logprob, top_id, flags; /* counts follow the flags */
};

static struct draws make_draws(uint32_t rows, uint32_t vocab, uint32_t n_valid)
{
	struct kernel_shapes s = {
		.rows_max = rows, .out_max = rows, .vocab = vocab, .n_valid = n_valid};
	struct check_layout layout = {1, {0}, {rows}};
	struct check_limits limits = {
		.weight_elements = 1, .products = UINT64_MAX, .layout = &layout};
	struct draws d = {.n = rows, .vocab = vocab, .n_valid = n_valid};

	d.k = check_case_create(OP_sample, WF_F32, &s, 0, &limits);
	for (uint32_t i = 0; i < d.k->n_buffers; i++) {
		struct check_buffer *b = &d.k->buffers[i];

		b->skipped_row = CHECK_NO_ROW;
		if (strcmp(b->name, "logprob") == 0)
			d.logprob = d.n_out;
		if (strcmp(b->name, "top_id") == 0)
			d.top_id = d.n_out;
		if (strcmp(b->name, "flags") == 0)
			d.flags = d.n_out;
		d.n_out += b->role == CHECK_IN ? 0 : b->rows * b->stride;
		if (strcmp(b->name, "logits") == 0)
			d.logits = b->host;
		if (strcmp(b->name, "rows") == 0)
			d.rows = b->host;
	}
	return d;
}

/* All outputs, one after the other, tokens first. */
static void run_draws(struct op_test *t, struct draws *d, bool gpu, float *out)
{
	struct backend *b = gpu ? op_test_gpu(t) : op_test_cpu(t);
	const struct variant *v = gpu ? variant_of(cuda_variants, n_cuda_variants)
				      : variant_of(cpu_variants, n_cpu_variants);
	struct check_rig *rig = NULL;
	struct err err = {.text = ""};
	status st = selfcheck_open(&rig, b, d->k, v->work_bytes(&d->k->shapes), &err);

	if (st == ST_OK)
		st = selfcheck_run(rig, v, gpu, out, &err);
	selfcheck_close(rig);
	if (st != ST_OK) {
		printf("%s: %s\n", v->name, err.text);
		exit(1);
	}
}

enum logits_kind { NORMAL, PEAKED, FLAT, ROUNDED, EQUAL, WIDE, KINDS };

static void fill_row(struct check_case *k, enum logits_kind kind, float *at, uint32_t n)
{
	static const float span[KINDS] = {8, 6, 0.01f, 6, 0, 80};

	for (uint32_t i = 0; i < n; i++) {
		float v = check_uniform(k, -1, 1) + check_uniform(k, -1, 1);

		at[i] = v * span[kind];
		if (kind == ROUNDED)
			at[i] = rintf(at[i]) * 0.5f; /* many ties, both zeros */
	}
	if (kind == PEAKED)
		at[check_random(k) % n] = 20.0f;
}

static void set_row(struct check_case *k, uint32_t i, struct sample_row *row)
{
	static const float temperatures[] = {0, 0.3f, 0.7f, 1, 1.5f, 1e-3f};
	static const uint32_t top_ks[] = {0, 1, 20, 64, 1u << 30};
	static const float top_ps[] = {1, 0.95f, 0.8f, 0.5f, 0};
	static const float min_ps[] = {0, 0.05f, 0.5f, 1};
	static const float repetitions[] = {0, 0.5f, 1.3f, 2, 1e-38f, 1e-40f, 1e6f};

	*row = (struct sample_row){
		.temperature = temperatures[check_random(k) % COUNT(temperatures)],
		.top_k = top_ks[check_random(k) % COUNT(top_ks)],
		.top_p = top_ps[check_random(k) % COUNT(top_ps)],
		.min_p = min_ps[check_random(k) % COUNT(min_ps)],
		.seed = check_random(k),
		.choice = i % 3,
		.position = (uint32_t)check_random(k),
		.n_top = i % 4 == 0 ? 1 + i % 5 : 0,
	};
	if (i % 2 == 0)
		return;
	/* Every second row changes its logits; the case has two biases and a ban. */
	row->n_bias = (uint16_t)(i % 3);
	row->n_bans = row->n_bias == 2 ? 1 : 0;
	row->ban_until = row->position + i / 2 % 2;
	row->line = i + 1;
	row->presence = check_uniform(k, -1, 1);
	row->frequency = check_uniform(k, -1, 1);
	row->repetition = repetitions[check_random(k) % COUNT(repetitions)];
	row->ask = SAMPLE_COUNT | (i % 32 == 31 ? SAMPLE_GIVEN : 0);
	row->given = i % 7;
}

/* Tokens that stand before token a in the order of the draw. */
static uint32_t rank_of(const float *logits, uint32_t n, uint32_t a)
{
	uint32_t before = 0;

	for (uint32_t i = 0; i < n; i++)
		before += logits[i] > logits[a] || (logits[i] == logits[a] && i < a);
	return before;
}

static bool close_to(float a, float b)
{
	return fabsf(a - b) <= 1e-5f * MAX(1.0f, fabsf(b));
}

static bool same_top(
	const struct draws *d, uint32_t i, const float *gpu, const float *cpu)
{
	uint64_t id = d->top_id + (uint64_t)i * SAMPLE_TOP_MAX;
	uint64_t logprob = id + (uint64_t)d->n * SAMPLE_TOP_MAX;

	for (uint32_t k = 0; k < d->rows[i].n_top; k++) {
		if (gpu[id + k] != cpu[id + k] ||
			!close_to(gpu[logprob + k], cpu[logprob + k]))
			return false;
	}
	return true;
}

/* How many rows differ; a row that differs by more than rounding fails. The CPU sums in
 * F64, the GPU sums F32 probabilities: near the edge of a token's share of the unit
 * interval they may choose neighbours, or, in a flat distribution, near neighbours. Rows
 * that change their logits have another order and must agree. */
static uint32_t compare_draws(
	struct op_test *t, const struct draws *d, const float *gpu, const float *cpu)
{
	uint32_t differ = 0;
	char why[160];

	for (uint32_t i = 0; i < d->n; i++) {
		const float *l = d->logits + (uint64_t)i * d->vocab;
		uint32_t a = (uint32_t)gpu[i], b = (uint32_t)cpu[i];
		int slack = 1 + (int)(d->n_valid / 100000);
		float p = gpu[d->logprob + i], q = cpu[d->logprob + i];
		bool same = gpu[d->flags + i] == cpu[d->flags + i] &&
			    same_top(d, i, gpu, cpu);

		if (a == b && close_to(p, q) && same)
			continue;
		differ += a != b;
		if (a != b && a < d->n_valid && same && d->rows[i].line == 0 &&
			abs((int)rank_of(l, d->n_valid, a) -
				(int)rank_of(l, d->n_valid, b)) <= slack)
			continue;
		(void)snprintf(why, sizeof(why),
			"sample: row %u of %u: token %u, logprob %.7g; CPU %u, %.7g "
			"(t %g k %u p %g min %g)",
			i, d->vocab, a, (double)p, b, (double)q,
			(double)d->rows[i].temperature, d->rows[i].top_k,
			(double)d->rows[i].top_p, (double)d->rows[i].min_p);
		op_test_fail(t, why);
	}
	for (uint64_t i = d->flags + d->n; i < d->n_out && differ == 0; i++) {
		if (gpu[i] == cpu[i])
			continue;
		op_test_fail(t, "sample: the counts differ");
		break;
	}
	return differ;
}

static void token_by_token(
	struct op_test *t, uint32_t rows, uint32_t vocab, uint32_t n_valid, uint32_t seed)
{
	struct draws d = make_draws(rows, vocab, n_valid);
	float *gpu = mem_alloc(d.n_out, sizeof(*gpu));
	float *cpu = mem_alloc(d.n_out, sizeof(*cpu));
	uint32_t differ;

	d.k->seed += seed;
	for (uint32_t i = 0; i < rows; i++) {
		float *at = d.logits + (uint64_t)i * vocab;

		fill_row(d.k, (enum logits_kind)(i % KINDS), at, vocab);
		for (uint32_t v = n_valid; v < vocab; v++)
			at[v] = 100.0f;
		set_row(d.k, i, &d.rows[i]);
	}
	run_draws(t, &d, true, gpu);
	run_draws(t, &d, false, cpu);
	differ = compare_draws(t, &d, gpu, cpu);
	printf("sample: %u of %u rows of %u differ from the CPU's\n", differ, rows,
		vocab);
	if (differ > 1 + rows / 1000)
		op_test_fail(t, "sample: more than 0.1 % of the rows differ");
	mem_free(gpu);
	mem_free(cpu);
	check_case_destroy(d.k);
}

/* 65536 draws from one distribution over 64 tokens. */
static void frequencies(struct op_test *t, float temperature)
{
	enum { TOKENS = 64, ROWS = 65536 };
	struct draws d = make_draws(ROWS, TOKENS, TOKENS);
	float *out = mem_alloc(d.n_out, sizeof(*out));
	uint32_t seen[TOKENS] = {0};
	double p[TOKENS], total = 0, chi = 0;

	fill_row(d.k, NORMAL, d.logits, TOKENS);
	for (uint32_t v = 0; v < TOKENS; v++) {
		d.logits[v] *= 0.25f;
		total += p[v] = exp((double)d.logits[v] / (double)temperature);
	}
	for (uint32_t i = 0; i < ROWS; i++) {
		memcpy(d.logits + (uint64_t)i * TOKENS, d.logits, TOKENS * sizeof(float));
		d.rows[i] = (struct sample_row){.temperature = temperature,
			.top_p = 1,
			.seed = 77,
			.position = i};
	}
	run_draws(t, &d, true, out);
	for (uint32_t i = 0; i < ROWS; i++)
		seen[(uint32_t)out[i] % TOKENS]++;
	for (uint32_t v = 0; v < TOKENS; v++) {
		double want = ROWS * p[v] / total;

		chi += (seen[v] - want) * (seen[v] - want) / want;
	}
	printf("sample: chi-square %.1f with %d degrees of freedom, temperature %g\n",
		chi, TOKENS - 1, (double)temperature);
	/* Exceeded once in 10^6 by right draws. */
	if (chi > 131)
		op_test_fail(t, "sample: frequencies differ from probabilities");
	mem_free(out);
	check_case_destroy(d.k);
}

/* Infinite, NaN, and masked NaN. */
static void not_numbers(struct op_test *t)
{
	struct draws d = make_draws(4, 100, 90);
	float *out = mem_alloc(d.n_out, sizeof(*out)), *flags = out + d.flags;

	for (uint32_t i = 0; i < 4; i++) {
		fill_row(d.k, NORMAL, d.logits + i * 100, 100);
		d.rows[i] =
			(struct sample_row){.temperature = (float)(i % 2), .top_p = 1};
	}
	d.logits[3] = INFINITY;
	d.logits[189] = NAN;
	d.logits[295] = NAN;
	d.logits[350] = -INFINITY;
	run_draws(t, &d, true, out);
	if (flags[0] != SAMPLE_NAN || flags[1] != SAMPLE_NAN || flags[2] != 0 ||
		flags[3] != SAMPLE_NAN)
		op_test_fail(t, "sample: logits that are no numbers");
	mem_free(out);
	check_case_destroy(d.k);
}

static void run_sample(struct op_test *t)
{
	static const uint32_t counts[] = {1, 0, 5, 6, 7, 33, 64};
	struct op_case c = {.op = OP_sample, .shapes = &shapes_demo, .name = "demo"};

	for (uint32_t i = 0; i < (op_test_small(t) ? 4 : COUNT(counts)); i++)
		op_test_rows(t, &c, 0, counts[i]);
	not_numbers(t);
	token_by_token(t, 60, 7, 7, 1);
	token_by_token(t, op_test_small(t) ? 60 : 12000, 1024, 1000, 2);
	if (op_test_small(t))
		return;
	frequencies(t, 0.7f);
	frequencies(t, 1.3f);
	token_by_token(t, 3000, 2049, 2049, 3);
	token_by_token(t, 36, 248320, 248077, 4);
	c.shapes = &shapes_35b;
	c.name = "35B";
	op_test_rows(t, &c, 0, 13);
	c.large = true;
	op_test_rows(t, &c, 0, 1);
	op_test_rows(t, &c, 0, 64);
}

const struct op_suite suite_sample = {OP_sample, run_sample};
