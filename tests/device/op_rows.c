/* Ops whose rows belong to no sequence: embed, add_norm, swiglu, moe_route. */
#include "tests/device/op_test.h"

#include "common/base/attr.h"

static const uint32_t row_counts[] = {1, 0, 2, 7, 8, 9, 63, 64, 65, 255, 257};

/* The first row counts in a small run. */
static uint32_t n_counts(const struct op_test *t)
{
	return op_test_small(t) ? 4 : COUNT(row_counts);
}

static void each_count(struct op_test *t, const struct op_case *c)
{
	for (uint32_t i = 0; i < n_counts(t); i++)
		op_test_rows(t, c, 0, row_counts[i]);
}

static void run_embed(struct op_test *t)
{
	static const enum weight_format formats[] = {WF_F32, WF_BF16};

	for (uint32_t i = 0; i < COUNT(formats); i++) {
		struct op_case c = {.op = OP_embed, .format = formats[i]};

		c.shapes = &shapes_tiny_dense;
		c.name = "tiny";
		each_count(t, &c);
		c.shapes = &shapes_35b;
		c.name = "35B";
		op_test_rows(t, &c, 0, 67);
	}
}

static void run_add_norm(struct op_test *t)
{
	static const uint32_t widths[] = {64, 96, 128, 2048, 2056, 4096, 8192};
	struct kernel_shapes s = shapes_demo;

	for (uint32_t w = 0; w < (op_test_small(t) ? 4 : COUNT(widths)); w++) {
		struct op_case c = {.op = OP_add_norm, .shapes = &s, .name = "width"};

		s.hidden = widths[w];
		each_count(t, &c);
		c.number = 1; /* with something to add */
		each_count(t, &c);
	}
	if (!op_test_small(t)) {
		struct op_case c = {.op = OP_add_norm,
			.shapes = &s,
			.name = "35B",
			.number = 1,
			.large = true};

		s.hidden = 2048;
		op_test_rows(t, &c, 0, 8192);
		c.large = false;
		c.refused = true;
		s.hidden = 132;
		op_test_rows(t, &c, 0, 3);
		s.hidden = 8200;
		op_test_rows(t, &c, 0, 3);
	}
}

static void run_swiglu(struct op_test *t)
{
	static const uint32_t widths[] = {1, 7, 64, 96, 512, 513, 2048, 17408};
	struct kernel_shapes s = shapes_demo;
	struct op_case c = {.op = OP_swiglu, .shapes = &s, .name = "width"};

	s.shared_width = 0;
	for (uint32_t w = 0; w < (op_test_small(t) ? 4 : COUNT(widths)); w++) {
		s.dense_width = s.width = widths[w];
		each_count(t, &c);
	}
}

/* Rows around the borders between kernels: 8, 16 and 64 (clusters of rows). The first
 * four in a small run, the first five with an F32 router. */
static void each_route_count(struct op_test *t, const struct op_case *c)
{
	static const uint32_t rows[] = {1, 0, 5, 17, 67, 8, 9, 16, 33, 64, 65};
	uint32_t n = op_test_small(t) ? 4 : c->number == 0 ? 5 : COUNT(rows);

	for (uint32_t i = 0; i < n; i++)
		op_test_rows(t, c, 0, rows[i]);
}

static void run_moe_route(struct op_test *t)
{
	static const struct {
		const char *name;
		uint32_t hidden, n_experts, top_k;
	} kinds[] = {{"tiny", 64, 8, 3}, {"next", 64, 16, 5}, {"demo", 128, 16, 4},
		{"odd", 72, 33, 7}, {"all", 64, 8, 8}, {"35B", 2048, 256, 8},
		{"397B", 4096, 512, 10}, {"most", 256, 1024, 32}, {"122B", 3072, 256, 8},
		{"long", 2312, 40, 6}};
	struct kernel_shapes s = shapes_demo;

	for (uint32_t i = 0; i < (op_test_small(t) ? 4 : COUNT(kinds)); i++) {
		struct op_case c = {
			.op = OP_moe_route, .shapes = &s, .name = kinds[i].name};

		s.hidden = kinds[i].hidden;
		s.n_experts = kinds[i].n_experts;
		s.top_k = kinds[i].top_k;
		/* 0: F32 router; 1: BF16, forced ids; 2: BF16. */
		for (c.number = 0; c.number < 3; c.number++) {
			s.shared_width = c.number == 2 && i == 0 ? 0 : 64;
			each_route_count(t, &c);
		}
		if (i < 4) {
			c.number = 2; /* from 512 rows on several share a block */
			op_test_rows(t, &c, 0, 513);
		}
	}
	if (!op_test_small(t)) {
		struct op_case c = {.op = OP_moe_route,
			.shapes = &shapes_35b,
			.name = "35B",
			.number = 2,
			.large = true};

		op_test_rows(t, &c, 0, 1);
		op_test_rows(t, &c, 0, 16);
		op_test_rows(t, &c, 0, 64);
		op_test_rows(t, &c, 0, 8192);
	}
}

const struct op_suite suite_embed = {OP_embed, run_embed};
const struct op_suite suite_add_norm = {OP_add_norm, run_add_norm};
const struct op_suite suite_swiglu = {OP_swiglu, run_swiglu};
const struct op_suite suite_moe_route = {OP_moe_route, run_moe_route};
