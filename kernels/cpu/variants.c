/* The table of CPU kernels: CPU_VARIANTS of kernels/table.h. An oracle is the plain form;
 * the others are checked against it before they are used. */
#include "kernels/cpu/cpu.h"

enum { arch_plain = KERNEL_CPU_PLAIN, arch_avx2 = KERNEL_CPU_AVX2 };

const struct variant cpu_variants[] = {
#define X(name, isa, work, inner)                                                        \
	{#name "/" #isa, OP_##name, FORMATS_ANY, "cpu", arch_##isa, arch_##isa,          \
		(op_fn)k_##name##_##isa, arch_##isa == arch_plain, work, no_repack,      \
		inner, false},
	CPU_VARIANTS(X)
#undef X
};
const uint32_t n_cpu_variants = COUNT(cpu_variants);
