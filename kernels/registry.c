/* Choice of a kernel for each op and weight format that a model needs. */
#include "kernels/registry.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "kernels/report.h"
#include "kernels/trial.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *op_name(enum op_id op)
{
	static const char *const names[OP__COUNT] = {
#define X(name, ...) #name,
		OP_MAP(X)
#undef X
	};

	return names[op];
}

static bool has_format(enum op_id op)
{
	enum { format_NONE, format_table, format_w, format_down };
	static const int members[OP__COUNT] = {
#define X(name, weight, ...) [OP_##name] = format_##weight,
		OP_MAP(X)
#undef X
	};

	return members[op] != format_NONE;
}

/* Formats in which the model needs an op, as bits. */
static uint32_t formats_of(enum op_id op, const struct kernel_shapes *s)
{
	switch (op) {
#define X(name, weight, formats, needed, ...)                                            \
	case OP_##name:                                                                  \
		return (needed) ? (formats) : 0;
		OP_MAP(X)
#undef X
	case OP__COUNT:
		break;
	}
	return 0;
}

uint64_t no_work(__attribute__((unused)) const struct kernel_shapes *shapes)
{
	return 0;
}

void one_kernel(__attribute__((unused)) const void *op, char names[KERNEL_NAMES_MAX])
{
	kernel_named(names, "one kernel");
}

void kernel_named(char names[KERNEL_NAMES_MAX], const char *format, ...)
{
	size_t at = strlen(names);
	va_list args;

	if (at > 0)
		at += (size_t)snprintf(
			names + at, KERNEL_NAMES_MAX - at, KERNEL_NAMES_BETWEEN);
	assert(at < KERNEL_NAMES_MAX);
	va_start(args, format);
	at += (size_t)vsnprintf(names + at, KERNEL_NAMES_MAX - at, format, args);
	va_end(args);
	assert(at < KERNEL_NAMES_MAX);
}

status no_repack(__attribute__((unused)) struct backend *b,
	__attribute__((unused)) struct stream *s,
	__attribute__((unused)) struct weight *w, __attribute__((unused)) struct err *err)
{
	return ST_OK;
}

/* What stands where nothing was selected, so that a call is an error and not a jump to
 * nowhere. */
#define X(name, ...)                                                                     \
	static status refuse_##name(__attribute__((unused)) struct stream *s,            \
		__attribute__((unused)) const struct op_##name *op, struct err *err)     \
	{                                                                                \
		return err_set(err, ST_INVALID,                                          \
			#name ": no kernel was selected for this weight format");        \
	}
OP_MAP(X)
#undef X

static void fill_refusals(struct kernels *k)
{
	static const op_fn refusals[OP__COUNT] = {
#define X(name, ...) [OP_##name] = (op_fn)refuse_##name,
		OP_MAP(X)
#undef X
	};

	for (int op = 0; op < OP__COUNT; op++) {
		for (int f = 0; f < WF__COUNT; f++)
			k->run[op][f] = refusals[op];
	}
}

/* The first word of forced that is the name of no variant for b or, when that is NULL,
 * for any device of the backend; NULL: each is one. */
static const char *unknown_name(const char *forced, const char *backend,
	const struct backend *b, const struct variant_source *from, size_t *len)
{
	for (const char *at = forced; at != NULL && *at != 0;) {
		size_t word = strcspn(at, ",");
		bool known = false;

		for (uint32_t t = 0; t < from->n_tables; t++) {
			for (uint32_t i = 0; i < from->tables[t].n; i++) {
				const struct variant *v = &from->tables[t].at[i];

				known |= strlen(v->name) == word &&
					 strncmp(v->name, at, word) == 0 &&
					 (b != NULL ? trial_fits(v, b)
						    : strcmp(v->backend, backend) == 0);
			}
		}
		*len = MIN(word, 64);
		if (!known)
			return at;
		at += word;
		at += *at == ',';
	}
	return NULL;
}

static status check_forced(const char *forced, const struct backend *b,
	const struct variant_source *from, struct err *err)
{
	size_t len;
	const char *bad = unknown_name(forced, b->name, b, from, &len);

	if (bad == NULL)
		return ST_OK;
	return err_set(err, ST_INVALID,
		"forced variant \"%.*s\": none of that name for %s", (int)len, bad,
		b->device);
}

static void set_chosen(
	struct kernels *k, const struct contest *c, const struct variant *v)
{
	for (int f = 0; f < WF__COUNT; f++) {
		if (!c->any_format && f != (int)c->format)
			continue;
		k->run[c->op][f] = v->run;
		k->chosen[c->op][f] = v;
	}
	k->work_bytes = MAX(k->work_bytes, v->work_bytes(c->shapes));
}

/* Every contest, and every bout of each, one contest after the other. */
struct tournament {
	struct contest contests[OP__COUNT * WF__COUNT];
	uint32_t first[OP__COUNT * WF__COUNT + 1]; /* bout of each contest, and the end */
	uint32_t n, n_bouts;
	struct bout *bouts;
	uint32_t *order; /* in which they begin */
};

static uint32_t tried_of(enum op_id op)
{
#define X(name, weight, formats, needed, cases, tolerance, rows, tried)                  \
	[OP_##name] = (tried),
	static const uint32_t of[OP__COUNT] = { OP_MAP(X) };
#undef X

	return of[op];
}

static status enter_all(
	struct tournament *all, const struct contest *blank, struct err *err)
{
	for (int op = 0; op < OP__COUNT; op++) {
		for (int f = 0; f < WF__COUNT; f++) {
			struct contest *c = &all->contests[all->n];
			status st;

			if ((formats_of((enum op_id)op, blank->shapes) >> f & 1u) == 0)
				continue;
			*c = *blank;
			c->op = (enum op_id)op;
			c->format = (enum weight_format)f;
			c->any_format = !has_format(c->op);
			all->n++;
			st = trial_enter(c, err);
			if (st != ST_OK)
				return st;
		}
	}
	return ST_OK;
}

static void add_bout(
	struct tournament *all, const struct contest *c, enum bout_kind kind, uint32_t i)
{
	all->bouts[all->n_bouts++] = (struct bout){.c = c, .kind = kind, .i = i};
}

static void plan_bouts(struct tournament *all)
{
	uint32_t most = 0;

	for (uint32_t c = 0; c < all->n; c++)
		most += 2 * check_case_count(all->contests[c].op);
	all->bouts = mem_alloc(most, sizeof(*all->bouts));
	for (uint32_t c = 0; c < all->n; c++) {
		const struct contest *contest = &all->contests[c];

		all->first[c] = all->n_bouts;
		for (uint32_t i = 0; i < check_case_count(contest->op); i++) {
			add_bout(all, contest, BOUT_CASE, i);
			if ((tried_of(contest->op) >> i & 1u) != 0)
				add_bout(all, contest, BOUT_CLASSES, i);
		}
	}
	all->first[all->n] = all->n_bouts;
}

/* Classes of rows first: they are the longest, and none should be left for the end. */
static void put_in_order(struct tournament *all)
{
	uint32_t n = 0;

	all->order = mem_alloc(all->n_bouts, sizeof(*all->order));
	for (int large = 1; large >= 0; large--) {
		for (uint32_t i = 0; i < all->n_bouts; i++) {
			if ((all->bouts[i].kind == BOUT_CLASSES) == (large == 1))
				all->order[n++] = i;
		}
	}
}

static void run_bout(void *arg, uint32_t i)
{
	struct tournament *all = arg;

	trial_run(&all->bouts[all->order[i]]);
}

/* Bouts side by side have host work between their runs on a device. On the CPU they
 * would take each other's time, which decides. */
#define THREADS_MAX 8u

static uint32_t threads_for(const struct backend *b, const struct variant_source *from)
{
	if (from->threads > 0)
		return from->threads;
	return strcmp(b->name, "cpu") == 0 ? 1 : MIN(parallel_processors(), THREADS_MAX);
}

static status select_all(struct kernels *k, struct contest *blank, struct err *err)
{
	struct tournament *all = mem_alloc(1, sizeof(*all));
	uint32_t threads = threads_for(blank->backend, blank->from);
	status st;

	blank->turn = threads > 1 ? turn_create() : NULL;
	st = enter_all(all, blank, err);
	if (st == ST_OK) {
		plan_bouts(all);
		put_in_order(all);
		parallel_run(threads, all->n_bouts, run_bout, all);
	}
	for (uint32_t c = 0; c < all->n && st == ST_OK; c++) {
		const struct variant *v = NULL;

		st = trial_judge(&all->contests[c], &all->bouts[all->first[c]],
			all->first[c + 1] - all->first[c], k->report, &v, err);
		if (st == ST_OK)
			set_chosen(k, &all->contests[c], v);
	}
	turn_destroy(blank->turn);
	mem_free(all->order);
	mem_free(all->bouts);
	mem_free(all);
	return st;
}

static void log_one(const struct report_row *row)
{
	log_error("kernel %s of format %s was refused: %s", row->variant->name,
		row->any_format ? "any" : format_name(row->format), row->found.text);
}

/* A kernel that breaks the device makes every later one fail; the first is the cause. */
static void log_refused(const struct report *r)
{
	const struct report_row *first = NULL;

	for (uint32_t i = 0; i < r->n; i++) {
		const struct report_row *row = &r->rows[i];

		if (!row->found.right &&
			(first == NULL ||
				row->found.refused_ns < first->found.refused_ns))
			first = row;
	}
	if (first != NULL)
		log_one(first);
	for (uint32_t i = 0; i < r->n; i++) {
		if (!r->rows[i].found.right && &r->rows[i] != first)
			log_one(&r->rows[i]);
	}
}

status kernels_select_from(struct kernels **out, struct backend *b,
	const struct kernel_shapes *shapes, const char *forced,
	const struct variant_source *from, struct err *err)
{
	struct report *report = mem_alloc(1, sizeof(*report));
	struct kernels *k = mem_alloc(1, sizeof(*k));
	struct contest blank = {
		.backend = b, .shapes = shapes, .forced = forced, .from = from};
	status st;

	for (uint32_t t = 0; t < from->n_tables; t++)
		report->max += from->tables[t].n * WF__COUNT;
	report->rows = mem_alloc(report->max, sizeof(*report->rows));
	k->report = report;
	fill_refusals(k);
	st = check_forced(forced, b, from, err);
	if (st == ST_OK)
		st = select_all(k, &blank, err);
	if (st != ST_OK) {
		log_refused(report);
		kernels_release(k);
		return st;
	}
	*out = k;
	return ST_OK;
}

#define TABLES_MAX 2

static uint32_t built_in(struct variant_table tables[TABLES_MAX])
{
	uint32_t n = 0;

	tables[n++] = (struct variant_table){cpu_variants, n_cpu_variants};
#ifdef BATON_HAVE_CUDA
	tables[n++] = (struct variant_table){cuda_variants, n_cuda_variants};
#endif
	return n;
}

status kernels_known(const char *forced, const char *backend, struct err *err)
{
	struct variant_table tables[TABLES_MAX];
	struct variant_source from = {.tables = tables, .n_tables = built_in(tables)};
	size_t len;
	const char *bad = unknown_name(forced, backend, NULL, &from, &len);

	if (bad == NULL)
		return ST_OK;
	return err_set(err, ST_INVALID, "no variant for %s is named \"%.*s\"", backend,
		(int)len, bad);
}

uint64_t kernels_work_most(const char *backend, const struct kernel_shapes *shapes)
{
	struct variant_table tables[TABLES_MAX];
	uint32_t n = built_in(tables);
	uint64_t most = 0;

	for (uint32_t t = 0; t < n; t++)
		for (uint32_t i = 0; i < tables[t].n; i++) {
			const struct variant *v = &tables[t].at[i];

			if (strcmp(v->backend, backend) == 0 && !v->by_name)
				most = MAX(most, v->work_bytes(shapes));
		}
	return most;
}

status kernels_select(struct kernels **out, struct backend *b,
	const struct kernel_shapes *shapes, const char *forced, struct err *err)
{
	struct variant_table tables[TABLES_MAX];
	struct variant_source from = {.tables = tables, .n_tables = built_in(tables)};
	status st = ST_OK;

	if (strcmp(b->name, "cpu") != 0)
		st = backend_open(&from.reference, "cpu:0", err);
	if (st == ST_OK)
		st = kernels_select_from(out, b, shapes, forced, &from, err);
	if (from.reference != NULL)
		from.reference->ops->close(from.reference);
	return st;
}

void kernels_release(struct kernels *k)
{
	struct report *report;

	if (k == NULL)
		return;
	report = k->report;
	mem_free(report->rows);
	mem_free(report);
	mem_free(k);
}
