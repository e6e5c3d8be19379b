/* The memory plan, the identity of a model, and options that are refused. */
#include "tests/unit/engine/engine_fixture.h"

#include <string.h>

#define DEMO "deploy/demo-model"

static struct layout layout_of(uint64_t page_bytes, uint64_t slot_bytes)
{
	return (struct layout){
		.ranks = 1, .page_bytes = page_bytes, .slot_bytes = slot_bytes};
}

static void pages_fill_what_is_left(void **state)
{
	struct engine_options o = {.seqs_max = 4};
	struct layout l = layout_of(1024, 512);
	struct eng_plan p = {
		.weights_bytes = 10000, .workspace_bytes = 2000, .budget_bytes = 100000};
	struct err err;

	(void)state;
	CHECK_OK(eng_plan_arena(&p, &o, &l, 1 << 20, &err));
	assert_int_equal(5, p.n_slots);
	assert_int_equal((100000 - 12000 - 2560) / 1024, p.n_pages);
	assert_int_equal((p.n_pages - 1) * PAGE_TOKENS, p.len_max);
	assert_int_equal(83 * 1024 + 5 * 512, p.arena_bytes);
	/* Never more than all sequences at full length can use. */
	CHECK_OK(eng_plan_arena(&p, &o, &l, 130, &err));
	assert_int_equal(4 * 3 + 1, p.n_pages);
	assert_int_equal(130, p.len_max);
}

static void a_budget_that_is_too_small_is_refused_with_numbers(void **state)
{
	struct engine_options o = {.seqs_max = 4};
	struct layout l = layout_of(1024, 512);
	struct eng_plan p = {
		.weights_bytes = 10000, .workspace_bytes = 2000, .budget_bytes = 16608};
	struct err err;

	(void)state;
	CHECK_OK(eng_plan_arena(&p, &o, &l, 100, &err));
	assert_int_equal(2, p.n_pages);
	p.budget_bytes--;
	assert_int_equal(ST_LIMIT, eng_plan_arena(&p, &o, &l, 100, &err));
	assert_non_null(strstr(err.text, "16607"));
	o.n_pages = 1;
	assert_int_equal(ST_INVALID, eng_plan_arena(&p, &o, &l, 100, &err));
	o.n_pages = 50;
	CHECK_OK(eng_plan_arena(&p, &o, &l, 100, &err));
	o.memory_bytes = 12000 + 50 * 1024 + 2559;
	assert_int_equal(ST_LIMIT, eng_plan_arena(&p, &o, &l, 100, &err));
	o.memory_bytes++;
	CHECK_OK(eng_plan_arena(&p, &o, &l, 100, &err));
}

static void host_memory_is_taken_with_restraint(void **state)
{
	struct backend cpu = {.name = "cpu", .mem_free = UINT64_C(100) << 30};
	struct backend gpu = {.name = "cuda", .mem_free = UINT64_C(100) << 30};
	struct engine_options o = {.seqs_max = 1};

	(void)state;
	assert_int_equal(UINT64_C(2) << 30, eng_plan_budget(&o, &cpu, 2));
	assert_int_equal((UINT64_C(100) << 30) / 5 * 4, eng_plan_budget(&o, &gpu, 1));
	cpu.mem_free = 1000;
	assert_int_equal(400, eng_plan_budget(&o, &cpu, 2));
	o.memory_bytes = 77;
	assert_int_equal(77, eng_plan_budget(&o, &cpu, 2));
}

/* What was planned is what is there. */
static void an_engine_keeps_to_its_plan(void **state)
{
	struct engine_options o = tiny_options();
	struct engine *e = engine_with(&o);
	struct sink text;
	struct err err;
	char want[64];

	(void)state;
	sink_init(&text, 4096);
	CHECK_OK(engine_plan(&o, &text, &err));
	assert_int_equal(33, engine_pages(e));
	assert_int_equal(5, engine_slots(e));
	assert_int_equal(512, engine_len_max(e));
	assert_non_null(strstr(
		sink_cstr(&text), "2048 tokens, at most 4 requests of 512 tokens"));
	(void)snprintf(want, sizeof(want), "%llu bytes: 33 of ",
		(unsigned long long)(33 * engine_layout(e)->page_bytes));
	assert_non_null(strstr(sink_cstr(&text), want));
	sink_release(&text);
	engine_destroy(e);
}

static void few_pages_shorten_the_longest_sequence(void **state)
{
	struct engine_options o = tiny_options();
	struct engine *e;

	(void)state;
	o.n_pages = 4;
	e = engine_with(&o);
	assert_int_equal(192, engine_len_max(e));
	engine_destroy(e);
}

static uint64_t hash_of(const char *dir, const char *gpus)
{
	struct engine_options o = tiny_options();
	struct engine *e;
	uint64_t hash;

	o.model_dir = dir;
	o.gpus = gpus;
	e = engine_with(&o);
	hash = engine_layout(e)->model_hash;
	engine_destroy(e);
	return hash;
}

static void the_hash_tells_models_apart_and_not_ranks(void **state)
{
	uint64_t moe = hash_of(TINY, "cpu:0");

	(void)state;
	assert_int_equal(moe, hash_of(TINY, "cpu:0"));
	assert_int_equal(moe, hash_of(TINY, "cpu:0,cpu:1"));
	assert_true(moe != hash_of("tests/golden/tiny-next", "cpu:0"));
	assert_true(moe != hash_of(DEMO, "cpu:0"));
}

static void options_are_refused_by_name(void **state)
{
	static const struct {
		const char *gpus, *text;
		uint32_t rows_max, n_valid;
	} cases[] = {
		{"", "a device of 0 bytes", 1, 0},
		{"cpu:0,", "a device of 0 bytes", 1, 0},
		{"cpu:0,cpu:1,cpu:2,cpu:3,cpu:4,cpu:5,cpu:6,cpu:7,cpu:8", "more than 8",
			1, 0},
		{"tpu", "tpu", 1, 0},
		{"cpu:0", "rows_max 0", 0, 0},
		{"cpu:0", "385 token ids", 1, 385},
		{"cpu:0,cpu:1,cpu:2", "3", 1, 0},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct engine_options o = tiny_options();
		struct engine *e = NULL;
		struct err err;

		o.gpus = cases[i].gpus;
		o.rows_max = cases[i].rows_max;
		o.n_valid = cases[i].n_valid;
		assert_int_not_equal(ST_OK, engine_create(&e, &o, &err));
		assert_null(e);
		if (strstr(err.text, cases[i].text) == NULL)
			fail_msg("'%s' does not say '%s'", err.text, cases[i].text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_fill_what_is_left),
		cmocka_unit_test(a_budget_that_is_too_small_is_refused_with_numbers),
		cmocka_unit_test(host_memory_is_taken_with_restraint),
		cmocka_unit_test(an_engine_keeps_to_its_plan),
		cmocka_unit_test(few_pages_shorten_the_longest_sequence),
		cmocka_unit_test(the_hash_tells_models_apart_and_not_ranks),
		cmocka_unit_test(options_are_refused_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
