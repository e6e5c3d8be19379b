/* A case in the memory of a device, as the two files that run kernels on it see it. */
#ifndef KERNELS_SELFCHECK_RIG_H
#define KERNELS_SELFCHECK_RIG_H
#include "kernels/selfcheck.h"

#define POISON 0xFF /* NaN in F32 and BF16, no id of anything in u32 */

struct check_rig {
	struct backend *backend;
	struct check_case *c;
	struct stream *stream;
	uint8_t *device;
	uint8_t *image; /* what is uploaded before a run */
	uint8_t *after; /* what was downloaded */
	uint64_t bytes, work_at, work_bytes;
	bool intact; /* inputs and bands on the device are as in image */
	struct turn *turn;
	const struct rows_run *rows; /* what a launch is about; NULL: the whole case */
	uint8_t *pinned; /* of rows: one that is poison, then what comes back */
	uint64_t pinned_bytes;
};

uint64_t rig_element_bytes(const struct backend *b, enum check_type type);
/* n elements of a buffer, as they stand on the device, to F32. */
void rig_decode(const struct check_rig *rig, const struct check_buffer *b,
	const uint8_t *from, uint64_t n, float *to);
/* One call through the stream or a graph, finished. */
MUST_CHECK status rig_launch(
	struct check_rig *rig, const struct variant *v, bool graph, struct err *err);

/* selfcheck_rows.c */
MUST_CHECK status rig_poison_rows(struct check_rig *rig, struct err *err);
void rig_close_rows(struct check_rig *rig);

#endif
