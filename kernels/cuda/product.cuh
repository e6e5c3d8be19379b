/* Matrix products y = x W^T that linear, head and moe are made of. x is BF16; weights
 * become BF16 exactly (codes times block scales of NVFP4, bare codes of FP8), sums are
 * F32, the remaining scales (NVFP4 scale2, FP8 block scales) multiply F32 sums, and the
 * result is rounded once, at the store.
 *
 * Four kernels: plain (any format and shape, the oracle), stream (up to 16 rows of a
 * matrix: bounded by reading the weights), tile (up to 64 rows, in groups of so many:
 * bounded by L2 and by latency) and large (more rows: bounded by the tensor cores). */
#ifndef KERNELS_CUDA_PRODUCT_CUH
#define KERNELS_CUDA_PRODUCT_CUH
#include "kernels/cuda/cuda_common.cuh"

/* NVFP4 weights in the order of the tensor cores, see matrix.cuh. */
#define LAYOUT_TILES 1u

#define STREAM_ROWS_MAX 16u
#define TILE_ROWS       64u
#define LARGE_ROWS      128u

enum product_out {
	OUT_BF16,
	OUT_F32,
	OUT_SWIGLU, /* y = BF16 of SiLU(x w^T) * (x up^T) */
};

/* Rows of a pass that meet the same matrix of a stack: entries first .. first + count - 1
 * of the list. */
struct row_group {
	uint32_t expert, first, count, unused;
};

/* Entry i of the list stands for row pair(i) = list[i] (or i) of y, and for row
 * x_rows[pair] (or pair / x_div) of x. The list is cut into groups:
 *   groups != NULL  as given on the device, *n_groups of them, at most max_groups
 *   ids != NULL     every entry is its own, of matrix ids[i]
 *   otherwise       the first matrix for all, cut by the kernel. */
struct product {
	void *y;
	const bf16 *x;
	uint64_t x_stride, y_stride;
	struct weight w, up; /* up: OUT_SWIGLU only, of w's format and shape */
	enum product_out out;
	uint32_t n_rows, x_div; /* n_rows: entries of the list */
	const uint32_t *x_rows, *list, *ids;
	const struct row_group *groups;
	const uint32_t *n_groups;
	uint32_t max_groups;
};

/* Refuses what no kernel of the folder reads. `what` names the op and the variant. */
MUST_CHECK status product_check(
	const struct product *p, const char *what, struct err *err);
/* Chooses between the three fast kernels by the number of rows; groups of at most `most`
 * rows were made by the caller (0: none were). */
MUST_CHECK status product_run(struct stream *stream, const struct product *p,
	uint32_t most, const char *what, struct err *err);
/* Names what product_run would choose, each name after `prefix`. */
void product_inner(const struct product *p, uint32_t most, const char *prefix,
	char names[KERNEL_NAMES_MAX]);
MUST_CHECK status product_stream(struct stream *stream, const struct product *p,
	uint32_t most, const char *what, struct err *err);
MUST_CHECK status product_tile(struct stream *stream, const struct product *p,
	uint32_t most, const char *what, struct err *err);
MUST_CHECK status product_large(struct stream *stream, const struct product *p,
	uint32_t most, const char *what, struct err *err);

/* A way to serve a product: product_run, or that of another file. */
struct product_way {
	status (*run)(struct stream *stream, const struct product *p, uint32_t most,
		const char *what, struct err *err);
	void (*inner)(const struct product *p, uint32_t most, const char *prefix,
		char names[KERNEL_NAMES_MAX]);
};
extern const struct product_way product_by_rows; /* product_run */

/* Of product_stream and product_large: names of what serves the product there. */
void product_stream_inner(const struct product *p, uint32_t most, const char *prefix,
	char names[KERNEL_NAMES_MAX]);
void product_large_inner(
	const struct product *p, const char *prefix, char names[KERNEL_NAMES_MAX]);

/* ---- device code ---- */

static __device__ __forceinline__ bool product_group(
	const struct product &p, uint32_t index, uint32_t rows, struct row_group *out)
{
	if (p.groups != NULL) {
		if (index >= *p.n_groups)
			return false;
		*out = p.groups[index];
	} else if (p.ids != NULL) {
		*out = {p.ids[index], index, 1, 0};
	} else {
		*out = {0, index * rows, min(rows, p.n_rows - index * rows), 0};
	}
	return true;
}

static __device__ __forceinline__ uint32_t product_pair(
	const struct product &p, uint32_t entry)
{
	return p.list != NULL ? p.list[entry] : entry;
}

static __device__ __forceinline__ const bf16 *product_x(
	const struct product &p, uint32_t pair)
{
	uint64_t row = p.x_rows != NULL ? p.x_rows[pair] : pair / p.x_div;

	return p.x + row * p.x_stride;
}

/* Element `at` of y, if `valid`. v: sum over k; gate and up: the same of both matrices
 * (OUT_SWIGLU). Only the store is conditional: many of them then follow one another
 * without branches. */
template <int OUT>
static __device__ __forceinline__ void product_put(
	const struct product &p, uint64_t at, bool valid, float v, float up)
{
	if (OUT == OUT_F32) {
		if (valid)
			((float *)p.y)[at] = v;
	} else {
		bf16 b = __float2bfloat16(OUT == OUT_BF16 ? v : dev_silu(v) * up);

		if (valid)
			((bf16 *)p.y)[at] = b;
	}
}

template <int OUT>
static __device__ __forceinline__ void product_store(
	const struct product &p, uint32_t pair, uint32_t n, float v, float up)
{
	product_put<OUT>(p, pair * p.y_stride + n, true, v, up);
}

#endif
