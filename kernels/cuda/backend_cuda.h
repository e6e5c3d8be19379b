/* The CUDA backend as kernels/backend.c and kernels/registry.c see it: plain C. */
#ifndef KERNELS_CUDA_BACKEND_CUDA_H
#define KERNELS_CUDA_BACKEND_CUDA_H
#include "kernels/backend.h"
#include "kernels/registry.h"
#ifdef __cplusplus
extern "C" {
#endif

/* GPU `index` of those the driver shows. Refused: no such GPU, and what
 * backend_cuda_judge refuses: an architecture this build has no machine code for, an
 * instance of a GPU that is cut into pieces (MIG). */
MUST_CHECK status backend_cuda_open(
	struct backend **out, uint32_t index, struct err *err);
/* What decides whether a GPU is opened. */
struct cuda_facts {
	const char *device;        /* as sentences name it */
	const char *name;          /* as the driver gives it */
	uint32_t arch;             /* 90, 120, ... */
	const uint32_t *built_for; /* architectures with machine code in this build */
	uint32_t n_built_for;
};
MUST_CHECK status backend_cuda_judge(const struct cuda_facts *facts, struct err *err);
/* 0 without a driver. */
uint32_t backend_cuda_count(void);

extern const struct variant cuda_variants[];
extern const uint32_t n_cuda_variants;

#ifdef __cplusplus
}
#endif
#endif
