/* NVFP4 weights to LAYOUT_FP4 (fp4_layout.h): words change places, inside 16 rows. */
#include "kernels/cuda/backend_impl.cuh"
#include "kernels/cuda/fp4_layout.h"
#include "kernels/cuda/product_fp4.cuh"

enum { BLOCK = 256 };

/* One block per 16 rows, whose codes and scales fill the same bytes in both orders.
 * Everything in words. */
static __global__ void __launch_bounds__(BLOCK)
	repack_fp4_kernel(uint32_t *codes, uint32_t *scales, uint32_t k)
{
	extern __shared__ __align__(16) uint32_t plain[];
	uint32_t row = k / 8, pieces = k / FP4_K;
	uint32_t *plain_scales = plain + FP4_M * row;

	codes += (uint64_t)blockIdx.x * FP4_M * row;
	scales += (uint64_t)blockIdx.x * FP4_M * pieces;
	for (uint32_t i = threadIdx.x; i < FP4_M * row; i += BLOCK)
		plain[i] = codes[i];
	for (uint32_t i = threadIdx.x; i < FP4_M * pieces; i += BLOCK)
		plain_scales[i] = scales[i];
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < pieces * FP4_PIECE_CODES; i += BLOCK)
		codes[i] = fp4_packed_codes(plain, plain_scales, k, i);
	for (uint32_t i = threadIdx.x; i < pieces * FP4_PIECE_SCALES; i += BLOCK)
		scales[i] = fp4_packed_scales(plain_scales, k, i);
}

/* 16 rows must fit in shared memory: k up to 11,264 on SM120, 25,728 on SM90. */
extern "C" status fp4_cuda_repack(
	struct backend *b, struct stream *stream, struct weight *w, struct err *err)
{
	uint64_t tiles = (uint64_t)w->count * w->n / FP4_M;
	uint32_t bytes = FP4_M * (w->k / 2 + w->k / FP4_BLOCK);
	int most = 0;

	if (w->format != WF_NVFP4)
		return ST_OK;
	if (w->layout != 0 || w->n % FP4_M != 0 || w->k % FP4_K != 0 ||
		!is_aligned(w->data, 16) || !is_aligned(w->scale, 16) ||
		tiles > INT32_MAX)
		return err_set(err, ST_LIMIT,
			"NVFP4 weights, %u times %u x %u, layout %u: the block-scaled "
			"order needs multiples of %d x %d",
			w->count, w->n, w->k, w->layout, FP4_M, FP4_K);
	CUDA_ENTER("repack");
	CUDA_TRY("repack",
		cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin,
			cuda_of(b)->index));
	if (bytes > (uint32_t)most)
		return err_set(err, ST_LIMIT,
			"NVFP4 rows of %u weights: 16 of them are %u bytes, a block of "
			"%s has %d",
			w->k, bytes, b->device, most);
	if (tiles > 0 && w->k > 0) {
		CUDA_ALLOW_SMEM("repack", repack_fp4_kernel, bytes);
		repack_fp4_kernel<<<(uint32_t)tiles, BLOCK, bytes, stream->cuda>>>(
			(uint32_t *)(uintptr_t)w->data, (uint32_t *)(uintptr_t)w->scale,
			w->k);
	}
	w->layout = LAYOUT_FP4;
	return cuda_launched("repack", err);
}
