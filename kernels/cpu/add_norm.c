/* Residual addition and zero-centred RMSNorm, plain. */
#include "kernels/cpu/cpu.h"

CPU_KERNEL(add_norm, plain)
{
	uint32_t width = op->width;

	for (uint32_t t = 0; t < op->n_rows; t++) {
		float *x = (float *)op->x + (uint64_t)t * width;
		float squares = 0.0f;
		float scale;

		if (op->add != NULL) {
			const float *add = (const float *)op->add + (uint64_t)t * width;

			for (uint32_t i = 0; i < width; i++)
				x[i] += add[i];
		}
		if (op->y == NULL)
			continue;
		for (uint32_t i = 0; i < width; i++)
			squares += x[i] * x[i];
		scale = 1.0f / sqrtf(squares / (float)width + op->eps);
		for (uint32_t i = 0; i < width; i++)
			((float *)op->y)[(uint64_t)t * width + i] =
				x[i] * scale * (1.0f + op->gain[i]);
	}
	return ST_OK;
}
