/* The plain matrix product: weights are turned into F32 exactly as their format says,
 * then every output element is one chain of F32 multiply and add in ascending k. */
#include "kernels/cpu/cpu.h"

#include <assert.h>

/* Weights turned into F32 at a time; a multiple of every scale block in use. */
#define CHUNK 256u

status product_check(const struct weight *w, const char *what, struct err *err)
{
	if (w->layout != 0)
		return err_set(err, ST_INVALID,
			"%s: weight layout %u, the CPU reads layout 0", what, w->layout);
	if (w->format == WF_NVFP4 && w->k % 16 != 0)
		return err_set(err, ST_INVALID,
			"%s: NVFP4 rows of %u, not a multiple of 16", what, w->k);
	if (w->format == WF_FP8 && (w->block_n == 0 || w->block_k == 0))
		return err_set(err, ST_INVALID, "%s: FP8 scale block of %u x %u", what,
			w->block_n, w->block_k);
	if ((unsigned int)w->format >= WF__COUNT)
		return err_set(
			err, ST_INVALID, "%s: weight format %d", what, (int)w->format);
	return ST_OK;
}

static void row_nvfp4(
	const struct weight *w, uint32_t index, uint64_t at, uint32_t nk, float *out)
{
	for (uint64_t k = 0; k < nk; k++) {
		uint32_t pair = ((const uint8_t *)w->data)[(at + k) / 2];
		uint32_t code = (at + k) % 2 == 0 ? pair & 15u : pair >> 4;
		float scale = e4m3_value(((const uint8_t *)w->scale)[(at + k) / 16]);

		out[k] = e2m1_value(code) * scale * w->scale2[index];
	}
}

static void row_fp8(const struct weight *w, uint32_t index, uint32_t n, uint32_t k0,
	uint32_t nk, float *out)
{
	uint64_t rows = CEIL_DIV(w->n, w->block_n);
	uint64_t cols = CEIL_DIV(w->k, w->block_k);
	const float *scales =
		(const float *)w->scale + (index * rows + n / w->block_n) * cols;
	const uint8_t *codes =
		(const uint8_t *)w->data + ((uint64_t)index * w->n + n) * w->k;

	for (uint32_t k = 0; k < nk; k++)
		out[k] = e4m3_value(codes[k0 + k]) * scales[(k0 + k) / w->block_k];
}

/* Elements k0 .. k0 + nk - 1 of row n of matrix `index`. */
static void weight_row(const struct weight *w, uint32_t index, uint32_t n, uint32_t k0,
	uint32_t nk, float *out)
{
	uint64_t at = ((uint64_t)index * w->n + n) * w->k + k0;

	switch (w->format) {
	case WF_F32:
		memcpy(out, (const float *)w->data + at, nk * sizeof(float));
		return;
	case WF_BF16:
		for (uint32_t k = 0; k < nk; k++)
			out[k] = bf16_value(((const uint16_t *)w->data)[at + k]);
		return;
	case WF_NVFP4:
		row_nvfp4(w, index, at, nk, out);
		return;
	case WF_FP8:
		row_fp8(w, index, n, k0, nk, out);
		return;
	case WF__COUNT:
		break;
	}
	assert(w->format < WF__COUNT); /* product_check has refused others */
}

void product_plain(const struct product *p)
{
	const struct weight *w = p->w;
	float row[CHUNK];

	for (uint32_t n = 0; n < w->n; n++) {
		for (uint32_t k0 = 0; k0 == 0 || k0 < w->k; k0 += CHUNK) {
			uint32_t nk = MIN(CHUNK, w->k - k0);

			weight_row(w, p->index, n, k0, nk, row);
			for (uint32_t i = 0; i < p->n_rows; i++) {
				uint64_t xi = p->x_rows != NULL ? p->x_rows[i] : i;
				uint64_t yi = p->y_rows != NULL ? p->y_rows[i] : i;
				const float *x = p->x + xi * p->x_stride + k0;
				float *y = p->y + yi * p->y_stride + n;
				float sum = k0 == 0 ? 0.0f : *y;

				for (uint32_t k = 0; k < nk; k++)
					sum += x[k] * row[k];
				*y = sum;
			}
		}
	}
}
