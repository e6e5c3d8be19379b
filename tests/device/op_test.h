/* Every CUDA kernel against the CPU's plain kernel of the same op, on a table of shapes.
 * One file op_NAME.c per group of ops defines suite_NAME of every op in it. */
#ifndef TESTS_DEVICE_OP_TEST_H
#define TESTS_DEVICE_OP_TEST_H
#include "kernels/backend.h"
#include "kernels/check_case.h"

/* A case is one pass of an op: inputs are random, what the op may write is poisoned,
 * guard bands lie around every buffer. Every variant that serves the op and format runs
 * it through a stream and captured in a graph. */
struct op_case {
	enum op_id op;
	enum weight_format format;
	const struct kernel_shapes *shapes;
	const char *name;           /* of the shapes */
	struct check_layout layout; /* rows; for ops without sequences their sum counts */
	uint32_t number;            /* 0..2: options of the op, see kernels/check_*.c */
	bool large;   /* too slow for the CPU: judged by the GPU's oracle, and timed */
	bool refused; /* every variant must say ST_LIMIT */
};

struct op_test;

/* For compute-sanitizer: only a few small cases are wanted. */
bool op_test_small(const struct op_test *t);
void op_test_case(struct op_test *t, const struct op_case *c);
/* c with its layout replaced by one sequence of `past` tokens and `rows` rows. */
void op_test_rows(
	struct op_test *t, const struct op_case *c, uint32_t past, uint32_t rows);

/* For a suite that judges results itself. */
struct backend *op_test_gpu(const struct op_test *t);
struct backend *op_test_cpu(const struct op_test *t);
void op_test_fail(struct op_test *t, const char *why);

/* Shapes of models that are really used (tests/golden and the published 35B-A3B). */
extern const struct kernel_shapes shapes_tiny_dense, shapes_demo, shapes_35b, shapes_397b;

/* A decode pass of n sequences whose lengths spread from 1 to most. */
struct check_layout op_decode_layout(uint32_t n, uint32_t most);

struct op_suite {
	enum op_id op;
	void (*run)(struct op_test *t);
};

/* What the registry chooses for two models, with its report; false: it refused one. */
bool op_select(struct backend *gpu);

#define X(name, ...) extern const struct op_suite suite_##name;
OP_MAP(X)
#undef X

#endif
