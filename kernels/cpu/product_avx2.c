/* The matrix product with AVX2. Many rows: four rows of weights at a time are turned
 * into F32 in a small panel, which all rows of x then use (3 x 4 sums in registers).
 * One row: weights are read once, straight from their format. Both give the same bits:
 * over each chunk of K an output is 8 lane sums added in one order, and the chunks are
 * added in ascending order. */
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/weight_avx2.h"

#define PANEL_ROWS 4u
#define ROW_TILE   3u

/* out[r][0..3] for `rows` rows of x (a constant) against the panel. */
ALWAYS_INLINE void tile(const float *const *x, uint32_t rows, const float *panel,
	uint32_t nk, __m128 *out)
{
	__m256 sum[ROW_TILE][PANEL_ROWS];
	uint32_t k = 0;

	for (uint32_t r = 0; r < rows; r++) {
		for (uint32_t n = 0; n < PANEL_ROWS; n++)
			sum[r][n] = _mm256_setzero_ps();
	}
	for (; k + 8 <= nk; k += 8) {
		for (uint32_t n = 0; n < PANEL_ROWS; n++) {
			__m256 w = _mm256_load_ps(panel + (uint64_t)n * PANEL_STRIDE + k);

			for (uint32_t r = 0; r < rows; r++)
				sum[r][n] = _mm256_fmadd_ps(
					_mm256_loadu_ps(x[r] + k), w, sum[r][n]);
		}
	}
	if (k < nk) {
		/* The panel is zero behind the last weight; x may end at its page. */
		__m256i mask = first_lanes(nk - k);

		for (uint32_t n = 0; n < PANEL_ROWS; n++) {
			__m256 w = _mm256_load_ps(panel + (uint64_t)n * PANEL_STRIDE + k);

			for (uint32_t r = 0; r < rows; r++)
				sum[r][n] = _mm256_fmadd_ps(
					_mm256_maskload_ps(x[r] + k, mask), w, sum[r][n]);
		}
	}
	for (uint32_t r = 0; r < rows; r++)
		out[r] = sum4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
}

/* Store 1..4 sums of the first chunk, or add those of a later one. */
ALWAYS_INLINE void put(float *y, __m128 sums, uint32_t n, bool first)
{
	float buffer[4];

	if (n == 4) {
		_mm_storeu_ps(y, first ? sums : _mm_add_ps(_mm_loadu_ps(y), sums));
		return;
	}
	_mm_storeu_ps(buffer, sums);
	for (uint32_t i = 0; i < n; i++)
		y[i] = first ? buffer[i] : y[i] + buffer[i];
}

ALWAYS_INLINE const float *x_row(const struct product *p, uint32_t i)
{
	return p->x + (p->x_rows != NULL ? p->x_rows[i] : i) * p->x_stride;
}

ALWAYS_INLINE float *y_row(const struct product *p, uint32_t i)
{
	return p->y + (p->y_rows != NULL ? p->y_rows[i] : i) * p->y_stride;
}

/* One chunk of K of outputs n0..n0+n-1 for all rows. */
static void panel_times_rows(
	const struct product *p, const float *panel, uint32_t n0, uint32_t n, uint32_t k0)
{
	uint32_t nk = MIN(WEIGHT_CHUNK, p->w->k - k0);

	for (uint32_t i = 0; i < p->n_rows; i += ROW_TILE) {
		uint32_t rows = MIN(ROW_TILE, p->n_rows - i);
		const float *x[ROW_TILE];
		__m128 out[ROW_TILE];

		for (uint32_t r = 0; r < rows; r++)
			x[r] = x_row(p, i + r) + k0;
		if (rows == 3)
			tile(x, 3, panel, nk, out);
		else if (rows == 2)
			tile(x, 2, panel, nk, out);
		else
			tile(x, 1, panel, nk, out);
		for (uint32_t r = 0; r < rows; r++)
			put(y_row(p, i + r) + n0, out[r], n, k0 == 0);
	}
}

static void product_rows(const struct product *p)
{
	const struct weight *w = p->w;
	float panel[PANEL_ROWS * PANEL_STRIDE] __attribute__((aligned(32)));

	memset(panel, 0, sizeof(panel));
	for (uint32_t n0 = 0; n0 < w->n; n0 += PANEL_ROWS) {
		uint32_t n = MIN(PANEL_ROWS, w->n - n0);

		for (uint32_t k0 = 0; k0 == 0 || k0 < w->k; k0 += WEIGHT_CHUNK) {
			for (uint32_t i = 0; i < n; i++)
				weight_row_avx2(w, p->index, n0 + i, k0,
					panel + (uint64_t)i * PANEL_STRIDE);
			panel_times_rows(p, panel, n0, n, k0);
		}
	}
}

/* One row of x against 8 (or, at the end, 1) rows of weights, one chunk of K. */
ALWAYS_INLINE void dots(const struct weight *w, uint64_t row, uint32_t rows,
	const float *x, uint32_t k0, __m256 *sum)
{
	uint32_t nk = MIN(WEIGHT_CHUNK, w->k - k0);
	uint32_t k = 0;

	for (uint32_t r = 0; r < rows; r++)
		sum[r] = _mm256_setzero_ps();
	for (; k + 8 <= nk; k += 8) {
		__m256 xk = _mm256_loadu_ps(x + k0 + k);

		for (uint32_t r = 0; r < rows; r++) {
			uint64_t at = (row + r) * w->k + k0 + k;
			__m256 wk = w->format == WF_F32
					    ? _mm256_loadu_ps((const float *)w->data + at)
					    : load8_bf16((const uint16_t *)w->data + at);

			sum[r] = _mm256_fmadd_ps(xk, wk, sum[r]);
		}
	}
	if (k < nk) {
		__m256 xk = _mm256_maskload_ps(x + k0 + k, first_lanes(nk - k));

		for (uint32_t r = 0; r < rows; r++) {
			__m256 wk =
				weight_tail_avx2(w, (row + r) * w->k + k0 + k, nk - k);

			sum[r] = _mm256_fmadd_ps(xk, wk, sum[r]);
		}
	}
}

/* The same for NVFP4, whose scale blocks are two vectors. */
ALWAYS_INLINE void dots_nvfp4(const struct weight *w, uint64_t row, uint32_t rows,
	const float *x, uint32_t k0, __m256 *sum)
{
	uint32_t nk = MIN(WEIGHT_CHUNK, w->k - k0);
	__m256 scale2 = _mm256_set1_ps(w->scale2[row / w->n]);
	float scales[8][WEIGHT_CHUNK / 16];

	for (uint32_t r = 0; r < rows; r++) {
		nvfp4_half_scales(w, (row + r) * w->k + k0, nk, scales[r]);
		sum[r] = _mm256_setzero_ps();
	}
	for (uint32_t k = 0; k < nk; k += 16) {
		__m256 x0 = _mm256_loadu_ps(x + k0 + k);
		__m256 x1 = _mm256_loadu_ps(x + k0 + k + 8);

		for (uint32_t r = 0; r < rows; r++) {
			/* Rows of NVFP4 are whole blocks, so all scales in use are set.
			 * NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage) */
			struct pair8 v = nvfp4_block(
				w, (row + r) * w->k + k0 + k, scales[r][k / 16], scale2);

			sum[r] = _mm256_fmadd_ps(x0, v.lo, sum[r]);
			sum[r] = _mm256_fmadd_ps(x1, v.hi, sum[r]);
		}
	}
}

/* Outputs n..n+rows-1 for one row of x; eight chains of sums hide the latency of their
 * additions. */
ALWAYS_INLINE void outputs(const struct product *p, uint32_t n, uint32_t rows, bool nvfp4)
{
	const struct weight *w = p->w;
	uint64_t row = (uint64_t)p->index * w->n + n;
	const float *x = x_row(p, 0);
	float *y = y_row(p, 0) + n;
	__m256 sum[8];

	for (uint32_t k0 = 0; k0 == 0 || k0 < w->k; k0 += WEIGHT_CHUNK) {
		if (nvfp4)
			dots_nvfp4(w, row, rows, x, k0, sum);
		else
			dots(w, row, rows, x, k0, sum);
		if (rows == 1) {
			put(y, sum4(sum[0], sum[0], sum[0], sum[0]), 1, k0 == 0);
			continue;
		}
		put(y, sum4(sum[0], sum[1], sum[2], sum[3]), 4, k0 == 0);
		put(y + 4, sum4(sum[4], sum[5], sum[6], sum[7]), 4, k0 == 0);
	}
}

ALWAYS_INLINE void one_row(const struct product *p, bool nvfp4)
{
	uint32_t n = 0;

	for (; n + 8 <= p->w->n; n += 8)
		outputs(p, n, 8, nvfp4);
	for (; n < p->w->n; n++)
		outputs(p, n, 1, nvfp4);
}

/* The formats that are computed in without being unpacked. */
static bool is_one_row(const struct weight *w, uint32_t n_rows)
{
	return n_rows == 1 &&
	       (w->format == WF_F32 || w->format == WF_BF16 || w->format == WF_NVFP4);
}

void product_inner_avx2(const struct weight *w, uint32_t n_rows, char *names)
{
	kernel_named(names, is_one_row(w, n_rows) ? "one row" : "panels");
}

void product_avx2(const struct product *p)
{
	if (is_one_row(p->w, p->n_rows))
		one_row(p, p->w->format == WF_NVFP4);
	else if (p->n_rows > 0)
		product_rows(p);
}
