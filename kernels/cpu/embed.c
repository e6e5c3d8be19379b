/* Rows of the embedding table. A copy: bound by memory, so the plain form is the only
 * one. */
#include "kernels/cpu/cpu.h"

CPU_KERNEL(embed, plain)
{
	const struct weight *table = op->table;
	uint32_t width = table->k;
	float *x = op->x;

	if (table->format != WF_F32 && table->format != WF_BF16)
		return err_set(err, ST_INVALID, "embed/plain: a table in format %s",
			format_name(table->format));
	for (uint32_t t = 0; t < op->n_rows; t++) {
		/* Ids below `first` wrap, and are beyond the table, too. */
		uint32_t row = op->ids[t] - op->first;
		uint64_t from = (uint64_t)row * width;
		enum dtype dtype = table->format == WF_F32 ? DT_F32 : DT_BF16;

		if (op->ids[t] >= op->vocab)
			return err_set(err, ST_INVALID,
				"embed: token %u of a vocabulary of %u", op->ids[t],
				op->vocab);
		for (uint32_t i = 0; i < width; i++)
			x[(uint64_t)t * width + i] =
				row < table->n ? load_as(dtype, table->data, from + i)
					       : 0.0f;
	}
	return ST_OK;
}
