/* One case: its oracle, then every candidate against it and against the clock. */
#include "kernels/trial.h"

#include "common/base/attr.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "kernels/selfcheck.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void trial_refuse(struct finding *f, const char *where, const struct err *why)
{
	f->right = false;
	f->refused_ns = clock_ns();
	(void)snprintf(f->text, sizeof(f->text), "%s: %.170s", where, why->text);
}

/* One candidate on one case, eager and (where there are graphs) captured. The oracle's
 * own eager result is `want` already. */
static void try_candidate(struct bout *t, uint32_t i, struct check_rig *rig,
	const struct check_case *k, const float *want)
{
	const struct contest *c = t->c;
	const struct variant *v = c->all[i];
	float *got = mem_alloc(selfcheck_outputs(k), sizeof(*got));
	uint32_t ways = c->backend->ops->capture_begin != NULL ? 2 : 1;
	char names[KERNEL_NAMES_MAX] = "", where[96];
	struct finding *f = &t->of[i];
	struct err why = {.text = ""};
	uint64_t ns = 1;

	for (uint32_t way = 0; way < ways && f->right; way++) {
		bool known = v == c->oracle && way == 0;
		status st = known ? ST_OK : selfcheck_run(rig, v, way == 1, got, &why);

		if (st == ST_OK)
			st = selfcheck_compare(k, c->backend->act, known ? want : got,
				want, &f->worst, &why);
		(void)snprintf(where, sizeof(where), "%s%s", k->name,
			way == 1 ? ", in a graph" : "");
		if (st != ST_OK)
			trial_refuse(f, where, &why);
	}
	if (f->right && t->kind == BOUT_CASE) {
		if (selfcheck_time(rig, v, &ns, &why) != ST_OK)
			trial_refuse(f, k->name, &why);
		f->ns += ns;
		f->score += log((double)ns);
	}
	v->inner(&k->args, names);
	ran_add(&f->ran, names, check_get_rows(k));
	mem_free(got);
}

/* The oracle against the reference backend's oracle, on a case small enough for it. */
static status check_oracle(
	struct bout *t, const struct check_layout *layout, struct err *err)
{
	const struct contest *c = t->c;
	struct backend *reference = c->from->reference;
	const struct variant *theirs = trial_oracle(c->from, reference, c->op, c->format);
	struct check_limits limits = selfcheck_limits(reference);
	struct backend *sides[2] = {c->backend, reference};
	const struct variant *variants[2] = {c->oracle, theirs};
	float *values[2] = {NULL, NULL};
	struct check_case *k;
	float worst = 0;
	status st = ST_OK;

	if (theirs == NULL)
		return err_set(err, ST_DEVICE, "%s: no oracle for %s", op_name(c->op),
			reference->device);
	limits.round_acts = true;
	limits.layout = layout;
	k = check_case_create(c->op, c->format, c->shapes, t->i, &limits);
	for (int side = 0; side < 2 && st == ST_OK; side++) {
		struct check_rig *rig = NULL;

		values[side] = mem_alloc(selfcheck_outputs(k), sizeof(float));
		st = selfcheck_open(&rig, sides[side], k,
			variants[side]->work_bytes(&k->shapes), err);
		if (st == ST_OK) {
			selfcheck_turns(rig, side == 0 ? c->turn : NULL);
			st = selfcheck_run(rig, variants[side], false, values[side], err);
		}
		selfcheck_close(rig);
	}
	if (st == ST_OK)
		st = selfcheck_compare(
			k, c->backend->act, values[0], values[1], &worst, err);
	if (st != ST_OK)
		err_wrap(err, "%s against %s on %s, %s", c->oracle->name, theirs->name,
			reference->device, k->name);
	mem_free(values[0]);
	mem_free(values[1]);
	check_case_destroy(k);
	return st;
}

static void run_candidates(struct bout *t, struct check_case *k, uint32_t candidates)
{
	const struct contest *c = t->c;
	float *want = mem_alloc(selfcheck_outputs(k), sizeof(*want));
	struct check_rig *rig = NULL;
	uint64_t work = 0;

	for (uint32_t v = 0; v < c->n; v++)
		work = MAX(work, c->all[v]->work_bytes(&k->shapes));
	t->st = selfcheck_open(&rig, c->backend, k, work, &t->err);
	if (t->st == ST_OK) {
		selfcheck_turns(rig, c->turn);
		t->st = selfcheck_run(rig, c->oracle, false, want, &t->err);
		if (t->st != ST_OK)
			err_wrap(&t->err, "%s, %s", c->oracle->name, k->name);
	}
	for (uint32_t v = 0; v < c->n && t->st == ST_OK; v++) {
		if (t->of[v].right && (candidates >> v & 1u) != 0)
			try_candidate(t, v, rig, k, want);
	}
	selfcheck_close(rig);
	mem_free(want);
}

void trial_case(struct bout *t, const struct check_limits *limits, uint32_t candidates)
{
	const struct contest *c = t->c;
	struct check_case *k;

	for (uint32_t v = 0; v < c->n && c->from->reference != NULL; v++) {
		if (c->all[v] == c->oracle && (candidates >> v & 1u) != 0)
			t->st = check_oracle(t, limits->layout, &t->err);
		if (t->st != ST_OK)
			return;
	}
	k = check_case_create(c->op, c->format, c->shapes, t->i, limits);
	run_candidates(t, k, candidates);
	check_case_destroy(k);
}

void trial_run(struct bout *t)
{
	struct check_limits limits = selfcheck_limits(t->c->backend);

	for (uint32_t v = 0; v < t->c->n; v++)
		t->of[v].right = true;
	if (t->kind == BOUT_CASE)
		trial_case(t, &limits, UINT32_MAX);
	else
		trial_classes(t);
}
