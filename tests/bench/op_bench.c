/* Times every variant of every op at the shapes of a model, with cold caches, beside what
 * the pass must do (op_work.h) and how long this device needs for that.
 *
 * usage: op_bench [--gpu N] [--op NAME,NAME...] [--small] [--seconds N]
 *   --gpu      a GPU's index, or cpu:0, which implies --small
 *   --small    a few rows of the demo model
 *   --seconds  no further case begins after that; those left count as a failure
 *
 * A line per variant: time (op_cold.h), bytes, operations, the floor
 *     max(bytes / rate of a large read or copy, operations / rate of a large product)
 * and time over floor; then the time in which a plain read of as many bytes is done,
 * measured in the same way, and the time of the op right after itself. Both rates are
 * measured first; the product is the fastest variant of linear in BF16 on a square of
 * 8192, and stands for all formats, since every kernel multiplies in BF16.
 *
 * A variant is timed after its result agreed with the plain kernel's of the same device.
 * The exit status is 1 when one did not, could not run, or cases were left out. */
#include "tests/bench/op_cases.h"
#include "tests/bench/op_cold.h"
#include "tests/bench/op_work.h"

#include "common/base/attr.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "kernels/cuda/backend_cuda.h"
#include "kernels/selfcheck.h"
#include "kernels/trial.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESULTS_MAX 512u

struct result {
	const struct variant *v;
	enum weight_format format;
	char name[64];   /* of the case */
	uint32_t number; /* of the case: results of one stand together */
	struct op_work work;
	struct cold_times times;
	double read_us;
};

struct bench {
	struct backend *backend;
	struct cold *cold;
	const char *only; /* names of ops with commas between, or NULL: all */
	bool small;
	uint64_t deadline;   /* 0: none */
	double product_rate; /* operations per second; 0 until it is known */
	struct result results[RESULTS_MAX];
	uint32_t n_results;
	uint32_t n_cases, n_failed, n_left;
};

/* One case on the device. */
struct trial {
	struct bench *b;
	const struct bench_case *of;
	struct check_case *k;
	struct check_rig *rig;
	float *want;
	struct op_work work;
	double read_us;
};

static struct variant_table table_of(const struct bench *b)
{
	if (strcmp(b->backend->name, "cpu") == 0)
		return (struct variant_table){cpu_variants, n_cpu_variants};
	return (struct variant_table){cuda_variants, n_cuda_variants};
}

static bool serves(
	const struct variant *v, const struct bench_case *c, const struct backend *b)
{
	return v->op == c->op && trial_fits(v, b) && variant_takes(v, c->format);
}

/* An op whose weights have no format of their own is shown without. */
static const char *format_text(enum op_id op, enum weight_format format)
{
	static const char *const member[OP__COUNT] = {
#define X(name, weight, ...) [OP_##name] = #weight,
		OP_MAP(X)
#undef X
	};

	return strcmp(member[op], "NONE") == 0 ? "-" : format_name(format);
}

static void fail(struct trial *t, const struct variant *v, const char *why)
{
	printf("FAIL %s %s, %s: %s\n", v->name, format_text(t->of->op, t->of->format),
		t->k->name, why);
	t->b->n_failed++;
}

struct call {
	const struct variant *v;
	struct check_case *k;
};

/* The arguments point to where the rig has put the case. */
static status enqueue_op(struct stream *s, void *what, struct err *err)
{
	const struct call *c = what;

	switch (c->v->op) {
#define X(name, ...)                                                                     \
	case OP_##name:                                                                  \
		return ((status(*)(struct stream *, const struct op_##name *,            \
			struct err *))c->v->run)(s, &c->k->args.name, err);
		OP_MAP(X)
#undef X
	case OP__COUNT:
		break;
	}
	return err_set(err, ST_INVALID, "%s: op %d", c->v->name, (int)c->v->op);
}

/* Every result is judged by the plain kernel's run through a stream; the plain one's by
 * its own second run, in a graph where there are graphs. */
static status check(struct trial *t, const struct variant *v, struct err *err)
{
	bool graph = v->oracle && t->b->backend->ops->capture_begin != NULL;
	float *got = mem_alloc(selfcheck_outputs(t->k), sizeof(*got));
	float worst = 0;
	status st = selfcheck_run(t->rig, v, graph, got, err);

	if (st == ST_OK)
		st = selfcheck_compare(
			t->k, t->b->backend->act, got, t->want, &worst, err);
	mem_free(got);
	return st;
}

static void time_variant(struct trial *t, const struct variant *v)
{
	struct bench *b = t->b;
	struct call call = {v, t->k};
	struct cold_job job = {enqueue_op, &call};
	struct result r = {.v = v,
		.format = t->of->format,
		.number = b->n_cases,
		.work = t->work,
		.read_us = t->read_us};
	struct err err = {.text = ""};
	status st = check(t, v, &err);

	if (st == ST_OK)
		st = cold_time(b->cold, &job, &r.times, &err);
	if (st == ST_OK && b->n_results == RESULTS_MAX)
		st = err_set(&err, ST_LIMIT, "more than %u results", RESULTS_MAX);
	if (st != ST_OK) {
		fail(t, v, err.text);
		return;
	}
	(void)snprintf(r.name, sizeof(r.name), "%s", t->k->name);
	b->results[b->n_results++] = r;
}

/* What is printed of a result; a time that is too short for the method has no ratio. */
struct figures {
	char us[16], ratio[16];
	double floor_us;
	const char *bound;
};

static struct figures figures_of(const struct bench *b, const struct result *r)
{
	double rate = MAX(cold_read_rate(b->cold), cold_copy_rate(b->cold));
	double bytes = (r->work.read + r->work.written) / rate;
	double flops = r->work.flops / b->product_rate;
	struct figures f = {.us = "-",
		.ratio = "-",
		.floor_us = 1e6 * MAX(bytes, flops),
		.bound = flops > bytes ? "flops" : "bytes"};

	if (r->times.cold_us > 0) {
		(void)snprintf(f.us, sizeof(f.us), "%.1f", r->times.cold_us);
		(void)snprintf(
			f.ratio, sizeof(f.ratio), "%.2f", r->times.cold_us / f.floor_us);
	}
	return f;
}

static void print_result(const struct bench *b, const struct result *r)
{
	struct figures f = figures_of(b, r);

	printf("%-19s %-6s %9s %8.2f %9.3f %9.3f %7s %-5s %8.1f %8.1f  %s\n", r->v->name,
		format_text(r->v->op, r->format), f.us,
		(r->work.read + r->work.written) * 1e-6, r->work.flops * 1e-9, f.floor_us,
		f.ratio, f.bound, r->read_us, r->times.warm_us, r->name);
}

/* Of the results from `from` on, the fastest. */
static const struct result *fastest(const struct bench *b, uint32_t from)
{
	const struct result *best = NULL;

	for (uint32_t i = from; i < b->n_results; i++) {
		const struct result *r = &b->results[i];

		if (r->number != b->results[from].number)
			break;
		if (best == NULL || r->times.cold_us < best->times.cold_us)
			best = r;
	}
	return best;
}

/* The first case's product; then its lines can be printed, too. */
static void learn_rate(struct bench *b, uint32_t from)
{
	const struct result *r = fastest(b, from);

	if (r == NULL || r->times.cold_us <= 0)
		return;
	b->product_rate = r->work.flops * 1e6 / r->times.cold_us;
	printf("%s: reads %.2f TB/s, copies %.2f TB/s (both directions), products %.1f "
	       "TFLOP/s (%s, %s)\n",
		b->backend->device, cold_read_rate(b->cold) * 1e-12,
		cold_copy_rate(b->cold) * 1e-12, b->product_rate * 1e-12, r->v->name,
		r->name);
	printf("%-19s %-6s %9s %8s %9s %9s %7s %-5s %8s %8s  case\n", "variant", "format",
		"us", "MB", "GFLOP", "floor us", "ratio", "bound", "read us", "warm us");
}

/* The plain kernel's answer, then every variant against it. */
static void run_variants(struct trial *t)
{
	struct variant_table table = table_of(t->b);
	const struct variant *oracle = NULL;
	struct err err = {.text = ""};
	status st;

	for (uint32_t i = 0; i < table.n && oracle == NULL; i++) {
		if (serves(&table.at[i], t->of, t->b->backend) && table.at[i].oracle)
			oracle = &table.at[i];
	}
	if (oracle == NULL) {
		printf("FAIL %s: no plain kernel on %s\n", op_name(t->of->op),
			t->b->backend->device);
		t->b->n_failed++;
		return;
	}
	st = selfcheck_run(t->rig, oracle, false, t->want, &err);
	if (st == ST_OK)
		st = cold_time_read(
			t->b->cold, t->work.read + t->work.written, &t->read_us, &err);
	if (st != ST_OK) {
		fail(t, oracle, err.text);
		return;
	}
	for (uint32_t i = 0; i < table.n; i++) {
		if (serves(&table.at[i], t->of, t->b->backend))
			time_variant(t, &table.at[i]);
	}
}

/* Scratch of the most demanding variant. */
static uint64_t most_work(const struct trial *t)
{
	struct variant_table table = table_of(t->b);
	uint64_t most = 0;

	for (uint32_t i = 0; i < table.n; i++) {
		if (serves(&table.at[i], t->of, t->b->backend))
			most = MAX(most, table.at[i].work_bytes(&t->k->shapes));
	}
	return most;
}

static bool wanted(const struct bench *b, const char *name)
{
	size_t n = strlen(name);

	for (const char *at = b->only; at != NULL && *at != 0;) {
		size_t word = strcspn(at, ",");

		if (word == n && strncmp(at, name, n) == 0)
			return true;
		at += word;
		at += *at == ',';
	}
	return b->only == NULL;
}

static void run_case(void *arg, const struct bench_case *c)
{
	struct bench *b = arg;
	struct check_limits limits = {.weight_elements = c->weight_elements,
		.products = UINT64_MAX,
		.layout = &c->layout,
		.round_acts = true};
	struct trial t = {.b = b, .of = c};
	uint32_t from = b->n_results;
	struct err err = {.text = ""};

	if (b->n_cases > 0 && (b->product_rate <= 0 || !wanted(b, op_name(c->op))))
		return;
	if (b->deadline != 0 && clock_ns() > b->deadline) {
		b->n_left++;
		return;
	}
	t.k = check_case_create(c->op, c->format, &c->shapes, c->number, &limits);
	t.want = mem_alloc(selfcheck_outputs(t.k), sizeof(*t.want));
	t.work = op_work_of(t.k, b->backend->act);
	if (selfcheck_open(&t.rig, b->backend, t.k, most_work(&t), &err) == ST_OK) {
		run_variants(&t);
		selfcheck_close(t.rig);
	} else {
		printf("FAIL %s, %s: %s\n", op_name(c->op), t.k->name, err.text);
		b->n_failed++;
	}
	mem_free(t.want);
	check_case_destroy(t.k);
	if (b->n_cases++ == 0)
		learn_rate(b, from);
	for (uint32_t i = from; i < b->n_results && b->product_rate > 0; i++)
		print_result(b, &b->results[i]);
}

/* One line per case. */
static void print_fastest(const struct bench *b)
{
	printf("\nfastest of each case\n%-19s %-6s %9s %9s %7s %-5s  case\n", "variant",
		"format", "us", "floor us", "ratio", "bound");
	for (uint32_t i = 0; i < b->n_results; i++) {
		const struct result *r = fastest(b, i);
		struct figures f = figures_of(b, r);

		if (i > 0 && b->results[i].number == b->results[i - 1].number)
			continue;
		printf("%-19s %-6s %9s %9.3f %7s %-5s  %s\n", r->v->name,
			format_text(r->v->op, r->format), f.us, f.floor_us, f.ratio,
			f.bound, r->name);
	}
}

static bool parse(struct bench *b, int argc, char **argv, const char **gpu)
{
	for (int i = 1; i < argc; i++) {
		bool more = i + 1 < argc;

		if (strcmp(argv[i], "--small") == 0)
			b->small = true;
		else if (strcmp(argv[i], "--op") == 0 && more)
			b->only = argv[++i];
		else if (strcmp(argv[i], "--gpu") == 0 && more)
			*gpu = argv[++i];
		else if (strcmp(argv[i], "--seconds") == 0 && more)
			b->deadline =
				clock_ns() + strtoul(argv[++i], NULL, 10) * NS_PER_S;
		else
			return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	static struct bench b;
	const char *gpu = "0";
	struct err err;

	/* What is finished is seen even when the run is cut off. */
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	if (!parse(&b, argc, argv, &gpu)) {
		printf("usage: op_bench [--gpu N|cpu:0] [--op NAME,NAME...] [--small] "
		       "[--seconds N]\n");
		return 2;
	}
	if (backend_open(&b.backend, gpu, &err) != ST_OK) {
		printf("%s\n", err.text);
		return 2;
	}
	b.small |= b.backend->ops->capture_begin == NULL;
	if (cold_open(&b.cold, b.backend, &err) != ST_OK) {
		printf("rates of %s: %s\n", b.backend->device, err.text);
		return 1;
	}
	op_cases_each(b.small, run_case, &b);
	if (b.product_rate > 0)
		print_fastest(&b);
	else
		printf("no product was timed, so nothing has a floor\n");
	printf("%s: %" PRIu32 " cases, %" PRIu32 " failures, %" PRIu32
	       " left for want of time\n",
		b.backend->device, b.n_cases, b.n_failed, b.n_left);
	cold_close(b.cold);
	b.backend->ops->close(b.backend);
	return b.product_rate <= 0 || b.n_failed > 0 || b.n_left > 0;
}
