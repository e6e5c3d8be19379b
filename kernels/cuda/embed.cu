/* Rows of the embedding table to activations: a gather, bound by memory. One block per
 * row, 16 bytes of it per thread, all on their way at once; F32 tables are rounded to
 * BF16. */
#include "kernels/cuda/cuda_common.cuh"

enum { BLOCK = 256, VEC = 8 };

static __device__ __forceinline__ uint4 load8(const bf16 *p)
{
	return *(const uint4 *)p;
}

static __device__ __forceinline__ uint4 load8(const float *p)
{
	float4 a = *(const float4 *)p, b = *(const float4 *)(p + 4);

	return make_uint4(
		pack2(a.x, a.y), pack2(a.z, a.w), pack2(b.x, b.y), pack2(b.z, b.w));
}

/* A token outside the vocabulary is a fault of the caller that a device cannot report as
 * a status; its row becomes NaN, which the sampler flags. Ids below `first` wrap, and are
 * beyond the table, too. */
template <typename T>
static __global__ void __launch_bounds__(BLOCK) embed_kernel(
	bf16 *x, const struct op_embed op, const T *table, uint32_t width, uint32_t n)
{
	uint32_t id = op.ids[blockIdx.x], row = id - op.first;
	uint32_t other = id < op.vocab ? 0 : 0x7FC07FC0u;
	bf16 *to = x + (uint64_t)blockIdx.x * width;

	for (uint32_t i = threadIdx.x * VEC; i < width; i += BLOCK * VEC) {
		uint4 v = make_uint4(other, other, other, other);

		if (id < op.vocab && row < n)
			v = load8(table + (uint64_t)row * width + i);
		*(uint4 *)(to + i) = v;
	}
}

CUDA_KERNEL(embed, rows)
{
	const struct weight *table = op->table;

	if (table->format != WF_F32 && table->format != WF_BF16)
		return err_set(err, ST_LIMIT, "embed/rows: a table in format %s",
			format_name(table->format));
	if (table->k % VEC != 0)
		return err_set(err, ST_LIMIT,
			"embed/rows: rows of %u, a multiple of %d is served", table->k,
			VEC);
	if (!is_aligned(op->x, 16) || !is_aligned(table->data, 16))
		return err_set(err, ST_LIMIT, "embed/rows: rows are not 16-byte aligned");
	if (op->n_rows == 0)
		return ST_OK;
	CUDA_ENTER("embed/rows");
	if (table->format == WF_F32)
		embed_kernel<<<op->n_rows, BLOCK, 0, stream->cuda>>>((bf16 *)op->x, *op,
			(const float *)table->data, table->k, table->n);
	else
		embed_kernel<<<op->n_rows, BLOCK, 0, stream->cuda>>>((bf16 *)op->x, *op,
			(const bf16 *)table->data, table->k, table->n);
	return cuda_launched("embed/rows", err);
}
