// labels: threads
/* The engine from outside: passes and steps against golden data, rows that come and
 * go, and what it says when it cannot go on. */
#include "tests/unit/engine/engine_fixture.h"

#include "common/base/clock.h"
#include "common/base/fault.h"

#include <string.h>

static void prefill(struct engine *e, const struct eng_chunk *c, uint32_t n)
{
	uint64_t epoch;

	assert_int_equal(ST_OK, engine_prefill(e, c, n, &epoch));
}

static struct eng_join join_of(const struct eng_chunk *c, uint32_t input, uint32_t steps)
{
	return (struct eng_join){.tag = c->tag,
		.pages = c->pages,
		.n_pages = c->n_pages,
		.slot = c->slot,
		.n_tokens = c->pos + c->n_tokens,
		.input = input,
		.steps_max = steps};
}

/* Prefill, then greedy decoding in the same engine, compared with the golden answer:
 * every id, and the logits that each was chosen from. */
static void check_greedy(const char *gpus)
{
	struct engine_options o = tiny_options();
	uint64_t n, n_greedy, n_logits, vocab;
	uint32_t *ids = golden(TINY, "case.9.ids", &n);
	uint32_t *greedy = golden(TINY, "case.9.greedy", &n_greedy);
	float *logits = golden(TINY, "case.9.step_logits", &n_logits);
	struct eng_chunk c = chunk_of(ids, 128, 1, 1), rest = chunk_of(ids, 72, 1, 1);
	struct eng_join join;
	const struct eng_result *r;
	struct engine *e;

	o.gpus = gpus;
	e = engine_with(&o);
	vocab = engine_config(e)->vocab;
	c.n_pages = rest.n_pages = 4;
	c.sample = false;
	rest.ids += 128;
	rest.pos = 128;
	rest.zero_from = 4;
	prefill(e, &c, 1);
	prefill(e, &rest, 1);
	assert_int_equal(0, next_of(e, ENG_PREFILLED)->n);
	r = next_of(e, ENG_PREFILLED);
	assert_int_equal(greedy[0], r->tokens[0].token);
	assert_int_equal(200, r->tokens[0].position);
	check_close(r->logits + 71 * vocab, logits, vocab);
	join = join_of(&rest, greedy[0], (uint32_t)n_greedy - 1);
	assert_int_equal(ST_OK, engine_join(e, &join));
	for (uint32_t i = 1; i < n_greedy; i++) {
		r = next_of(e, ENG_STEP);
		assert_int_equal(i, r->epoch);
		assert_int_equal(1, r->n);
		assert_int_equal(greedy[i], r->tokens[0].token);
		assert_int_equal(200 + i, r->tokens[0].position);
		check_close(r->logits, logits + i * vocab, vocab);
	}
	assert_int_equal(ST_OK, engine_leave(e, join.tag));
	r = next_of(e, ENG_LEFT);
	assert_int_equal(join.tag, r->tokens[0].tag);
	assert_int_equal(199 + n_greedy, r->tokens[0].position);
	assert_int_equal(n_greedy - 1, engine_counters(e).steps);
	assert_int_equal(2, engine_counters(e).passes);
	/* Two per layer of every pass and step, and one of the embedding. */
	assert_int_equal(engine_ranks(e) == 1 ? 0 : (4 * 2 + 1) * (n_greedy + 1),
		engine_counters(e).allreduces);
	engine_destroy(e);
	mem_give(ids);
	mem_give(greedy);
	mem_give(logits);
}

static void decoding_gives_the_golden_answer(void **state)
{
	(void)state;
	check_greedy("cpu:0");
}

static void two_ranks_give_the_golden_answer(void **state)
{
	(void)state;
	check_greedy("cpu:0,cpu:1");
}

/* Chunks of several sequences, first and continued ones mixed, give each row the bits
 * that it has alone. */
static void chunks_of_a_pass_do_not_see_each_other(void **state)
{
	struct engine_options o = tiny_options();
	struct engine *e = engine_with(&o);
	uint64_t n, vocab = engine_config(e)->vocab;
	uint32_t *ids = golden(TINY, "case.10.ids", &n);
	struct eng_chunk a = chunk_of(ids, 100, 1, 1), b = chunk_of(ids + 7, 40, 5, 2);
	struct eng_chunk a2 = chunk_of(ids + 100, 65, 1, 1),
			 c = chunk_of(ids + 90, 3, 9, 3);
	struct eng_chunk mixed[3];
	float *alone = mem_alloc(128 * vocab, sizeof(*alone));
	const struct eng_result *r;

	(void)state;
	a.n_pages = a2.n_pages = 3;
	a2.pos = 100;
	a2.zero_from = 3;
	prefill(e, &a, 1);
	(void)next_of(e, ENG_PREFILLED);
	mixed[0] = b;
	mixed[1] = a2;
	mixed[2] = c;
	for (uint32_t i = 0, row = 0; i < 3; row += mixed[i++].n_tokens) {
		prefill(e, &mixed[i], 1);
		r = next_of(e, ENG_PREFILLED);
		memcpy(alone + row * vocab, r->logits, r->n_rows * vocab * sizeof(float));
	}
	prefill(e, &a, 1); /* the state of a has moved on: once more */
	(void)next_of(e, ENG_PREFILLED);
	prefill(e, mixed, 3);
	r = next_of(e, ENG_PREFILLED);
	assert_int_equal(108, r->n_rows);
	assert_int_equal(3, r->n);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(mixed[i].tag, r->tokens[i].tag);
	assert_memory_equal(alone, r->logits, 108 * vocab * sizeof(float));
	mem_free(alone);
	mem_give(ids);
	engine_destroy(e);
}

/* Projections that stand together in memory are one product; apart they give the same
 * bits. */
static void one_product_gives_what_four_give(void **state)
{
	struct engine_options o = tiny_options();
	struct engine *e = engine_with(&o);
	uint64_t n, vocab = engine_config(e)->vocab;
	uint32_t *ids = golden(TINY, "case.10.ids", &n), n_fused = 0;
	struct eng_chunk a = chunk_of(ids, 70, 1, 1);
	float *one = mem_alloc(70 * vocab, sizeof(*one));
	struct rank *r = &e->rank[0];

	(void)state;
	prefill(e, &a, 1);
	memcpy(one, next_of(e, ENG_PREFILLED)->logits, 70 * vocab * sizeof(float));
	for (uint32_t i = 0; i < engine_config(e)->n_layers; i++) {
		bool attn = engine_config(e)->layer_kind[i] == LAYER_ATTN;
		const struct weight *w = &r->layer[i][attn ? WR_Q : WR_GDN_QKV];
		uint32_t rows = 0;

		for (uint32_t k = 0; k < (attn ? 3u : 4u); k++)
			rows += w[k].n;
		if (r->fused[i].all.data != NULL)
			assert_int_equal(rows, r->fused[i].all.n);
		n_fused += r->fused[i].all.data != NULL;
		r->fused[i] = (struct fused){.all = {.data = NULL}};
	}
	assert_int_not_equal(0, n_fused);
	prefill(e, &a, 1);
	assert_memory_equal(
		one, next_of(e, ENG_PREFILLED)->logits, 70 * vocab * sizeof(float));
	mem_free(one);
	mem_give(ids);
	engine_destroy(e);
}

/* All of the arena is NaN; a sequence that is prefilled and decoded over two page
 * borders must not meet any of it. */
static void recycled_bits_are_never_read(void **state)
{
	struct engine_options o = tiny_options();
	struct engine *e = engine_with(&o);
	uint64_t n, vocab = engine_config(e)->vocab;
	uint32_t *ids = golden(TINY, "case.9.ids", &n);
	struct eng_chunk c = chunk_of(ids, 60, 1, 1);
	struct eng_join join = join_of(&c, ids[60], 140);
	float *want = mem_alloc(200 * vocab, sizeof(*want));
	const struct eng_result *r;

	(void)state;
	for (uint32_t at = 0; at < 200; at += 100) {
		struct eng_chunk whole = chunk_of(ids + at, 100, 1, 2);

		whole.n_pages = 4;
		whole.pos = at;
		whole.zero_from = at == 0 ? 0 : 4;
		prefill(e, &whole, 1);
		r = next_of(e, ENG_PREFILLED);
		memcpy(want + at * vocab, r->logits, 100 * vocab * sizeof(float));
	}
	memset(engine_arena(e, 0), 0xFF, e->plan.arena_bytes);
	prefill(e, &c, 1);
	r = next_of(e, ENG_PREFILLED);
	check_close(r->logits, want, 60 * vocab);
	/* One growth page from the start, the others later. */
	join.n_pages = 2;
	join.forced = ids + 61;
	join.n_forced = 139;
	assert_int_equal(ST_OK, engine_join(e, &join));
	for (uint32_t i = 60; i < 200; i++) {
		if (i == 128) /* the row waits at the border */
			assert_int_equal(
				ST_OK, engine_grow(e, join.tag, pages_1_to_32 + 2, 2));
		r = next_of(e, ENG_STEP);
		assert_int_equal(0, r->tokens[0].flags);
		check_close(r->logits, want + i * vocab, vocab);
	}
	mem_free(want);
	mem_give(ids);
	engine_destroy(e);
}

/* Rows join and leave while others go on; each gets what it gets alone. */
static void rows_come_and_go(void **state)
{
	struct engine_options o = tiny_options();
	struct engine *e = engine_with(&o);
	uint64_t n, n_greedy;
	uint32_t *ids[3], *greedy[3], got[3] = {1, 1, 1};
	bool joined[3] = {true, false, false};
	struct eng_join join[3];

	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		static const char *const names[3][2] = {{"case.6.ids", "case.6.greedy"},
			{"case.4.ids", "case.4.greedy"}, {"case.8.ids", "case.8.greedy"}};
		struct eng_chunk c;

		ids[i] = golden(TINY, names[i][0], &n);
		greedy[i] = golden(TINY, names[i][1], &n_greedy);
		c = chunk_of(ids[i], (uint32_t)MIN(n, 128u), 1 + 8 * i, 1 + i);
		c.n_pages = 3;
		prefill(e, &c, 1);
		(void)next_of(e, ENG_PREFILLED);
		if (n > 128) {
			c.ids += 128;
			c.pos = 128;
			c.n_tokens = (uint32_t)n - 128;
			c.zero_from = 3;
			prefill(e, &c, 1);
			assert_int_equal(
				greedy[i][0], next_of(e, ENG_PREFILLED)->tokens[0].token);
		}
		join[i] = join_of(&c, greedy[i][0], (uint32_t)n_greedy - 1);
	}
	assert_int_equal(ST_OK, engine_join(e, &join[0]));
	while (got[0] + got[1] + got[2] < 3 * n_greedy) {
		const struct eng_result *r = next_of(e, ENG_STEP);

		for (uint32_t i = 0; i < r->n; i++) {
			uint64_t k = r->tokens[i].tag - 1;

			assert_true(k < 3 && joined[k] && got[k] < n_greedy);
			assert_int_equal(greedy[k][got[k]++], r->tokens[i].token);
		}
		for (uint32_t k = 1; k < 3; k++)
			if (!joined[k] && got[k - 1] >= 3) {
				assert_int_equal(ST_OK, engine_join(e, &join[k]));
				joined[k] = true;
			}
	}
	for (uint32_t k = 0; k < 3; k++) {
		assert_int_equal(ST_OK, engine_leave(e, 1 + k));
		assert_int_equal(1 + k, next_of(e, ENG_LEFT)->tokens[0].tag);
		mem_give(ids[k]);
		mem_give(greedy[k]);
	}
	engine_destroy(e);
}

static void a_row_without_pages_waits_and_others_go_on(void **state)
{
	struct engine_options o = tiny_options();
	struct engine *e = engine_with(&o);
	uint64_t n;
	uint32_t *ids = golden(TINY, "case.6.ids", &n), seen[2] = {0, 0};
	struct eng_chunk a = chunk_of(ids, 64, 1, 1), b = chunk_of(ids, 8, 4, 2);
	struct eng_join ja = join_of(&a, 5, 4), jb = join_of(&b, 5, 20);

	(void)state;
	prefill(e, &a, 1);
	prefill(e, &b, 1);
	(void)next_of(e, ENG_PREFILLED);
	(void)next_of(e, ENG_PREFILLED);
	assert_int_equal(ST_OK, engine_join(e, &ja)); /* its only page is full */
	assert_int_equal(ST_OK, engine_join(e, &jb));
	while (seen[1] < 20) {
		const struct eng_result *r = next_of(e, ENG_STEP);

		for (uint32_t i = 0; i < r->n; i++)
			seen[r->tokens[i].tag - 1]++;
		if (seen[1] == 10)
			assert_int_equal(ST_OK, engine_grow(e, 1, pages_1_to_32 + 1, 1));
		if (seen[1] <= 10)
			assert_int_equal(0, seen[0]);
	}
	while (seen[0] < 4)
		seen[0] += next_of(e, ENG_STEP)->n;
	assert_int_equal(4, seen[0]);
	engine_destroy(e);
	mem_give(ids);
}

static void not_finite_logits_are_flagged_and_stop_the_row(void **state)
{
	struct engine_options o = tiny_options();
	struct engine *e = engine_with(&o);
	const uint32_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	struct eng_chunk c = chunk_of(ids, 8, 1, 1);
	struct eng_join join = join_of(&c, 9, 100);
	const struct eng_result *r;
	float *slot;

	(void)state;
	prefill(e, &c, 1);
	(void)next_of(e, ENG_PREFILLED);
	slot = (float *)((uint8_t *)engine_arena(e, 0) +
			 layout_slot_offset(engine_layout(e), engine_pages(e), 1));
	slot[77] = NAN;
	assert_int_equal(ST_OK, engine_join(e, &join));
	r = next_of(e, ENG_STEP);
	assert_int_equal(SAMPLE_NAN, r->tokens[0].flags);
	assert_int_equal(ST_OK, engine_leave(e, join.tag));
	assert_int_equal(9, next_of(e, ENG_LEFT)->tokens[0].position);
	assert_int_equal(1, engine_counters(e).nan_rows);
	/* The slot is as good as new for the next sequence. */
	prefill(e, &c, 1);
	assert_int_equal(0, next_of(e, ENG_PREFILLED)->tokens[0].flags);
	engine_destroy(e);
}

static void commands_beyond_a_bound_are_refused(void **state)
{
	struct engine_options o = tiny_options();
	struct engine *e = engine_with(&o);
	const uint32_t good[2] = {1, 2}, bad[2] = {1, 384};
	struct eng_chunk c = chunk_of(bad, 2, 1, 1);
	struct eng_join join = join_of(&c, 384, 1);
	uint64_t epoch, first;

	(void)state;
	assert_int_equal(ST_INVALID, engine_prefill(e, &c, 1, &epoch));
	assert_int_equal(ST_INVALID, engine_join(e, &join));
	c.ids = good;
	assert_int_equal(ST_OK, engine_prefill(e, &c, 1, &first));
	assert_int_equal(ST_OK, engine_prefill(e, &c, 1, &epoch));
	assert_int_equal(first + 1, epoch);
	assert_false(engine_prefill_room(e));
	assert_int_equal(ST_AGAIN, engine_prefill(e, &c, 1, &epoch));
	assert_int_equal(first, next_of(e, ENG_PREFILLED)->epoch);
	assert_true(engine_prefill_room(e));
	/* The buffer of the result that is being read is not used again. */
	assert_int_equal(ST_OK, engine_prefill(e, &c, 1, &epoch));
	join.input = 3;
	join.steps_max = 0;
	for (uint32_t i = 0; i < o.seqs_max; i++) {
		join.tag = 100 + i;
		assert_int_equal(ST_OK, engine_join(e, &join));
	}
	join.tag = 99;
	assert_int_equal(ST_LIMIT, engine_join(e, &join));
	engine_destroy(e);
}

static status broken_kernel(struct stream *s, const void *op, struct err *err)
{
	(void)s;
	(void)op;
	return err_set(err, ST_DEVICE, "this kernel is broken");
}

static void check_failure(const char *gpus, uint32_t rank, const char *want)
{
	struct engine_options o = tiny_options();
	const uint32_t ids[2] = {1, 2};
	struct eng_chunk c = chunk_of(ids, 2, 1, 1);
	struct eng_join join = join_of(&c, 3, 1);
	const struct eng_result *r;
	struct kernels *good, broken;
	struct engine *e;
	uint64_t epoch;

	o.gpus = gpus;
	e = engine_with(&o);
	good = e->rank[rank].k;
	broken = *good;
	for (int f = 0; f < WF__COUNT; f++)
		broken.run[OP_gdn_decode][f] = (op_fn)broken_kernel;
	e->rank[rank].k = &broken;
	prefill(e, &c, 1);
	(void)next_of(e, ENG_PREFILLED);
	assert_int_equal(ST_OK, engine_join(e, &join));
	r = next_of(e, ENG_FAILED);
	assert_int_equal(ST_DEVICE, r->err.code);
	assert_non_null(strstr(r->err.text, "this kernel is broken"));
	assert_non_null(strstr(r->err.text, want));
	assert_int_equal(ST_DEVICE, engine_prefill(e, &c, 1, &epoch));
	assert_int_equal(ST_DEVICE, engine_join(e, &join));
	assert_int_equal(ST_DEVICE, engine_leave(e, 1));
	e->rank[rank].k = good;
	engine_destroy(e);
}

static void a_broken_kernel_ends_the_engine_with_its_sentence(void **state)
{
	(void)state;
	check_failure("cpu:0", 0, "rank 0, cpu:0: layer 0");
	check_failure("cpu:0,cpu:1", 0, "rank 0, cpu:0: layer 0");
	check_failure("cpu:0,cpu:1", 1, "rank 1, cpu:1: layer 0");
}

static void an_unread_engine_stops_stepping_and_loses_nothing(void **state)
{
	struct engine_options o = tiny_options();
	struct engine *e = engine_with(&o);
	const uint32_t ids[2] = {1, 2};
	struct eng_chunk c = chunk_of(ids, 2, 1, 1);
	struct eng_join join = join_of(&c, 3, 40);

	(void)state;
	prefill(e, &c, 1);
	(void)next_of(e, ENG_PREFILLED);
	assert_int_equal(ST_OK, engine_join(e, &join));
	while (engine_counters(e).steps < STEP_BUFFERS)
		assert_int_equal(0, poll(NULL, 0, 1));
	assert_int_equal(0, poll(NULL, 0, 20));
	assert_int_equal(STEP_BUFFERS, engine_counters(e).steps);
	for (uint32_t i = 0; i < 40; i++)
		assert_int_equal(3 + i, next_of(e, ENG_STEP)->tokens[0].position);
	engine_destroy(e);
}

#ifdef BATON_FAULTS
static void a_slow_step_is_seen_from_outside(void **state)
{
	struct engine_options o = tiny_options();
	struct engine *e = engine_with(&o);
	const uint32_t ids[2] = {1, 2};
	struct eng_chunk c = chunk_of(ids, 2, 1, 1);
	uint64_t start = clock_ns();
	struct err err;

	(void)state;
	assert_true(engine_stuck_ns(e) == 0);
	CHECK_OK(fault_configure("step_delay_ms=60", "/tmp", &err));
	prefill(e, &c, 1);
	assert_int_equal(0, poll(NULL, 0, 30));
	assert_true(engine_stuck_ns(e) > 5 * NS_PER_MS);
	(void)next_of(e, ENG_PREFILLED);
	assert_true(clock_ns() - start >= 60 * NS_PER_MS);
	assert_true(engine_counters(e).busy_ns >= 60 * NS_PER_MS);
	CHECK_OK(fault_configure("", "/tmp", &err));
	engine_destroy(e);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decoding_gives_the_golden_answer),
		cmocka_unit_test(two_ranks_give_the_golden_answer),
		cmocka_unit_test(chunks_of_a_pass_do_not_see_each_other),
		cmocka_unit_test(one_product_gives_what_four_give),
		cmocka_unit_test(recycled_bits_are_never_read),
		cmocka_unit_test(rows_come_and_go),
		cmocka_unit_test(a_row_without_pages_waits_and_others_go_on),
		cmocka_unit_test(not_finite_logits_are_flagged_and_stop_the_row),
		cmocka_unit_test(commands_beyond_a_bound_are_refused),
		cmocka_unit_test(a_broken_kernel_ends_the_engine_with_its_sentence),
		cmocka_unit_test(an_unread_engine_stops_stepping_and_loses_nothing),
#ifdef BATON_FAULTS
		cmocka_unit_test(a_slow_step_is_seen_from_outside),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
