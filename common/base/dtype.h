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

/* Formats that matrices are stored and computed in, and the bits of an element without
 * its scales.
 * NVFP4: w = e2m1(code) * e4m3(scale[k / 16]) * scale2.
 * FP8:   w = e4m3(byte) * scale of its block. */
#define WEIGHT_FORMAT_MAP(X)                                                             \
	X(F32, "f32", 32)                                                                \
	X(BF16, "bf16", 16)                                                              \
	X(NVFP4, "nvfp4", 4)                                                             \
	X(FP8, "fp8", 8)

enum weight_format {
#define X(id, name, bits) WF_##id,
	WEIGHT_FORMAT_MAP(X)
#undef X
		WF__COUNT
};

static inline const char *format_name(enum weight_format f)
{
	static const char *const names[WF__COUNT] = {
#define X(id, name, bits) name,
		WEIGHT_FORMAT_MAP(X)
#undef X
	};

	return f < WF__COUNT ? names[f] : "unknown";
}

static inline uint32_t format_bits(enum weight_format f)
{
	static const uint8_t all[WF__COUNT] = {
#define X(id, name, bits) bits,
		WEIGHT_FORMAT_MAP(X)
#undef X
	};

	return all[f];
}

#endif
