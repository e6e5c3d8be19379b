/* Runs the suites and prints a table; the exit status is 1 when anything failed.
 *
 * usage: op_test [--gpu N] [--op NAME,NAME...] [--small] [--select] */
#include "tests/device/op_test.h"

#include "common/base/attr.h"
#include "common/base/mem.h"
#include "kernels/backend.h"
#include "kernels/cuda/backend_cuda.h"
#include "kernels/selfcheck.h"
#include "kernels/trial.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LINES_MAX 128u

/* What is known of one variant in one format. */
struct line {
	const struct variant *v;
	enum weight_format format;
	uint32_t n_cases, n_failed;
	float worst; /* part of the tolerance */
};

struct op_test {
	struct backend *gpu, *cpu;
	const char *only; /* names of ops with commas between, or NULL: all */
	bool small, select;
	struct line lines[LINES_MAX];
	uint32_t n_lines;
	uint32_t n_failed;
};

bool op_test_small(const struct op_test *t)
{
	return t->small;
}

struct backend *op_test_gpu(const struct op_test *t)
{
	return t->gpu;
}

struct backend *op_test_cpu(const struct op_test *t)
{
	return t->cpu;
}

void op_test_fail(struct op_test *t, const char *why)
{
	printf("FAIL %s\n", why);
	(void)fflush(stdout);
	t->n_failed++;
}

static struct line *line_of(
	struct op_test *t, const struct variant *v, enum weight_format format)
{
	uint32_t i = 0;

	while (i < t->n_lines && (t->lines[i].v != v || t->lines[i].format != format))
		i++;
	if (i == t->n_lines) {
		if (i == LINES_MAX) {
			printf("more than %u variants\n", LINES_MAX);
			exit(1);
		}
		t->lines[t->n_lines++] = (struct line){.v = v, .format = format};
	}
	return &t->lines[i];
}

static void fail(struct op_test *t, const struct variant *v, const struct op_case *c,
	const struct check_case *k, const char *way, const char *why)
{
	printf("FAIL %s %s, %s, %s%s: %s\n", v->name, format_name(c->format), c->name,
		k->name, way, why);
	(void)fflush(stdout);
	t->n_failed++;
	line_of(t, v, c->format)->n_failed++;
}

static bool serves(
	const struct variant *v, const struct op_case *c, const struct backend *b)
{
	return v->op == c->op && trial_fits(v, b) && variant_takes(v, c->format);
}

static const struct variant *oracle_of(const struct op_case *c, const struct backend *b,
	const struct variant *at, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (serves(&at[i], c, b) && at[i].oracle)
			return &at[i];
	}
	printf("no oracle of %s on %s\n", op_name(c->op), b->device);
	exit(1);
}

/* Time of a large case, the best of a few runs. */
static void show_time(struct check_rig *rig, const struct variant *v,
	const struct op_case *c, const struct check_case *k)
{
	struct err err;
	uint64_t ns;

	if (selfcheck_time(rig, v, &ns, &err) == ST_OK)
		printf("time %-22s %s, %s: %.1f us\n", v->name, c->name, k->name,
			(double)ns * 1e-3);
}

static void try_variant(struct op_test *t, const struct op_case *c, struct check_case *k,
	const struct variant *v, const float *want)
{
	float *got = mem_alloc(selfcheck_outputs(k), sizeof(*got));
	struct line *line = line_of(t, v, c->format);
	struct check_rig *rig = NULL;
	struct err err = {.text = ""};
	uint32_t failed = t->n_failed;

	line->n_cases++;
	if (selfcheck_open(&rig, t->gpu, k, v->work_bytes(&k->shapes), &err) != ST_OK) {
		fail(t, v, c, k, "", err.text);
		goto out;
	}
	for (int way = 0; way < 2; way++) {
		const char *text = way == 1 ? ", in a graph" : "";
		status st = selfcheck_run(rig, v, way == 1, got, &err);

		if (c->refused && st != ST_LIMIT)
			fail(t, v, c, k, text, "was not refused");
		if (c->refused)
			break;
		if (st == ST_OK)
			st = selfcheck_compare(
				k, t->gpu->act, got, want, &line->worst, &err);
		if (st != ST_OK)
			fail(t, v, c, k, text, err.text);
	}
	if (c->large && t->n_failed == failed)
		show_time(rig, v, c, k);
out:
	selfcheck_close(rig);
	mem_free(got);
}

/* The right answer: of the CPU, or for large cases of the GPU's oracle. */
static void ask_oracle(
	struct op_test *t, const struct op_case *c, struct check_case *k, float *want)
{
	struct backend *b = c->large ? t->gpu : t->cpu;
	const struct variant *v =
		c->large ? oracle_of(c, b, cuda_variants, n_cuda_variants)
			 : oracle_of(c, b, cpu_variants, n_cpu_variants);
	struct check_rig *rig = NULL;
	struct err err = {.text = ""};
	status st = selfcheck_open(&rig, b, k, v->work_bytes(&k->shapes), &err);

	if (st == ST_OK)
		st = selfcheck_run(rig, v, false, want, &err);
	selfcheck_close(rig);
	if (st != ST_OK) {
		printf("%s on %s, %s: %s\n", v->name, b->device, k->name, err.text);
		exit(1);
	}
}

void op_test_case(struct op_test *t, const struct op_case *c)
{
	struct check_limits limits = {.weight_elements = 64u << 20,
		.products = UINT64_MAX,
		.layout = &c->layout,
		.round_acts = true};
	struct check_case *k =
		check_case_create(c->op, c->format, c->shapes, c->number, &limits);
	float *want = mem_alloc(selfcheck_outputs(k), sizeof(*want));

	if (!c->refused)
		ask_oracle(t, c, k, want);
	for (uint32_t i = 0; i < n_cuda_variants; i++) {
		if (serves(&cuda_variants[i], c, t->gpu))
			try_variant(t, c, k, &cuda_variants[i], want);
	}
	mem_free(want);
	check_case_destroy(k);
}

void op_test_rows(
	struct op_test *t, const struct op_case *c, uint32_t past, uint32_t rows)
{
	struct op_case one = *c;

	one.layout = (struct check_layout){1, {past}, {rows}};
	op_test_case(t, &one);
}

static void print_table(const struct op_test *t)
{
	printf("%-24s %-6s %6s %7s %s\n", "variant", "format", "cases", "failed",
		"worst error, % of the tolerance");
	for (uint32_t i = 0; i < t->n_lines; i++) {
		const struct line *l = &t->lines[i];

		printf("%-24s %-6s %6" PRIu32 " %7" PRIu32 " %5.1f\n", l->v->name,
			l->v->formats == FORMATS_ANY ? "-" : format_name(l->format),
			l->n_cases, l->n_failed, (double)l->worst * 100);
	}
	printf("%s: %" PRIu32 " failures\n", t->gpu->device, t->n_failed);
}

static bool parse(struct op_test *t, int argc, char **argv, const char **gpu)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--small") == 0)
			t->small = true;
		else if (strcmp(argv[i], "--select") == 0)
			t->select = true;
		else if (strcmp(argv[i], "--op") == 0 && i + 1 < argc)
			t->only = argv[++i];
		else if (strcmp(argv[i], "--gpu") == 0 && i + 1 < argc)
			*gpu = argv[++i];
		else
			return false;
	}
	return true;
}

static bool wanted(const struct op_test *t, const char *name)
{
	size_t n = strlen(name);

	for (const char *at = t->only; at != NULL && *at != 0;) {
		size_t word = strcspn(at, ",");

		if (word == n && strncmp(at, name, n) == 0)
			return true;
		at += word;
		at += *at == ',';
	}
	return t->only == NULL;
}

int main(int argc, char **argv)
{
	static const struct op_suite *const suites[] = {
#define X(name, ...) &suite_##name,
		OP_MAP(X)
#undef X
	};
	struct op_test t = {0};
	const char *gpu = "0";
	struct err err;
	uint32_t n_run = 0;

	if (!parse(&t, argc, argv, &gpu)) {
		printf("usage: op_test [--gpu N] [--op NAME,NAME...] [--small] "
		       "[--select]\n");
		return 2;
	}
	if (backend_open(&t.gpu, gpu, &err) != ST_OK ||
		backend_open(&t.cpu, "cpu:0", &err) != ST_OK) {
		printf("%s\n", err.text);
		return 2;
	}
	if (t.select)
		return op_select(t.gpu) ? 0 : 1;
	for (uint32_t i = 0; i < COUNT(suites); i++) {
		if (wanted(&t, op_name(suites[i]->op))) {
			suites[i]->run(&t);
			n_run++;
		}
	}
	print_table(&t);
	t.gpu->ops->close(t.gpu);
	t.cpu->ops->close(t.cpu);
	return n_run == 0 || t.n_lines == 0 || t.n_failed > 0;
}
