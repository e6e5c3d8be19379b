/* Number formats that more than one layer speaks of. */
#ifndef COMMON_BASE_DTYPE_H
#define COMMON_BASE_DTYPE_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

static inline float bf16_value(uint16_t bits)
{
	uint32_t u = (uint32_t)bits << 16;
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

/* To nearest, ties to even; a NaN stays one. */
static inline uint16_t bf16_round(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	if ((u & 0x7FFFFFFFu) > 0x7F800000u)
		return (uint16_t)((u >> 16) | 0x40u);
	return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

static inline float load_as(enum dtype dtype, const void *base, uint64_t i)
{
	return dtype == DT_F32 ? ((const float *)base)[i]
			       : bf16_value(((const uint16_t *)base)[i]);
}

static inline void store_as(enum dtype dtype, void *base, uint64_t i, float value)
{
	if (dtype == DT_F32)
		((float *)base)[i] = value;
	else
		((uint16_t *)base)[i] = bf16_round(value);
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
