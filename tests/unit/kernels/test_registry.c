/* Selection of kernels: what is right and fast is chosen, what is wrong is refused and
 * named, and nothing starts without a right kernel. The wrong kernels here are the plain
 * ones with a fault each. */
#include "kernel_test.h"

#include "kernels/cpu/cpu.h"
#include "kernels/selfcheck.h"

static const struct kernel_shapes demo = {.rows_max = 200,
	.seqs_max = 8,
	.out_max = 8,
	.len_max = 1024,
	.hidden = 64,
	.vocab = 300,
	.n_valid = 290,
	.n_q = 4,
	.n_kv = 2,
	.head_dim = 64,
	.rotary = 16,
	.page_tokens = 16,
	.n_k = 2,
	.n_v = 4,
	.dk = 16,
	.dv = 16,
	.taps = 4,
	.n_experts = 8,
	.top_k = 3,
	.width = 32,
	.shared_width = 48,
	.kv_dtype = DT_BF16,
	.conv_dtype = DT_BF16,
	.eps = 1e-6f,
	.linear_formats = 1u << WF_BF16 | 1u << WF_NVFP4 | 1u << WF_FP8,
	.moe_formats = 1u << WF_NVFP4,
	.head_formats = 1u << WF_BF16};

/* Scales of the wrong rows: right for one row, wrong from the second on. */
static status wrong_scales(struct stream *s, const struct op_linear *op, struct err *err)
{
	struct weight w = *op->w;
	struct op_linear copy = *op;
	uint8_t *shifted = NULL;
	status st;

	if (w.format == WF_NVFP4) {
		uint64_t n = (uint64_t)w.n * w.k / 16;

		shifted = mem_alloc(n, 1);
		memcpy(shifted, (const uint8_t *)w.scale + w.k / 16, n - w.k / 16);
		memcpy(shifted + n - w.k / 16, w.scale, w.k / 16);
		w.scale = shifted;
	}
	copy.w = &w;
	st = k_linear_plain(s, &copy, err);
	mem_free(shifted);
	return st;
}

/* The last output of the last row is forgotten. */
static status unwritten_tail(
	struct stream *s, const struct op_linear *op, struct err *err)
{
	status st;
	float *last =
		(float *)op->y + (uint64_t)(op->n_rows - 1) * op->y_stride + op->w->n - 1;
	float before = *last;

	st = k_linear_plain(s, op, err);
	*last = before;
	return st;
}

/* One element past the last row. */
static status overrun(struct stream *s, const struct op_linear *op, struct err *err)
{
	((float *)op->y)[(uint64_t)op->n_rows * op->y_stride] = 0.0f;
	return k_linear_plain(s, op, err);
}

static status changes_input(struct stream *s, const struct op_linear *op, struct err *err)
{
	status st = k_linear_plain(s, op, err);
	float *x;

	memcpy(&x, &op->x, sizeof(x));
	x[0] += 1.0f;
	return st;
}

static status gives_nan(struct stream *s, const struct op_linear *op, struct err *err)
{
	status st = k_linear_plain(s, op, err);

	((float *)op->y)[op->w->n / 2] = NAN;
	return st;
}

/* A part in a thousand too large in one row of many. */
static status slightly_off(struct stream *s, const struct op_linear *op, struct err *err)
{
	status st = k_linear_plain(s, op, err);

	for (uint32_t n = 0; n < op->w->n && op->n_rows > 2; n++)
		((float *)op->y)[op->y_stride * (op->n_rows - 1) + n] *= 1.001f;
	return st;
}

static status refuses_shape(__attribute__((unused)) struct stream *s,
	const struct op_linear *op, struct err *err)
{
	return err_set(err, ST_LIMIT, "cannot do %u columns", op->w->k);
}

/* Recurrent state of a chunk border: forgets to decay before the last token. */
static status stale_state(
	struct stream *s, const struct op_gdn_prefill *op, struct err *err)
{
	float *rec = slot_rec(&op->state, op->rows.slot[0]);
	status st = k_gdn_prefill_plain(s, op, err);

	rec[0] += 0.01f;
	return st;
}

/* Reads the page of nobody: multiplies masked tokens by zero instead of skipping them. */
static status reads_stale_pages(
	struct stream *s, const struct op_attn_prefill *op, struct err *err)
{
	status st = k_attn_prefill_plain(s, op, err);
	const struct op_kv *kv = &op->kv;

	for (uint32_t t = 0; t < op->rows.n_rows; t++)
		((float *)op->o)[(uint64_t)t * op->n_q * kv->head_dim] +=
			0.0f * load_as(kv->dtype, kv->base, 0);
	return st;
}

static status wrong_choice(
	struct stream *s, const struct op_moe_route *op, struct err *err)
{
	status st = k_moe_route_plain(s, op, err);
	uint32_t swap = op->ids[0];

	op->ids[0] = op->ids[1];
	op->ids[1] = swap;
	return st;
}

#define WRONG(op, function)                                                              \
	{                                                                                \
#op "/" #function, OP_##op, FORMATS_ANY, "cpu", KERNEL_CPU_PLAIN,        \
			KERNEL_CPU_PLAIN, (op_fn)(function), false, no_work, no_repack,  \
			one_kernel, false                                                \
	}

static const struct variant wrong[] = {
	WRONG(linear, wrong_scales),
	WRONG(linear, unwritten_tail),
	WRONG(linear, overrun),
	WRONG(linear, changes_input),
	WRONG(linear, gives_nan),
	WRONG(linear, slightly_off),
	WRONG(linear, refuses_shape),
	WRONG(gdn_prefill, stale_state),
	WRONG(moe_route, wrong_choice),
	{"attn_prefill/reads_stale_pages", OP_attn_prefill, FORMATS_ANY, "cpu",
		KERNEL_CPU_PLAIN, KERNEL_CPU_PLAIN, (op_fn)reads_stale_pages, false,
		attn_work_plain, no_repack, one_kernel, false},
	{"linear/other_machine", OP_linear, FORMATS_ANY, "cpu", 1u << 30, 1u << 30,
		(op_fn)gives_nan, false, no_work, no_repack, one_kernel, false},
};

static struct kernels *choose(const char *forced, struct err *err)
{
	struct variant_table all[2] = {
		{cpu_variants, n_cpu_variants}, {wrong, COUNT(wrong)}};
	struct variant_source from = {.tables = all, .n_tables = 2};
	struct kernels *k = NULL;
	status st = kernels_select_from(&k, test_backend(), &demo, forced, &from, err);

	assert_true((st == ST_OK) == (k != NULL));
	return k;
}

static void right_kernels_are_chosen_and_run(void **state)
{
	struct err err = {.text = ""};
	struct kernels *k;
	float w[2][4] = {{1, 2, 3, 4}, {0, 0, 0, 1}}, x[4] = {1, 1, 1, 1}, y[2];
	struct weight weight = {.format = WF_F32, .count = 1, .n = 2, .k = 4, .data = w};
	struct op_linear linear = {y, x, &weight, 1, 4, 2};
	struct op_swiglu swiglu = {y, x, x, 1, 2, 2, 2};

	(void)state;
	if (kernels_select(&k, test_backend(), &demo, NULL, &err) != ST_OK)
		fail_msg("%s", err.text);
	for (int op = 0; op < OP__COUNT; op++) {
		if (op != OP_linear && op != OP_moe && op != OP_head && op != OP_embed) {
			for (int f = 0; f < WF__COUNT; f++)
				assert_ptr_equal(k->chosen[op][f], k->chosen[op][0]);
			assert_non_null(k->chosen[op][0]);
		}
	}
	assert_true(k->work_bytes >= demo.vocab * sizeof(uint32_t));
	assert_int_equal(kernel_swiglu(k, WF_F32, NULL, &swiglu, &err), ST_OK);
	assert_int_equal(kernel_linear(k, WF_BF16, NULL, &linear, &err), ST_OK);
	assert_true(y[0] == 10.0f && y[1] == 1.0f);
	/* The model has no F32 matrices, so nothing was chosen for them. */
	assert_null(k->chosen[OP_linear][WF_F32]);
	assert_int_equal(kernel_linear(k, WF_F32, NULL, &linear, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "linear: no kernel was selected"));
	if ((test_backend()->arch & KERNEL_CPU_AVX2) != 0)
		assert_string_equal(k->chosen[OP_linear][WF_BF16]->name, "linear/avx2");
	kernels_release(k);
}

/* The line of the report that names a variant in a format. */
static void report_line(
	const struct kernels *k, const char *format, const char *name, char line[400])
{
	struct sink out;
	const char *at;
	char start[64];

	sink_init(&out, 1 << 16);
	kernels_report(k, &out);
	(void)snprintf(start, sizeof(start), " %-6s %-22s ", format, name);
	at = strstr(sink_cstr(&out), start);
	if (at == NULL)
		fail_msg("no line \"%s\" in\n%s", start, sink_cstr(&out));
	(void)snprintf(line, 400, "%.*s", (int)strcspn(at, "\n"), at);
	sink_release(&out);
}

static void wrong_kernels_are_refused_and_named(void **state)
{
	static const struct {
		const char *format, *name, *text;
	} cases[] = {
		{"nvfp4", "linear/wrong_scales", "differs by"},
		{"bf16", "linear/unwritten_tail", "is not written"},
		{"bf16", "linear/overrun", "wrote"},
		{"fp8", "linear/changes_input", "changed its input x at byte"},
		{"bf16", "linear/gives_nan", "not a number"},
		{"nvfp4", "linear/slightly_off", "differs by"},
		{"bf16", "linear/refuses_shape", "cannot do 64 columns"},
		{"any", "gdn_prefill/stale_state", "state: row"},
		{"any", "moe_route/wrong_choice", "ids: row 0: element 0"},
		{"any", "attn_prefill/reads_stale_pages", "o: row 0"},
	};
	struct err err = {.text = ""};
	struct kernels *k = choose(NULL, &err);
	char line[400];

	(void)state;
	if (k == NULL)
		fail_msg("%s", err.text);
	for (size_t i = 0; i < COUNT(cases); i++) {
		report_line(k, cases[i].format, cases[i].name, line);
		if (strstr(line, " refused ") == NULL ||
			strstr(line, cases[i].text) == NULL)
			fail_msg("expected \"%s\" in: %s", cases[i].text, line);
	}
	/* Shifted scales are right where there are none. */
	report_line(k, "bf16", "linear/wrong_scales", line);
	assert_null(strstr(line, " refused "));
	report_line(k, "bf16", "linear/plain", line);
	assert_non_null(strstr(line, "oracle"));
	kernels_release(k);
}

static void forced_variants_are_used_or_refused(void **state)
{
	struct err err = {.text = ""};
	struct kernels *k = choose("linear/plain,moe/plain", &err);

	(void)state;
	assert_non_null(k);
	assert_string_equal(k->chosen[OP_linear][WF_NVFP4]->name, "linear/plain");
	assert_string_equal(k->chosen[OP_linear][WF_FP8]->name, "linear/plain");
	assert_string_equal(k->chosen[OP_moe][WF_NVFP4]->name, "moe/plain");
	kernels_release(k);
	assert_null(choose("linear/gives_nan", &err));
	assert_non_null(
		strstr(err.text, "linear/gives_nan was forced, but fails its check"));
	assert_non_null(strstr(err.text, "not a number"));
	assert_null(choose("linear/plain,linear/best", &err));
	assert_non_null(strstr(err.text, "\"linear/best\": none of that name"));
	assert_null(choose("linear/other_machine", &err));
	assert_non_null(strstr(err.text, "\"linear/other_machine\""));
	assert_null(choose("linear/plain,linear/wrong_scales", &err));
	assert_non_null(strstr(err.text, "two forced variants"));
}

static void nothing_starts_without_a_right_kernel(void **state)
{
	struct variant only[32];
	struct variant_table table = {only, n_cpu_variants};
	struct variant_source from = {.tables = &table, .n_tables = 1};
	struct kernels *k = NULL;
	struct err err;

	(void)state;
	assert_true(n_cpu_variants <= COUNT(only));
	memcpy(only, cpu_variants, n_cpu_variants * sizeof(only[0]));
	for (uint32_t i = 0; i < n_cpu_variants; i++) {
		if (only[i].op == OP_linear)
			only[i].run = (op_fn)gives_nan;
	}
	assert_int_equal(
		kernels_select_from(&k, test_backend(), &demo, NULL, &from, &err),
		ST_DEVICE);
	assert_non_null(strstr(err.text, "linear, bf16: no variant is right on cpu:0"));
	/* A backend for which there is no oracle at all. */
	only[0].oracle = false;
	assert_int_equal(
		kernels_select_from(&k, test_backend(), &demo, NULL, &from, &err),
		ST_DEVICE);
	assert_non_null(strstr(err.text, "embed, f32: no oracle for cpu:0"));
}

/* A second backend that is the CPU by another name, with graphs: what a capture does is
 * done at once and kept aside, and launching puts it back. A rig has one allocation. */
static bool capturing, recorded;
static struct backend_ops graph_ops;
static void *rig_at, *graph_image;
static uint64_t rig_bytes;

static status alloc_noted(struct backend *b, enum mem_kind kind, uint64_t bytes,
	void **out, struct err *err)
{
	status st = test_backend()->ops->alloc(b, kind, bytes, out, err);

	if (kind == MEM_DEVICE) {
		rig_at = *out;
		rig_bytes = bytes;
	}
	return st;
}

static status begin(
	__attribute__((unused)) struct stream *s, __attribute__((unused)) struct err *err)
{
	capturing = recorded = true;
	return ST_OK;
}

static status end(__attribute__((unused)) struct stream *s, struct graph **out,
	__attribute__((unused)) struct err *err)
{
	capturing = false;
	graph_image = mem_alloc(rig_bytes, 1);
	memcpy(graph_image, rig_at, rig_bytes);
	*out = (struct graph *)graph_image;
	return ST_OK;
}

static status graph_start(__attribute__((unused)) struct graph *g,
	__attribute__((unused)) struct stream *s, __attribute__((unused)) struct err *err)
{
	if (recorded)
		memcpy(rig_at, graph_image, rig_bytes);
	return ST_OK;
}

static void graph_end(__attribute__((unused)) struct graph *g)
{
	mem_free(graph_image);
	graph_image = NULL;
}

static status wrong_in_a_graph(
	struct stream *s, const struct op_linear *op, struct err *err)
{
	return capturing ? ST_OK : k_linear_plain(s, op, err);
}

/* Does its work while it is captured, and the graph is empty. */
static status at_capture(struct stream *s, const struct op_linear *op, struct err *err)
{
	recorded = false;
	return k_linear_plain(s, op, err);
}

/* A kernel for few rows and one for many, which is wrong where a second tile of its
 * begins. */
static void two_kernels(const void *op, char names[KERNEL_NAMES_MAX])
{
	kernel_named(names, ((const struct op_linear *)op)->n_rows > 64 ? "many" : "few");
}

static status wrong_from_128(
	struct stream *s, const struct op_linear *op, struct err *err)
{
	status st = k_linear_plain(s, op, err);

	for (uint32_t n = 0; n < op->w->n && op->n_rows >= 128; n++)
		((float *)op->y)[(uint64_t)op->y_stride * (op->n_rows - 1) + n] *= 1.01f;
	return st;
}

/* The kernel for many rows writes a row too many. */
static status row_too_many(struct stream *s, const struct op_linear *op, struct err *err)
{
	status st = k_linear_plain(s, op, err);
	float *y = (float *)op->y + (uint64_t)op->n_rows * op->y_stride;

	if (op->n_rows > 64)
		y[3] = 1.0f;
	return st;
}

/* Wrong in the way that an oracle can be: no other kernel of its backend would notice. */
static status wrong_oracle(struct stream *s, const struct op_swiglu *op, struct err *err)
{
	status st = k_swiglu_plain(s, op, err);

	for (uint64_t i = 0; i < (uint64_t)op->n_rows * op->width; i++)
		((float *)op->y)[i] *= 1.01f;
	return st;
}

static void check_other_backend(const struct variant *extra, bool reference,
	const char *refusal, const char *error)
{
	struct backend other = *test_backend();
	struct variant mine[33];
	struct variant_table all[2] = {
		{cpu_variants, n_cpu_variants}, {mine, n_cpu_variants}};
	struct variant_source from = {all, 2, reference ? test_backend() : NULL, 1};
	struct kernels *k = NULL;
	struct err err = {.text = ""};
	char line[400];

	graph_ops = *other.ops;
	graph_ops.alloc = alloc_noted;
	graph_ops.capture_begin = begin;
	graph_ops.capture_end = end;
	graph_ops.graph_launch = graph_start;
	graph_ops.graph_destroy = graph_end;
	other.ops = &graph_ops;
	other.name = "other";
	other.arch = 90;
	memcpy(mine, cpu_variants, n_cpu_variants * sizeof(mine[0]));
	for (uint32_t i = 0; i < n_cpu_variants; i++) {
		mine[i].backend = "other";
		mine[i].arch_min = mine[i].oracle ? 80 : 91;
		mine[i].arch_max = 100;
		if (extra->oracle && mine[i].oracle && mine[i].op == extra->op)
			mine[i] = *extra;
	}
	if (!extra->oracle)
		mine[all[1].n++] = *extra;
	status st = kernels_select_from(&k, &other, &demo, NULL, &from, &err);

	if (error != NULL) {
		assert_int_equal(st, ST_DEVICE);
		if (strstr(err.text, error) == NULL)
			fail_msg("expected \"%s\" in: %s", error, err.text);
		return;
	}
	if (st != ST_OK)
		fail_msg("%s", err.text);
	report_line(k, "bf16", extra->name, line);
	if (refusal == NULL)
		assert_null(strstr(line, " refused "));
	else if (strstr(line, " refused ") == NULL || strstr(line, refusal) == NULL)
		fail_msg("expected \"%s\" in: %s", refusal, line);
	kernels_release(k);
}

static void graphs_are_checked_too(void **state)
{
	struct variant v = {"linear/wrong_in_a_graph", OP_linear, FORMATS_ANY, "other",
		90, 90, (op_fn)wrong_in_a_graph, false, no_work, no_repack, one_kernel,
		false};

	(void)state;
	check_other_backend(
		&v, false, "in a graph: y: row 0: element 0 is not written", NULL);
	v.name = "linear/at_capture";
	v.run = (op_fn)at_capture;
	check_other_backend(
		&v, false, "in a graph: y: row 0: element 0 is not written", NULL);
}

static void every_class_of_rows_is_run(void **state)
{
	struct variant v = {"linear/two_kernels", OP_linear, FORMATS_ANY, "other", 90, 90,
		(op_fn)wrong_from_128, false, no_work, no_repack, two_kernels, false};

	(void)state;
	/* 65 and 195 rows: one more than a tile of 128 and some. */
	check_other_backend(
		&v, false, "195 of 197 rows, 64 to 64: y: row 194 differs by", NULL);
	v.run = (op_fn)row_too_many;
	check_other_backend(&v, false,
		"65 of 197 rows, 64 to 64: y: row 65: wrote element 3, past the last of "
		"65 rows",
		NULL);
	v.run = (op_fn)k_linear_plain;
	check_other_backend(&v, false, NULL, NULL);
}

#define WIDE 20000u

/* The kernel for wide matrices, of which a check of a narrower one sees nothing. */
static bool is_wide(const struct op_head *op)
{
	return op->w->n >= WIDE && op->n_out > 1;
}

static void narrow_or_wide(const void *op, char names[KERNEL_NAMES_MAX])
{
	kernel_named(names, is_wide(op) ? "wide" : "narrow");
}

static status wrong_when_wide(struct stream *s, const struct op_head *op, struct err *err)
{
	status st = k_head_plain(s, op, err);

	if (is_wide(op))
		op->logits[op->w->n - 1] += 1.0f;
	return st;
}

static void a_case_is_cut_only_as_far_as_every_kernel_is_met(void **state)
{
	const struct variant v = {"head/narrow_or_wide", OP_head, FORMATS_ANY, "cpu",
		KERNEL_CPU_PLAIN, KERNEL_CPU_PLAIN, (op_fn)wrong_when_wide, false,
		no_work, no_repack, narrow_or_wide, false};
	struct variant_table all[2] = {{cpu_variants, n_cpu_variants}, {&v, 1}};
	struct variant_source from = {.tables = all, .n_tables = 2};
	struct kernel_shapes shapes = demo;
	struct kernels *k = NULL;
	struct err err = {.text = ""};
	char line[400];

	(void)state;
	/* 1.28 million weights, of which the cases have at most a million. */
	shapes.vocab = shapes.n_valid = WIDE;
	if (kernels_select_from(&k, test_backend(), &shapes, NULL, &from, &err) != ST_OK)
		fail_msg("%s", err.text);
	report_line(k, "bf16", v.name, line);
	if (strstr(line, "2 of 7 rows, 64 to 20000: logits: row 0") == NULL)
		fail_msg("%s", line);
	kernels_release(k);
}

static void the_report_names_inner_kernels_and_their_rows(void **state)
{
	struct err err = {.text = ""};
	struct kernels *k = NULL;
	const char *at;
	struct sink out;

	(void)state;
	if ((test_backend()->arch & KERNEL_CPU_AVX2) == 0)
		skip();
	if (kernels_select(&k, test_backend(), &demo, NULL, &err) != ST_OK)
		fail_msg("%s", err.text);
	sink_init(&out, 1 << 16);
	kernels_report(k, &out);
	at = strstr(sink_cstr(&out), " linear/avx2 ");
	assert_non_null(at);
	assert_non_null(
		strstr(at, "\n                       one row                rows 1\n"
			   "                       panels                 rows 2 5 "));
	sink_release(&out);
	kernels_release(k);
}

static void oracles_are_checked_against_the_reference(void **state)
{
	const struct variant v = {"swiglu/mine", OP_swiglu, FORMATS_ANY, "other", 90, 90,
		(op_fn)wrong_oracle, true, no_work, no_repack, one_kernel, false};

	(void)state;
	check_other_backend(&v, true, NULL, "swiglu/mine against swiglu/plain on cpu:0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(right_kernels_are_chosen_and_run),
		cmocka_unit_test(wrong_kernels_are_refused_and_named),
		cmocka_unit_test(forced_variants_are_used_or_refused),
		cmocka_unit_test(nothing_starts_without_a_right_kernel),
		cmocka_unit_test(graphs_are_checked_too),
		cmocka_unit_test(every_class_of_rows_is_run),
		cmocka_unit_test(a_case_is_cut_only_as_far_as_every_kernel_is_met),
		cmocka_unit_test(the_report_names_inner_kernels_and_their_rows),
		cmocka_unit_test(oracles_are_checked_against_the_reference),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
