/* Kernels that are wrong on purpose (wrong_kernels.cu), as wrong_test.c sees them. */
#ifndef TESTS_DEVICE_WRONG_TEST_H
#define TESTS_DEVICE_WRONG_TEST_H
#include "common/base/err.h"
#include "kernels/ops.h"
#include "kernels/registry.h"
#ifdef __cplusplus
extern "C" {
#endif

/* op, kind: the variant is "op/kind" and its launcher wrong_op_kind. */
#define WRONG_MAP(X)                                                                     \
	X(linear, swizzled)                                                              \
	X(linear, padded)                                                                \
	X(linear, whole_tiles)                                                           \
	X(linear, second_tile)                                                           \
	X(swiglu, whole_tiles)                                                           \
	X(swiglu, past_the_end)                                                          \
	X(swiglu, in_place)                                                              \
	X(swiglu, too_much_shared)                                                       \
	X(swiglu, staged_value)                                                          \
	X(swiglu, first_launch)                                                          \
	X(swiglu, waits)                                                                 \
	X(swiglu, waits_blindly)                                                         \
	X(swiglu, allocates)                                                             \
	X(swiglu, side_stream)                                                           \
	X(swiglu, at_capture)                                                            \
	X(moe, swizzled)

#define X(op, kind)                                                                      \
	status wrong_##op##_##kind(                                                      \
		struct stream *stream, const struct op_##op *args, struct err *err);
WRONG_MAP(X)
#undef X

uint64_t wrong_moe_work(const struct kernel_shapes *shapes);
void wrong_second_tile_inner(const void *op, char names[KERNEL_NAMES_MAX]);

/* What the kernels keep, on the current device. */
MUST_CHECK status wrong_setup(struct err *err);
/* Before a selection: the next launch is the first one. */
MUST_CHECK status wrong_reset(struct err *err);
/* Frees it; ST_DEVICE when an error was left behind or the device is not usable. */
MUST_CHECK status wrong_end(struct err *err);

#ifdef __cplusplus
}
#endif
#endif
