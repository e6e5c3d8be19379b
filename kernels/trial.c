/* One op in one weight format: who could serve it, and who does. */
#include "kernels/trial.h"

#include <assert.h>
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

const struct variant *trial_oracle(const struct variant_source *from,
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

status trial_enter(struct contest *c, struct err *err)
{
	c->oracle = trial_oracle(c->from, c->backend, c->op, c->format);
	if (c->oracle == NULL)
		return err_set(err, ST_DEVICE, "%s, %s: no oracle for %s", op_name(c->op),
			format_name(c->format), c->backend->device);
	for (uint32_t t = 0; t < c->from->n_tables; t++) {
		for (uint32_t i = 0; i < c->from->tables[t].n; i++) {
			const struct variant *v = &c->from->tables[t].at[i];

			if (v->op != c->op || !trial_fits(v, c->backend) ||
				!variant_takes(v, c->format) ||
				(v->by_name && !is_forced(c->forced, v->name)))
				continue;
			if (c->n == CANDIDATES_MAX)
				return err_set(err, ST_LIMIT, "%s: more than %u variants",
					op_name(c->op), CANDIDATES_MAX);
			c->all[c->n++] = v;
		}
	}
	return ST_OK;
}

/* What the bouts say of candidate v, in their order. */
static void sum_up(struct finding *f, const struct bout *bouts, uint32_t n, uint32_t v)
{
	f->right = true;
	for (uint32_t i = 0; i < n; i++) {
		const struct finding *one = &bouts[i].of[v];

		f->worst = one->worst > f->worst ? one->worst : f->worst;
		f->ns += one->ns;
		f->score += one->score;
		ran_merge(&f->ran, &one->ran);
		if (!f->right || one->right)
			continue;
		f->right = false;
		f->refused_ns = one->refused_ns;
		(void)snprintf(f->text, sizeof(f->text), "%s", one->text);
	}
}

/* Of two right ones. The clock decides on a GPU, which a bout has to itself. A CPU is
 * shared, and two workers that chose differently would give other bits for the same
 * tokens: there the plain kernel, which is never meant to be fast, serves only where
 * nothing else is right. */
static bool is_better(
	const struct contest *c, const struct report_row *rows, uint32_t a, uint32_t b)
{
	bool shared = strcmp(c->backend->name, "cpu") == 0;

	if (shared && c->all[a]->oracle != c->all[b]->oracle)
		return c->all[b]->oracle;
	return rows[a].found.score < rows[b].found.score;
}

static status pick(const struct contest *c, struct report_row *rows,
	const struct variant **out, struct err *err)
{
	uint32_t best = c->n;
	bool pinned = false;

	for (uint32_t i = 0; i < c->n; i++) {
		if (!is_forced(c->forced, c->all[i]->name))
			continue;
		if (!rows[i].found.right)
			return err_set(err, ST_DEVICE,
				"%s was forced, but fails its check: %s", c->all[i]->name,
				rows[i].found.text);
		if (pinned)
			return err_set(err, ST_INVALID,
				"two forced variants of %s for %s", op_name(c->op),
				format_name(c->format));
		pinned = true;
		best = i;
	}
	for (uint32_t i = 0; i < c->n && !pinned; i++) {
		if (rows[i].found.right && (best == c->n || is_better(c, rows, i, best)))
			best = i;
	}
	if (best == c->n)
		return err_set(err, ST_DEVICE,
			"%s, %s: no variant is right on %s; %s: %.160s", op_name(c->op),
			format_name(c->format), c->backend->device,
			c->n > 0 ? c->all[0]->name : "none",
			c->n > 0 ? rows[0].found.text : "");
	rows[best].chosen = true;
	*out = c->all[best];
	return ST_OK;
}

status trial_judge(const struct contest *c, const struct bout *bouts, uint32_t n,
	struct report *report, const struct variant **out, struct err *err)
{
	struct report_row *rows = &report->rows[report->n];

	report->n += c->n;
	assert(report->n <= report->max);
	for (uint32_t v = 0; v < c->n; v++) {
		rows[v] = (struct report_row){.variant = c->all[v],
			.format = c->format,
			.any_format = c->any_format,
			.oracle = c->all[v] == c->oracle};
		sum_up(&rows[v].found, bouts, n, v);
	}
	for (uint32_t i = 0; i < n; i++) {
		if (bouts[i].st != ST_OK) {
			*err = bouts[i].err;
			return bouts[i].st;
		}
	}
	return pick(c, rows, out, err);
}
