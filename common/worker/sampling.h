/* The sampling fields of a message, checked, as the engine takes them. */
#ifndef COMMON_WORKER_SAMPLING_H
#define COMMON_WORKER_SAMPLING_H
#include "common/base/err.h"
#include "kernels/ops.h"
#include <stdint.h>

struct sampling {
	double temperature, top_p, min_p;
	uint64_t top_k, seed;
};

/* msg: any message with the SAMPLING fields of schema.def. */
#define SAMPLING_OF(msg)                                                                 \
	((struct sampling){.temperature = (msg)->temperature,                            \
		.top_p = (msg)->top_p,                                                   \
		.min_p = (msg)->min_p,                                                   \
		.top_k = (msg)->top_k,                                                   \
		.seed = (msg)->seed})

/* choice 0, position 0: the caller's to set. */
MUST_CHECK status sampling_row(
	struct sample_row *out, const struct sampling *s, struct err *err);

#endif
