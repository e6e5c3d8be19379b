/* The table of CUDA kernels: CUDA_VARIANTS of kernels/table.h. */
#include "kernels/cuda/cuda_common.cuh"

enum { ARCH_MIN = 90, ARCH_SM120 = 120, ARCH_MAX = 120 };
enum { FAST, FAST_SM120, BY_NAME, ORACLE };

extern "C" const struct variant cuda_variants[] = {
#define X(op, variant, formats, role, work, repack, inner)                               \
	{#op "/" #variant, OP_##op, (formats), "cuda",                                   \
		(role) == FAST_SM120 ? ARCH_SM120 : ARCH_MIN, ARCH_MAX,                  \
		(op_fn)k_##op##_cuda_##variant, (role) == ORACLE, work, repack, inner,   \
		(role) == BY_NAME},
	CUDA_VARIANTS(X)
#undef X
};
extern "C" const uint32_t n_cuda_variants = COUNT(cuda_variants);
