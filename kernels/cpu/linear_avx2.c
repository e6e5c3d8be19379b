/* y = x W^T and the logits, with AVX2. */
#include "kernels/cpu/cpu.h"

CPU_KERNEL(linear, avx2)
{
	status st = product_check(op->w, "linear/avx2", err);

	if (st != ST_OK)
		return st;
	product_avx2(&(struct product){.y = op->y,
		.y_stride = op->y_stride,
		.x = op->x,
		.x_stride = op->x_stride,
		.n_rows = op->n_rows,
		.w = op->w});
	return ST_OK;
}

void linear_inner_avx2(const void *op, char names[KERNEL_NAMES_MAX])
{
	const struct op_linear *a = op;

	product_inner_avx2(a->w, a->n_rows, names);
}

CPU_KERNEL(head, avx2)
{
	status st = product_check(op->w, "head/avx2", err);

	if (st != ST_OK)
		return st;
	product_avx2(&(struct product){.y = op->logits,
		.y_stride = op->w->n,
		.x = op->x,
		.x_stride = op->w->k,
		.x_rows = op->out_row,
		.n_rows = op->n_out,
		.w = op->w});
	return ST_OK;
}

void head_inner_avx2(const void *op, char names[KERNEL_NAMES_MAX])
{
	const struct op_head *a = op;

	product_inner_avx2(a->w, a->n_out, names);
}
