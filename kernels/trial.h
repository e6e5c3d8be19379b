/* Trying the variants of one op in one weight format on one device; private to
 * kernels/registry.c. */
#ifndef KERNELS_TRIAL_H
#define KERNELS_TRIAL_H
#include "kernels/registry.h"
#include "kernels/report.h"

#define CANDIDATES_MAX 16u

/* One op in one format: who could serve it. The caller fills the first part. */
struct contest {
	struct backend *backend;
	const struct kernel_shapes *shapes;
	const char *forced;
	const struct variant_source *from;
	struct report *report;
	enum op_id op;
	enum weight_format format;
	bool any_format; /* the op has no weight format */

	const struct variant *oracle;
	const struct variant *all[CANDIDATES_MAX];
	struct report_row *rows[CANDIDATES_MAX];
	double score[CANDIDATES_MAX]; /* sum of log time over the cases */
	uint32_t n;
};

/* Can this variant run on this device at all? */
bool trial_fits(const struct variant *v, const struct backend *b);
/* Run everyone on every case; *out is the fastest that is right, or the forced one. */
MUST_CHECK status trial_hold(
	struct contest *c, const struct variant **out, struct err *err);

#endif
