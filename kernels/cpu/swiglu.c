/* y = SiLU(gate) * up, plain. */
#include "kernels/cpu/cpu.h"

CPU_KERNEL(swiglu, plain)
{
	for (uint32_t t = 0; t < op->n_rows; t++) {
		const float *gate =
			(const float *)op->gate + (uint64_t)t * op->gate_stride;
		const float *up = (const float *)op->up + (uint64_t)t * op->up_stride;
		float *y = (float *)op->y + (uint64_t)t * op->width;

		for (uint32_t i = 0; i < op->width; i++)
			y[i] = silu(gate[i]) * up[i];
	}
	return ST_OK;
}
