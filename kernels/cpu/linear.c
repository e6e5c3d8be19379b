/* y = x W^T, plain. */
#include "kernels/cpu/cpu.h"

CPU_KERNEL(linear, plain)
{
	status st = product_check(op->w, "linear/plain", err);

	if (st != ST_OK)
		return st;
	product_plain(&(struct product){.y = op->y,
		.y_stride = op->y_stride,
		.x = op->x,
		.x_stride = op->x_stride,
		.n_rows = op->n_rows,
		.w = op->w});
	return ST_OK;
}
