/* The classes of rows of a case: where a variant changes the kernel or tile inside, it
 * is run with the smallest number of rows of the new class and with an odd one of it,
 * which fills no tile. The case keeps the model's shapes; where it has to be cut (rows of
 * weights, experts), it is cut only as far as it still meets every kernel that the whole
 * one meets. */
#include "kernels/trial.h"

#include "common/base/attr.h"
#include "common/base/mem.h"
#include "kernels/selfcheck.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* From the border of a class to its odd count: on a GPU more than one tile of 128 rows
 * and a little of the next; on a CPU, whose blocks are of a few rows, a few. */
#define BEYOND_GPU 131u
#define BEYOND_CPU 4u
/* Rows that a run is judged by, and more of them behind its last. */
#define PICKED     61u
#define BEHIND     2u

/* What each candidate runs with, as bits by the number of rows from 1 to most. */
struct plan {
	uint64_t weight_elements;
	uint32_t most, largest;
	uint32_t *wanted; /* [most + 1] */
	bool classes;     /* somebody has more than one */
};

static bool on_cpu(const struct contest *c)
{
	return strcmp(c->backend->name, "cpu") == 0;
}

/* Case i without values, for inner. */
static struct check_case *make_thin(const struct bout *t, uint64_t weight_elements)
{
	const struct contest *c = t->c;
	struct check_limits limits = selfcheck_limits(c->backend);
	struct check_layout one = check_layout_of(c->op, c->shapes, 1);

	limits.weight_elements = weight_elements;
	limits.layout = &one;
	limits.thin = limits.aligned = true;
	return check_case_create(c->op, c->format, c->shapes, t->i, &limits);
}

static void want(struct plan *p, uint32_t v, uint32_t rows)
{
	p->wanted[rows] |= 1u << v;
	p->largest = MAX(p->largest, rows);
}

static void want_class(
	struct plan *p, uint32_t v, uint32_t beyond, uint32_t first, uint32_t last)
{
	uint32_t odd = MIN(last, first + beyond);

	odd -= odd % 2 == 0;
	want(p, v, first);
	if (odd > first)
		want(p, v, odd);
}

/* Goes through all numbers of rows; `met`: every kernel that v meets on its way. */
static void walk(const struct bout *t, struct check_case *thin, uint32_t v,
	struct plan *p, struct ran *met)
{
	uint32_t beyond = on_cpu(t->c) ? BEYOND_CPU : BEYOND_GPU, first = 1;
	char now[KERNEL_NAMES_MAX], before[KERNEL_NAMES_MAX] = "";
	uint32_t end = t->c->all[v]->inner == one_kernel ? 1 : p->most;

	for (uint32_t rows = 1; rows <= end; rows++) {
		now[0] = 0;
		check_set_rows(thin, rows);
		t->c->all[v]->inner(&thin->args, now);
		if (strcmp(now, before) == 0)
			continue;
		ran_add(met, now, 0);
		if (rows > 1 && p->wanted != NULL) {
			want_class(p, v, beyond, first, rows - 1);
			p->classes = true;
		}
		first = rows;
		memcpy(before, now, sizeof(before));
	}
	if (p->wanted != NULL)
		want_class(p, v, beyond, first, p->most);
}

/* Whether everyone meets in the cut case what they meet in the whole one. */
static bool is_enough(const struct bout *t, uint64_t weight_elements)
{
	struct check_case *whole = make_thin(t, UINT64_MAX / 8);
	struct check_case *cut = make_thin(t, weight_elements);
	struct plan nothing = {.most = check_rows_most(t->c->op, t->c->shapes)};
	struct ran *met = mem_alloc(2, sizeof(*met));
	bool enough = true;

	for (uint32_t v = 0; v < t->c->n && enough; v++) {
		memset(met, 0, 2 * sizeof(*met));
		walk(t, whole, v, &nothing, &met[0]);
		walk(t, cut, v, &nothing, &met[1]);
		enough = ran_has(&met[1], &met[0]);
	}
	mem_free(met);
	check_case_destroy(whole);
	check_case_destroy(cut);
	return enough;
}

static struct plan make_plan(const struct bout *t)
{
	struct plan p = {.most = check_rows_most(t->c->op, t->c->shapes),
		.weight_elements = selfcheck_limits(t->c->backend).weight_elements};
	struct ran *met = mem_alloc(1, sizeof(*met));
	struct check_case *thin;

	while (!is_enough(t, p.weight_elements))
		p.weight_elements *= 2;
	p.wanted = mem_alloc((size_t)p.most + 1, sizeof(*p.wanted));
	thin = make_thin(t, p.weight_elements);
	for (uint32_t v = 0; v < t->c->n; v++) {
		memset(met, 0, sizeof(*met));
		walk(t, thin, v, &p, met);
	}
	check_case_destroy(thin);
	mem_free(met);
	return p;
}

/* The rows by which a run of `count` of `all` is judged: the last two, and others that
 * lie as far apart as no tile does; and the first of those that it must not write, those
 * where a tile of 64 or 128 rows would end. */
static uint32_t pick_rows(uint32_t count, uint32_t all, uint32_t *at)
{
	const uint32_t tail[] = {
		count, count + 1, count | 15u, count | 63u, count | 127u};
	uint32_t n = 0;

	for (uint32_t i = 0; i < MIN(PICKED, count); i++) {
		uint32_t r = count <= PICKED
				     ? i
				     : (uint32_t)((uint64_t)i * (count - 1) / PICKED);

		at[n++] = r;
	}
	for (uint32_t r = count >= 2 ? count - 2 : 0; r < count; r++) {
		if (r > at[n - 1])
			at[n++] = r;
	}
	for (uint32_t i = 0; i < COUNT(tail); i++) {
		if (tail[i] > at[n - 1] && tail[i] < all)
			at[n++] = tail[i];
	}
	return n;
}
#define PICKED_MAX (PICKED + 2u + 5u)

/* The oracle's rows, of one run with all of them. */
struct answers {
	uint32_t *at, n;
	uint32_t *place; /* [all rows] of a row in `at` */
	float *values;
};

/* Every row that a run will be judged by. */
static void gather_rows(const struct plan *p, uint32_t all, struct answers *a)
{
	uint32_t at[PICKED_MAX];

	a->at = mem_alloc(all, sizeof(*a->at));
	a->place = mem_alloc(all, sizeof(*a->place));
	for (uint32_t rows = 1; rows <= p->most; rows++) {
		uint32_t n = p->wanted[rows] != 0 ? pick_rows(rows, all, at) : 0;

		for (uint32_t i = 0; i < n; i++)
			a->place[at[i]] = 1;
	}
	for (uint32_t r = 0; r < all; r++) {
		if (a->place[r] == 0)
			continue;
		a->place[r] = a->n;
		a->at[a->n++] = r;
	}
}

/* The oracle's values of the rows of a run, laid out as the run's. */
static void lay_out(const struct check_case *k, const struct answers *a,
	const struct rows_run *how, float *to)
{
	const float *from = a->values;

	for (uint32_t i = 0; i < k->n_buffers; i++) {
		const struct check_buffer *b = &k->buffers[i];

		if (b->role != CHECK_OUT)
			continue;
		for (uint32_t r = 0; r < how->n; r++)
			memcpy(to + r * b->stride,
				from + a->place[how->at[r]] * b->stride,
				b->stride * sizeof(*to));
		to += how->n * b->stride;
		from += a->n * b->stride;
	}
}

/* One candidate with one number of rows, eager and captured. */
static void try_rows(struct bout *t, uint32_t v, struct check_rig *rig,
	struct check_case *k, const struct answers *a, uint32_t rows)
{
	uint32_t at[PICKED_MAX], all = a->at[a->n - 1] + 1;
	struct rows_run how = {.count = rows, .n = pick_rows(rows, all, at), .at = at};
	uint64_t n = selfcheck_rows_outputs(k, how.n);
	uint32_t ways = t->c->backend->ops->capture_begin != NULL ? 2 : 1;
	float *got = mem_alloc(2 * n, sizeof(*got));
	char names[KERNEL_NAMES_MAX] = "", where[160];
	struct finding *f = &t->of[v];
	struct err why = {.text = ""};

	lay_out(k, a, &how, got + n);
	for (uint32_t way = 0; way < ways && f->right; way++) {
		status st;

		how.graph = way == 1;
		st = selfcheck_rows(rig, t->c->all[v], &how, got, &why);
		if (st == ST_OK)
			st = selfcheck_compare_rows(k, t->c->backend->act, &how, got,
				got + n, &f->worst, &why);
		(void)snprintf(where, sizeof(where), "%u of %s%s", rows, k->name,
			way == 1 ? ", in a graph" : "");
		if (st != ST_OK)
			trial_refuse(f, where, &why);
	}
	check_set_rows(k, rows);
	t->c->all[v]->inner(&k->args, names);
	ran_add(&f->ran, names, rows);
	mem_free(got);
}

static void try_all(struct bout *t, const struct plan *p, struct check_rig *rig,
	struct check_case *k, const struct answers *a)
{
	for (uint32_t v = 0; v < t->c->n; v++) {
		struct finding *f = &t->of[v];
		struct err why = {.text = ""};

		if (selfcheck_begin(rig, t->c->all[v], &why) != ST_OK)
			trial_refuse(f, k->name, &why);
		for (uint32_t rows = 1; rows <= p->most && f->right; rows++) {
			if ((p->wanted[rows] >> v & 1u) != 0)
				try_rows(t, v, rig, k, a, rows);
		}
	}
}

/* One case of the most rows, of which every run takes the first. */
static void run_together(struct bout *t, const struct plan *p)
{
	const struct contest *c = t->c;
	struct check_limits limits = selfcheck_limits(c->backend);
	uint32_t all = p->largest + BEHIND;
	struct check_layout layout = check_layout_of(c->op, c->shapes, all);
	struct answers a = {.n = 0};
	struct rows_run how = {.count = all};
	struct check_rig *rig = NULL;
	struct check_case *k;
	uint64_t work = 0;

	limits.weight_elements = p->weight_elements;
	limits.layout = &layout;
	limits.aligned = true;
	k = check_case_create(c->op, c->format, c->shapes, t->i, &limits);
	for (uint32_t v = 0; v < c->n; v++)
		work = MAX(work, c->all[v]->work_bytes(&k->shapes));
	gather_rows(p, all, &a);
	a.values = mem_alloc(selfcheck_rows_outputs(k, a.n), sizeof(*a.values));
	how.at = a.at;
	how.n = a.n;
	t->st = selfcheck_open(&rig, c->backend, k, work, &t->err);
	if (t->st == ST_OK) {
		selfcheck_turns(rig, c->turn);
		t->st = selfcheck_begin(rig, c->oracle, &t->err);
	}
	if (t->st == ST_OK)
		t->st = selfcheck_rows(rig, c->oracle, &how, a.values, &t->err);
	if (t->st == ST_OK)
		try_all(t, p, rig, k, &a);
	else
		err_wrap(&t->err, "%s, %s", c->oracle->name, k->name);
	selfcheck_close(rig);
	mem_free(a.values);
	mem_free(a.place);
	mem_free(a.at);
	check_case_destroy(k);
}

/* A case of its own for every number of rows: those of sequences depend on each other,
 * and a state is written over. */
static void run_apart(struct bout *t, const struct plan *p)
{
	for (uint32_t rows = 1; rows <= p->most && t->st == ST_OK; rows++) {
		struct check_limits limits = selfcheck_limits(t->c->backend);
		struct check_layout layout =
			check_layout_of(t->c->op, t->c->shapes, rows);

		limits.layout = &layout;
		limits.aligned = true;
		if (p->wanted[rows] != 0)
			trial_case(t, &limits, p->wanted[rows]);
	}
}

static bool has_state(const struct bout *t)
{
	struct check_case *thin =
		make_thin(t, selfcheck_limits(t->c->backend).weight_elements);
	bool found = false;

	for (uint32_t i = 0; i < thin->n_buffers; i++)
		found |= thin->buffers[i].role == CHECK_STATE;
	check_case_destroy(thin);
	return found;
}

void trial_classes(struct bout *t)
{
	struct plan p = make_plan(t);
	bool together = check_rows_of(t->c->op) == CHECK_TOGETHER;

	/* Of a single class the cases themselves have one row and an odd number. */
	if (p.classes || check_rows_of(t->c->op) == CHECK_PASS) {
		if (together && !has_state(t))
			run_together(t, &p);
		else
			run_apart(t, &p);
	}
	mem_free(p.wanted);
}
