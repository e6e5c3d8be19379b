/* What the two forms of moe share. */
#ifndef KERNELS_CUDA_MOE_CUH
#define KERNELS_CUDA_MOE_CUH
#include "kernels/cuda/cuda_common.cuh"

/* Rows that are computed at a time: bounds the scratch. */
#define MOE_SLAB 2048u

/* Shapes that belong together, scratch of `need` bytes at an address of 16 bytes. */
MUST_CHECK status moe_cuda_check(
	const struct op_moe *op, const char *what, uint64_t need, struct err *err);

#endif
