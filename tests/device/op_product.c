/* Ops that are matrix products: linear, head, moe. Row counts stand around the borders
 * between kernels: 4 rows (moe without sorting), 8 and 16 (streaming), 64 (a tile), 128
 * (a large one). The first of them, of a small run, reach every kernel. */
#include "tests/device/op_test.h"

#include "common/base/attr.h"

static const uint32_t row_counts[] = {1, 0, 5, 17, 129, 2, 3, 4, 7, 8, 9, 15, 16, 63, 64,
	65, 127, 128, 255, 256, 257, 385};

static void each_count(struct op_test *t, const struct op_case *c)
{
	for (uint32_t i = 0; i < (op_test_small(t) ? 5 : COUNT(row_counts)); i++)
		op_test_rows(t, c, 0, row_counts[i]);
}

static void run_linear(struct op_test *t)
{
	/* Case numbers choose the projection: 0 query and gate, 1 output, 2 GDN, and 3
	 * the narrow ones of the gates. */
	static const struct {
		const char *name;
		uint32_t hidden, n_q, n_v, dense_width;
	} kinds[] = {{"demo", 128, 4, 4, 0}, {"narrow", 64, 1, 16, 192},
		{"wide", 576, 2, 16, 320}};
	struct kernel_shapes s = shapes_demo;

	for (int f = 0; f < WF__COUNT; f++) {
		for (uint32_t i = 0; i < (op_test_small(t) ? 1 : COUNT(kinds)); i++) {
			struct op_case c = {.op = OP_linear,
				.format = (enum weight_format)f,
				.shapes = &s,
				.name = kinds[i].name};

			s.hidden = kinds[i].hidden;
			s.n_q = kinds[i].n_q;
			s.n_v = kinds[i].n_v;
			s.dense_width = kinds[i].dense_width;
			for (c.number = 0; c.number < (i == 0 ? 3 : 4); c.number++) {
				/* NVFP4 rows of weights come in sixteens. */
				if (f == WF_NVFP4 && c.number == 3 && s.n_v % 16 != 0)
					continue;
				each_count(t, &c);
			}
		}
	}
}

/* The tails that only some formats have: rows of weights that fill no tile, k that fills
 * no chunk. */
static void run_linear_tails(struct op_test *t)
{
	static const enum weight_format formats[] = {WF_BF16, WF_FP8};

	for (uint32_t f = 0; f < COUNT(formats) && !op_test_small(t); f++) {
		struct kernel_shapes s = shapes_tiny_dense;
		struct op_case c = {.op = OP_linear,
			.format = formats[f],
			.shapes = &s,
			.name = "tails",
			.number = 3};

		s.hidden = 144;
		for (s.n_v = 3; s.n_v < 60; s.n_v += 19)
			each_count(t, &c);
		/* So many rows that a block may take more of the weights, too. */
		op_test_rows(t, &c, 0, 121 * 128 + 1);
	}
}

/* Weights whose rows stand around the borders between heights of tiles (4 up to 528, 8 up
 * to 1056), of k that a warp has in flight at once and k that it has not. */
static void run_linear_narrow(struct op_test *t)
{
	static const uint32_t hidden[] = {2048, 4160}, widths[] = {32, 528, 544, 1072};
	static const uint32_t rows[] = {1, 9, 17};
	struct kernel_shapes s = shapes_demo;

	for (int f = WF_BF16; f < WF__COUNT && !op_test_small(t); f++) {
		for (uint32_t i = 0; i < COUNT(hidden) * COUNT(widths); i++) {
			struct op_case c = {.op = OP_linear,
				.format = (enum weight_format)f,
				.shapes = &s,
				.name = "narrow",
				.number = 3};

			s.hidden = hidden[i / COUNT(widths)];
			s.n_v = widths[i % COUNT(widths)];
			for (uint32_t r = 0; r < COUNT(rows); r++)
				op_test_rows(t, &c, 0, rows[r]);
		}
	}
}

static void run_linear_large(struct op_test *t)
{
	static const uint32_t rows[] = {1, 16, 17, 64, 512, 2048};

	for (int f = WF_BF16; f < WF__COUNT && !op_test_small(t); f++) {
		struct op_case c = {.op = OP_linear,
			.format = (enum weight_format)f,
			.shapes = &shapes_35b,
			.name = "35B",
			.number = 2};

		op_test_rows(t, &c, 0, 5);
		c.large = true;
		for (uint32_t i = 0; i < COUNT(rows); i++)
			op_test_rows(t, &c, 0, rows[i]);
		for (c.number = 1; c.number < 4; c.number += 2) {
			op_test_rows(t, &c, 0, 1);
			op_test_rows(t, &c, 0, 16);
		}
	}
}

static void run_linear_all(struct op_test *t)
{
	run_linear(t);
	run_linear_tails(t);
	run_linear_narrow(t);
	run_linear_large(t);
}

static void run_head(struct op_test *t)
{
	for (int f = 0; f < WF__COUNT; f++) {
		struct op_case c = {.op = OP_head,
			.format = (enum weight_format)f,
			.shapes = &shapes_demo,
			.name = "demo"};

		each_count(t, &c);
		if (op_test_small(t))
			continue;
		if (f != WF_NVFP4) {
			c.shapes = &shapes_tiny_dense;
			c.name = "tiny";
			each_count(t, &c);
		}
		c.shapes = &shapes_35b;
		c.name = "35B";
		if (f == WF_F32)
			continue;
		op_test_rows(t, &c, 0, 2);
		c.large = true;
		op_test_rows(t, &c, 0, 1);
		op_test_rows(t, &c, 0, 16);
		op_test_rows(t, &c, 0, 64);
	}
}

static void run_moe(struct op_test *t)
{
	static const struct {
		const char *name;
		uint32_t hidden, n_experts, top_k, width, shared_width;
	} kinds[] = {{"demo", 128, 16, 4, 64, 64}, {"all", 64, 4, 4, 64, 0},
		{"few", 192, 64, 2, 128, 320}, {"one", 128, 1, 1, 64, 64}};
	struct kernel_shapes s = shapes_demo;

	for (int f = 0; f < WF__COUNT; f++) {
		for (uint32_t i = 0; i < (op_test_small(t) ? 2 : COUNT(kinds)); i++) {
			struct op_case c = {.op = OP_moe,
				.format = (enum weight_format)f,
				.shapes = &s,
				.name = kinds[i].name};

			s.hidden = kinds[i].hidden;
			s.n_experts = kinds[i].n_experts;
			s.top_k = kinds[i].top_k;
			s.width = kinds[i].width;
			s.shared_width = kinds[i].shared_width;
			/* 0: a BF16 shared expert beside NVFP4 ones. */
			for (c.number = 0; c.number < (f == WF_NVFP4 ? 2 : 1); c.number++)
				each_count(t, &c);
		}
	}
}

/* The shapes that moe/rings takes, with few experts: one and several rows of an expert,
 * more than an entry holds (8; 16 beyond three choices per expert), and more rows than it
 * takes. 0: a BF16 shared expert beside them, 1: one that is an entry too. */
static void run_moe_rings(struct op_test *t)
{
	static const struct {
		const char *name;
		uint32_t hidden, n_experts, top_k, width, shared_width;
	} kinds[] = {{"rings", 2048, 8, 2, 512, 512}, {"rings alone", 2048, 8, 2, 512, 0},
		{"rings wide", 4096, 8, 2, 1024, 1024},
		{"rings middle", 3072, 8, 2, 1024, 1024}};
	static const uint32_t rows[] = {5, 17, 64, 256, 1, 12, 13, 129, 257};
	struct kernel_shapes s = shapes_demo;

	for (uint32_t i = 0; i < (op_test_small(t) ? 1 : COUNT(kinds)); i++) {
		/* 256 rows are tried with the first two, which cost less. */
		uint32_t n = op_test_small(t) ? 3 : i == 0 ? COUNT(rows) : i == 1 ? 4 : 3;
		struct op_case c = {.op = OP_moe,
			.format = WF_NVFP4,
			.shapes = &s,
			.name = kinds[i].name};

		s.hidden = kinds[i].hidden;
		s.n_experts = kinds[i].n_experts;
		s.top_k = kinds[i].top_k;
		s.width = kinds[i].width;
		s.shared_width = kinds[i].shared_width;
		for (c.number = 0; c.number < 2; c.number++) {
			for (uint32_t r = 0; r < n; r++) {
				c.large = rows[r] > 17;
				op_test_rows(t, &c, 0, rows[r]);
			}
		}
	}
}

static void run_moe_tails(struct op_test *t)
{
	static const enum weight_format formats[] = {WF_BF16, WF_FP8};

	for (uint32_t f = 0; f < COUNT(formats) && !op_test_small(t); f++) {
		struct kernel_shapes s = shapes_demo;
		struct op_case c = {.op = OP_moe,
			.format = formats[f],
			.shapes = &s,
			.name = "tails"};

		s.hidden = 80;
		s.width = 48;
		s.shared_width = 16;
		each_count(t, &c);
		/* More rows than are computed at a time. */
		op_test_rows(t, &c, 0, 8195);
		/* More groups than there are multiprocessors. */
		s.n_experts = 64;
		op_test_rows(t, &c, 0, 2048);
	}
}

static void run_moe_large(struct op_test *t)
{
	static const uint32_t rows[] = {1, 4, 5, 16, 64, 256, 2048};

	for (int f = WF_BF16; f < WF__COUNT && !op_test_small(t); f++) {
		struct op_case c = {.op = OP_moe,
			.format = (enum weight_format)f,
			.shapes = &shapes_35b,
			.name = "35B"};

		if (f == WF_NVFP4)
			op_test_rows(t, &c, 0, 3);
		c.large = true;
		/* First with a shared expert in NVFP4, too. */
		for (c.number = 1; f == WF_NVFP4 && c.number == 1; c.number = 0)
			for (uint32_t i = 0; rows[i] <= 256; i++)
				op_test_rows(t, &c, 0, rows[i]);
		for (uint32_t i = 0; i < COUNT(rows); i++) {
			/* Uploads of other formats take long. */
			if (f == WF_NVFP4 || rows[i] == 1 || rows[i] == 16 ||
				rows[i] == 2048)
				op_test_rows(t, &c, 0, rows[i]);
		}
	}
}

static void run_moe_all(struct op_test *t)
{
	run_moe(t);
	run_moe_rings(t);
	run_moe_tails(t);
	run_moe_large(t);
}

const struct op_suite suite_linear = {OP_linear, run_linear_all};
const struct op_suite suite_head = {OP_head, run_head};
const struct op_suite suite_moe = {OP_moe, run_moe_all};
