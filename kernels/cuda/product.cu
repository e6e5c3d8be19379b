/* What the fast products accept, which of them serves a product, and the order of NVFP4
 * weights that they read. */
#include "kernels/cuda/backend_impl.cuh"
#include "kernels/cuda/matrix.cuh"

static status check_weight(const struct weight *w, const char *what, struct err *err)
{
	uint32_t layout = w->format == WF_NVFP4 ? LAYOUT_TILES : 0;

	if (w->format != WF_BF16 && w->format != WF_FP8 && w->format != WF_NVFP4)
		return err_set(
			err, ST_LIMIT, "%s: weights in %s", what, format_name(w->format));
	if (w->layout != layout)
		return err_set(err, ST_LIMIT, "%s: %s weights in layout %u, not %u", what,
			format_name(w->format), w->layout, layout);
	if (w->k % 16 != 0)
		return err_set(err, ST_LIMIT,
			"%s: rows of %u weights, not a multiple of 16", what, w->k);
	if (w->format == WF_FP8 &&
		(w->block_n == 0 || w->block_k == 0 ||
			(w->block_k % CHUNK_K != 0 && w->block_k < w->k)))
		return err_set(err, ST_LIMIT,
			"%s: FP8 scale blocks of %u x %u in rows of %u; %u k must share "
			"one",
			what, w->block_n, w->block_k, w->k, CHUNK_K);
	if (!is_aligned(w->data, 16) ||
		(w->format == WF_NVFP4 && !is_aligned(w->scale, 16)))
		return err_set(
			err, ST_LIMIT, "%s: weights at an address not of 16 bytes", what);
	return ST_OK;
}

status product_check(const struct product *p, const char *what, struct err *err)
{
	status st = check_weight(&p->w, what, err);

	if (st == ST_OK && p->out == OUT_SWIGLU)
		st = check_weight(&p->up, what, err);
	if (st != ST_OK)
		return st;
	if (p->out == OUT_SWIGLU &&
		(p->up.format != p->w.format || p->up.n != p->w.n || p->up.k != p->w.k ||
			p->up.block_n != p->w.block_n || p->up.block_k != p->w.block_k))
		return err_set(err, ST_LIMIT, "%s: gate %s %u x %u, up %s %u x %u", what,
			format_name(p->w.format), p->w.n, p->w.k,
			format_name(p->up.format), p->up.n, p->up.k);
	if (!is_aligned(p->x, 16) || p->x_stride % 8 != 0)
		return err_set(err, ST_LIMIT,
			"%s: activations with row stride %llu or at an address not of 16 "
			"bytes",
			what, (unsigned long long)p->x_stride);
	return ST_OK;
}

/* A few tiles leave most of the device empty; then weights are read again instead, out
 * of L2. Reading rows of x with every 16 rows of weights weighs more beside BF16, whose
 * tiles need no conversion. Measured on H200, 2048 to 8192, 64 tiles, us by stream and by
 * tile: BF16 26 / 35 for 17 rows, 50 / 34 for 64; FP8 20 / 40 and 36 / 39; NVFP4 14 / 29
 * and 25 / 29. 2048 to 32640, 255 tiles, 16 rows of BF16: 70 / 57. */
#define FEW_TILES 132u

static bool is_for_stream(const struct product *p, uint32_t most)
{
	uint32_t wide = p->out == OUT_SWIGLU ? TILE_ROWS : 2 * TILE_ROWS;
	uint32_t tiles = CEIL_DIV(p->w.n, wide);
	bool few = tiles < FEW_TILES;

	if (p->groups != NULL)
		return most <= STREAM_ROWS_MAX;
	if (p->ids != NULL || p->n_rows <= 8)
		return true;
	if (p->w.format == WF_BF16)
		return few && p->n_rows <= (tiles < FEW_TILES / 4 ? TILE_ROWS
								  : 2 * STREAM_ROWS_MAX);
	return p->n_rows <= STREAM_ROWS_MAX || (few && p->n_rows <= TILE_ROWS);
}

static bool is_for_tile(const struct product *p, uint32_t most)
{
	return (p->groups != NULL ? most : p->n_rows) <= TILE_ROWS;
}

status product_run(struct stream *stream, const struct product *p, uint32_t most,
	const char *what, struct err *err)
{
	if (is_for_stream(p, most))
		return product_stream(stream, p, most, what, err);
	return is_for_tile(p, most) ? product_tile(stream, p, most, what, err)
				    : product_large(stream, p, most, what, err);
}

void product_inner(const struct product *p, uint32_t most, const char *prefix,
	char names[KERNEL_NAMES_MAX])
{
	if (is_for_stream(p, most))
		product_stream_inner(p, most, prefix, names);
	else if (is_for_tile(p, most))
		kernel_named(names, "%stile %u", prefix, TILE_ROWS);
	else
		product_large_inner(p, prefix, names);
}

const struct product_way product_by_rows = {product_run, product_inner};

/* ---- NVFP4 to LAYOUT_TILES ---- */

enum { BLOCK = 256 };

static __device__ uint32_t rotate_left(uint32_t v, int by)
{
	return __funnelshift_l(v, v, by);
}

/* Two codes as BF16 bits, the even k in the low half; flip: the scale is negative. */
static __device__ uint32_t place_pair(uint32_t byte, bool flip)
{
	uint32_t lo = byte & 15u, hi = byte >> 4;

	if (flip) {
		lo ^= 8u;
		hi ^= 8u;
	}
	return (lo & 8u) << 12 | (lo & 7u) << 6 |
	       ((hi & 8u) << 12 | (hi & 7u) << 6) << 16;
}

/* E4M3 without its sign, not 0, as 5 bits of exponent and 3 of mantissa:
 * value = (1 + m / 8) * 2^(e - 10). */
static __device__ uint32_t scale_code(uint32_t code)
{
	uint32_t e = code >> 3 & 15u, m = code & 7u;

	if (e != 0)
		return (e + 3) << 3 | m;
	for (e = 4; (m & 8u) == 0; e--)
		m <<= 1;
	return e << 3 | (m & 7u);
}

/* Block (chunk, lane) of 16 rows that stand in shared memory as they were. A zero scale
 * has no such code: its codes become zeros, its scale 1. */
static __device__ void repack_lane(const uint8_t *codes, const uint8_t *scales,
	uint32_t k, uint32_t c, uint32_t lane, uint8_t *codes_to, uint8_t *scales_to)
{
	uint32_t g = lane / 4, first = c * CHUNK_K + lane % 4 * 16;
	uint32_t scale[2], words[4];

	for (uint32_t i = 0; i < 2; i++)
		scale[i] = scales[((uint64_t)(g + 8 * i) * k + first) / 16];
	for (uint32_t j = 0; j < 4; j++) {
		uint32_t q[4];

		for (uint32_t i = 0; i < 4; i++) {
			uint32_t s = scale[i & 1], row = g + 8 * (i & 1);
			uint32_t byte =
				codes[((uint64_t)row * k + first) / 2 + 2 * j + i / 2];

			q[i] = (s & 0x7Fu) != 0 ? place_pair(byte, s >> 7) : 0;
		}
		words[j] = q[0] | rotate_left(q[1], 26) | rotate_left(q[2], 20) |
			   rotate_left(q[3] & TILES_HIGH, 22) |
			   rotate_left(q[3] & TILES_LOW, 30);
	}
	*(uint4 *)(codes_to + c * TILE_CODES + lane * 16) =
		make_uint4(words[0], words[1], words[2], words[3]);
	for (uint32_t i = 0; i < 2; i++)
		scales_to[c * TILE_SCALES + lane * 2 + i] =
			(uint8_t)((scale[i] & 0x7Fu) != 0 ? scale_code(scale[i])
							  : TILES_SCALE_ONE);
}

/* One block per 16 rows, whose codes and scales fill the same bytes in both orders. */
static __global__ void __launch_bounds__(BLOCK)
	repack_kernel(uint8_t *codes, uint8_t *scales, uint32_t k)
{
	extern __shared__ __align__(16) uint8_t rows[];
	uint32_t code_bytes = 8 * k, scale_bytes = k;
	uint8_t *codes_at = codes + (uint64_t)blockIdx.x * code_bytes;
	uint8_t *scales_at = scales + (uint64_t)blockIdx.x * scale_bytes;

	for (uint32_t i = threadIdx.x; i < code_bytes / 16; i += BLOCK)
		((uint4 *)rows)[i] = ((const uint4 *)codes_at)[i];
	for (uint32_t i = threadIdx.x; i < scale_bytes / 16; i += BLOCK)
		((uint4 *)(rows + code_bytes))[i] = ((const uint4 *)scales_at)[i];
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < k / CHUNK_K * WARP; i += BLOCK)
		repack_lane(rows, rows + code_bytes, k, i / WARP, i % WARP, codes_at,
			scales_at);
}

/* NVFP4 to the order of the tensor cores, other formats as they are. 16 rows must fit in
 * shared memory: k up to 11,264 on SM120, 25,728 on SM90. */
extern "C" status nvfp4_cuda_repack(
	struct backend *b, struct stream *stream, struct weight *w, struct err *err)
{
	uint64_t tiles = (uint64_t)w->count * w->n / 16;
	uint32_t bytes = 9 * w->k;
	int most = 0;

	if (w->format != WF_NVFP4)
		return ST_OK;
	if (w->layout != 0 || w->n % 16 != 0 || w->k % CHUNK_K != 0 ||
		!is_aligned(w->data, 16) || !is_aligned(w->scale, 16) ||
		tiles > INT32_MAX)
		return err_set(err, ST_LIMIT,
			"NVFP4 weights, %u times %u x %u, layout %u: the tensor-core "
			"order "
			"needs multiples of 16 x %u",
			w->count, w->n, w->k, w->layout, CHUNK_K);
	CUDA_ENTER("repack");
	CUDA_TRY("repack",
		cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin,
			cuda_of(b)->index));
	if (bytes > (uint32_t)most)
		return err_set(err, ST_LIMIT,
			"NVFP4 rows of %u weights: 16 of them are %u bytes, a block of "
			"%s has "
			"%d",
			w->k, bytes, b->device, most);
	if (tiles > 0 && w->k > 0) {
		CUDA_ALLOW_SMEM("repack", repack_kernel, bytes);
		repack_kernel<<<(uint32_t)tiles, BLOCK, bytes, stream->cuda>>>(
			(uint8_t *)(uintptr_t)w->data, (uint8_t *)(uintptr_t)w->scale,
			w->k);
	}
	w->layout = LAYOUT_TILES;
	return cuda_launched("repack", err);
}
