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
 *   tolerance  a line of TOLERANCE_MAP */
#define OP_MAP(X)                                                                        \
	X(embed, table, 1u << WF_F32 | 1u << WF_BF16, true, 3, COPIED)                   \
	X(add_norm, NONE, 1u << WF_F32, true, 3, SUMMED)                                 \
	X(linear, w, s->linear_formats, true, 4, SUMMED)                                 \
	X(attn_prep, NONE, 1u << WF_F32, s->n_q > 0, 3, SUMMED)                          \
	X(attn_prefill, NONE, 1u << WF_F32, s->n_q > 0, 3, SUMMED_TWICE)                 \
	X(attn_decode, NONE, 1u << WF_F32, s->n_q > 0, 3, SUMMED_TWICE)                  \
	X(gdn_prep, NONE, 1u << WF_F32, s->n_v > 0, 3, RECURRENT)                        \
	X(gdn_prefill, NONE, 1u << WF_F32, s->n_v > 0, 3, CHUNKED)                       \
	X(gdn_decode, NONE, 1u << WF_F32, s->n_v > 0, 3, RECURRENT)                      \
	X(swiglu, NONE, 1u << WF_F32, true, 3, SUMMED)                                   \
	X(moe_route, NONE, 1u << WF_F32, s->n_experts > 0, 3, EXACT_INPUTS)              \
	X(moe, down, s->moe_formats, s->n_experts > 0, 3, SUMMED_TWICE)                  \
	X(head, w, s->head_formats, true, 3, EXACT_INPUTS)                               \
	X(sample, NONE, 1u << WF_F32, true, 3, SAME_LOGITS)

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
 *   work     bytes of scratch at given shapes, as variant.work_bytes; no_work: none */
#define CPU_VARIANTS(X)                                                                  \
	X(embed, plain, no_work)                                                         \
	X(add_norm, plain, no_work)                                                      \
	X(linear, plain, no_work)                                                        \
	X(attn_prep, plain, no_work)                                                     \
	X(attn_prefill, plain, attn_work_plain)                                          \
	X(attn_decode, plain, attn_work_plain)                                           \
	X(gdn_prep, plain, no_work)                                                      \
	X(gdn_prefill, plain, no_work)                                                   \
	X(gdn_decode, plain, no_work)                                                    \
	X(swiglu, plain, no_work)                                                        \
	X(moe_route, plain, no_work)                                                     \
	X(moe, plain, moe_work_plain)                                                    \
	X(head, plain, no_work)                                                          \
	X(sample, plain, sample_work_plain)                                              \
	X(add_norm, avx2, no_work)                                                       \
	X(linear, avx2, no_work)                                                         \
	X(attn_prep, avx2, no_work)                                                      \
	X(attn_prefill, avx2, no_work)                                                   \
	X(attn_decode, avx2, no_work)                                                    \
	X(gdn_prep, avx2, no_work)                                                       \
	X(gdn_prefill, avx2, no_work)                                                    \
	X(gdn_decode, avx2, no_work)                                                     \
	X(swiglu, avx2, no_work)                                                         \
	X(moe_route, avx2, no_work)                                                      \
	X(moe, avx2, moe_work_avx2)                                                      \
	X(head, avx2, no_work)

/* Formats of weights that the tensor-core products take. */
#define FORMATS_MMA (1u << WF_BF16 | 1u << WF_FP8 | 1u << WF_NVFP4)

/* A CUDA kernel's line; all run on SM90 and SM120 alike.
 *   op, variant  CUDA_KERNEL(op, variant)
 *   formats      that it serves, as bits; FORMATS_ANY: every one, or the op has none
 *   role         ORACLE of the others, itself checked against the CPU's plain kernel,
 *                or FAST; each op has one oracle
 *   work         as above
 *   repack       of its weights at load, as variant.repack; no_repack: layout 0. (The
 *                shared expert of moe may be NVFP4 where the others are not.) */
#define CUDA_VARIANTS(X)                                                                 \
	X(embed, rows, FORMATS_ANY, ORACLE, no_work, no_repack)                          \
	X(add_norm, rows, FORMATS_ANY, ORACLE, no_work, no_repack)                       \
	X(attn_prep, heads, FORMATS_ANY, ORACLE, no_work, no_repack)                     \
	X(attn_prefill, rows, FORMATS_ANY, ORACLE, attn_cuda_rows_work, no_repack)       \
	X(attn_prefill, tiles, FORMATS_ANY, FAST, no_work, no_repack)                    \
	X(attn_prefill, mixed, FORMATS_ANY, FAST, attn_cuda_rows_work, no_repack)        \
	X(attn_decode, rows, FORMATS_ANY, ORACLE, attn_cuda_rows_work, no_repack)        \
	X(gdn_prep, rows, FORMATS_ANY, ORACLE, no_work, no_repack)                       \
	X(gdn_prefill, steps, FORMATS_ANY, ORACLE, no_work, no_repack)                   \
	X(gdn_prefill, chunks, FORMATS_ANY, FAST, gdn_cuda_chunks_work, no_repack)       \
	X(gdn_decode, steps, FORMATS_ANY, ORACLE, no_work, no_repack)                    \
	X(swiglu, flat, FORMATS_ANY, ORACLE, no_work, no_repack)                         \
	X(moe_route, rows, FORMATS_ANY, ORACLE, no_work, no_repack)                      \
	X(moe_route, cluster, FORMATS_ANY, FAST, no_work, no_repack)                     \
	X(moe_route, spread, FORMATS_ANY, FAST, no_work, no_repack)                      \
	X(linear, plain, FORMATS_ANY, ORACLE, no_work, no_repack)                        \
	X(linear, mma, FORMATS_MMA, FAST, no_work, nvfp4_cuda_repack)                    \
	X(linear, blas, 1u << WF_BF16, FAST, no_work, linear_cuda_blas_prepare)          \
	X(head, plain, FORMATS_ANY, ORACLE, no_work, no_repack)                          \
	X(head, mma, FORMATS_MMA, FAST, no_work, nvfp4_cuda_repack)                      \
	X(moe, plain, FORMATS_ANY, ORACLE, moe_cuda_plain_work, no_repack)               \
	X(moe, groups, FORMATS_MMA, FAST, moe_cuda_groups_work, nvfp4_cuda_repack)       \
	X(sample, bins, FORMATS_ANY, ORACLE, sample_cuda_bins_work, no_repack)

#endif
