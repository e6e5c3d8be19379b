/* cuBLASLt of one device: the handle, its workspace and the algorithms, all made before
 * the first pass. The launcher only looks them up, so it may be captured. */
#ifndef KERNELS_CUDA_BLAS_CUH
#define KERNELS_CUDA_BLAS_CUH

struct blas;

/* NULL is closed already. */
void blas_close(struct blas *b);

#endif
