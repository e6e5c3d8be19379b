/* Decode rows as a table of accounts: who is in the next step, in which order, and
 * which pages are cleared when. */
#include "tests/unit/engine/engine_fixture.h"

#include <string.h>

#define ROWS   4u
#define STRIDE 3u

struct bench {
	struct rows rows;
	struct batch batch;
	uint32_t tables[ROWS * STRIDE];
	void *memory;
	struct eng_token tokens[ROWS];
	struct eng_logprob top[ROWS][SAMPLE_TOP_MAX];
};

static struct bench *bench_create(void)
{
	static const struct batch_bounds bounds = {ROWS, ROWS, ROWS, STRIDE, ROWS, 0};
	struct bench *b = mem_alloc(1, sizeof(*b));
	struct carve c = {.base = NULL};

	batch_place(&b->batch, &c, &bounds, true);
	b->memory = mem_alloc(1, c.used + CARVE_ALIGN);
	c = (struct carve){.base = b->memory};
	batch_place(&b->batch, &c, &bounds, true);
	assert_ptr_equal(b->batch.ids, b->batch.token);
	for (uint32_t i = 0; i < COUNT(b->tables); i++)
		b->tables[i] = 10 * (i / STRIDE) + i % STRIDE + 1;
	rows_init(&b->rows, ROWS, b->tables, STRIDE, 190);
	return b;
}

static void bench_destroy(struct bench *b)
{
	rows_release(&b->rows);
	mem_free(b->memory);
	mem_free(b);
}

static void join(
	struct bench *b, uint32_t table, uint32_t pos, uint32_t n_pages, uint32_t steps)
{
	struct row_terms t = {.tag = 100 + table,
		.table = table,
		.n_pages = n_pages,
		.slot = 1 + table,
		.pos = pos,
		.input = 7 * table,
		.steps = steps};

	rows_join(&b->rows, &t);
}

/* One step in which row i samples 1000 + i. */
static uint32_t step(struct bench *b)
{
	if (!rows_build(&b->rows, &b->batch))
		return 0;
	for (uint32_t i = 0; i < b->batch.n_rows; i++) {
		b->batch.token[i] = 1000 + i;
		b->batch.flags[i] = 0;
	}
	rows_advance(&b->rows, &b->batch, b->tokens, b->top);
	return b->batch.n_rows;
}

static void a_step_holds_the_rows_in_order_of_joining(void **state)
{
	struct bench *b = bench_create();
	struct eng_token last;

	(void)state;
	assert_false(rows_build(&b->rows, &b->batch));
	join(b, 2, 5, 1, 9);
	join(b, 0, 70, 2, 9);
	join(b, 3, 1, 1, 9);
	assert_true(rows_build(&b->rows, &b->batch));
	assert_int_equal(3, b->batch.n_rows);
	assert_int_equal(71, b->batch.max_len);
	for (uint32_t i = 0; i < 3; i++) {
		static const uint32_t table[] = {2, 0, 3}, pos[] = {5, 70, 1};

		assert_int_equal(7 * table[i], b->batch.ids[i]);
		assert_int_equal(pos[i], b->batch.pos[i]);
		assert_int_equal(pos[i] + 1, b->batch.how[i].position);
		assert_int_equal(1 + table[i], b->batch.slot[i]);
		assert_int_equal(10 * table[i] + 1, b->batch.pages[i * STRIDE]);
		assert_int_equal(i, b->batch.first[i]);
	}
	assert_int_equal(12 - 10, b->batch.pages[1 * STRIDE + 1]);
	assert_int_equal(3, step(b));
	assert_int_equal(100, b->tokens[1].tag);
	assert_int_equal(1001, b->tokens[1].token);
	assert_int_equal(71, b->tokens[1].position);
	rows_leave(&b->rows, 0, &last);
	assert_int_equal(1001, last.token);
	assert_int_equal(71, last.position);
	assert_int_equal(2, step(b));
	assert_int_equal(102, b->tokens[0].tag);
	assert_int_equal(103, b->tokens[1].tag);
	/* What was sampled is what is fed. */
	assert_true(rows_build(&b->rows, &b->batch));
	assert_int_equal(1000, b->batch.ids[0]);
	assert_int_equal(1001, b->batch.ids[1]);
	bench_destroy(b);
}

static void rows_stop_at_their_bounds(void **state)
{
	struct bench *b = bench_create();

	(void)state;
	join(b, 0, 62, 1, 100);  /* its page is full after two */
	join(b, 1, 10, 1, 3);    /* three tokens are asked for */
	join(b, 2, 188, 3, 100); /* a sequence has 190 tokens at most */
	assert_int_equal(3, step(b));
	assert_int_equal(3, step(b));
	assert_int_equal(1, step(b));
	assert_int_equal(101, b->tokens[0].tag);
	assert_int_equal(0, step(b));
	rows_grow(&b->rows, 0, 2);
	assert_int_equal(1, step(b));
	assert_int_equal(100, b->tokens[0].tag);
	assert_int_equal(65, b->tokens[0].position);
	bench_destroy(b);
}

static void a_page_is_cleared_when_a_row_enters_it(void **state)
{
	struct bench *b = bench_create();
	uint64_t version;

	(void)state;
	join(b, 0, 63, 3, 100);
	join(b, 1, 64, 2, 100); /* the state ends with a page */
	assert_true(rows_build(&b->rows, &b->batch));
	assert_int_equal(1, b->batch.n_zero_pages);
	assert_int_equal(12, b->batch.zero_pages[0]);
	version = b->batch.version;
	assert_int_equal(2, step(b));
	assert_true(rows_build(&b->rows, &b->batch));
	assert_int_equal(1, b->batch.n_zero_pages);
	assert_int_equal(2, b->batch.zero_pages[0]);
	/* Other ranks have to copy the page tables again. */
	assert_true(b->batch.version > version);
	assert_int_equal(2, step(b));
	version = b->batch.version;
	for (uint32_t i = 0; i < 50; i++) {
		assert_int_equal(2, step(b));
		assert_int_equal(0, b->batch.n_zero_pages);
	}
	assert_int_equal(version, b->batch.version);
	bench_destroy(b);
}

static void forced_inputs_replace_sampled_ones(void **state)
{
	static const uint32_t forced[] = {31, 32};
	struct row_terms t = {.tag = 1,
		.n_pages = 1,
		.slot = 1,
		.input = 30,
		.steps = 9,
		.forced = forced,
		.n_forced = 2};
	struct bench *b = bench_create();

	(void)state;
	rows_join(&b->rows, &t);
	for (uint32_t i = 0; i < 3; i++) {
		assert_true(rows_build(&b->rows, &b->batch));
		assert_int_equal(30 + i, b->batch.ids[0]);
		assert_int_equal(1, step(b));
		assert_int_equal(1000, b->tokens[0].token);
	}
	assert_true(rows_build(&b->rows, &b->batch));
	assert_int_equal(1000, b->batch.ids[0]);
	bench_destroy(b);
}

static void a_row_that_is_not_finite_stops(void **state)
{
	struct bench *b = bench_create();

	(void)state;
	join(b, 0, 1, 1, 9);
	join(b, 1, 1, 1, 9);
	assert_true(rows_build(&b->rows, &b->batch));
	b->batch.flags[0] = SAMPLE_NAN;
	b->batch.flags[1] = 0;
	rows_advance(&b->rows, &b->batch, b->tokens, b->top);
	assert_int_equal(SAMPLE_NAN, b->tokens[0].flags);
	assert_int_equal(1, step(b));
	assert_int_equal(101, b->tokens[0].tag);
	bench_destroy(b);
}

/* What a device does: copies into a mirror that was poisoned once. */
struct device {
	uint8_t *mirror;
	uint64_t rows_version;
};

static uint32_t follow(struct bench *b, struct device *d)
{
	struct copy_piece pieces[BATCH_PIECES_MAX];
	bool all = d->rows_version != b->batch.rows_version;
	uint32_t n = batch_pieces(&b->batch, d->mirror, all, pieces);

	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(0, pieces[i].bytes % 16);
		assert_true((const uint8_t *)pieces[i].src + pieces[i].bytes <=
			    b->batch.base + b->batch.in_bytes);
		memcpy(pieces[i].dst, pieces[i].src, pieces[i].bytes);
	}
	d->rows_version = b->batch.rows_version;
	return n;
}

static void assert_follows(const struct bench *b, struct device *d)
{
	const struct batch *host = &b->batch;
	struct batch there = batch_mirrored(host, d->mirror);
	uint32_t n = host->n_rows;

	assert_ptr_equal(host->token, there.token);
	assert_ptr_equal(host->flags, there.flags);
	assert_memory_equal(host->ids, there.ids, n * sizeof(*host->ids));
	assert_memory_equal(host->pos, there.pos, n * sizeof(*host->pos));
	assert_memory_equal(host->how, there.how, n * sizeof(*host->how));
	assert_memory_equal(host->seq, there.seq, n * sizeof(*host->seq));
	assert_memory_equal(host->first, there.first, (n + 1) * sizeof(*host->first));
	assert_memory_equal(host->slot, there.slot, n * sizeof(*host->slot));
	assert_memory_equal(host->out_row, there.out_row, n * sizeof(*host->out_row));
	assert_memory_equal(host->pages, there.pages, n * STRIDE * sizeof(*host->pages));
	for (uint32_t i = 0; i < n; i++)
		assert_memory_equal(host->edits + host->how[i].edits,
			there.edits + host->how[i].edits,
			host->how[i].n_bias * sizeof(*host->edits));
}

static void a_mirror_follows_with_each_step(void **state)
{
	struct bench *b = bench_create();
	struct sample_edit bias[] = {{7, 1.5f}, {9, -2.0f}};
	struct row_past past = {.edits = bias, .n_edits = COUNT(bias)};
	struct row_terms biased = {.tag = 103,
		.table = 3,
		.n_pages = 1,
		.slot = 4,
		.steps = 9,
		.how = {.n_bias = COUNT(bias)},
		.past = &past};
	struct device d = {.mirror = mem_alloc(1, b->batch.in_bytes)};
	struct eng_token last;

	(void)state;
	memset(d.mirror, 0xA5, b->batch.in_bytes);
	join(b, 0, 62, 1, 100);
	join(b, 1, 10, 1, 100);
	for (uint32_t i = 0; i < 12; i++) {
		if (i == 3) /* row 0 stands at the end of its page since step 2 */
			rows_grow(&b->rows, 0, 2);
		if (i == 5)
			rows_join(&b->rows, &biased);
		if (i == 9)
			rows_leave(&b->rows, 1, &last);
		assert_true(rows_build(&b->rows, &b->batch));
		/* Nothing but the moving part while the rows stay as they are. */
		assert_int_equal(i == 1 || i == 4 || i == 6 || i == 7 || i == 8 || i > 9,
			follow(b, &d) == 1);
		assert_follows(b, &d);
		(void)step(b);
	}
	mem_free(d.mirror);
	bench_destroy(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_holds_the_rows_in_order_of_joining),
		cmocka_unit_test(rows_stop_at_their_bounds),
		cmocka_unit_test(a_page_is_cleared_when_a_row_enters_it),
		cmocka_unit_test(forced_inputs_replace_sampled_ones),
		cmocka_unit_test(a_row_that_is_not_finite_stops),
		cmocka_unit_test(a_mirror_follows_with_each_step),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
