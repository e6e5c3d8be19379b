/* What the two forms of moe share. */
#ifndef KERNELS_CUDA_MOE_CUH
#define KERNELS_CUDA_MOE_CUH
#include "kernels/cuda/cuda_common.cuh"

/* Rows that are computed at a time: bounds the scratch. So many that of 256 experts, 8 of
 * them chosen, each has rows for two whole tiles. */
#define MOE_SLAB 8192u

/* Shapes of a pass, for its scratch. */
struct kernel_shapes moe_cuda_shapes(const struct op_moe *op);
/* The shared expert of rows x; inner: BF16 [rows][its width], part: F32 [rows][hidden].
 */
MUST_CHECK status moe_cuda_shared(struct stream *stream, const struct op_moe *op,
	const bf16 *x, uint32_t rows, bf16 *inner, float *part, struct err *err);
void moe_cuda_shared_inner(
	const struct op_moe *op, uint32_t rows, char names[KERNEL_NAMES_MAX]);
/* Shapes that belong together, scratch of `need` bytes at an address of 16 bytes. */
MUST_CHECK status moe_cuda_check(
	const struct op_moe *op, const char *what, uint64_t need, struct err *err);

#endif
