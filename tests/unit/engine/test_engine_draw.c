// labels: threads
/* What the engine does around the sampler: rows that are scored, several choices of one
 * row, and counts that go on from step to step and from one row to its successor. */
#include "tests/unit/engine/engine_fixture.h"

#include <string.h>

#define STEPS 40u

static struct engine *engine_of(bool logits)
{
	struct engine_options o = tiny_options();

	o.logits = logits;
	return engine_with(&o);
}

static const struct eng_result *prefill(struct engine *e, const struct eng_chunk *c)
{
	uint64_t epoch;

	assert_int_equal(ST_OK, engine_prefill(e, c, 1, &epoch));
	return next_of(e, ENG_PREFILLED);
}

static double log_total(const float *logits, uint64_t n)
{
	double sum = 0;

	for (uint64_t i = 0; i < n; i++)
		sum += exp((double)logits[i]);
	return log(sum);
}

/* Many more rows than there is room for logits at a time, over two chunks. */
static void scored_rows_give_the_logprobs_of_the_next_tokens(void **state)
{
	struct engine *e = engine_of(true);
	uint64_t n, vocab = engine_config(e)->vocab;
	uint32_t *ids = golden(TINY, "case.10.ids", &n);
	struct eng_chunk c = chunk_of(ids, 120, 1, 1);
	double *want = mem_alloc(120, sizeof(*want));
	const struct eng_result *r = prefill(e, &c);

	(void)state;
	for (uint32_t i = 0; i + 1 < 120; i++)
		want[i] = (double)r->logits[i * vocab + ids[i + 1]] -
			  log_total(r->logits + i * vocab, vocab);
	engine_destroy(e);
	e = engine_of(false);
	for (uint32_t part = 0; part < 2; part++) {
		c = chunk_of(ids + 60 * part, 60, 1, 1);
		c.n_pages = 2;
		c.pos = 60 * part;
		c.zero_from = part;
		c.sample = part == 1;
		c.score = c.ids + 1;
		c.n_score = part == 1 ? 59 : 60;
		c.score_top = 2;
		r = prefill(e, &c);
		assert_int_equal(60, r->n);
		for (uint32_t i = 0; i < c.n_score; i++) {
			const struct eng_token *t = &r->tokens[i];
			uint32_t at = 60 * part + i;

			assert_true(t->scored);
			assert_int_equal(ids[at + 1], t->token);
			assert_int_equal(at + 1, t->position);
			assert_true(fabs((double)t->logprob - want[at]) < 1e-4);
			assert_int_equal(2, t->n_top);
			assert_true(t->top[0].logprob >= t->top[1].logprob);
			assert_true(t->top[0].logprob >= t->logprob);
		}
	}
	assert_false(r->tokens[59].scored);
	engine_destroy(e);
	mem_free(want);
	mem_give(ids);
}

static void choices_are_what_single_samples_are(void **state)
{
	enum { CHOICES = 11 }; /* more than seqs_max */
	struct engine *e = engine_of(false);
	uint64_t n;
	uint32_t *ids = golden(TINY, "case.10.ids", &n), tokens[CHOICES], same = 0;
	struct eng_chunk c = chunk_of(ids, 50, 1, 1);
	const struct eng_result *r;

	(void)state;
	c.how = (struct sample_row){.temperature = 3, .top_p = 1, .seed = 8, .choice = 2};
	c.how.presence = 1;
	c.past = (struct eng_past){.ids = ids, .n_ids = 50, .n_prompt = 40};
	c.n_choices = CHOICES;
	r = prefill(e, &c);
	assert_int_equal(CHOICES, r->n);
	for (uint32_t k = 0; k < CHOICES; k++) {
		assert_int_equal(2 + k, r->tokens[k].choice);
		tokens[k] = r->tokens[k].token;
		same += k > 0 && tokens[k] == tokens[0];
	}
	assert_true(same < CHOICES - 1);
	c.n_choices = 0;
	for (uint32_t k = 0; k < CHOICES; k++) {
		c.how.choice = 2 + k;
		r = prefill(e, &c);
		assert_int_equal(1, r->n);
		assert_int_equal(tokens[k], r->tokens[0].token);
	}
	engine_destroy(e);
	mem_give(ids);
}

/* A row of a sequence whose state lies in slot `slot`, pages from 8 * slot - 7 on. */
static struct eng_join join_of(uint32_t slot, const uint32_t *ids, uint32_t n_ids)
{
	return (struct eng_join){.tag = slot,
		.pages = pages_1_to_32 + 8 * (slot - 1),
		.n_pages = 8,
		.slot = slot,
		.n_tokens = n_ids - 1,
		.input = ids[n_ids - 1],
		.past = {.ids = ids, .n_ids = n_ids, .n_prompt = 50},
		.steps_max = STEPS};
}

/* Its state: all ids but the last. */
static void fill_state(struct engine *e, uint32_t slot, const uint32_t *ids, uint32_t n)
{
	struct eng_chunk c = chunk_of(ids, n, 8 * slot - 7, slot);

	c.sample = false;
	(void)prefill(e, &c);
}

/* Steps of all joined rows; tokens of row `tag` go to out. */
static void step(struct engine *e, uint64_t tag, uint32_t n, uint32_t *out)
{
	for (uint32_t have = 0; have < n;) {
		const struct eng_result *r = next_of(e, ENG_STEP);

		for (uint32_t i = 0; i < r->n; i++)
			if (r->tokens[i].tag == tag && have < n)
				out[have++] = r->tokens[i].token;
	}
}

static void leave(struct engine *e, uint64_t tag)
{
	const struct eng_result *r;

	assert_int_equal(ST_OK, engine_leave(e, tag));
	while ((r = next_result(e))->kind == ENG_STEP)
		;
	assert_int_equal(ENG_LEFT, r->kind);
}

static void penalties_go_on_from_step_to_step_and_in_a_successor(void **state)
{
	uint64_t n, before = mem_taken();
	struct engine *e = engine_of(false);
	uint32_t *golden_ids = golden(TINY, "case.10.ids", &n);
	uint32_t ids[51 + STEPS], plain[STEPS], repeats = 0, more[STEPS];
	struct eng_join strict, free_row;

	(void)state;
	memcpy(ids, golden_ids, 51 * sizeof(*ids));
	mem_give(golden_ids);
	fill_state(e, 1, ids, 50);
	fill_state(e, 2, ids, 50);
	strict = join_of(1, ids, 51);
	strict.how.repetition = 1e6f; /* nothing comes twice */
	free_row = join_of(2, ids, 51);
	assert_int_equal(ST_OK, engine_join(e, &free_row));
	assert_int_equal(ST_OK, engine_join(e, &strict));
	step(e, 1, STEPS, ids + 51);
	leave(e, 1);
	leave(e, 2);
	for (uint32_t i = 51; i < 51 + STEPS; i++)
		for (uint32_t k = 0; k < i; k++)
			assert_int_not_equal(ids[i], ids[k]);
	/* The same again, begun in the middle by another row on another line. */
	fill_state(e, 3, ids, 60);
	strict = join_of(3, ids, 61);
	strict.how.repetition = 1e6f;
	free_row = join_of(2, ids, 51);
	fill_state(e, 2, ids, 50);
	assert_int_equal(ST_OK, engine_join(e, &free_row));
	step(e, 2, STEPS, plain);
	assert_int_equal(ST_OK, engine_join(e, &strict));
	step(e, 3, STEPS - 10, more);
	assert_memory_equal(more, ids + 61, (STEPS - 10) * sizeof(*more));
	for (uint32_t i = 0; i < STEPS; i++)
		for (uint32_t k = 0; k < 51; k++)
			repeats += plain[i] == ids[k];
	assert_true(repeats > 0); /* a row without a penalty is as it was */
	engine_destroy(e);
	assert_int_equal(before, mem_taken());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scored_rows_give_the_logprobs_of_the_next_tokens),
		cmocka_unit_test(choices_are_what_single_samples_are),
		cmocka_unit_test(penalties_go_on_from_step_to_step_and_in_a_successor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
