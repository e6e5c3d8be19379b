/* Rows of the embedding table to activations: a gather, bound by memory. One block per
 * row; F32 tables are rounded to BF16. */
#include "kernels/cuda/cuda_common.cuh"

enum { BLOCK = 128 };

/* A token outside the table is a fault of the caller that a device cannot report as a
 * status; its row becomes NaN, which the sampler flags. */
template <typename T>
static __global__ void __launch_bounds__(BLOCK) embed_kernel(
	bf16 *x, const uint32_t *ids, const T *table, uint32_t width, uint32_t n)
{
	uint32_t id = ids[blockIdx.x];
	bf16 *to = x + (uint64_t)blockIdx.x * width;

	for (uint32_t i = threadIdx.x; i < width; i += BLOCK) {
		float value = id < n ? (float)table[(uint64_t)id * width + i]
				     : __uint_as_float(0x7FC00000u);

		to[i] = __float2bfloat16(value);
	}
}

CUDA_KERNEL(embed, rows)
{
	const struct weight *table = op->table;

	if (table->format != WF_F32 && table->format != WF_BF16)
		return err_set(err, ST_LIMIT, "embed/rows: a table in format %s",
			format_name(table->format));
	if (op->n_rows == 0)
		return ST_OK;
	CUDA_ENTER("embed/rows");
	if (table->format == WF_F32)
		embed_kernel<<<op->n_rows, BLOCK, 0, stream->cuda>>>((bf16 *)op->x,
			op->ids, (const float *)table->data, table->k, table->n);
	else
		embed_kernel<<<op->n_rows, BLOCK, 0, stream->cuda>>>((bf16 *)op->x,
			op->ids, (const bf16 *)table->data, table->k, table->n);
	return cuda_launched("embed/rows", err);
}
