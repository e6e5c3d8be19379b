/* Running a kernel on a case and judging what it did. The same code serves a start-up
 * check of one backend's kernels against its oracle, and a comparison of two backends:
 * outputs come back as F32 on the host. */
#ifndef KERNELS_SELFCHECK_H
#define KERNELS_SELFCHECK_H
#include "common/base/parallel.h"
#include "kernels/check_case.h"
#include "kernels/registry.h"

/* A case on a device. */
struct check_rig;

/* From here on kernels of this rig run while the turn is held, so that those of other
 * rigs neither slow them down nor use what kernels of a device share. */
void selfcheck_turns(struct check_rig *rig, struct turn *turn);
/* work_bytes: of the most demanding variant that will run. The case outlives the rig,
 * and one rig at a time owns its pointers. */
MUST_CHECK status selfcheck_open(struct check_rig **out, struct backend *b,
	struct check_case *c, uint64_t work_bytes, struct err *err);
void selfcheck_close(struct check_rig *rig);

/* Run a variant once on fresh inputs and poisoned outputs, through a stream or (graph)
 * captured and launched. `out` receives the case's outputs and states, one after the
 * other, as selfcheck_outputs floats; poison and NaN stay NaN. Refused with a sentence:
 * an error of the kernel, a changed input, a write outside the buffers. */
MUST_CHECK status selfcheck_run(struct check_rig *rig, const struct variant *v,
	bool graph, float *out, struct err *err);
uint64_t selfcheck_outputs(const struct check_case *c);

/* Rows of a case whose op counts them together: the first `count` of them are run, and
 * of every output the n rows `at` are looked at, in ascending order; those from `count`
 * on must stay as they were. */
struct rows_run {
	uint32_t count, n;
	const uint32_t *at;
	bool graph;
};

/* The variant's inputs and weights, for any number of selfcheck_rows of it. */
MUST_CHECK status selfcheck_begin(
	struct check_rig *rig, const struct variant *v, struct err *err);
/* `out` receives the rows of each output, one after the other. Bands and inputs are not
 * looked at: selfcheck_run of the same variant does that. */
MUST_CHECK status selfcheck_rows(struct check_rig *rig, const struct variant *v,
	const struct rows_run *how, float *out, struct err *err);
uint64_t selfcheck_rows_outputs(const struct check_case *c, uint32_t n);
/* Best time of a few runs after selfcheck_run of the same variant. */
MUST_CHECK status selfcheck_time(
	struct check_rig *rig, const struct variant *v, uint64_t *ns, struct err *err);

/* Do `got` and `want` agree? act: the narrower activation type of the two. Numbers:
 * per row, |got - want| / |want| against the tolerance of the op; ids and flags: equal;
 * what must be written is a number, what must not be is still poison. *worst: the
 * largest error as a part of its tolerance. ST_DEVICE with the place otherwise. */
MUST_CHECK status selfcheck_compare(const struct check_case *c, enum dtype act,
	const float *got, const float *want, float *worst, struct err *err);

/* The same of rows. */
MUST_CHECK status selfcheck_compare_rows(const struct check_case *c, enum dtype act,
	const struct rows_run *how, const float *got, const float *want, float *worst,
	struct err *err);

/* What a case on this backend may cost. */
struct check_limits selfcheck_limits(const struct backend *b);

#endif
