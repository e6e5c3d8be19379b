/* The table of what was chosen and why. */
#include "kernels/report.h"

#include <stdio.h>

static const char *verdict(const struct report_row *r)
{
	if (!r->right)
		return "refused";
	return r->chosen ? "chosen" : "right";
}

void kernels_report(const struct kernels *k, struct sink *out)
{
	const struct report *report = k->report;

	sink_fmt(out, "%-13s %-6s %-22s %-8s %9s %11s\n", "op", "format", "variant",
		"verdict", "error", "time us");
	for (uint32_t i = 0; i < report->n; i++) {
		const struct report_row *r = &report->rows[i];
		char error[16];

		if (r->oracle)
			(void)snprintf(error, sizeof(error), "oracle");
		else
			(void)snprintf(
				error, sizeof(error), "%.1f%%", (double)r->worst * 100);
		sink_fmt(out, "%-13s %-6s %-22s %-8s %9s %11.1f%s%s\n",
			op_name(r->variant->op),
			r->any_format ? "any" : format_name(r->format), r->variant->name,
			verdict(r), r->right ? error : "-", (double)r->ns / 1000,
			r->right ? "" : "  ", r->right ? "" : r->text);
	}
}
