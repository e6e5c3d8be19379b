/* Trying the variants of one op in one weight format on one device; private to
 * kernels/. A contest is cut into bouts, which may run side by side. */
#ifndef KERNELS_TRIAL_H
#define KERNELS_TRIAL_H
#include "common/base/parallel.h"
#include "kernels/check_case.h"
#include "kernels/registry.h"
#include "kernels/report.h"

#define CANDIDATES_MAX 16u

/* One op in one format: who could serve it. The caller fills the first part. */
struct contest {
	struct backend *backend;
	const struct kernel_shapes *shapes;
	const char *forced;
	const struct variant_source *from;
	struct turn *turn; /* at the device; NULL: bouts run one by one */
	enum op_id op;
	enum weight_format format;
	bool any_format; /* the op has no weight format */

	const struct variant *oracle;
	const struct variant *all[CANDIDATES_MAX];
	uint32_t n;
};

enum bout_kind {
	BOUT_CASE,    /* everyone on the whole of case i, and the clock */
	BOUT_CLASSES, /* the classes of rows that each one has in case i */
};

struct bout {
	const struct contest *c;
	enum bout_kind kind;
	uint32_t i;
	status st; /* of the bout itself */
	struct err err;
	struct finding of[CANDIDATES_MAX];
};

/* Can this variant run on this device at all? */
bool trial_fits(const struct variant *v, const struct backend *b);
/* Finds the candidates and the oracle. */
MUST_CHECK status trial_enter(struct contest *c, struct err *err);
void trial_run(struct bout *t);
/* What all bouts of a contest together say, as rows of the report; *out is the fastest
 * candidate that is right, or the forced one. */
MUST_CHECK status trial_judge(const struct contest *c, const struct bout *bouts,
	uint32_t n, struct report *report, const struct variant **out, struct err *err);

/* trial_case.c. A case of these limits, by the candidates whose bit is set. */
void trial_case(struct bout *t, const struct check_limits *limits, uint32_t candidates);
const struct variant *trial_oracle(const struct variant_source *from,
	const struct backend *b, enum op_id op, enum weight_format format);
/* The candidate is wrong; where: the case, and what of it was run. */
void trial_refuse(struct finding *f, const char *where, const struct err *why);
/* trial_rows.c */
void trial_classes(struct bout *t);

#endif
