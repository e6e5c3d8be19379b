/* Ops whose rows belong to sequences: attention and the gated delta rule. */
#include "tests/device/op_test.h"

#include "common/base/attr.h"

/* Several sequences with page borders, very short rows, one that rests (0 rows). */
static const struct check_layout mixed = {6, {0, 7, 63, 64, 133, 50}, {2, 1, 3, 1, 9, 0}};

static void with_layout(
	struct op_test *t, const struct op_case *c, struct check_layout layout)
{
	struct op_case one = *c;

	one.layout = layout;
	op_test_case(t, &one);
}

/* Passes of many rows: nothing, one, tiles of 64 and one around them, continuations. */
static void each_pass(struct op_test *t, const struct op_case *c)
{
	static const uint32_t passes[][2] = {{0, 1}, {0, 2}, {0, 3}, {5, 3}, {0, 31},
		{0, 63}, {0, 64}, {0, 65}, {1, 63}, {100, 64}, {64, 129}, {33, 200}};

	with_layout(t, c, (struct check_layout){0});
	with_layout(t, c, mixed);
	for (uint32_t i = 0; i < (op_test_small(t) ? 4 : COUNT(passes)); i++)
		op_test_rows(t, c, passes[i][0], passes[i][1]);
	if (op_test_small(t))
		op_test_rows(t, c, 3, 67);
	else
		with_layout(t, c, (struct check_layout){3, {0, 300, 64}, {70, 130, 65}});
}

static void each_decode(struct op_test *t, const struct op_case *c)
{
	with_layout(t, c, (struct check_layout){0});
	with_layout(t, c, op_decode_layout(1, 1));
	with_layout(t, c, op_decode_layout(1, 33));
	with_layout(t, c, op_decode_layout(3, 130));
	if (op_test_small(t))
		return;
	with_layout(t, c, op_decode_layout(1, 64));
	with_layout(t, c, op_decode_layout(1, 65));
	with_layout(t, c, op_decode_layout(2, 1000));
	with_layout(t, c, op_decode_layout(7, 257));
	with_layout(t, c, op_decode_layout(64, 190));
}

/* GQA ratios 1, 2, 4, 6, 8, 16 and one past a full tile; other page sizes. */
static void each_heads(struct op_test *t, enum op_id op,
	void (*each)(struct op_test *t, const struct op_case *c))
{
	static const struct {
		const char *name;
		uint32_t n_q, n_kv, page_tokens;
	} kinds[] = {{"ratio 2", 4, 2, 64}, {"ratio 8", 16, 2, 64}, {"ratio 1", 3, 3, 64},
		{"ratio 4", 4, 1, 64}, {"ratio 6", 6, 1, 64}, {"ratio 16", 16, 1, 64},
		{"ratio 20", 20, 1, 64}, {"pages of 16", 4, 2, 16},
		{"pages of 1", 4, 2, 1}};
	struct kernel_shapes s = shapes_demo;

	for (uint32_t i = 0; i < (op_test_small(t) ? 2 : COUNT(kinds)); i++) {
		struct op_case c = {.op = op, .shapes = &s, .name = kinds[i].name};

		s.n_q = kinds[i].n_q;
		s.n_kv = kinds[i].n_kv;
		s.page_tokens = kinds[i].page_tokens;
		each(t, &c);
	}
}

/* Head sizes that no kernel has. */
static void refuse(struct op_test *t, enum op_id op)
{
	struct kernel_shapes s = shapes_demo;
	struct op_case c = {
		.op = op, .shapes = &s, .name = "other heads", .refused = true};

	s.head_dim = 128;
	s.dk = 64;
	op_test_rows(t, &c, 0, 1);
}

static void run_attn_prep(struct op_test *t)
{
	struct op_case c = {.op = OP_attn_prep, .name = "35B", .shapes = &shapes_35b};
	struct kernel_shapes s = shapes_demo;

	each_heads(t, OP_attn_prep, each_pass);
	op_test_rows(t, &c, 250000, 3); /* angles of many turns */
	c.shapes = &s;
	c.name = "all dims turn, F32 pages";
	s.rotary = 256;
	s.kv_dtype = DT_F32;
	with_layout(t, &c, mixed);
	c.name = "nothing turns";
	s.rotary = 0;
	with_layout(t, &c, mixed);
	refuse(t, OP_attn_prep);
}

static void run_attn_prefill(struct op_test *t)
{
	struct op_case c = {.op = OP_attn_prefill,
		.name = "35B",
		.shapes = &shapes_35b,
		.large = true};

	each_heads(t, OP_attn_prefill, each_pass);
	refuse(t, OP_attn_prefill);
	if (op_test_small(t))
		return;
	with_layout(
		t, &c, (struct check_layout){4, {0, 511, 4000, 64}, {513, 1, 77, 300}});
	op_test_rows(t, &c, 0, 512);
	op_test_rows(t, &c, 8000, 256);
	op_test_rows(t, &c, 8000, 300);
	op_test_rows(t, &c, 0, 4096);
	op_test_rows(t, &c, 14000, 2048);
}

static void run_attn_decode(struct op_test *t)
{
	struct op_case c = {.op = OP_attn_decode, .name = "35B", .shapes = &shapes_35b};

	each_heads(t, OP_attn_decode, each_decode);
	refuse(t, OP_attn_decode);
	if (op_test_small(t))
		return;
	with_layout(t, &c, op_decode_layout(1, 4096));
	with_layout(t, &c, op_decode_layout(5, 3001));
	c.large = true;
	with_layout(t, &c, op_decode_layout(1, 32768));
	with_layout(t, &c, op_decode_layout(16, 8192));
	with_layout(t, &c, op_decode_layout(64, 8192));
}

static void each_values(struct op_test *t, enum op_id op,
	void (*each)(struct op_test *t, const struct op_case *c))
{
	static const struct {
		const char *name;
		uint32_t n_k, n_v;
	} kinds[] = {{"2 to 6 heads", 2, 6}, {"1 head", 1, 1}, {"2 to 4 heads", 2, 4},
		{"16 to 32 heads", 16, 32}};
	struct kernel_shapes s = shapes_demo;

	for (uint32_t i = 0; i < (op_test_small(t) ? 2 : COUNT(kinds)); i++) {
		struct op_case c = {.op = op, .shapes = &s, .name = kinds[i].name};

		s.n_k = kinds[i].n_k;
		s.n_v = kinds[i].n_v;
		each(t, &c);
	}
}

static void run_gdn_prep(struct op_test *t)
{
	struct kernel_shapes s = shapes_demo;
	struct op_case c = {.op = OP_gdn_prep, .shapes = &s, .name = "F32 conv state"};

	each_values(t, OP_gdn_prep, each_pass);
	each_values(t, OP_gdn_prep, each_decode);
	/* From 513 rows on a block takes several. */
	op_test_rows(t, &c, 9, 530);
	s.conv_dtype = DT_F32;
	with_layout(t, &c, mixed);
	with_layout(t, &c, (struct check_layout){4, {0, 3, 1, 0}, {511, 1, 2, 3}});
	refuse(t, OP_gdn_prep);
	if (op_test_small(t))
		return;
	c = (struct op_case){
		.op = OP_gdn_prep, .shapes = &shapes_35b, .name = "35B", .large = true};
	op_test_rows(t, &c, 0, 8192);
	with_layout(t, &c, op_decode_layout(64, 64));
}

static void run_gdn_prefill(struct op_test *t)
{
	struct kernel_shapes s = shapes_demo;
	struct op_case c = {.op = OP_gdn_prefill, .shapes = &s, .name = "sigmoid gate"};

	each_values(t, OP_gdn_prefill, each_pass);
	s.sigmoid_gate = true;
	with_layout(t, &c, mixed);
	refuse(t, OP_gdn_prefill);
	if (op_test_small(t))
		return;
	c = (struct op_case){.op = OP_gdn_prefill,
		.shapes = &shapes_35b,
		.name = "35B",
		.large = true};
	op_test_rows(t, &c, 0, 4096);
	with_layout(t, &c, (struct check_layout){4, {0, 9, 1, 64}, {2048, 1, 1000, 777}});
}

static void run_gdn_decode(struct op_test *t)
{
	struct kernel_shapes s = shapes_demo;
	struct op_case c = {.op = OP_gdn_decode, .shapes = &s, .name = "sigmoid gate"};

	each_values(t, OP_gdn_decode, each_decode);
	s.sigmoid_gate = true;
	with_layout(t, &c, op_decode_layout(3, 9));
	refuse(t, OP_gdn_decode);
	if (op_test_small(t))
		return;
	c = (struct op_case){
		.op = OP_gdn_decode, .shapes = &shapes_35b, .name = "35B", .large = true};
	with_layout(t, &c, op_decode_layout(1, 9));
	with_layout(t, &c, op_decode_layout(16, 16));
	with_layout(t, &c, op_decode_layout(64, 64));
}

const struct op_suite suite_attn_prep = {OP_attn_prep, run_attn_prep};
const struct op_suite suite_attn_prefill = {OP_attn_prefill, run_attn_prefill};
const struct op_suite suite_attn_decode = {OP_attn_decode, run_attn_decode};
const struct op_suite suite_gdn_prep = {OP_gdn_prep, run_gdn_prep};
const struct op_suite suite_gdn_prefill = {OP_gdn_prefill, run_gdn_prefill};
const struct op_suite suite_gdn_decode = {OP_gdn_decode, run_gdn_decode};
