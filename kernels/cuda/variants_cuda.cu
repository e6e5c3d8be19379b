/* The table of CUDA kernels. Every op has one variant that is the oracle of the others;
 * it is checked itself against the CPU's plain kernel before anything is served. All
 * run on SM90 and SM120 alike unless the row says otherwise. */
#include "kernels/cuda/cuda_common.cuh"

enum { ARCH_MIN = 90, ARCH_MAX = 120 };

/* op, variant, format or -1, oracle, work_bytes, repack */
#define ROW(op, variant, format, oracle, work, repack)                                   \
	{                                                                                \
#op "/" #variant, OP_##op, (format), "cuda", ARCH_MIN, ARCH_MAX,         \
			(op_fn)k_##op##_cuda_##variant, (oracle), (work), (repack)       \
	}

extern "C" const struct variant cuda_variants[] = {
	ROW(embed, rows, -1, true, NULL, NULL),
	ROW(add_norm, rows, -1, true, NULL, NULL),
	ROW(attn_prep, heads, -1, true, NULL, NULL),
	ROW(attn_prefill, rows, -1, true, attn_cuda_rows_work, NULL),
	ROW(attn_prefill, tiles, -1, false, NULL, NULL),
	ROW(attn_prefill, mixed, -1, false, attn_cuda_rows_work, NULL),
	ROW(attn_decode, rows, -1, true, attn_cuda_rows_work, NULL),
	ROW(gdn_prep, rows, -1, true, NULL, NULL),
	ROW(gdn_prefill, steps, -1, true, NULL, NULL),
	ROW(gdn_prefill, chunks, -1, false, gdn_cuda_chunks_work, NULL),
	ROW(gdn_decode, steps, -1, true, NULL, NULL),
	ROW(swiglu, flat, -1, true, NULL, NULL),
	ROW(moe_route, rows, -1, true, NULL, NULL),
	ROW(moe_route, cluster, -1, false, NULL, NULL),
	ROW(moe_route, spread, -1, false, NULL, NULL),
	ROW(linear, plain, -1, true, NULL, NULL),
	ROW(linear, mma, WF_BF16, false, NULL, NULL),
	ROW(linear, mma, WF_FP8, false, NULL, NULL),
	ROW(linear, mma, WF_NVFP4, false, NULL, nvfp4_cuda_repack),
	ROW(linear, blas, WF_BF16, false, NULL, linear_cuda_blas_prepare),
	ROW(head, plain, -1, true, NULL, NULL),
	ROW(head, mma, WF_BF16, false, NULL, NULL),
	ROW(head, mma, WF_FP8, false, NULL, NULL),
	ROW(head, mma, WF_NVFP4, false, NULL, nvfp4_cuda_repack),
	ROW(moe, plain, -1, true, moe_cuda_plain_work, NULL),
	/* The shared expert may be NVFP4 where the others are not. */
	ROW(moe, groups, WF_BF16, false, moe_cuda_groups_work, nvfp4_cuda_repack),
	ROW(moe, groups, WF_FP8, false, moe_cuda_groups_work, nvfp4_cuda_repack),
	ROW(moe, groups, WF_NVFP4, false, moe_cuda_groups_work, nvfp4_cuda_repack),
	ROW(sample, bins, -1, true, sample_cuda_bins_work, NULL),
};
extern "C" const uint32_t n_cuda_variants = COUNT(cuda_variants);
