/* The bytes and operations that op_bench divides by, against numbers worked out by hand
 * from the ops' definitions. */
#include <stdarg.h>
#include <stddef.h>

#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

/* It belongs to a program, not to a library. */
#include "tests/bench/op_work.c"

#include <math.h>
#include <string.h>

static struct check_case *make(enum op_id op, enum weight_format format,
	const struct kernel_shapes *s, uint32_t number, struct check_layout layout)
{
	struct check_limits limits = {
		.weight_elements = 1u << 20, .products = UINT64_MAX, .layout = &layout};

	return check_case_create(op, format, s, number, &limits);
}

static struct check_layout rows_of(uint32_t rows)
{
	return (struct check_layout){1, {0}, {rows}};
}

static void set_words(struct check_case *c, const char *name, const uint32_t *to)
{
	for (uint32_t i = 0; i < c->n_buffers; i++) {
		struct check_buffer *b = &c->buffers[i];

		if (strcmp(b->name, name) == 0) {
			memcpy(b->host, to, b->rows * b->stride * sizeof(*to));
			return;
		}
	}
	fail_msg("no buffer %s", name);
}

/* Integers are exact; only c^3 / 3 of a chunk is none. */
static void expect(
	struct check_case *c, enum dtype act, double read, double written, double flops)
{
	struct op_work w = op_work_of(c, act);

	assert_true(w.read == read);
	assert_true(w.written == written);
	assert_true(fabs(w.flops - flops) <= 1e-12 * flops);
	check_case_destroy(c);
}

static void products_count_weights_with_their_scales(void **state)
{
	/* 16 rows of 32 weights, 3 rows. */
	const struct kernel_shapes s = {
		.hidden = 32, .n_q = 1, .head_dim = 8, .vocab = 48, .out_max = 9};
	static const struct {
		enum weight_format format;
		double bytes;
	} kinds[] = {{WF_F32, 2048}, {WF_BF16, 1024}, {WF_NVFP4, 256 + 32 + 4},
		{WF_FP8, 512 + 4}};

	(void)state;
	for (uint32_t i = 0; i < COUNT(kinds); i++)
		expect(make(OP_linear, kinds[i].format, &s, 0, rows_of(3)), DT_BF16,
			2 * 3 * 32 + kinds[i].bytes, 2 * 3 * 16, 2 * 3 * 16 * 32);
	expect(make(OP_linear, WF_F32, &s, 0, rows_of(3)), DT_F32, 4 * 3 * 32 + 2048,
		4 * 3 * 16, 2 * 3 * 16 * 32);
	/* Logits are F32; the list of rows is read. */
	expect(make(OP_head, WF_BF16, &s, 0, rows_of(3)), DT_BF16,
		2 * 3 * 32 + 4 * 3 + 2 * 48 * 32, 4 * 3 * 48, 2 * 3 * 48 * 32);
}

static void experts_count_once_however_many_rows_chose_them(void **state)
{
	const struct kernel_shapes s = {.hidden = 32,
		.n_experts = 4,
		.top_k = 2,
		.width = 16,
		.shared_width = 48,
		.rows_max = 8};
	static const uint32_t ids[6] = {3, 1, 1, 3, 1, 3}, other[6] = {0, 1, 2, 1, 3, 0};
	double expert = 3 * 32 * 16, shared = 3 * 32 * 48;
	struct check_case *c = make(OP_moe, WF_BF16, &s, 0, rows_of(3));

	(void)state;
	set_words(c, "ids", ids);
	expect(c, DT_BF16, 2 * 3 * 32 + 8 * 6 + 4 * 3 + 2 * (2 * expert + shared),
		2 * 3 * 32, 2 * 6 * expert + 2 * 3 * shared);
	c = make(OP_moe, WF_BF16, &s, 0, rows_of(3));
	set_words(c, "ids", other);
	expect(c, DT_BF16, 2 * 3 * 32 + 8 * 6 + 4 * 3 + 2 * (4 * expert + shared),
		2 * 3 * 32, 2 * 6 * expert + 2 * 3 * shared);
	/* The router: all logits, or those of the ids that were given. */
	expect(make(OP_moe_route, WF_F32, &s, 2, rows_of(3)), DT_BF16,
		2 * 3 * 32 + 2 * 5 * 32, 8 * 6 + 4 * 3, 2 * 3 * 5 * 32);
	c = make(OP_moe_route, WF_F32, &s, 1, rows_of(3));
	set_words(c, "forced", ids);
	expect(c, DT_BF16, 2 * 3 * 32 + 2 * 3 * 32 + 4 * 6, 8 * 6 + 4 * 3, 2 * 9 * 32);
}

static void attention_counts_causal_pairs_and_each_key_once(void **state)
{
	const struct kernel_shapes s = {.n_q = 4,
		.n_kv = 2,
		.head_dim = 16,
		.rotary = 8,
		.page_tokens = 4,
		.kv_dtype = DT_BF16};
	/* Rows at 5; none; at 9 and 10: 6, 10 and 11 positions, of 6 and 11 tokens. */
	const struct check_layout l = {3, {5, 7, 9}, {1, 0, 2}};

	(void)state;
	expect(make(OP_attn_prefill, WF_F32, &s, 0, l), DT_BF16,
		2 * 2 * 3 * 4 * 16 + 2 * 17 * 2 * 2 * 16, 2 * 3 * 4 * 16,
		4 * 4 * 16 * (6 + 10 + 11));
	/* Queries without gates, keys and values; norm of all, angles of 8 elements. */
	expect(make(OP_attn_prep, WF_F32, &s, 0, l), DT_BF16,
		2 * 3 * 16 * (4 + 2 + 2) + 4 * (16 + 16 + 4),
		2 * 3 * 16 * 4 + 2 * 3 * 16 * 4, 3 * 6 * (4 * 16 + 3 * 8));
}

static void states_count_once_per_sequence_that_has_rows(void **state)
{
	const struct kernel_shapes s = {.n_k = 2,
		.n_v = 4,
		.dk = 8,
		.dv = 8,
		.taps = 4,
		.page_tokens = 4,
		.conv_dtype = DT_BF16};
	const struct check_layout l = {3, {5, 7, 9}, {1, 0, 1}};
	const double states = 2 * 4.0 * 4 * 8 * 8, convs = 2 * 2.0 * 64 * 3;
	/* Per row: q, k, v, z; then g, beta; y. */
	const double in = 2 * (16 + 16 + 32 + 32) + 4 * 8, out = 2 * 32;

	(void)state;
	expect(make(OP_gdn_decode, WF_F32, &s, 0, l), DT_BF16, 2 * in + 4 * 8 + states,
		2 * out + states, 7 * 2 * 4 * 8 * 8);
	expect(make(OP_gdn_prep, WF_F32, &s, 0, l), DT_BF16,
		2 * 2 * (64 + 8) + 4 * (64 * 4 + 8) + convs,
		2 * 2 * 64 + 2 * 4 * 8 + convs, 2 * (2 * 64 * 4 + 2 * 3 * 16));
	/* A chunk of 64 rows and one of 3. c^3 / 3 is 9 for the latter. */
	expect(make(OP_gdn_prefill, WF_F32, &s, 0, rows_of(67)), DT_BF16,
		67 * in + 4 * 8 + states / 2, 67 * out + states / 2,
		2 * 2 * (4096 + 9) * 8.0 + 4 * (64.0 * 64 * 64 / 3 + 9) +
			4 * (6 * 67 * 8 * 8 + 2 * (4096 + 9) * 8.0));
}

static void rows_count_what_they_need(void **state)
{
	const struct kernel_shapes s = {.hidden = 32,
		.vocab = 64,
		.n_valid = 60,
		.out_max = 16,
		.dense_width = 24};
	static const uint32_t ids[4] = {5, 7, 5, 5};
	struct check_case *c = make(OP_embed, WF_F32, &s, 0, rows_of(4));

	(void)state;
	set_words(c, "ids", ids);
	expect(c, DT_BF16, 4 * 4 + 2 * 4 * 32, 2 * 4 * 32, 0);
	expect(make(OP_add_norm, WF_F32, &s, 0, rows_of(4)), DT_BF16, 2 * 4 * 32 + 4 * 32,
		2 * 4 * 32, 4 * 32 * 5);
	expect(make(OP_add_norm, WF_F32, &s, 1, rows_of(4)), DT_BF16,
		2 * 2 * 4 * 32 + 4 * 32, 2 * 2 * 4 * 32, 4 * 32 * 6);
	expect(make(OP_swiglu, WF_F32, &s, 0, rows_of(4)), DT_BF16, 2 * 2 * 4 * 24,
		2 * 4 * 24, 2 * 4 * 24);
	/* Of the first nine rows one, the last, has penalties. */
	expect(make(OP_sample, WF_F32, &s, 0, rows_of(9)), DT_BF16,
		9 * (double)sizeof(struct sample_row) + 60 * (9 * 4 + 2), 12 * 9,
		2 * 9 * 60);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(products_count_weights_with_their_scales),
		cmocka_unit_test(experts_count_once_however_many_rows_chose_them),
		cmocka_unit_test(attention_counts_causal_pairs_and_each_key_once),
		cmocka_unit_test(states_count_once_per_sequence_that_has_rows),
		cmocka_unit_test(rows_count_what_they_need),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
