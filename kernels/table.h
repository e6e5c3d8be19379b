/* Every op of the model and every kernel of it: one line each. Enums, declarations, the
 * backends' tables, self-check cases and tests expand from here, so that an op is its
 * contract (ops.h), a file per backend, the builder of its case (check_*.c) and its
 * lines in this file. */
#ifndef KERNELS_TABLE_H
#define KERNELS_TABLE_H

/* An op's line:
 *   op         struct op_<op> of ops.h; the builder check_build_<op> of check_case.h
 *   weight     member whose weight format chooses the variant, or NONE
 *   formats    in which the model needs it, as bits 1 << WF_x, of the shapes s
 *   needed     whether the model needs it at all
 *   cases      of the self-check: other options of the op, not only other rows
 *   tolerance  a line of TOLERANCE_MAP
 *   rows       how rows are counted: TOGETHER(member) that is their number, PASS: the
 *              rows of sequences, STEP: sequences of one row each
 *   tried      cases, as bits, in which each variant's classes of rows are run */
#define OP_MAP(X)                                                                        \
	X(embed, table, 1u << WF_F32 | 1u << WF_BF16, true, 3, COPIED,                   \
		TOGETHER(n_rows, rows_max), 1)                                           \
	X(add_norm, NONE, 1u << WF_F32, true, 3, SUMMED, TOGETHER(n_rows, rows_max), 2)  \
	X(linear, w, s->linear_formats, true, 4, SUMMED, TOGETHER(n_rows, rows_max), 14) \
	X(attn_prep, NONE, 1u << WF_F32, s->n_q > 0, 3, SUMMED, PASS, 1)                 \
	X(attn_prefill, NONE, 1u << WF_F32, s->n_q > 0, 3, SUMMED_TWICE, PASS, 1)        \
	X(attn_decode, NONE, 1u << WF_F32, s->n_q > 0, 3, SUMMED_TWICE, STEP, 4)         \
	X(gdn_prep, NONE, 1u << WF_F32, s->n_v > 0, 3, RECURRENT, PASS, 1)               \
	X(gdn_prefill, NONE, 1u << WF_F32, s->n_v > 0, 3, CHUNKED, PASS, 1)              \
	X(gdn_decode, NONE, 1u << WF_F32, s->n_v > 0, 3, RECURRENT, STEP, 1)             \
	X(swiglu, NONE, 1u << WF_F32, true, 3, SUMMED, TOGETHER(n_rows, rows_max), 1)    \
	X(moe_route, NONE, 1u << WF_F32, s->n_experts > 0, 3, EXACT_INPUTS,              \
		TOGETHER(n_rows, rows_max), 5)                                           \
	X(moe, down, s->moe_formats, s->n_experts > 0, 3, SUMMED_TWICE,                  \
		TOGETHER(n_rows, rows_max), 3)                                           \
	X(head, w, s->head_formats, true, 3, EXACT_INPUTS, TOGETHER(n_out, out_max), 1)  \
	X(sample, NONE, 1u << WF_F32, true, 3, SAME_LOGITS, TOGETHER(n, out_max), 1)

/* Largest |got - want| / |want| of a row: where activations are F32; of results that are
 * stored in BF16; of results kept in F32 although activations are BF16.
 *
 * f32: both sides compute in F32 and differ in the order of sums. A sum of K products of
 * unit variance has an error of about 2^-24 sqrt(K) of its own size: 8e-6 at K = 17408,
 * of which two sides have one each; the recurrence over a few hundred rows and the
 * difference of exponentials stay below that.
 * bf16: the stored result is rounded to 2^-9, and the tensor-core forms also round what
 * stands between two products: each adds about 2^-9 in the root mean square.
 *
 *   COPIED        nothing is computed, and rounded once
 *   SUMMED        one sum or none, rounded once
 *   SUMMED_TWICE  and between two products: weights of a softmax, inner row of an MLP
 *   RECURRENT     a state in F32, whose decay is an exponential
 *   CHUNKED       the state, too, is summed of new values of a chunk that were rounded
 *   EXACT_INPUTS  products of BF16 are exact in F32, and their sum is not rounded
 *   SAME_LOGITS   both sides read the same F32 */
#define TOLERANCE_MAP(X)                                                                 \
	X(COPIED, 0, 5e-3f, 0)                                                           \
	X(SUMMED, 3e-5f, 5e-3f, 3e-5f)                                                   \
	X(SUMMED_TWICE, 3e-5f, 1e-2f, 0)                                                 \
	X(RECURRENT, 3e-5f, 5e-3f, 1e-4f)                                                \
	X(CHUNKED, 3e-5f, 1.5e-2f, 1.5e-2f)                                              \
	X(EXACT_INPUTS, 3e-5f, 1e-4f, 1e-4f)                                             \
	X(SAME_LOGITS, 1e-5f, 1e-5f, 1e-5f)

/* A CPU kernel's line:
 *   op, isa  CPU_KERNEL(op, isa); "plain" is the oracle of the others, "avx2" needs
 *            KERNEL_CPU_AVX2
 *   work     bytes of scratch at given shapes, as variant.work_bytes; no_work: none
 *   inner    names the kernels inside that serve a call, as variant.inner; one_kernel:
 *            there is no choice */
#define CPU_VARIANTS(X)                                                                  \
	X(embed, plain, no_work, one_kernel)                                             \
	X(add_norm, plain, no_work, one_kernel)                                          \
	X(linear, plain, no_work, one_kernel)                                            \
	X(attn_prep, plain, no_work, one_kernel)                                         \
	X(attn_prefill, plain, attn_work_plain, one_kernel)                              \
	X(attn_decode, plain, attn_work_plain, one_kernel)                               \
	X(gdn_prep, plain, no_work, one_kernel)                                          \
	X(gdn_prefill, plain, no_work, one_kernel)                                       \
	X(gdn_decode, plain, no_work, one_kernel)                                        \
	X(swiglu, plain, no_work, one_kernel)                                            \
	X(moe_route, plain, no_work, one_kernel)                                         \
	X(moe, plain, moe_work_plain, one_kernel)                                        \
	X(head, plain, no_work, one_kernel)                                              \
	X(sample, plain, sample_work_plain, one_kernel)                                  \
	X(add_norm, avx2, no_work, one_kernel)                                           \
	X(linear, avx2, no_work, linear_inner_avx2)                                      \
	X(attn_prep, avx2, no_work, one_kernel)                                          \
	X(attn_prefill, avx2, no_work, one_kernel)                                       \
	X(attn_decode, avx2, no_work, one_kernel)                                        \
	X(gdn_prep, avx2, no_work, one_kernel)                                           \
	X(gdn_prefill, avx2, no_work, one_kernel)                                        \
	X(gdn_decode, avx2, no_work, one_kernel)                                         \
	X(swiglu, avx2, no_work, one_kernel)                                             \
	X(moe_route, avx2, no_work, route_inner_avx2)                                    \
	X(moe, avx2, moe_work_avx2, one_kernel)                                          \
	X(head, avx2, no_work, head_inner_avx2)

/* Formats of weights that the tensor-core products take. */
#define FORMATS_MMA (1u << WF_BF16 | 1u << WF_FP8 | 1u << WF_NVFP4)

/* A CUDA kernel's line.
 *   op, variant  CUDA_KERNEL(op, variant)
 *   formats      that it serves, as bits; FORMATS_ANY: every one, or the op has none
 *   role         ORACLE of the others, itself checked against the CPU's plain kernel;
 *                each op has one. FAST: offered on SM90 and SM120 alike, as the oracle
 *                is; FAST_SM120: its instructions exist there alone. BY_NAME: on both,
 *                but tried only where the configuration names it
 *   work         as above
 *   repack       of its weights at load, as variant.repack; no_repack: layout 0. (The
 *                shared expert of moe may be NVFP4 where the others are not.)
 *   inner        as above */
#define CUDA_VARIANTS(X)                                                                 \
	X(embed, rows, FORMATS_ANY, ORACLE, no_work, no_repack, one_kernel)              \
	X(add_norm, rows, FORMATS_ANY, ORACLE, no_work, no_repack, one_kernel)           \
	X(attn_prep, heads, FORMATS_ANY, ORACLE, no_work, no_repack, one_kernel)         \
	X(attn_prefill, rows, FORMATS_ANY, ORACLE, attn_cuda_rows_work, no_repack,       \
		attn_cuda_rows_inner)                                                    \
	X(attn_prefill, tiles, FORMATS_ANY, FAST, no_work, no_repack, one_kernel)        \
	X(attn_prefill, mixed, FORMATS_ANY, FAST, attn_cuda_rows_work, no_repack,        \
		attn_cuda_mixed_inner)                                                   \
	X(attn_decode, rows, FORMATS_ANY, ORACLE, attn_cuda_rows_work, no_repack,        \
		attn_cuda_rows_inner)                                                    \
	X(gdn_prep, rows, FORMATS_ANY, ORACLE, no_work, no_repack, gdn_cuda_prep_inner)  \
	X(gdn_prefill, steps, FORMATS_ANY, ORACLE, no_work, no_repack, one_kernel)       \
	X(gdn_prefill, chunks, FORMATS_ANY, FAST, gdn_cuda_chunks_work, no_repack,       \
		one_kernel)                                                              \
	X(gdn_decode, steps, FORMATS_ANY, ORACLE, no_work, no_repack, one_kernel)        \
	X(swiglu, flat, FORMATS_ANY, ORACLE, no_work, no_repack, one_kernel)             \
	X(moe_route, rows, FORMATS_ANY, ORACLE, no_work, no_repack,                      \
		route_cuda_rows_inner)                                                   \
	X(moe_route, cluster, FORMATS_ANY, FAST, no_work, no_repack,                     \
		route_cuda_cluster_inner)                                                \
	X(moe_route, spread, FORMATS_ANY, FAST, no_work, no_repack,                      \
		route_cuda_spread_inner)                                                 \
	X(linear, plain, FORMATS_ANY, ORACLE, no_work, no_repack, one_kernel)            \
	X(linear, mma, FORMATS_MMA, FAST, no_work, nvfp4_cuda_repack,                    \
		linear_cuda_mma_inner)                                                   \
	X(linear, fp4, 1u << WF_NVFP4, FAST_SM120, no_work, fp4_cuda_repack,             \
		linear_cuda_fp4_inner)                                                   \
	X(linear, fp4_steps, 1u << WF_NVFP4, BY_NAME, no_work, fp4_cuda_repack,          \
		linear_cuda_fp4_inner)                                                   \
	X(linear, blas, 1u << WF_BF16, FAST, no_work, linear_cuda_blas_prepare,          \
		linear_cuda_blas_inner)                                                  \
	X(head, plain, FORMATS_ANY, ORACLE, no_work, no_repack, one_kernel)              \
	X(head, mma, FORMATS_MMA, FAST, no_work, nvfp4_cuda_repack, head_cuda_mma_inner) \
	X(moe, plain, FORMATS_ANY, ORACLE, moe_cuda_plain_work, no_repack, one_kernel)   \
	X(moe, groups, FORMATS_MMA, FAST, moe_cuda_groups_work, nvfp4_cuda_repack,       \
		moe_cuda_groups_inner)                                                   \
	X(moe, fp4, 1u << WF_NVFP4, FAST_SM120, moe_cuda_groups_work, fp4_cuda_repack,   \
		moe_cuda_fp4_inner)                                                      \
	X(moe, fp4_steps, 1u << WF_NVFP4, BY_NAME, moe_cuda_groups_work,                 \
		fp4_cuda_repack, moe_cuda_fp4_inner)                                     \
	X(moe, rings, 1u << WF_NVFP4, FAST, moe_cuda_rings_work, nvfp4_cuda_repack,      \
		moe_cuda_rings_inner)                                                    \
	X(sample, bins, FORMATS_ANY, ORACLE, sample_cuda_bins_work, no_repack, one_kernel)

#endif
