/* One op in one weight format: run every candidate on every case, against the oracle and
 * against the clock. */
#include "kernels/trial.h"

#include "common/base/mem.h"
#include "kernels/selfcheck.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

bool trial_fits(const struct variant *v, const struct backend *b)
{
	if (strcmp(v->backend, b->name) != 0)
		return false;
	if (strcmp(b->name, "cpu") == 0)
		return (b->arch & v->arch_min) == v->arch_min;
	return v->arch_min <= b->arch && b->arch <= v->arch_max;
}

static const struct variant *find_oracle(const struct variant_source *from,
	const struct backend *b, enum op_id op, enum weight_format format)
{
	for (uint32_t t = 0; t < from->n_tables; t++) {
		for (uint32_t i = 0; i < from->tables[t].n; i++) {
			const struct variant *v = &from->tables[t].at[i];

			if (v->op == op && v->oracle && trial_fits(v, b) &&
				variant_takes(v, format))
				return v;
		}
	}
	return NULL;
}

static struct report_row *add_row(
	struct report *r, const struct contest *c, const struct variant *v)
{
	struct report_row *row = &r->rows[r->n++];

	assert(r->n <= r->max);
	*row = (struct report_row){.variant = v,
		.format = c->format,
		.any_format = c->any_format,
		.right = true,
		.oracle = v == c->oracle};
	return row;
}

static status enter(struct contest *c, struct err *err)
{
	c->oracle = find_oracle(c->from, c->backend, c->op, c->format);
	if (c->oracle == NULL)
		return err_set(err, ST_DEVICE, "%s, %s: no oracle for %s", op_name(c->op),
			format_name(c->format), c->backend->device);
	for (uint32_t t = 0; t < c->from->n_tables; t++) {
		for (uint32_t i = 0; i < c->from->tables[t].n; i++) {
			const struct variant *v = &c->from->tables[t].at[i];

			if (v->op != c->op || !trial_fits(v, c->backend) ||
				!variant_takes(v, c->format))
				continue;
			if (c->n == CANDIDATES_MAX)
				return err_set(err, ST_LIMIT, "%s: more than %u variants",
					op_name(c->op), CANDIDATES_MAX);
			c->rows[c->n] = add_row(c->report, c, v);
			c->all[c->n++] = v;
		}
	}
	return ST_OK;
}

static void refuse(struct report_row *row, const struct check_case *k, bool graph,
	const struct err *why)
{
	row->right = false;
	(void)snprintf(row->text, sizeof(row->text), "%s%s: %.170s", k->name,
		graph ? ", in a graph" : "", why->text);
}

/* One candidate on one case, eager and (where there are graphs) captured. The oracle's
 * own eager result is `want` already. */
static void try_candidate(struct contest *c, uint32_t i, struct check_rig *rig,
	const struct check_case *k, const float *want)
{
	const struct variant *v = c->all[i];
	float *got = mem_alloc(selfcheck_outputs(k), sizeof(*got));
	uint32_t ways = c->backend->ops->capture_begin != NULL ? 2 : 1;
	struct report_row *row = c->rows[i];
	struct err why = {.text = ""};
	uint64_t ns = 1;

	for (uint32_t way = 0; way < ways && row->right; way++) {
		bool known = v == c->oracle && way == 0;
		status st = known ? ST_OK : selfcheck_run(rig, v, way == 1, got, &why);

		if (st == ST_OK)
			st = selfcheck_compare(k, c->backend->act, known ? want : got,
				want, &row->worst, &why);
		if (st != ST_OK)
			refuse(row, k, way == 1, &why);
	}
	if (row->right && selfcheck_time(rig, v, &ns, &why) != ST_OK)
		refuse(row, k, false, &why);
	row->ns += ns;
	c->score[i] += log((double)ns);
	mem_free(got);
}

/* The oracle against the reference backend's oracle, on a case small enough for it. */
static status check_oracle(struct contest *c, uint32_t i, struct err *err)
{
	struct backend *reference = c->from->reference;
	const struct variant *theirs = find_oracle(c->from, reference, c->op, c->format);
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
	k = check_case_create(c->op, c->format, c->shapes, i, &limits);
	for (int side = 0; side < 2 && st == ST_OK; side++) {
		struct check_rig *rig = NULL;

		values[side] = mem_alloc(selfcheck_outputs(k), sizeof(float));
		st = selfcheck_open(&rig, sides[side], k,
			variants[side]->work_bytes(&k->shapes), err);
		if (st == ST_OK)
			st = selfcheck_run(rig, variants[side], false, values[side], err);
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

static status run_case(struct contest *c, uint32_t i, struct err *err)
{
	struct check_limits limits = selfcheck_limits(c->backend);
	struct check_case *k = check_case_create(c->op, c->format, c->shapes, i, &limits);
	float *want = mem_alloc(selfcheck_outputs(k), sizeof(*want));
	struct check_rig *rig = NULL;
	uint64_t work = 0;
	status st;

	for (uint32_t v = 0; v < c->n; v++)
		work = MAX(work, c->all[v]->work_bytes(&k->shapes));
	st = selfcheck_open(&rig, c->backend, k, work, err);
	if (st == ST_OK) {
		st = selfcheck_run(rig, c->oracle, false, want, err);
		if (st != ST_OK)
			err_wrap(err, "%s, %s", c->oracle->name, k->name);
	}
	for (uint32_t v = 0; v < c->n && st == ST_OK; v++) {
		if (c->rows[v]->right)
			try_candidate(c, v, rig, k, want);
	}
	selfcheck_close(rig);
	mem_free(want);
	check_case_destroy(k);
	return st;
}

/* Does the comma-separated list name this variant? */
static bool is_forced(const char *forced, const char *name)
{
	size_t n = strlen(name);

	for (const char *at = forced; at != NULL && *at != 0;) {
		size_t word = strcspn(at, ",");

		if (word == n && strncmp(at, name, n) == 0)
			return true;
		at += word;
		at += *at == ',';
	}
	return false;
}

static status pick(struct contest *c, const struct variant **out, struct err *err)
{
	uint32_t best = c->n;
	bool pinned = false;

	for (uint32_t i = 0; i < c->n; i++) {
		if (!is_forced(c->forced, c->all[i]->name))
			continue;
		if (!c->rows[i]->right)
			return err_set(err, ST_DEVICE,
				"%s was forced, but fails its check: %s", c->all[i]->name,
				c->rows[i]->text);
		if (pinned)
			return err_set(err, ST_INVALID,
				"two forced variants of %s for %s", op_name(c->op),
				format_name(c->format));
		pinned = true;
		best = i;
	}
	for (uint32_t i = 0; i < c->n && !pinned; i++) {
		if (c->rows[i]->right && (best == c->n || c->score[i] < c->score[best]))
			best = i;
	}
	if (best == c->n)
		return err_set(err, ST_DEVICE,
			"%s, %s: no variant is right on %s; %s: %.160s", op_name(c->op),
			format_name(c->format), c->backend->device,
			c->n > 0 ? c->all[0]->name : "none",
			c->n > 0 ? c->rows[0]->text : "");
	c->rows[best]->chosen = true;
	*out = c->all[best];
	return ST_OK;
}

status trial_hold(struct contest *c, const struct variant **out, struct err *err)
{
	uint32_t cases = check_case_count(c->op);
	status st = enter(c, err);

	for (uint32_t i = 0; i < cases && st == ST_OK; i++) {
		if (c->from->reference != NULL)
			st = check_oracle(c, i, err);
		if (st == ST_OK)
			st = run_case(c, i, err);
	}
	return st == ST_OK ? pick(c, out, err) : st;
}
