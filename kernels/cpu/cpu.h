/* What the files of the CPU backend share: the heads of its kernels, number formats,
 * and the matrix product that linear, head, moe and moe_route are made of. A stream of
 * the CPU runs work at once, so a kernel never looks at it. Activations are F32. */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H
#include "common/base/attr.h"
#include "kernels/backend.h"
#include "kernels/ops.h"
#include "kernels/registry.h"
#include <math.h>
#include <string.h>

/* Head of the kernel of an op, in a declaration and in its definition; the arguments
 * are op, an error is err. */
#define CPU_KERNEL(name, variant)                                                        \
	status k_##name##_##variant(__attribute__((unused)) struct stream *stream,       \
		const struct op_##name *op, __attribute__((unused)) struct err *err)

#define X(name, isa, work, inner)                                                        \
	CPU_KERNEL(name, isa);                                                           \
	uint64_t work(const struct kernel_shapes *shapes);                               \
	void inner(const void *op, char names[KERNEL_NAMES_MAX]);
CPU_VARIANTS(X)
#undef X

/* Experts that moe_route keeps on the stack; the largest published model has 512. */
#define CPU_EXPERTS_MAX 1024u

/* y[y_rows[i]] = x[x_rows[i]] W^T with W the matrix `index` of the stack w; a NULL
 * list means row i. Strides in elements. The sum of an output element runs over k in an
 * order that depends on k alone. */
struct product {
	float *y;
	uint64_t y_stride;
	const uint32_t *y_rows;
	const float *x;
	uint64_t x_stride;
	const uint32_t *x_rows;
	uint32_t n_rows;
	const struct weight *w;
	uint32_t index;
};
void product_plain(const struct product *p);
void product_avx2(const struct product *p);
/* Which of its forms takes so many rows. */
void product_inner_avx2(const struct weight *w, uint32_t n_rows, char *names);
/* Refuses what no CPU kernel reads: a repacked layout, NVFP4 rows that end inside a
 * scale block, a format that is not one. `what` names the op and the member. */
MUST_CHECK status product_check(
	const struct weight *w, const char *what, struct err *err);

/* What every CPU variant of moe and moe_route refuses. */
MUST_CHECK status moe_check(const struct op_moe *op, const char *what, struct err *err);

MUST_CHECK status route_check(
	const struct op_moe_route *op, const char *what, struct err *err);
/* ids and weights of row t from its probabilities p [E]. */
void route_choose(const struct op_moe_route *op, const float *p, uint32_t t);

/* OCP E4M3 ("fn"): no infinities, 0x7F and 0xFF are NaN. */
static inline float e4m3_value(uint8_t code)
{
	uint32_t exponent = (code >> 3) & 15u;
	uint32_t mantissa = code & 7u;
	uint32_t bits = (exponent + 127 - 7) << 23 | mantissa << 20;
	float magnitude;

	if ((code & 0x7Fu) == 0x7Fu)
		return NAN;
	memcpy(&magnitude, &bits, sizeof(magnitude));
	if (exponent == 0)
		magnitude = (float)mantissa * 0x1p-9f;
	return (code & 0x80u) != 0 ? -magnitude : magnitude;
}

static inline float e2m1_value(uint32_t code)
{
	static const float magnitudes[8] = {
		0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};

	return (code & 8u) != 0 ? -magnitudes[code & 7u] : magnitudes[code & 7u];
}

static inline float sigmoid(float x)
{
	return 1.0f / (1.0f + expf(-x));
}

static inline float silu(float x)
{
	return x / (1.0f + expf(-x));
}

static inline float softplus(float x)
{
	return x > 20.0f ? x : log1pf(expf(x));
}

/* First element of the page that holds a row of head `head` for the token at `pos`. */
static inline uint64_t kv_element(const struct op_kv *kv, uint32_t head, uint32_t pos)
{
	return ((uint64_t)head * kv->page_tokens + pos % kv->page_tokens) * kv->head_dim;
}

static inline void *kv_page(
	const struct op_kv *kv, const struct op_rows *rows, uint32_t seq, uint32_t pos)
{
	uint32_t page =
		rows->pages[(uint64_t)seq * rows->pages_stride + pos / kv->page_tokens];

	return (uint8_t *)kv->base + page * kv->page_bytes;
}

/* Elements from a K row to the V row of the same head and token. */
static inline uint64_t kv_v_offset(const struct op_kv *kv)
{
	return (uint64_t)kv->n_kv * kv->page_tokens * kv->head_dim;
}

static inline void *slot_rec(const struct op_slot *state, uint32_t slot)
{
	return (uint8_t *)state->rec + slot * state->slot_bytes;
}

static inline void *slot_conv(const struct op_slot *state, uint32_t slot)
{
	return (uint8_t *)state->conv + slot * state->slot_bytes;
}

#endif
