/* Number formats that more than one layer speaks of. */
#ifndef COMMON_BASE_DTYPE_H
#define COMMON_BASE_DTYPE_H
#include <stddef.h>
#include <stdint.h>

/* Element types of activations and state. Values go over the wire: append only. */
enum dtype { DT_F32, DT_BF16, DT__COUNT };

static inline size_t dtype_bytes(enum dtype t)
{
	return t == DT_F32 ? 4 : 2;
}
static inline const char *dtype_name(enum dtype t)
{
	return t == DT_F32 ? "f32" : "bf16";
}

/* Formats that matrices are stored and computed in.
 * NVFP4: w = e2m1(code) * e4m3(scale[k / 16]) * scale2.
 * FP8:   w = e4m3(byte) * scale of its block. */
enum weight_format { WF_F32, WF_BF16, WF_NVFP4, WF_FP8, WF__COUNT };

static inline const char *format_name(enum weight_format f)
{
	static const char *const names[WF__COUNT] = {"f32", "bf16", "nvfp4", "fp8"};

	return f < WF__COUNT ? names[f] : "unknown";
}

#endif
