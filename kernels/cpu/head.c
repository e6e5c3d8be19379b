/* Logits of the chosen rows, plain. */
#include "kernels/cpu/cpu.h"

CPU_KERNEL(head, plain)
{
	status st = product_check(op->w, "head/plain", err);

	if (st != ST_OK)
		return st;
	product_plain(&(struct product){.y = op->logits,
		.y_stride = op->w->n,
		.x = op->x,
		.x_stride = op->w->k,
		.x_rows = op->out_row,
		.n_rows = op->n_out,
		.w = op->w});
	return ST_OK;
}
