/* The table of what was run, what was chosen and why. */
#include "kernels/report.h"

#include "common/base/attr.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static void add_rows(struct ran *r, uint32_t kernel, uint32_t rows)
{
	uint32_t *at = r->at[kernel].rows, n = r->at[kernel].n, i = 0;

	while (i < n && at[i] < rows)
		i++;
	if (i < n && at[i] == rows)
		return;
	assert(n < RAN_ROWS_MAX);
	memmove(at + i + 1, at + i, (n - i) * sizeof(*at));
	at[i] = rows;
	r->at[kernel].n++;
}

static uint32_t find_kernel(const struct ran *r, const char *name, size_t len)
{
	uint32_t i = 0;

	while (i < r->n && (strlen(r->at[i].kernel) != len ||
				   strncmp(r->at[i].kernel, name, len) != 0))
		i++;
	return i;
}

static uint32_t take_kernel(struct ran *r, const char *name, size_t len)
{
	uint32_t i = find_kernel(r, name, len);

	if (i < r->n)
		return i;
	assert(r->n < RAN_KERNELS_MAX && len < sizeof(r->at[0].kernel));
	memcpy(r->at[r->n].kernel, name, len);
	return r->n++;
}

void ran_add(struct ran *r, const char *names, uint32_t rows)
{
	for (const char *at = names; *at != 0;) {
		const char *end = strstr(at, KERNEL_NAMES_BETWEEN);
		size_t len = end != NULL ? (size_t)(end - at) : strlen(at);

		add_rows(r, take_kernel(r, at, len), rows);
		at += len;
		if (end != NULL)
			at += strlen(KERNEL_NAMES_BETWEEN);
	}
}

void ran_merge(struct ran *r, const struct ran *more)
{
	for (uint32_t i = 0; i < more->n; i++) {
		for (uint32_t k = 0; k < more->at[i].n; k++)
			ran_add(r, more->at[i].kernel, more->at[i].rows[k]);
	}
}

bool ran_has(const struct ran *r, const struct ran *part)
{
	for (uint32_t i = 0; i < part->n; i++) {
		const char *name = part->at[i].kernel;

		if (find_kernel(r, name, strlen(name)) == r->n)
			return false;
	}
	return true;
}

static const char *verdict(const struct report_row *r)
{
	if (!r->found.right)
		return "refused";
	return r->chosen ? "chosen" : "right";
}

static void print_ran(const struct report_row *r, struct sink *out)
{
	for (uint32_t i = 0; i < r->found.ran.n; i++) {
		sink_fmt(out, "%23s%-22s rows", "", r->found.ran.at[i].kernel);
		for (uint32_t k = 0; k < r->found.ran.at[i].n; k++)
			sink_fmt(out, " %u", r->found.ran.at[i].rows[k]);
		sink_str(out, "\n");
	}
}

void kernels_report(const struct kernels *k, struct sink *out)
{
	const struct report *report = k->report;

	sink_fmt(out, "%-13s %-6s %-22s %-8s %9s %11s\n", "op", "format", "variant",
		"verdict", "error", "time us");
	for (uint32_t i = 0; i < report->n; i++) {
		const struct report_row *r = &report->rows[i];
		const struct finding *f = &r->found;
		char error[16];

		if (r->oracle)
			(void)snprintf(error, sizeof(error), "oracle");
		else
			(void)snprintf(
				error, sizeof(error), "%.1f%%", (double)f->worst * 100);
		sink_fmt(out, "%-13s %-6s %-22s %-8s %9s %11.1f%s%s\n",
			op_name(r->variant->op),
			r->any_format ? "any" : format_name(r->format), r->variant->name,
			verdict(r), f->right ? error : "-", (double)f->ns / 1000,
			f->right ? "" : "  ", f->right ? "" : f->text);
		print_ran(r, out);
	}
}
