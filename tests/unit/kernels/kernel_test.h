/* What the kernel tests share: every variant of an op that this machine can run, random
 * inputs, poisoned outputs between canaries, comparison with a double-precision
 * reference. Device memory of the CPU backend is plain memory, so tests point ops
 * straight at their arrays. */
#ifndef TESTS_UNIT_KERNELS_KERNEL_TEST_H
#define TESTS_UNIT_KERNELS_KERNEL_TEST_H
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "kernels/backend.h"
#include "kernels/registry.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define CANARIES 32u
#define CANARY   12345.678f

/* Uniform 64-bit numbers; the same in every run. */
static uint64_t test_seed = 1;
static inline uint64_t random_u64(void)
{
	struct philox r = philox4x32(7, test_seed++, 0);

	return (uint64_t)r.v[1] << 32 | r.v[0];
}

static inline float random_uniform(float low, float high)
{
	return low + (high - low) * (float)(random_u64() >> 40) * 0x1p-24f;
}

static inline uint32_t random_below(uint32_t n)
{
	return (uint32_t)(random_u64() % n);
}

/* Exactly n floats, so that the address sanitizer sees a read past the end. */
static inline float *random_floats(uint64_t n, float scale)
{
	float *p = mem_alloc(n, sizeof(*p));

	for (uint64_t i = 0; i < n; i++)
		p[i] = random_uniform(-1.7f, 1.7f) * scale;
	return p;
}

/* n poisoned floats with canaries on both sides; free with canary_free. */
static inline float *canary_floats(uint64_t n)
{
	float *p = mem_alloc(n + 2 * (size_t)CANARIES, sizeof(*p));

	for (uint64_t i = 0; i < n + 2 * (uint64_t)CANARIES; i++)
		p[i] = i >= CANARIES && i < n + CANARIES ? NAN : CANARY;
	return p + CANARIES;
}

static inline void canary_check(const float *p, uint64_t n)
{
	for (uint64_t i = 0; i < CANARIES; i++) {
		assert_true(p[(int64_t)i - (int64_t)CANARIES] == CANARY);
		assert_true(p[n + i] == CANARY);
	}
}

static inline void canary_free(float *p)
{
	mem_free(p - CANARIES);
}

/* Root mean square error over root mean square, per row. Prints the worst as a part of
 * the tolerance when it fails. */
static inline void assert_close(const float *got, uint64_t got_stride, const double *want,
	uint64_t rows, uint64_t width, double tolerance)
{
	double worst = 0;

	for (uint64_t r = 0; r < rows; r++) {
		double error = 0, size = 0;

		for (uint64_t i = 0; i < width; i++) {
			double w = want[r * width + i];
			double d = (double)got[r * got_stride + i] - w;

			error += d * d;
			size += w * w;
		}
		if (!(sqrt(error) <= tolerance * sqrt(size)))
			print_error("row %llu: error %.3g of its size, allowed %.3g\n",
				(unsigned long long)r, sqrt(error / size), tolerance);
		assert_true(sqrt(error) <= tolerance * sqrt(size));
		worst = fmax(worst, size > 0 ? sqrt(error / size) : 0);
	}
	assert_true(worst <= tolerance);
}

static inline void assert_same_bits(const float *a, const float *b, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		if (memcmp(&a[i], &b[i], sizeof(*a)) != 0)
			print_error("element %llu: %.9g and %.9g\n",
				(unsigned long long)i, (double)a[i], (double)b[i]);
		assert_memory_equal(&a[i], &b[i], sizeof(*a));
	}
}

static inline struct backend *test_backend(void)
{
	static struct backend *b;
	struct err err;

	if (b == NULL && backend_open(&b, "cpu:0", &err) != ST_OK)
		fail_msg("%s", err.text);
	return b;
}

/* Number i of the CPU variants of an op that this machine can run; NULL at the end. */
static inline const struct variant *test_variant(enum op_id op, uint32_t i)
{
	for (uint32_t v = 0; v < n_cpu_variants; v++) {
		if (cpu_variants[v].op != op ||
			(test_backend()->arch & cpu_variants[v].arch_min) == 0)
			continue;
		if (i == 0)
			return &cpu_variants[v];
		i--;
	}
	return NULL;
}

/* The one after it in the table. */
static inline const struct variant *test_variant_after(const struct variant *v)
{
	for (uint32_t i = 0;; i++) {
		if (test_variant(v->op, i) == v)
			return test_variant(v->op, i + 1);
	}
}

#define FOR_EACH_VARIANT(v, op)                                                          \
	for (const struct variant *v = test_variant(op, 0); v != NULL;                   \
		v = test_variant_after(v))

/* run_linear(variant, &args, err) and so on: one variant, called as its own type; and
 * RUN(linear, variant, &args), which fails the test when the kernel refuses. */
#define X(id, ...)                                                                       \
	static inline status run_##id(                                                   \
		const struct variant *v, const struct op_##id *args, struct err *err)    \
	{                                                                                \
		typedef status (*fn)(                                                    \
			struct stream *, const struct op_##id *, struct err *);          \
		return ((fn)v->run)(NULL, args, err);                                    \
	}                                                                                \
	static inline void run_well_##id(                                                \
		const struct variant *v, const struct op_##id *args)                     \
	{                                                                                \
		struct err err = {.text = ""};                                           \
                                                                                         \
		if (run_##id(v, args, &err) != ST_OK)                                    \
			fail_msg("%s: %s", v->name, err.text);                           \
	}
OP_MAP(X)
#undef X
#define RUN(op_, v, args) run_well_##op_((v), (args))

static inline float bits_to_float(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

static inline uint16_t to_bf16(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}

static inline float from_bf16(uint16_t b)
{
	return bits_to_float((uint32_t)b << 16);
}

#endif
