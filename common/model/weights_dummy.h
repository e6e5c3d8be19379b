/* Random weights in place of a checkpoint's: the shapes, formats and sizes of a real
 * model without its files, for plans, timing and tests. */
#ifndef COMMON_MODEL_WEIGHTS_DUMMY_H
#define COMMON_MODEL_WEIGHTS_DUMMY_H
#include "common/model/weights.h"

enum dummy_format {
	DUMMY_BF16,
	/* As the first NVFP4 releases: routed experts (of a dense model: the MLPs) are
	 * NVFP4, everything else is BF16. */
	DUMMY_NVFP4,
	/* As the later ones: experts, shared experts (or the MLPs) and the output matrix
	 * are NVFP4, attention and GDN projections FP8 with one scale, everything else,
	 * gates of the GDN among it, is BF16. */
	DUMMY_RELEASED,
};

/* "bf16", "nvfp4" or "released"; ST_INVALID names the word. */
MUST_CHECK status dummy_format_of(
	const char *word, enum dummy_format *out, struct err *err);

/* Like weights_open, and everything in weights.h works on the result. A value depends on
 * role, layer, expert, row and column of the whole matrix alone, so ranks hold slices of
 * one model, and processes agree. Matrices have a mean square of 1 / columns, which
 * keeps activations in the range of a trained model. */
MUST_CHECK status weights_open_dummy(struct weights **out,
	const struct model_config *config, enum dummy_format format, uint32_t rank,
	uint32_t n_ranks, struct err *err);

#endif
