/* The table of CPU kernels. An oracle is the plain form; the others are checked against
 * it before they are used. */
#include "kernels/cpu/cpu.h"

#define PLAIN(name, work)                                                                \
	{                                                                                \
#name "/plain", OP_##name, -1, "cpu", KERNEL_CPU_PLAIN,                  \
			KERNEL_CPU_PLAIN, (op_fn)k_##name##_plain, true, (work), NULL    \
	}
#define AVX2(name, work)                                                                 \
	{                                                                                \
#name "/avx2", OP_##name, -1, "cpu", KERNEL_CPU_AVX2, KERNEL_CPU_AVX2,   \
			(op_fn)k_##name##_avx2, false, (work), NULL                      \
	}

const struct variant cpu_variants[] = {
	PLAIN(embed, NULL),
	PLAIN(add_norm, NULL),
	PLAIN(linear, NULL),
	PLAIN(attn_prep, NULL),
	PLAIN(attn_prefill, attn_work_plain),
	PLAIN(attn_decode, attn_work_plain),
	PLAIN(gdn_prep, NULL),
	PLAIN(gdn_prefill, NULL),
	PLAIN(gdn_decode, NULL),
	PLAIN(swiglu, NULL),
	PLAIN(moe_route, NULL),
	PLAIN(moe, moe_work_plain),
	PLAIN(head, NULL),
	PLAIN(sample, sample_work_plain),
	AVX2(add_norm, NULL),
	AVX2(linear, NULL),
	AVX2(attn_prep, NULL),
	AVX2(attn_prefill, NULL),
	AVX2(attn_decode, NULL),
	AVX2(gdn_prep, NULL),
	AVX2(gdn_prefill, NULL),
	AVX2(gdn_decode, NULL),
	AVX2(swiglu, NULL),
	AVX2(moe_route, NULL),
	AVX2(moe, moe_work_avx2),
	AVX2(head, NULL),
};
const uint32_t n_cpu_variants = COUNT(cpu_variants);
