/* Kernels that are wrong on purpose, each in one way that happens in practice. What they
 * keep (a stream, words of memory) no right launcher may keep, and that is the fault of
 * some of them.
 *
 * A kernel that reads or writes an address outside every allocation is not here: such an
 * error stays with the context, every later call of the process fails, and the registry
 * can name nobody any more. The process ends with the error of the device; the next start
 * meets it again, until that variant is taken out of the table. */
#include "kernels/cuda/moe.cuh"
#include "kernels/cuda/plain.cuh"
#include "tests/device/wrong_test.h"

enum { BLOCK = 128, WARPS = BLOCK / WARP };

/* Padded scales of a matrix: not written by anyone before, and NaN as E4M3. */
#define ROOM_BYTES (4u << 20)
#define TILE_K     128u
#define TILE_N     64u
#define TILE_ROWS  64u

static struct {
	cudaStream_t aside;
	cudaEvent_t event;
	uint8_t *scales;   /* ROOM_BYTES of device memory */
	float *factor;     /* one on the device */
	float *staged;     /* one in pinned memory */
	uint32_t *done;    /* one in pinned memory that the device writes */
	uint32_t *arrived; /* one on the device */
} room;

static status fresh_counter(struct err *err)
{
	CUDA_TRY("arrived", cudaMemset(room.arrived, 0, sizeof(*room.arrived)));
	CUDA_TRY("arrived", cudaStreamSynchronize(0));
	return ST_OK;
}

extern "C" status wrong_setup(struct err *err)
{
	CUDA_TRY("stream", cudaStreamCreateWithFlags(&room.aside, cudaStreamNonBlocking));
	CUDA_TRY("event", cudaEventCreateWithFlags(&room.event, cudaEventDisableTiming));
	CUDA_TRY("scales", cudaMalloc(&room.scales, ROOM_BYTES));
	CUDA_TRY("scales", cudaMemset(room.scales, 0xFF, ROOM_BYTES));
	CUDA_TRY("factor", cudaMalloc(&room.factor, sizeof(*room.factor)));
	CUDA_TRY("staged", cudaMallocHost(&room.staged, sizeof(*room.staged)));
	CUDA_TRY("done", cudaMallocHost(&room.done, sizeof(*room.done)));
	CUDA_TRY("arrived", cudaMalloc(&room.arrived, sizeof(*room.arrived)));
	return fresh_counter(err);
}

extern "C" status wrong_reset(struct err *err)
{
	return fresh_counter(err);
}

extern "C" status wrong_end(struct err *err)
{
	CUDA_TRY("what was left behind", cudaGetLastError());
	CUDA_TRY("stream", cudaStreamDestroy(room.aside));
	CUDA_TRY("event", cudaEventDestroy(room.event));
	CUDA_TRY("scales", cudaFree(room.scales));
	CUDA_TRY("factor", cudaFree(room.factor));
	CUDA_TRY("staged", cudaFreeHost(room.staged));
	CUDA_TRY("done", cudaFreeHost(room.done));
	CUDA_TRY("arrived", cudaFree(room.arrived));
	CUDA_TRY("what is left in the device", cudaDeviceSynchronize());
	return ST_OK;
}

/* ---- weights ---- */

/* Where the tensor cores' own order has the scale of block b of row n: tiles of 128 rows
 * and 4 blocks, in which rows 32 apart are neighbours. Kept inside the `all` scales. */
static __device__ __forceinline__ uint64_t swizzled(
	uint64_t n, uint32_t b, uint32_t blocks, uint64_t all)
{
	uint64_t tile = n / 128 * CEIL_DIV(blocks, 4u) + b / 4;

	return (tile * 512 + n % 32 * 16 + n % 128 / 32 * 4 + b % 4) % all;
}

/* One warp per element of y, like the oracle; the scale of each code is taken from where
 * the fault has it. blocks: of a row of `scales`, at least w.k / 16. */
template <bool SWIZZLED>
static __global__ void __launch_bounds__(BLOCK) linear_kernel(const struct op_linear op,
	const struct weight w, const uint8_t *scales, uint32_t blocks)
{
	uint64_t n = blockIdx.x * WARPS + threadIdx.x / WARP, t = blockIdx.y;
	const bf16 *x = (const bf16 *)op.x + t * op.x_stride;
	float sum = 0.0f;

	if (n >= w.n)
		return;
	for (uint32_t k = threadIdx.x % WARP; k < blocks * 16; k += WARP) {
		uint64_t at = SWIZZLED ? swizzled(n, k / 16, blocks, blocks * w.n)
				       : n * blocks + k / 16;
		uint32_t pair = 0; /* codes past the end of a row are zero */

		if (k < w.k)
			pair = ((const uint8_t *)w.data)[(n * w.k + k) / 2];
		sum += e2m1_float(k % 2 == 0 ? pair & 15u : pair >> 4) *
		       e4m3_float(scales[at]) * (k < w.k ? __bfloat162float(x[k]) : 0.0f);
	}
	sum = warp_sum(sum) * w.scale2[0];
	if (threadIdx.x % WARP == 0)
		((bf16 *)op.y)[t * op.y_stride + n] = __float2bfloat16(sum);
}

extern "C" status wrong_linear_swizzled(
	struct stream *stream, const struct op_linear *op, struct err *err)
{
	const struct weight *w = op->w;
	dim3 grid(CEIL_DIV(w->n, (uint32_t)WARPS), op->n_rows);

	linear_kernel<true><<<grid, BLOCK, 0, stream->cuda>>>(
		*op, *w, (const uint8_t *)w->scale, w->k / 16);
	return cuda_launched("linear/swizzled_scales", err);
}

/* Scales of [rows][have] at the head of rows of [rows][blocks]; the tail stays. */
static __global__ void __launch_bounds__(BLOCK) pad_kernel(
	uint8_t *to, const uint8_t *from, uint64_t rows, uint32_t have, uint32_t blocks)
{
	uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x;

	if (i < rows * have)
		to[i / have * blocks + i % have] = from[i];
}

/* A whole number of tiles per row. Zero codes times the scales of the padding are zero,
 * unless those are NaN. */
extern "C" status wrong_linear_padded(
	struct stream *stream, const struct op_linear *op, struct err *err)
{
	const struct weight *w = op->w;
	uint32_t have = w->k / 16, blocks = CEIL_DIV(w->k, TILE_K) * (TILE_K / 16);
	uint64_t n = (uint64_t)w->n * have;

	if ((uint64_t)w->n * blocks > ROOM_BYTES)
		return err_set(err, ST_LIMIT, "linear/padded_scales: %u rows", w->n);
	pad_kernel<<<(uint32_t)CEIL_DIV(n, (uint64_t)BLOCK), BLOCK, 0, stream->cuda>>>(
		room.scales, (const uint8_t *)w->scale, w->n, have, blocks);
	linear_kernel<false><<<dim3(CEIL_DIV(w->n, (uint32_t)WARPS), op->n_rows), BLOCK,
		0, stream->cuda>>>(*op, *w, room.scales, blocks);
	return cuda_launched("linear/padded_scales", err);
}

/* Columns after the last whole tile are forgotten. */
extern "C" status wrong_linear_whole_tiles(
	struct stream *stream, const struct op_linear *op, struct err *err)
{
	struct weight w = *op->w;
	struct op_linear copy = *op;

	w.n = w.n / TILE_N * TILE_N;
	copy.w = &w;
	return k_linear_cuda_plain(stream, &copy, err);
}

/* The kernel for many rows multiplies its second tile with the rows of the first: a
 * product_large (kernels/cuda) that is right with 64 rows and wrong with 128. */
extern "C" void wrong_second_tile_inner(const void *op, char names[KERNEL_NAMES_MAX])
{
	bool many = ((const struct op_linear *)op)->n_rows > TILE_ROWS;

	kernel_named(names, many ? "many rows" : "few rows");
}

extern "C" status wrong_linear_second_tile(
	struct stream *stream, const struct op_linear *op, struct err *err)
{
	struct op_linear first = *op, second = *op;
	status st;

	if (op->n_rows < 2 * TILE_ROWS)
		return k_linear_cuda_plain(stream, op, err);
	first.n_rows = TILE_ROWS;
	second.n_rows = op->n_rows - TILE_ROWS;
	second.y = (bf16 *)op->y + (uint64_t)TILE_ROWS * op->y_stride;
	st = k_linear_cuda_plain(stream, &first, err);
	return st == ST_OK ? k_linear_cuda_plain(stream, &second, err) : st;
}

static __global__ void __launch_bounds__(BLOCK)
	swizzle_kernel(uint8_t *to, const uint8_t *from, uint64_t rows, uint32_t blocks)
{
	uint64_t all = rows * blocks, i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x;

	if (i < all)
		to[i] = from[swizzled(i / blocks, (uint32_t)(i % blocks), blocks, all)];
}

/* Scales of all experts, to a border that the plain kernel's scratch may begin at. */
static uint64_t scale_room(uint64_t experts, uint64_t n, uint64_t k)
{
	return (experts * n * k / 16 + 255) / 256 * 256;
}

extern "C" uint64_t wrong_moe_work(const struct kernel_shapes *s)
{
	return scale_room(s->n_experts, s->hidden, s->width) + moe_cuda_plain_work(s);
}

/* The experts' last product with its scales in the other order. */
extern "C" status wrong_moe_swizzled(
	struct stream *stream, const struct op_moe *op, struct err *err)
{
	struct weight down = *op->down;
	struct op_moe copy = *op;
	uint64_t rows = (uint64_t)down.count * down.n;
	uint64_t room_bytes = scale_room(down.count, down.n, down.k);

	if (op->work_bytes < room_bytes)
		return err_set(err, ST_LIMIT, "moe/swizzled_scales: too little scratch");
	swizzle_kernel<<<(uint32_t)CEIL_DIV(rows * down.k / 16, (uint64_t)BLOCK), BLOCK,
		0, stream->cuda>>>(
		(uint8_t *)op->work, (const uint8_t *)down.scale, rows, down.k / 16);
	CUDA_TRY("moe/swizzled_scales", cudaGetLastError());
	down.scale = op->work;
	copy.down = &down;
	copy.work = (uint8_t *)op->work + room_bytes;
	copy.work_bytes = op->work_bytes - room_bytes;
	return k_moe_cuda_plain(stream, &copy, err);
}

/* ---- rows ---- */

static __device__ __forceinline__ void swiglu_row(
	const struct op_swiglu &op, uint64_t t, float factor)
{
	const bf16 *gate = (const bf16 *)op.gate + t * op.gate_stride;
	const bf16 *up = (const bf16 *)op.up + t * op.up_stride;

	for (uint32_t i = threadIdx.x; i < op.width; i += BLOCK)
		((bf16 *)op.y)[t * op.width + i] =
			__float2bfloat16(dev_silu(__bfloat162float(gate[i])) *
					 __bfloat162float(up[i]) * factor);
}

/* One block per row; factor NULL: 1. */
static __global__ void __launch_bounds__(BLOCK)
	swiglu_kernel(const struct op_swiglu op, const float *factor)
{
	swiglu_row(op, blockIdx.x, factor != NULL ? *factor : 1.0f);
}

/* Right, whatever the fault around it. */
static status swiglu_on(cudaStream_t on, const struct op_swiglu *op, const float *factor,
	const char *what, struct err *err)
{
	swiglu_kernel<<<op->n_rows, BLOCK, 0, on>>>(*op, factor);
	return cuda_launched(what, err);
}

/* Rows after the last whole tile, when there is more than one. */
extern "C" status wrong_swiglu_whole_tiles(
	struct stream *stream, const struct op_swiglu *op, struct err *err)
{
	struct op_swiglu copy = *op;

	if (op->n_rows > TILE_ROWS)
		copy.n_rows = op->n_rows / TILE_ROWS * TILE_ROWS;
	return swiglu_on(stream->cuda, &copy, NULL, "swiglu/whole_tiles", err);
}

static __global__ void __launch_bounds__(BLOCK) zero_row_kernel(bf16 *row, uint32_t width)
{
	for (uint32_t i = threadIdx.x; i < width; i += BLOCK)
		row[i] = __float2bfloat16(0.0f);
}

extern "C" status wrong_swiglu_past_the_end(
	struct stream *stream, const struct op_swiglu *op, struct err *err)
{
	bf16 *after = (bf16 *)op->y + (uint64_t)op->n_rows * op->width;

	zero_row_kernel<<<1, BLOCK, 0, stream->cuda>>>(after, op->width);
	return swiglu_on(stream->cuda, op, NULL, "swiglu/past_the_end", err);
}

/* SiLU where the gate stands: one buffer less. */
static __global__ void __launch_bounds__(BLOCK) silu_kernel(bf16 *gate, uint32_t width)
{
	for (uint32_t i = threadIdx.x; i < width; i += BLOCK)
		gate[i] = __float2bfloat16(dev_silu(__bfloat162float(gate[i])));
}

extern "C" status wrong_swiglu_in_place(
	struct stream *stream, const struct op_swiglu *op, struct err *err)
{
	status st = swiglu_on(stream->cuda, op, NULL, "swiglu/in_place", err);

	if (st != ST_OK)
		return st;
	silu_kernel<<<1, BLOCK, 0, stream->cuda>>>(
		(bf16 *)(uintptr_t)op->gate, op->width);
	return cuda_launched("swiglu/in_place", err);
}

/* More shared memory than any device has: an error that must not stick to the next. */
extern "C" status wrong_swiglu_too_much_shared(
	struct stream *stream, const struct op_swiglu *op, struct err *err)
{
	CUDA_ALLOW_SMEM("swiglu/too_much_shared", swiglu_kernel, 1u << 20);
	return swiglu_on(stream->cuda, op, NULL, "swiglu/too_much_shared", err);
}

/* ---- right eager, wrong in a graph ---- */

/* A number goes through a staging word, which is used again once the copy is over. The
 * graph's copy reads the word when the graph runs. */
extern "C" status wrong_swiglu_staged_value(
	struct stream *stream, const struct op_swiglu *op, struct err *err)
{
	const char *what = "swiglu/staged_value";
	cudaStreamCaptureStatus captured;
	status st;

	*(volatile float *)room.staged = 1.0f;
	CUDA_TRY(what, cudaMemcpyAsync(room.factor, room.staged, sizeof(*room.factor),
			       cudaMemcpyHostToDevice, stream->cuda));
	st = swiglu_on(stream->cuda, op, room.factor, what, err);
	if (st != ST_OK)
		return st;
	CUDA_TRY(what, cudaStreamIsCapturing(stream->cuda, &captured));
	if (captured == cudaStreamCaptureStatusNone)
		CUDA_TRY(what, cudaStreamSynchronize(stream->cuda));
	*(volatile float *)room.staged = 0.0f;
	return ST_OK;
}

/* The block that arrives last computes; nobody counts down again. */
static __global__ void __launch_bounds__(BLOCK)
	last_block_kernel(const struct op_swiglu op, uint32_t *arrived)
{
	__shared__ uint32_t ticket;

	if (threadIdx.x == 0)
		ticket = atomicAdd(arrived, 1u);
	__syncthreads();
	for (uint64_t t = 0; t < op.n_rows && ticket == gridDim.x - 1; t++)
		swiglu_row(op, t, 1.0f);
}

extern "C" status wrong_swiglu_first_launch(
	struct stream *stream, const struct op_swiglu *op, struct err *err)
{
	last_block_kernel<<<op->n_rows, BLOCK, 0, stream->cuda>>>(*op, room.arrived);
	return cuda_launched("swiglu/first_launch", err);
}

extern "C" status wrong_swiglu_waits(
	struct stream *stream, const struct op_swiglu *op, struct err *err)
{
	status st = swiglu_on(stream->cuda, op, NULL, "swiglu/waits", err);

	if (st == ST_OK)
		CUDA_TRY("swiglu/waits", cudaStreamSynchronize(stream->cuda));
	return st;
}

/* The same, and does not look at what it is told. */
extern "C" status wrong_swiglu_waits_blindly(
	struct stream *stream, const struct op_swiglu *op, struct err *err)
{
	status st = swiglu_on(stream->cuda, op, NULL, "swiglu/waits_blindly", err);

	(void)cudaStreamSynchronize(stream->cuda);
	return st;
}

extern "C" status wrong_swiglu_allocates(
	struct stream *stream, const struct op_swiglu *op, struct err *err)
{
	struct op_swiglu copy = *op;
	uint64_t bytes = (uint64_t)op->n_rows * op->width * sizeof(bf16);
	status st;

	CUDA_TRY("swiglu/allocates", cudaMalloc(&copy.y, bytes));
	st = swiglu_on(stream->cuda, &copy, NULL, "swiglu/allocates", err);
	if (st == ST_OK)
		CUDA_TRY("swiglu/allocates",
			cudaMemcpyAsync(op->y, copy.y, bytes, cudaMemcpyDeviceToDevice,
				stream->cuda));
	CUDA_TRY("swiglu/allocates", cudaFree(copy.y)); /* waits for the device */
	return st;
}

static __global__ void done_kernel(volatile uint32_t *done)
{
	*done = 1;
}

/* The op on a stream of its own, finished when this returns, without a call that a
 * capture forbids. */
static status run_aside(const struct op_swiglu *op, const char *what, struct err *err)
{
	volatile uint32_t *done = room.done;
	status st;

	*done = 0;
	st = swiglu_on(room.aside, op, NULL, what, err);
	if (st != ST_OK)
		return st;
	done_kernel<<<1, 1, 0, room.aside>>>(done);
	st = cuda_launched(what, err);
	while (st == ST_OK && *done == 0)
		;
	return st;
}

/* Joins the caller's stream and never forked from it. */
extern "C" status wrong_swiglu_side_stream(
	struct stream *stream, const struct op_swiglu *op, struct err *err)
{
	const char *what = "swiglu/side_stream";
	status st = run_aside(op, what, err);

	if (st != ST_OK)
		return st;
	CUDA_TRY(what, cudaEventRecord(room.event, room.aside));
	CUDA_TRY(what, cudaStreamWaitEvent(stream->cuda, room.event, 0));
	return ST_OK;
}

/* Does its work while it is captured, and the graph is empty. */
extern "C" status wrong_swiglu_at_capture(
	struct stream *, const struct op_swiglu *op, struct err *err)
{
	return run_aside(op, "swiglu/at_capture", err);
}
