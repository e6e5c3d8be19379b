/* Products of NVFP4 weights on the block-scaled tensor-core instruction of SM120, and the
 * same data movement with m16n8k16 in its place. Weights stand in LAYOUT_FP4, see
 * fp4_layout.h; other formats go where product_run sends them. */
#ifndef KERNELS_CUDA_PRODUCT_FP4_CUH
#define KERNELS_CUDA_PRODUCT_FP4_CUH
#include "kernels/cuda/product.cuh"

#define LAYOUT_FP4 2u

/* By the instruction; on SM120 alone. */
extern const struct product_way product_fp4;
/* By m16n8k16: what is run of it says that loads, stages and stores are right. */
extern const struct product_way product_fp4_steps;

#endif
