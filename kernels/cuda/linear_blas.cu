/* y = x W^T in BF16 for many rows, by cuBLASLt; up to 16 rows, and rows that are not
 * aligned to 16 bytes, go to the own kernels of product.cuh.
 *
 * The algorithm is chosen when a weight is loaded (the variant's repack, which leaves
 * the weight as it is), for each shape once and for each class of row counts. Sums are
 * F32 and cross in F32 where a product is split along k. One workspace serves all
 * products of the device: its streams must not run two of them at a time, which a worker
 * with one compute stream per device does not. */
#include "kernels/cuda/backend_impl.cuh"
#include "kernels/cuda/blas.cuh"
#include "kernels/cuda/product.cuh"
#include <cublasLt.h>

#define WORKSPACE_BYTES (UINT64_C(32) << 20)
#define SHAPES_MAX      64u

/* Upper ends of the classes of row counts; above the last: the last one's algorithm. */
static const uint32_t class_rows[] = {32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
#define CLASSES 9u

struct blas_shape {
	uint32_t n, k;
	cublasLtMatmulAlgo_t algo[CLASSES];
};

struct blas {
	cublasLtHandle_t handle;
	cublasLtMatmulDesc_t desc;
	void *workspace;
	uint32_t n_shapes;
	struct blas_shape shapes[SHAPES_MAX];
};

static status check_blas(const char *what, cublasStatus_t rc, struct err *err)
{
	if (rc == CUBLAS_STATUS_SUCCESS)
		return ST_OK;
	return err_set(
		err, ST_DEVICE, "linear/blas: %s: %s", what, cublasLtGetStatusString(rc));
}

void blas_close(struct blas *b)
{
	if (b == NULL)
		return;
	if (b->desc != NULL)
		(void)cublasLtMatmulDescDestroy(b->desc);
	if (b->handle != NULL)
		(void)cublasLtDestroy(b->handle);
	if (b->workspace != NULL)
		(void)cudaFree(b->workspace);
	mem_give(b);
}

/* In cuBLAS's column-major words: D [n x rows] = W^T [n x k] x [k x rows]. */
static status open_blas(struct cuda_backend *cuda, struct err *err)
{
	struct blas *b = (struct blas *)mem_take(1, sizeof(*b));
	cublasOperation_t transpose = CUBLAS_OP_T;
	status st;

	if (b == NULL)
		return err_set(err, ST_NOMEM, "linear/blas: no memory for its context");
	st = check_blas("cublasLtCreate", cublasLtCreate(&b->handle), err);
	if (st == ST_OK)
		st = check_blas("cublasLtMatmulDescCreate",
			cublasLtMatmulDescCreate(
				&b->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
			err);
	if (st == ST_OK)
		st = check_blas("cublasLtMatmulDescSetAttribute",
			cublasLtMatmulDescSetAttribute(b->desc,
				CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
				sizeof(transpose)),
			err);
	if (st == ST_OK)
		st = cuda_check(&cuda->base, "cudaMalloc of the cuBLASLt workspace",
			cudaMalloc(&b->workspace, WORKSPACE_BYTES), err);
	if (st != ST_OK) {
		blas_close(b);
		return st;
	}
	cuda->blas = b;
	return ST_OK;
}

/* Layouts of W, x and y. */
struct blas_layouts {
	cublasLtMatrixLayoutOpaque_t w, x, y;
};

static status make_layouts(struct blas_layouts *l, uint32_t n, uint32_t k, uint32_t rows,
	uint32_t x_stride, uint32_t y_stride, struct err *err)
{
	cublasStatus_t rc = cublasLtMatrixLayoutInit(&l->w, CUDA_R_16BF, k, n, k);

	if (rc == CUBLAS_STATUS_SUCCESS)
		rc = cublasLtMatrixLayoutInit(&l->x, CUDA_R_16BF, k, rows, x_stride);
	if (rc == CUBLAS_STATUS_SUCCESS)
		rc = cublasLtMatrixLayoutInit(&l->y, CUDA_R_16BF, n, rows, y_stride);
	return check_blas("cublasLtMatrixLayoutInit", rc, err);
}

static status choose_algo(const struct blas *b, cublasLtMatmulPreference_t preference,
	struct blas_shape *s, uint32_t class_index, struct err *err)
{
	cublasLtMatmulHeuristicResult_t found;
	struct blas_layouts l;
	int n = 0;
	status st =
		make_layouts(&l, s->n, s->k, class_rows[class_index], s->k, s->n, err);

	if (st != ST_OK)
		return st;
	st = check_blas("cublasLtMatmulAlgoGetHeuristic",
		cublasLtMatmulAlgoGetHeuristic(b->handle, b->desc, &l.w, &l.x, &l.y, &l.y,
			preference, 1, &found, &n),
		err);
	if (st == ST_OK && n == 0)
		st = err_set(err, ST_LIMIT,
			"linear/blas: no algorithm for %u rows of %u to %u",
			class_rows[class_index], s->k, s->n);
	if (st == ST_OK)
		s->algo[class_index] = found.algo;
	return st;
}

static status choose_algos(const struct blas *b, struct blas_shape *s, struct err *err)
{
	uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	uint64_t bytes = WORKSPACE_BYTES;
	cublasLtMatmulPreference_t preference;
	status st = check_blas("cublasLtMatmulPreferenceCreate",
		cublasLtMatmulPreferenceCreate(&preference), err);

	if (st != ST_OK)
		return st;
	st = check_blas("cublasLtMatmulPreferenceSetAttribute",
		cublasLtMatmulPreferenceSetAttribute(preference,
			CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)),
		err);
	if (st == ST_OK)
		st = check_blas("cublasLtMatmulPreferenceSetAttribute",
			cublasLtMatmulPreferenceSetAttribute(preference,
				CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
				sizeof(schemes)),
			err);
	for (uint32_t i = 0; i < CLASSES && st == ST_OK; i++)
		st = choose_algo(b, preference, s, i, err);
	(void)cublasLtMatmulPreferenceDestroy(preference);
	return st;
}

static const struct blas_shape *find_shape(const struct blas *b, uint32_t n, uint32_t k)
{
	for (uint32_t i = 0; b != NULL && i < b->n_shapes; i++) {
		if (b->shapes[i].n == n && b->shapes[i].k == k)
			return &b->shapes[i];
	}
	return NULL;
}

static bool fits_blas(uint32_t n, uint32_t k)
{
	return n > 0 && k > 0 && n % 8 == 0 && k % 8 == 0;
}

/* Algorithms for the shape, the weight as it is. Called with every weight that the
 * variant will read. */
extern "C" status linear_cuda_blas_prepare(
	struct backend *b, struct stream *stream, struct weight *w, struct err *err)
{
	struct cuda_backend *cuda = cuda_of(b);
	struct blas_shape *s;
	status st;

	(void)stream;
	if (!fits_blas(w->n, w->k) || find_shape(cuda->blas, w->n, w->k) != NULL)
		return ST_OK;
	st = cuda_enter(b, err);
	if (st == ST_OK && cuda->blas == NULL)
		st = open_blas(cuda, err);
	if (st != ST_OK)
		return st;
	if (cuda->blas->n_shapes == SHAPES_MAX)
		return err_set(err, ST_LIMIT,
			"linear/blas: more than %u shapes of weights", SHAPES_MAX);
	s = &cuda->blas->shapes[cuda->blas->n_shapes];
	*s = {.n = w->n, .k = w->k};
	st = choose_algos(cuda->blas, s, err);
	if (st == ST_OK)
		cuda->blas->n_shapes++;
	return st;
}

static uint32_t class_of(uint32_t n_rows)
{
	uint32_t i = 0;

	while (i + 1 < CLASSES && class_rows[i] < n_rows)
		i++;
	return i;
}

static status run_blas(struct stream *stream, const struct op_linear *op,
	const struct blas_shape *s, struct err *err)
{
	const struct blas *b = cuda_of(stream->backend)->blas;
	const float one = 1.0f, zero = 0.0f;
	struct blas_layouts l;
	status st =
		make_layouts(&l, s->n, s->k, op->n_rows, op->x_stride, op->y_stride, err);

	if (st != ST_OK)
		return st;
	CUDA_ENTER("linear/blas");
	return check_blas("cublasLtMatmul",
		cublasLtMatmul(b->handle, b->desc, &one, op->w->data, &l.w, op->x, &l.x,
			&zero, op->y, &l.y, op->y, &l.y, &s->algo[class_of(op->n_rows)],
			b->workspace, WORKSPACE_BYTES, stream->cuda),
		err);
}

static bool is_for_mma(const struct op_linear *op)
{
	const struct weight *w = op->w;
	bool aligned = op->x_stride % 8 == 0 && op->y_stride % 8 == 0 &&
		       is_aligned(op->x, 16) && is_aligned(op->y, 16) &&
		       is_aligned(w->data, 16);

	return op->n_rows <= STREAM_ROWS_MAX || !aligned || !fits_blas(w->n, w->k);
}

extern "C" void linear_cuda_blas_inner(const void *arg, char names[KERNEL_NAMES_MAX])
{
	const struct op_linear *op = (const struct op_linear *)arg;

	if (is_for_mma(op))
		linear_cuda_mma_inner(op, names);
	else
		kernel_named(names, "cublasLt to %u", class_rows[class_of(op->n_rows)]);
}

CUDA_KERNEL(linear, blas)
{
	const struct weight *w = op->w;
	const struct blas_shape *s;

	if (is_for_mma(op))
		return k_linear_cuda_mma(stream, op, err);
	if (w->format != WF_BF16 || w->count != 1 || op->x_stride < w->k ||
		op->y_stride < w->n)
		return err_set(err, ST_LIMIT,
			"linear/blas: %u matrices in %s of %u x %u, row strides %u and "
			"%u",
			w->count, format_name(w->format), w->n, w->k, op->y_stride,
			op->x_stride);
	s = find_shape(cuda_of(stream->backend)->blas, w->n, w->k);
	if (s == NULL)
		return err_set(err, ST_INVALID,
			"linear/blas: no algorithm was prepared for weights of %u x %u",
			w->n, w->k);
	return run_blas(stream, op, s, err);
}
