/* The passes that op_bench times: those that a worker of the published 35B-A3B makes, or
 * in a small run a few of the demo model's. */
#ifndef TESTS_BENCH_OP_CASES_H
#define TESTS_BENCH_OP_CASES_H
#include "kernels/check_case.h"

struct bench_case {
	enum op_id op;
	enum weight_format format;
	uint32_t number; /* options of the op, see kernels/check_*.c */
	struct kernel_shapes shapes;
	struct check_layout layout;
	/* Larger matrices are cut to that, which the case's name shows. */
	uint64_t weight_elements;
};

/* Calls run for each case, the most important ones first. The first one is a large
 * square product in BF16, the measure of the arithmetic of all others. */
void op_cases_each(
	bool small, void (*run)(void *arg, const struct bench_case *c), void *arg);

#endif
