/* Weights one at a time in the plain layout, for the oracles: one warp per output
 * element, any shape and format. */
#ifndef KERNELS_CUDA_PLAIN_CUH
#define KERNELS_CUDA_PLAIN_CUH
#include "kernels/cuda/cuda_common.cuh"
#include <cuda_fp8.h>

static inline status plain_check(
	const struct weight *w, const char *what, struct err *err)
{
	if (w->layout != 0)
		return err_set(err, ST_LIMIT, "%s: weights in layout %u, not 0", what,
			w->layout);
	if (w->format == WF_NVFP4 && w->k % 16 != 0)
		return err_set(err, ST_LIMIT,
			"%s: NVFP4 rows of %u, not a multiple of 16", what, w->k);
	if (w->format == WF_FP8 && (w->block_n == 0 || w->block_k == 0))
		return err_set(err, ST_LIMIT, "%s: FP8 scale blocks of %u x %u", what,
			w->block_n, w->block_k);
	return ST_OK;
}

static __device__ __forceinline__ float e4m3_float(uint8_t code)
{
	__half_raw h = __nv_cvt_fp8_to_halfraw(code, __NV_E4M3);

	return __half2float(__half(h));
}

static __device__ __forceinline__ float e2m1_float(uint32_t code)
{
	/* 0 0.5 1 1.5 2 3 4 6 in halves. */
	float half = (float)(0xC8643210u >> code % 8 * 4 & 15u) * 0.5f;

	return (code & 8u) != 0 ? -half : half;
}

/* Element k of row n of matrix `expert`, without scale2. */
static __device__ __forceinline__ float plain_weight(
	const struct weight &w, uint32_t expert, uint32_t n, uint32_t k)
{
	uint64_t at = ((uint64_t)expert * w.n + n) * w.k + k;

	switch (w.format) {
	case WF_F32:
		return ((const float *)w.data)[at];
	case WF_BF16:
		return __bfloat162float(((const bf16 *)w.data)[at]);
	case WF_NVFP4: {
		uint32_t pair = ((const uint8_t *)w.data)[at / 2];

		return e2m1_float(at % 2 == 0 ? pair & 15u : pair >> 4) *
		       e4m3_float(((const uint8_t *)w.scale)[at / 16]);
	}
	case WF_FP8: {
		uint64_t rows = (w.n + w.block_n - 1) / w.block_n;
		uint64_t cols = (w.k + w.block_k - 1) / w.block_k;

		return e4m3_float(((const uint8_t *)w.data)[at]) *
		       ((const float *)w.scale)[(expert * rows + n / w.block_n) * cols +
						k / w.block_k];
	}
	default:
		return __uint_as_float(0x7FC00000u);
	}
}

static __device__ __forceinline__ float plain_float(bf16 x)
{
	return __bfloat162float(x);
}

static __device__ __forceinline__ float plain_float(float x)
{
	return x;
}

/* x . row n of matrix `expert`, in every lane of the warp. */
template <typename T>
static __device__ __forceinline__ float plain_dot(
	const struct weight &w, uint32_t expert, uint32_t n, const T *x)
{
	float sum = 0.0f;

	for (uint32_t k = threadIdx.x % WARP; k < w.k; k += WARP)
		sum += plain_float(x[k]) * plain_weight(w, expert, n, k);
	sum = warp_sum(sum);
	return w.format == WF_NVFP4 ? sum * w.scale2[expert] : sum;
}

#endif
