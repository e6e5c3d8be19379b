/* The registry on a GPU among kernels that are wrong on purpose: each is refused and
 * named with its reason, a right one is chosen although wrong ones ran just before, a
 * wrong one cannot be forced, and nothing starts where only wrong ones are left.
 *
 * usage: wrong_test [GPU] */
#include "tests/device/wrong_test.h"

#include "common/base/attr.h"
#include "common/base/bytes.h"
#include "kernels/backend.h"
#include "kernels/cuda/backend_cuda.h"
#include "kernels/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 96 columns are not a whole number of tiles, nor are 67 rows; 6 scales per row are not a
 * whole number of fours. A row of swiglu is shorter than the band after its output. */
static const struct kernel_shapes shapes = {.rows_max = 256,
	.seqs_max = 8,
	.out_max = 8,
	.len_max = 1024,
	.hidden = 96,
	.vocab = 300,
	.n_valid = 290,
	.n_q = 4,
	.n_kv = 2,
	.head_dim = 256,
	.rotary = 64,
	.page_tokens = 64,
	.n_k = 2,
	.n_v = 4,
	.dk = 128,
	.dv = 128,
	.taps = 4,
	.n_experts = 16,
	.top_k = 4,
	.width = 64,
	.shared_width = 64,
	.kv_dtype = DT_BF16,
	.conv_dtype = DT_BF16,
	.eps = 1e-6f,
	.linear_formats = 1u << WF_BF16 | 1u << WF_NVFP4,
	.moe_formats = 1u << WF_NVFP4,
	.head_formats = 1u << WF_BF16};

#define NO_NUMBER   "is not written, or not a number"
#define IN_GRAPH    "1 rows of 64, in a graph: "
#define NOT_WRITTEN IN_GRAPH "y: row 0: element 0 " NO_NUMBER

/* What the report says of each. */
static const struct {
	const char *format, *name, *text;
} expected[] = {
	{"nvfp4", "linear/swizzled", "1 rows, 96 to 2048: y: row 0 differs by "},
	/* Some padding was written by runs of other shapes before. */
	{"nvfp4", "linear/padded", "1 rows, 96 to 2048: y: row 0: element "},
	{"nvfp4", "linear/whole_tiles", "to 96: y: row 0: element 64 " NO_NUMBER},
	{"bf16", "linear/whole_tiles", "to 96: y: row 0: element 64 " NO_NUMBER},
	{"bf16", "linear/second_tile", "195 of "},
	{"nvfp4", "linear/second_tile", "195 of "},
	{"nvfp4", "moe/swizzled", "16 experts of 64: y: row 0 differs by "},
	{"any", "swiglu/whole_tiles", "67 rows of 64: y: row 64: element 0 " NO_NUMBER},
	{"any", "swiglu/past_the_end", "wrote 384 bytes before its scratch"},
	{"any", "swiglu/in_place", "1 rows of 64: changed its input gate at byte "},
	{"any", "swiglu/too_much_shared", "(cudaErrorInvalidValue)"},
	{"any", "swiglu/staged_value", IN_GRAPH "y: row 0 differs by 1 of its size"},
	{"any", "swiglu/first_launch", NOT_WRITTEN},
	{"any", "swiglu/waits",
		IN_GRAPH "swiglu/waits: operation not permitted when stream is capturing "
			 "(cudaErrorStreamCaptureUnsupported)"},
	{"any", "swiglu/waits_blindly", "(cudaErrorStreamCaptureInvalidated)"},
	{"any", "swiglu/allocates", "(cudaErrorStreamCaptureUnsupported)"},
	{"any", "swiglu/side_stream", "(cudaErrorStreamCaptureIsolation)"},
	{"any", "swiglu/at_capture", NOT_WRITTEN},
};

static const struct variant wrong[] = {
#define X(op, kind)                                                                      \
	{#op "/" #kind, OP_##op, FORMATS_ANY, "cuda", 90, 120,                           \
		(op_fn)wrong_##op##_##kind, false,                                       \
		OP_##op == OP_moe ? wrong_moe_work : no_work, no_repack, one_kernel,     \
		false},
	WRONG_MAP(X)
#undef X
};

static struct backend *gpu, *cpu;

__attribute__((noreturn)) static void fail(const char *what, const char *text)
{
	printf("FAIL %s: %s\n", what, text);
	(void)fflush(stdout);
	exit(1);
}

static void need_text(const char *what, const char *text, const char *part)
{
	if (strstr(text, part) != NULL)
		return;
	printf("FAIL %s: no \"%s\" in: %s\n", what, part, text);
	(void)fflush(stdout);
	exit(1);
}

/* The fault of a kernel of NVFP4 scales is one of a weight that has them. */
static struct variant with_format(struct variant v)
{
	bool scales =
		strstr(v.name, "swizzled") != NULL || strstr(v.name, "padded") != NULL;

	if (strstr(v.name, "second_tile") != NULL)
		v.inner = wrong_second_tile_inner;
	v.formats = scales ? 1u << WF_NVFP4 : FORMATS_ANY;
	return v;
}

/* From the built-in table, with the wrong ones before it: every right kernel runs after
 * all wrong ones of its op. */
static status choose(struct kernels **out, const char *forced, struct err *err)
{
	static struct variant first[COUNT(wrong)]; /* the report points to them */
	const struct variant_table tables[] = {{first, COUNT(wrong)},
		{cuda_variants, n_cuda_variants}, {cpu_variants, n_cpu_variants}};
	/* One after the other: what some of them keep counts their launches. */
	struct variant_source from = {tables, COUNT(tables), cpu, 1};
	status st = wrong_reset(err);

	for (size_t i = 0; i < COUNT(wrong); i++)
		first[i] = with_format(wrong[i]);
	if (st != ST_OK)
		fail("wrong_reset", err->text);
	return kernels_select_from(out, gpu, &shapes, forced, &from, err);
}

static void take_report(const struct kernels *k, struct sink *out)
{
	sink_init(out, 1u << 18);
	kernels_report(k, out);
}

/* The line of a variant in a format. */
static void find_line(
	const char *report, const char *format, const char *name, char line[400])
{
	char start[64];
	const char *at;

	(void)snprintf(start, sizeof(start), " %-6s %-22s ", format, name);
	at = strstr(report, start);
	if (at == NULL)
		fail(start, "has no line in the report");
	(void)snprintf(line, 400, "%.*s", (int)strcspn(at, "\n"), at);
}

static uint32_t count_words(const char *report, const char *word)
{
	uint32_t n = 0;

	for (const char *at = report; (at = strstr(at, word)) != NULL; at++)
		n++;
	return n;
}

static bool is_built_in(const struct variant *v)
{
	for (uint32_t i = 0; i < n_cuda_variants; i++) {
		if (v == &cuda_variants[i])
			return true;
	}
	return false;
}

/* How many of the built-in ones are refused when they are alone. */
static uint32_t refused_alone(void)
{
	struct kernels *k = NULL;
	struct err err = {.text = ""};
	struct sink report;
	uint32_t n;

	if (kernels_select(&k, gpu, &shapes, NULL, &err) != ST_OK)
		fail("the built-in kernels alone", err.text);
	take_report(k, &report);
	n = count_words(sink_cstr(&report), " refused ");
	sink_release(&report);
	kernels_release(k);
	return n;
}

static void check_chosen(const struct kernels *k)
{
	static const struct {
		enum op_id op;
		enum weight_format format;
	} used[] = {{OP_linear, WF_BF16}, {OP_linear, WF_NVFP4}, {OP_moe, WF_NVFP4},
		{OP_swiglu, WF_F32}};

	for (int op = 0; op < OP__COUNT; op++) {
		for (int f = 0; f < WF__COUNT; f++) {
			const struct variant *v = k->chosen[op][f];

			if (v != NULL && !is_built_in(v))
				fail(v->name, "was chosen");
		}
	}
	for (size_t i = 0; i < COUNT(used); i++) {
		const struct variant *v = k->chosen[used[i].op][used[i].format];

		if (v == NULL)
			fail(op_name(used[i].op), "nothing was chosen");
		printf("chosen %s\n", v->name);
	}
}

static void wrong_ones_are_refused_and_named(uint32_t alone)
{
	uint32_t refused;
	struct kernels *k = NULL;
	struct err err = {.text = ""};
	struct sink report;
	char line[400];

	if (choose(&k, NULL, &err) != ST_OK)
		fail("selection among wrong ones", err.text);
	take_report(k, &report);
	for (size_t i = 0; i < COUNT(expected); i++) {
		find_line(sink_cstr(&report), expected[i].format, expected[i].name, line);
		printf("%s\n", line);
		need_text(expected[i].name, line, " refused ");
		need_text(expected[i].name, line, expected[i].text);
	}
	/* None of the built-in ones suffers from who ran before it. */
	refused = count_words(sink_cstr(&report), " refused ");
	printf("refused: %u of the built-in ones alone, %u with %zu wrong ones\n", alone,
		refused, COUNT(expected));
	if (refused != alone + COUNT(expected))
		fail("refused lines", sink_cstr(&report));
	check_chosen(k);
	sink_release(&report);
	kernels_release(k);
}

/* The text of `expected` without the format. */
static const char *reason_of(const char *name)
{
	for (size_t i = 0; i < COUNT(expected); i++) {
		if (strcmp(expected[i].name, name) == 0)
			return expected[i].text;
	}
	fail(name, "has no expected reason");
}

static void forcing_is_obeyed_or_refused(void)
{
	struct kernels *k = NULL;
	struct err err = {.text = ""};
	char start[80];

	for (size_t i = 0; i < COUNT(wrong); i++) {
		const char *name = wrong[i].name;

		if (choose(&k, name, &err) == ST_OK)
			fail(name, "was forced and taken");
		if (err.code != ST_DEVICE)
			fail(name, status_name(err.code));
		(void)snprintf(start, sizeof(start),
			"%s was forced, but fails its check: ", name);
		need_text(name, err.text, start);
		need_text(name, err.text, reason_of(name));
	}
	if (choose(&k, "linear/plain,moe/plain,swiglu/flat", &err) != ST_OK)
		fail("forced right ones", err.text);
	need_text("forced", k->chosen[OP_linear][WF_NVFP4]->name, "linear/plain");
	need_text("forced", k->chosen[OP_moe][WF_NVFP4]->name, "moe/plain");
	kernels_release(k);
	if (choose(&k, "linear/best", &err) != ST_INVALID)
		fail("linear/best", "an unknown name was accepted");
	need_text(
		"linear/best", err.text, "\"linear/best\": none of that name for cuda:");
	printf("forced: %zu wrong ones refused, right ones taken\n", COUNT(wrong));
}

/* All kernels of an op, the oracle included, are the wrong one. */
static void check_only(
	enum op_id op, const char *kind, const char *start, const char *text)
{
	struct variant only[64];
	const struct variant_table tables[] = {
		{only, n_cuda_variants}, {cpu_variants, n_cpu_variants}};
	struct variant_source from = {tables, COUNT(tables), cpu, 1};
	struct kernel_shapes nvfp4 = shapes;
	op_fn run = NULL;
	struct kernels *k = NULL;
	struct err err = {.text = ""};

	nvfp4.linear_formats = 1u << WF_NVFP4;
	if (n_cuda_variants > COUNT(only))
		fail("check_only", "more variants than room");
	for (size_t i = 0; i < COUNT(wrong); i++) {
		if (wrong[i].op == op &&
			strcmp(strchr(wrong[i].name, '/') + 1, kind) == 0)
			run = wrong[i].run;
	}
	if (run == NULL || wrong_reset(&err) != ST_OK)
		fail(kind, err.text);
	memcpy(only, cuda_variants, n_cuda_variants * sizeof(only[0]));
	for (uint32_t i = 0; i < n_cuda_variants; i++) {
		if (only[i].op == op) {
			only[i].run = run;
			only[i].repack = no_repack;
		}
	}
	if (kernels_select_from(&k, gpu, &nvfp4, NULL, &from, &err) == ST_OK)
		fail(kind, "started with wrong kernels only");
	printf("only %s: %s\n", kind, err.text);
	if (err.code != ST_DEVICE)
		fail(kind, status_name(err.code));
	need_text(kind, err.text, start);
	need_text(kind, err.text, text);
}

static void nothing_starts_without_a_right_kernel(void)
{
	check_only(OP_linear, "swizzled",
		"linear/plain against linear/plain on cpu:0, 1 rows, 96 to 2048: ",
		"y: row 0 differs by ");
	check_only(OP_linear, "padded", "linear/plain against linear/plain on cpu:0, ",
		NO_NUMBER);
	check_only(OP_swiglu, "whole_tiles",
		"swiglu/flat against swiglu/plain on cpu:0, ",
		"y: row 64: element 0 " NO_NUMBER);
	/* Eager it is what the CPU gives, so only the graphs are left to find out. */
	check_only(OP_swiglu, "waits", "swiglu, f32: no variant is right on cuda:",
		"(cudaErrorStreamCaptureUnsupported)");
	check_only(OP_swiglu, "at_capture",
		"swiglu, f32: no variant is right on cuda:", NOT_WRITTEN);
}

int main(int argc, char **argv)
{
	struct err err = {.text = ""};
	const char *index = argc > 1 ? argv[1] : "0";
	uint32_t alone;

	if (backend_open(&cpu, "cpu:0", &err) != ST_OK ||
		backend_open(&gpu, index, &err) != ST_OK || wrong_setup(&err) != ST_OK)
		fail("start", err.text);
	alone = refused_alone();
	wrong_ones_are_refused_and_named(alone);
	forcing_is_obeyed_or_refused();
	nothing_starts_without_a_right_kernel();
	/* All of them again against the CPU, eager and in graphs. */
	if (refused_alone() != alone)
		fail("afterwards", "a built-in kernel is refused");
	if (wrong_end(&err) != ST_OK)
		fail("end", err.text);
	gpu->ops->close(gpu);
	cpu->ops->close(cpu);
	printf("wrong_test %s: right\n", index);
	return 0;
}
