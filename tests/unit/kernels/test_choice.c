/* Who of several right kernels serves: those that only the configuration names, and plain
 * ones beside others. */
#include "kernel_test.h"

#include "kernels/cpu/cpu.h"

#include <unistd.h>

/* A dense model of one kind of matrices, without attention or experts. */
static const struct kernel_shapes shapes = {.rows_max = 40,
	.seqs_max = 4,
	.out_max = 4,
	.len_max = 64,
	.hidden = 64,
	.vocab = 100,
	.n_valid = 100,
	.head_dim = 64,
	.page_tokens = 16,
	.dk = 16,
	.dv = 16,
	.taps = 4,
	.dense_width = 96,
	.kv_dtype = DT_BF16,
	.conv_dtype = DT_BF16,
	.eps = 1e-6f,
	.linear_formats = 1u << WF_NVFP4 | 1u << WF_BF16,
	.head_formats = 1u << WF_BF16};

static status twice_too_large(
	struct stream *s, const struct op_linear *op, struct err *err)
{
	status st = k_linear_plain(s, op, err);

	for (uint32_t n = 0; n < op->w->n; n++)
		((float *)op->y)[n] *= 2;
	return st;
}

#define REQUESTED(name, function)                                                        \
	{                                                                                \
		"linear/" name, OP_linear, 1u << WF_NVFP4, "cpu", KERNEL_CPU_PLAIN,      \
			KERNEL_CPU_PLAIN, (op_fn)(function), false, no_work, no_repack,  \
			one_kernel, true                                                 \
	}

static struct kernels *choose(const char *forced, struct err *err)
{
	static const struct variant requested[] = {
		REQUESTED("right", k_linear_plain), REQUESTED("wrong", twice_too_large)};
	struct variant_table all[2] = {
		{cpu_variants, n_cpu_variants}, {requested, COUNT(requested)}};
	struct variant_source from = {.tables = all, .n_tables = 2};
	struct kernels *k = NULL;
	status st = kernels_select_from(&k, test_backend(), &shapes, forced, &from, err);

	assert_true((st == ST_OK) == (k != NULL));
	return k;
}

static void unnamed_they_are_neither_tried_nor_reported(void **state)
{
	struct err err = {.text = ""};
	struct kernels *k = choose(NULL, &err);
	struct sink out;

	(void)state;
	if (k == NULL)
		fail_msg("%s", err.text);
	sink_init(&out, 1 << 16);
	kernels_report(k, &out);
	assert_non_null(strstr(sink_cstr(&out), "linear/plain"));
	assert_null(strstr(sink_cstr(&out), "linear/right"));
	assert_null(strstr(sink_cstr(&out), "linear/wrong"));
	sink_release(&out);
	kernels_release(k);
}

static void named_they_are_checked_and_then_used_for_their_format(void **state)
{
	struct err err = {.text = ""};
	struct kernels *k = choose("linear/right", &err);

	(void)state;
	if (k == NULL)
		fail_msg("%s", err.text);
	assert_string_equal(k->chosen[OP_linear][WF_NVFP4]->name, "linear/right");
	assert_string_not_equal(k->chosen[OP_linear][WF_BF16]->name, "linear/right");
	kernels_release(k);
	assert_null(choose("linear/wrong", &err));
	assert_non_null(strstr(err.text, "linear/wrong was forced, but fails its check"));
}

/* Right, and slower than the plain one, as a kernel is while others have the CPU. */
static status right_but_late(
	struct stream *s, const struct op_swiglu *op, struct err *err)
{
	usleep(2000);
	return k_swiglu_plain(s, op, err);
}

static void on_a_cpu_no_clock_brings_the_plain_kernel_back(void **state)
{
	static const struct variant late = {"swiglu/right_but_late", OP_swiglu,
		FORMATS_ANY, "cpu", KERNEL_CPU_PLAIN, KERNEL_CPU_PLAIN,
		(op_fn)right_but_late, false, no_work, no_repack, one_kernel, false};
	struct variant plain[64];
	struct variant_table all[2] = {{plain, 0}, {&late, 1}};
	struct variant_source from = {.tables = all, .n_tables = 2};
	struct err err = {.text = ""};
	struct kernels *k = NULL;

	(void)state;
	for (uint32_t i = 0; i < n_cpu_variants; i++)
		if (cpu_variants[i].oracle)
			plain[all[0].n++] = cpu_variants[i];
	if (kernels_select_from(&k, test_backend(), &shapes, NULL, &from, &err) != ST_OK)
		fail_msg("%s", err.text);
	assert_string_equal(k->chosen[OP_swiglu][0]->name, "swiglu/right_but_late");
	kernels_release(k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unnamed_they_are_neither_tried_nor_reported),
		cmocka_unit_test(named_they_are_checked_and_then_used_for_their_format),
		cmocka_unit_test(on_a_cpu_no_clock_brings_the_plain_kernel_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
