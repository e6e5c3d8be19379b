/* The sampling fields of a message, checked, as the engine takes them. */
#ifndef COMMON_WORKER_SAMPLING_H
#define COMMON_WORKER_SAMPLING_H
#include "common/base/bytes.h"
#include "common/base/err.h"
#include "common/wire/wire.h"
#include "kernels/ops.h"
#include <stdint.h>

/* How a sequence is sampled. */
struct sampling_terms {
	struct sample_row how; /* choice and position are the caller's to set */
	struct sample_edit
		*edits; /* how.n_bias and how.n_bans of them; mem_take or NULL */
};

/* n_prompt: where the answer begins; n_valid: ids below it may be sampled. ST_LIMIT: no
 * request memory. *out owns nothing unless ST_OK. */
MUST_CHECK status sampling_make(struct sampling_terms *out, const struct wire_sampling *s,
	uint64_t n_prompt, uint32_t n_valid, struct err *err);
void sampling_release(struct sampling_terms *t);
/* Whether drawing needs the ids of the prompt; those of the answer. */
bool sampling_needs_prompt(const struct sample_row *how);
bool sampling_needs_answer(const struct sample_row *how);

#endif
