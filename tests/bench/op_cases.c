/* Tables of rows and layouts. */
#include "tests/bench/op_cases.h"

#include "common/base/attr.h"
#include "tests/device/op_test.h"

#define MEGA         (UINT64_C(1) << 20)
#define ROWS_MAX     6u
/* Most of a small run, which the CPU's plain kernels can do. */
#define SMALL_ROWS   64u
#define SMALL_TOKENS 100u
#define SMALL_SEQS   16u
#define SQUARE       8192u
#define SMALL_SQUARE 512u

struct walk {
	bool small;
	const struct kernel_shapes *shapes;
	void (*run)(void *arg, const struct bench_case *c);
	void *arg;
};

/* One sequence that has `past` tokens. */
static struct check_layout one_sequence(uint32_t past, uint32_t rows)
{
	return (struct check_layout){1, {past}, {rows}};
}

static void run_rows(const struct walk *w, struct bench_case *c, uint32_t rows)
{
	if (rows == 0 || (w->small && rows > SMALL_ROWS))
		return;
	c->layout = one_sequence(0, rows);
	w->run(w->arg, c);
}

/* y of n from x of k: case 0 of linear has 2 * n_q * head_dim rows of weights, and rows
 * of activations that are dense. */
static void run_product(const struct walk *w, enum weight_format format, uint32_t k,
	uint32_t n, const uint32_t *rows)
{
	struct bench_case c = {.op = OP_linear,
		.format = format,
		.shapes = *w->shapes,
		.weight_elements = 64 * MEGA};

	c.shapes.hidden = k;
	c.shapes.n_q = 1;
	c.shapes.head_dim = n / 2;
	for (uint32_t i = 0; i < ROWS_MAX; i++)
		run_rows(w, &c, rows[i]);
}

/* The projections of a layer, as common/engine calls them: q with its gate and GDN's
 * q, k, v are 2048 to 8192 in the 35B-A3B, z 2048 to 4096, both outputs 4096 to 2048, k
 * and v 2048 to 512, GDN's a and b 2048 to 32. */
static void run_projections(const struct walk *w)
{
	static const uint32_t all[ROWS_MAX] = {1, 16, 64, 512, 2048, 8192};
	static const uint32_t few[ROWS_MAX] = {1, 64, 2048};
	static const uint32_t packed[ROWS_MAX] = {1, 16, 64, 2048};
	const struct kernel_shapes *s = w->shapes;
	uint32_t queries = 2 * s->n_q * s->head_dim, inner = s->n_v * s->dv;

	run_product(w, WF_BF16, s->hidden, queries, all);
	run_product(w, WF_BF16, s->hidden, inner, all);
	run_product(w, WF_BF16, inner, s->hidden, all);
	run_product(w, WF_BF16, s->hidden, s->n_kv * s->head_dim, few);
	run_product(w, WF_BF16, s->hidden, s->n_v, few);
	run_product(w, WF_FP8, s->hidden, queries, packed);
	run_product(w, WF_FP8, inner, s->hidden, packed);
	run_product(w, WF_NVFP4, s->hidden, queries, packed);
	run_product(w, WF_NVFP4, inner, s->hidden, packed);
}

/* Ops whose rows belong to no sequence. 512M elements hold the whole head; 256M all 256
 * experts, 64M 64 of them. Number 0 of moe in NVFP4 has a BF16 shared expert, 1 of
 * add_norm adds, 2 of moe_route has a BF16 router and chooses itself. */
static const struct {
	enum op_id op;
	enum weight_format format;
	uint32_t number;
	uint64_t weight_elements;
	uint32_t rows[ROWS_MAX];
} row_cases[] = {
	{OP_moe, WF_NVFP4, 0, 256 * MEGA, {1, 16, 64, 2048}},
	{OP_head, WF_BF16, 0, 512 * MEGA, {1, 16, 64}},
	{OP_head, WF_NVFP4, 0, 512 * MEGA, {1, 16, 64}},
	{OP_moe_route, WF_F32, 2, 64 * MEGA, {1, 16, 64, 2048, 8192}},
	{OP_sample, WF_F32, 0, 0, {1, 64}},
	{OP_add_norm, WF_F32, 1, 0, {1, 16, 64, 2048, 8192}},
	{OP_embed, WF_BF16, 0, 64 * MEGA, {1, 64, 8192}},
	{OP_swiglu, WF_F32, 0, 0, {1, 64, 8192}},
	{OP_moe, WF_BF16, 0, 64 * MEGA, {1, 16, 64, 2048}},
	{OP_head, WF_FP8, 0, 512 * MEGA, {1, 16, 64}},
};

static void run_row_cases(const struct walk *w)
{
	for (uint32_t i = 0; i < COUNT(row_cases); i++) {
		struct bench_case c = {.op = row_cases[i].op,
			.format = row_cases[i].format,
			.number = row_cases[i].number,
			.shapes = *w->shapes,
			.weight_elements = row_cases[i].weight_elements};

		for (uint32_t r = 0; r < ROWS_MAX; r++)
			run_rows(w, &c, row_cases[i].rows[r]);
	}
}

/* seqs > 0: that many sequences up to `tokens`, one row each; 0: one sequence, `rows`
 * rows after `tokens`. */
static const struct {
	enum op_id op;
	uint32_t seqs, tokens, rows;
} seq_cases[] = {
	{OP_attn_decode, 1, 8192, 0},
	{OP_attn_decode, 1, 32768, 0},
	{OP_attn_decode, 16, 8192, 0},
	{OP_attn_decode, 64, 8192, 0},
	{OP_attn_prefill, 0, 0, 512},
	{OP_attn_prefill, 0, 0, 4096},
	{OP_attn_prefill, 0, 14000, 2048},
	{OP_gdn_decode, 1, 9, 0},
	{OP_gdn_decode, 16, 16, 0},
	{OP_gdn_decode, 64, 64, 0},
	{OP_gdn_prefill, 0, 0, 512},
	{OP_gdn_prefill, 0, 0, 4096},
	{OP_gdn_prep, 1, 64, 0},
	{OP_gdn_prep, 16, 64, 0},
	{OP_gdn_prep, 64, 64, 0},
	{OP_gdn_prep, 0, 0, 2048},
	{OP_gdn_prep, 0, 0, 8192},
	{OP_attn_prep, 1, 64, 0},
	{OP_attn_prep, 16, 64, 0},
	{OP_attn_prep, 64, 64, 0},
	{OP_attn_prep, 0, 0, 2048},
	{OP_attn_prep, 0, 0, 8192},
};

static void run_seq_cases(const struct walk *w)
{
	for (uint32_t i = 0; i < COUNT(seq_cases); i++) {
		struct bench_case c = {.op = seq_cases[i].op, .shapes = *w->shapes};
		uint32_t tokens = seq_cases[i].tokens, rows = seq_cases[i].rows;
		uint32_t seqs = seq_cases[i].seqs;

		if (w->small) {
			seqs = MIN(seqs, SMALL_SEQS);
			tokens = MIN(tokens, SMALL_TOKENS);
			rows = MIN(rows, SMALL_ROWS);
		}
		c.layout = seqs > 0 ? op_decode_layout(seqs, tokens)
				    : one_sequence(tokens, rows);
		w->run(w->arg, &c);
	}
}

void op_cases_each(
	bool small, void (*run)(void *arg, const struct bench_case *c), void *arg)
{
	struct walk w = {small, small ? &shapes_demo : &shapes_35b, run, arg};
	uint32_t side = small ? SMALL_SQUARE : SQUARE;
	const uint32_t square[ROWS_MAX] = {small ? SMALL_ROWS : SQUARE};

	run_product(&w, WF_BF16, side, side, square);
	run_projections(&w);
	run_seq_cases(&w);
	run_row_cases(&w);
}
